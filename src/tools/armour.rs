//! Redaction of a part of a file that may start inside a private key.
//!
//! The redactor recognises a key by its header. A part that starts inside a key therefore gets a header before it
//! is redacted. Whether it does is decided by the redactor itself: this module does not detect secrets.

use memchr::memmem;

use super::bench::Safe;

/// How far before a part the header of a key is searched; no key is longer.
pub(super) const REACH: usize = 64 * 1024;

/// The end of the header line of every private key.
pub(super) const MARK: &[u8] = b"PRIVATE KEY-----";

/// Redacts a part of a file that starts at a line, given the text before it.
pub(super) fn safe_after(before: &[u8], part: &str, safe: &Safe) -> String {
    if begins_inside(before, safe) { safe(&format!("{FIRST_LINE}\n{part}")) } else { safe(part) }
}

/// Returns whether a key has started and not ended: then one more character is hidden with it, and otherwise shown.
fn begins_inside(before: &[u8], safe: &Safe) -> bool {
    let Some(from) = memmem::rfind(before, b"-----BEGIN ") else { return false };
    let begun = String::from_utf8_lossy(before.get(from..).unwrap_or_default());
    let shown = safe(&begun);
    shown != begun && safe(&format!("{begun}A")) == shown
}

const FIRST_LINE: &str = "-----BEGIN PRIVATE KEY-----";
