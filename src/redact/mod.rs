//! Redaction: removes secrets from text before it is stored or shown.
//!
//! Two things are replaced by [`MARKER`]: known secret values, plain and in the encodings that tools print, and the
//! shapes of tokens, keys and credentials. The design ensures that a secret that is split across chunks cannot
//! pass:
//!
//! - A scanner reads the text once, byte by byte, and reports regions to hide. It depends only on the text before
//!   the byte, so the result does not depend on how the text was split.
//! - A marker writer merges regions that overlap or touch, and writes one marker for each.
//! - A stream releases the text before the first byte that a region might still claim. Complete texts take the same
//!   path in one chunk, so both give the same result.
//!
//! The buffered text is bounded: at most the length of the longest known form, or what a shape needs to become
//! certain (a word for most, 1 KiB for a quoted value or the password in a URL, 8 KiB for the header of a JWT). A
//! shape that has become certain is dropped as it arrives, whatever its length.
//!
//! Text that a person approves is treated differently: only known values are masked, never shapes (see `approval`).
//!
//! Nothing is decoded: a secret that was compressed, encrypted, reversed or interspersed is not found. This module
//! logs nothing, and its `Debug` output shows no value.

mod approval;
mod assignment;
mod environment;
mod forms;
mod json;
mod pem;
mod scan;
mod shape;
mod stream;
#[cfg(test)]
mod tests;
mod url;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    sync::{Arc, LazyLock},
};

pub use approval::{Masker, Unmaskable};
pub use environment::{is_secret_variable, secrets as environment_secrets};
pub use stream::Stream;

use scan::{Region, Scan, Words};
use stream::Paint;

/// Replaces a secret.
pub const MARKER: &str = "[redacted]";

/// Whether `text` contains the marker, from a redaction or written by somebody.
pub fn holds_marker(text: &str) -> bool {
    text.contains(MARKER)
}

/// Replaces known secret values and the shapes of secrets.
///
/// Cheap to clone. Redaction is idempotent.
#[derive(Clone)]
pub struct Redactor {
    words: Arc<Words>,
}

impl Redactor {
    /// Creates a redactor for `values` and their base64, percent-encoded, JSON-escaped and hexadecimal forms.
    ///
    /// Whitespace around a value is trimmed. Values of fewer than 6 characters are ignored: they would match
    /// everywhere. The marker, and parts of it at the edges of a value, are ignored too.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let forms = forms::of(values);
        if forms.is_empty() { Self::default() } else { Self { words: Arc::new(Words::new(forms)) } }
    }

    /// Creates a redactor for the values of secret variables; see [`environment_secrets`].
    pub fn from_environment<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let secrets = environment_secrets(variables);
        Self::new(secrets.iter().map(String::as_str))
    }

    /// Redacts a complete text.
    pub fn text<'t>(&self, whole: &'t str) -> Cow<'t, str> {
        let mut scan = Scan::new(&self.words);
        scan.read(&self.words, whole.as_bytes(), 0);
        scan.end();
        if scan.is_clean() {
            return Cow::Borrowed(whole);
        }
        let mut shown = String::with_capacity(whole.len());
        let (frontier, regions) = scan.settled(&self.words);
        Paint::default().show(&regions, whole, 0, frontier, &mut shown);
        Cow::Owned(shown)
    }

    /// Redacts every string of a JSON text, keys included, and leaves everything else unchanged.
    ///
    /// Valid JSON stays valid. The string value of a key such as `password` is redacted like an assignment. Text
    /// after an unterminated string is redacted as plain text.
    pub fn json(&self, json: &str) -> String {
        json::redact(self, json)
    }

    /// Returns the regions of known values in a text, in any of their forms, sorted and merged where they overlap.
    ///
    /// Returns `None` if there are too many values to match.
    fn known(&self, whole: &str) -> Option<Vec<Region>> {
        self.words.known(whole.as_bytes())
    }

    /// Returns the regions to hide in a complete text, sorted.
    fn regions(&self, whole: &str) -> Vec<Region> {
        let mut scan = Scan::new(&self.words);
        scan.read(&self.words, whole.as_bytes(), 0);
        scan.end();
        scan.settled(&self.words).1
    }

    /// Creates a stream that redacts a text in chunks.
    pub fn stream(&self) -> Stream {
        Stream::new(Arc::clone(&self.words))
    }
}

impl Default for Redactor {
    /// Knows the shapes of secrets and no values; all such redactors share their patterns.
    fn default() -> Self {
        static SHAPES: LazyLock<Arc<Words>> = LazyLock::new(|| Arc::new(Words::new(BTreeSet::new())));
        Self { words: Arc::clone(&SHAPES) }
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

/// Returns the last character boundary at or before `index`.
fn boundary(text: &str, index: usize) -> usize {
    (0..=index).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
