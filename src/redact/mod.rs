//! The one place where text becomes safe to keep or show.
//!
//! Two things are replaced by [`MARKER`]: known secret values, as they are and in the encodings that tools print
//! them in, and the shapes of tokens, keys and credentials. How it works, and why a secret cut up into chunks cannot
//! pass:
//!
//! - A scan reads the text once, byte by byte, and reports regions to hide. All it knows is the text before
//!   the byte, so its report cannot depend on how the text was cut.
//! - A brush joins regions which overlap or touch, and puts one marker in the place of each.
//! - A stream shows what lies before the first byte that a region might still claim. Whole texts go the same way in
//!   one piece, so both give the same text.
//!
//! What is held back is bounded: at most as long as the longest known form, or as what a shape needs to become certain
//! (a word for most, 1 KiB for a quoted value or the password in a URL, 8 KiB for the first part of a JWT). A shape
//! that has become certain is dropped as it arrives, however long it is.
//!
//! What a person approves is another matter: there only known values are masked, and never by shape (see `approval`).
//!
//! It refuses to decode: a secret that was compressed, encrypted, reversed or spelled with gaps is not found. It
//! logs nothing, and shows none of the values it knows.

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

/// What stands in the place of a secret.
pub const MARKER: &str = "[redacted]";

/// Whether something was, or claims to have been, redacted from `text`.
pub fn holds_marker(text: &str) -> bool {
    text.contains(MARKER)
}

/// Replaces known secret values and the shapes of secrets.
///
/// Cheap to clone. Redacting twice gives the same text as redacting once.
#[derive(Clone)]
pub struct Redactor {
    words: Arc<Words>,
}

impl Redactor {
    /// Knows `values`, and their base64, percent-encoded, JSON-escaped and hexadecimal forms.
    ///
    /// Blanks around a value are not part of it. Values of fewer than 6 characters are ignored: they would match
    /// everywhere. So are the marker and its own parts where they stand at the edge of a value.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let forms = forms::of(values);
        if forms.is_empty() { Self::default() } else { Self { words: Arc::new(Words::new(forms)) } }
    }

    /// Knows the values of the variables whose names look secret; see [`environment_secrets`].
    pub fn from_environment<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let secrets = environment_secrets(variables);
        Self::new(secrets.iter().map(String::as_str))
    }

    /// Redacts a whole text.
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

    /// Redacts inside every string of a JSON text, keys too, and leaves everything else as it is.
    ///
    /// Valid JSON stays valid. The string value of a key such as `password` is redacted like an assignment. What
    /// follows an unclosed string is redacted as plain text.
    pub fn json(&self, json: &str) -> String {
        json::redact(self, json)
    }

    /// Returns where known values stand in a text, in any of their forms, in order and joined where they overlap.
    ///
    /// Nothing where there are too many values to be looked for.
    fn known(&self, whole: &str) -> Option<Vec<Region>> {
        self.words.known(whole.as_bytes())
    }

    /// Returns what is to be hidden of a whole text, in order.
    fn regions(&self, whole: &str) -> Vec<Region> {
        let mut scan = Scan::new(&self.words);
        scan.read(&self.words, whole.as_bytes(), 0);
        scan.end();
        scan.settled(&self.words).1
    }

    /// Starts to redact a text that arrives in chunks.
    pub fn stream(&self) -> Stream {
        Stream::new(Arc::clone(&self.words))
    }
}

impl Default for Redactor {
    /// Knows the shapes of secrets and no value; all of these share what they know.
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

/// Returns the last boundary between characters at or before `index`.
fn boundary(text: &str, index: usize) -> usize {
    (0..=index).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
