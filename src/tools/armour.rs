//! Private keys of which a part is shown: nobody knows a line from the middle of one for what it is.
//!
//! What makes text safe knows a key by its first line. A part that begins inside of a key is therefore given that line
//! again, and whether it does is for the same judge to say: here nothing is taken for a secret.

use memchr::memmem;

use super::bench::Safe;

/// How far before a part is looked for the beginning of a key; none is longer.
pub(super) const REACH: usize = 64 * 1024;

/// What stands in every line with which a private key begins.
pub(super) const MARK: &[u8] = b"PRIVATE KEY-----";

/// Makes a part of a file safe that begins with a line, given what stands before it.
pub(super) fn safe_after(before: &[u8], part: &str, safe: &Safe) -> String {
    if begins_inside(before, safe) { safe(&format!("{FIRST_LINE}\n{part}")) } else { safe(part) }
}

/// Tells whether a key has begun and not ended: then one letter more is hidden with it, and otherwise shown.
fn begins_inside(before: &[u8], safe: &Safe) -> bool {
    let Some(from) = memmem::rfind(before, b"-----BEGIN ") else { return false };
    let begun = String::from_utf8_lossy(before.get(from..).unwrap_or_default());
    let shown = safe(&begun);
    shown != begun && safe(&format!("{begun}A")) == shown
}

const FIRST_LINE: &str = "-----BEGIN PRIVATE KEY-----";
