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

pub use approval::{MaskError, Masker};
pub use environment::{is_secret_variable, secrets as environment_secrets};
pub use stream::RedactionStream;

use scan::{PatternSet, Region, Scanner};
use stream::MarkerWriter;

/// Replaces a secret.
pub const MARKER: &str = "[redacted]";

/// Whether `text` contains the marker, from a redaction or written by somebody.
pub fn contains_marker(text: &str) -> bool {
    text.contains(MARKER)
}

/// Replaces known secret values and the shapes of secrets.
///
/// Cheap to clone. Redaction is idempotent.
#[derive(Clone)]
pub struct Redactor {
    patterns: Arc<PatternSet>,
}

impl Redactor {
    /// Creates a redactor for `values` and their base64, percent-encoded, JSON-escaped and hexadecimal forms.
    ///
    /// Whitespace around a value is trimmed. Values of fewer than 6 characters are ignored: they would match
    /// everywhere. The marker, and parts of it at the edges of a value, are ignored too.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let forms = forms::encoded_forms(values);
        if forms.is_empty() { Self::default() } else { Self { patterns: Arc::new(PatternSet::new(forms)) } }
    }

    /// Creates a redactor for the values of secret variables; see [`environment_secrets`].
    pub fn from_environment<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let secrets = environment_secrets(variables);
        Self::new(secrets.iter().map(String::as_str))
    }

    /// Redacts a complete text.
    pub fn redact<'t>(&self, whole: &'t str) -> Cow<'t, str> {
        let mut scanner = Scanner::new(&self.patterns);
        scanner.scan(&self.patterns, whole.as_bytes(), 0);
        scanner.finish();
        if scanner.is_clean() {
            return Cow::Borrowed(whole);
        }
        let mut shown = String::with_capacity(whole.len());
        let (frontier, regions) = scanner.take_settled(&self.patterns);
        MarkerWriter::default().show(&regions, whole, 0, frontier, &mut shown);
        Cow::Owned(shown)
    }

    /// Redacts every string of a JSON text, keys included, and leaves everything else unchanged.
    ///
    /// Valid JSON stays valid. The string value of a key such as `password` is redacted like an assignment. Text
    /// after an unterminated string is redacted as plain text.
    pub fn redact_json(&self, json: &str) -> String {
        json::redact(self, json)
    }

    /// Returns the regions of known values in a text, in any of their forms, sorted and merged where they overlap.
    ///
    /// Returns `None` if there are too many values to match.
    fn known_regions(&self, whole: &str) -> Option<Vec<Region>> {
        self.patterns.known_regions(whole.as_bytes())
    }

    /// Returns the regions to hide in a complete text, sorted.
    fn regions(&self, whole: &str) -> Vec<Region> {
        let mut scanner = Scanner::new(&self.patterns);
        scanner.scan(&self.patterns, whole.as_bytes(), 0);
        scanner.finish();
        scanner.take_settled(&self.patterns).1
    }

    /// Creates a stream that redacts a text in chunks.
    pub fn stream(&self) -> RedactionStream {
        RedactionStream::new(Arc::clone(&self.patterns))
    }
}

impl Default for Redactor {
    /// Knows the shapes of secrets and no values; all such redactors share their patterns.
    fn default() -> Self {
        static SHAPES: LazyLock<Arc<PatternSet>> = LazyLock::new(|| Arc::new(PatternSet::new(BTreeSet::new())));
        Self { patterns: Arc::clone(&SHAPES) }
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}
