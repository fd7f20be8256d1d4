//! Redaction of a part of a file that may start inside a private key.
//!
//! The redactor recognises a key by its header. A part that starts inside a key therefore gets a header before it
//! is redacted. Whether it does is decided by the redactor itself: this module does not detect secrets.

use memchr::memmem;

use super::context::RedactFn;

/// How far before a part the header of a key is searched; no key is longer.
pub(super) const KEY_BYTES_MAX: usize = 64 * 1024;

/// The end of the header line of every private key.
pub(super) const KEY_HEADER_END: &[u8] = b"PRIVATE KEY-----";

/// Redacts a part of a file that starts at a line, given the text before it.
pub(super) fn redact_after(before: &[u8], part: &str, redact: &RedactFn) -> String {
    if starts_inside_key(before, redact) { redact(&format!("{KEY_HEADER}\n{part}")) } else { redact(part) }
}

/// Returns whether a key has started and not ended: then one more character is hidden with it, and otherwise shown.
fn starts_inside_key(before: &[u8], redact: &RedactFn) -> bool {
    let Some(from) = memmem::rfind(before, b"-----BEGIN ") else { return false };
    let begun = String::from_utf8_lossy(before.get(from..).unwrap_or_default());
    let redacted = redact(&begun);
    redacted != begun && redact(&format!("{begun}A")) == redacted
}

const KEY_HEADER: &str = "-----BEGIN PRIVATE KEY-----";
