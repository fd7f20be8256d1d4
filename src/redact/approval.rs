//! Masks known secret values in text that a person approves, and nothing else.
//!
//! The approver must see everything that will be done. The shape of a secret says nothing about what a text does
//! when it runs (`PASSWORD="x$(rm -rf ~)"` has the shape of a password), so shapes are not masked here. A known
//! value, in any of its encoded forms, is masked where it is one plain literal. A value that could act as syntax,
//! or that is split by quotes, is neither masked nor shown: the text is refused.

use std::collections::BTreeSet;

use super::{MARKER, Redactor, json, scan::Region};
use crate::invisible_chars::is_invisible;

/// Shorter values are not masked.
const MASKED_CHARS_MIN: usize = 6;

/// Why a text cannot be shown for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// A mask would hide more than the secret value, or the value is split.
    #[error(
        "the call contains a secret value where a mask would hide what the call does; pass the value in an \
         environment variable"
    )]
    Secret,
    /// The call contains the text of a mask, in addition to a value that has to be masked.
    #[error("the call contains a secret value and the text {MARKER}, which looks like its mask; remove one of them")]
    Ambiguous,
    /// A part of the call is not JSON.
    #[error("the call cannot be shown, because a part of it is not JSON")]
    NotJson,
}

/// Masks the parts of one approval request, and counts the masked values.
#[derive(Debug)]
pub struct Masker<'r> {
    redactor: &'r Redactor,
    values: BTreeSet<String>,
    /// Whether a part contains the text of a mask.
    contains_marker: bool,
}

impl<'r> Masker<'r> {
    /// Starts a request; `redactor` has the known values.
    pub fn new(redactor: &'r Redactor) -> Self {
        Self { redactor, values: BTreeSet::new(), contains_marker: false }
    }

    /// Masks the known values in a text.
    ///
    /// Replacing every mask by its value restores the text.
    pub fn mask_text(&mut self, text: &str) -> Result<String, MaskError> {
        let mut shown = String::with_capacity(text.len());
        let mut from = 0;
        for region in self.redactor.known_regions(text).ok_or(MaskError::Secret)? {
            let hidden = text.get(region.start..region.end).filter(|hidden| is_plain_literal(hidden));
            let hidden = hidden.ok_or(MaskError::Secret)?;
            shown.push_str(text.get(from..region.start).unwrap_or_default());
            shown.push_str(MARKER);
            self.values.insert(hidden.to_owned());
            from = region.end;
        }
        shown.push_str(text.get(from..).unwrap_or_default());
        self.contains_marker |= text.contains(MARKER);
        let joined = strip_quoting(&shown);
        match self.redactor.known_regions(&joined) {
            Some(split) if split.is_empty() => Ok(shown),
            Some(_) | None => Err(MaskError::Secret),
        }
    }

    /// Masks the known values in the strings of a JSON text, keys included.
    pub fn mask_json(&mut self, text: &str) -> Result<String, MaskError> {
        json::map_strings(text, |string| self.mask_text(string))
    }

    /// Ends the request and returns the number of distinct masked values.
    ///
    /// In a request with masks, every [`MARKER`] is a mask; in a request without, none is.
    pub fn finish(self) -> Result<usize, MaskError> {
        if self.contains_marker && !self.values.is_empty() {
            return Err(MaskError::Ambiguous);
        }
        Ok(self.values.len())
    }
}

impl Redactor {
    /// Returns the last position at or before `at` that is not inside a known value.
    ///
    /// Cutting the text there leaves no part of a value, which the redactor would not recognise.
    pub fn safe_cut(&self, text: &str, at: usize) -> usize {
        let at = text.floor_char_boundary(at);
        let known = self.known_regions(text).unwrap_or_else(|| vec![Region { start: 0, end: text.len() }]);
        known.iter().find(|region| region.start < at && at < region.end).map_or(at, |region| region.start)
    }

    /// Returns the tokens in `text`: plain literals that are secrets by their own shape, whatever precedes them.
    ///
    /// Values that are secret only because of the key before them (`password=…`) are not included.
    pub fn find_tokens(&self, text: &str) -> Vec<String> {
        let regions = self.regions(text);
        let parts = regions.iter().filter_map(|region| text.get(region.start..region.end));
        let is_token = |part: &&str| *part != MARKER && is_plain_literal(part) && self.redact(part) == MARKER;
        parts.filter(is_token).map(str::to_owned).collect()
    }
}

/// Whether a text is one literal word for a shell and for a program with options.
///
/// It contains no character that expands, separates, quotes, globs or assigns, and starts no option and no comment.
fn is_plain_literal(text: &str) -> bool {
    let inner = text.trim_end_matches('=');
    let plain = |letter: char| letter.is_alphanumeric() || "_-+/.:@%,^~!#".contains(letter);
    text.chars().count() >= MASKED_CHARS_MIN
        && inner.chars().all(plain)
        && !inner.starts_with(['-', '~', '#', '!', '.', '/'])
        && !inner.contains("..")
}

/// Removes quoting, line continuations and invisible characters, which would hide a split value.
fn strip_quoting(text: &str) -> String {
    let text = text.replace("\\\n", "");
    text.chars().filter(|letter| !matches!(letter, '\'' | '"' | '\\') && !is_invisible(*letter)).collect()
}
