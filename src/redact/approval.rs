//! Text that a person approves: known secret values are masked, and nothing else is.
//!
//! Whoever approves must see everything that will be done. The shape of a secret says nothing about what a text does when
//! it runs (`PASSWORD="x$(rm -rf ~)"` has the shape of a password), so shapes are not masked here. A known value, in any
//! of the forms in which it is looked for, is masked where it is one plain literal; a value that could itself act as
//! syntax, or that is split by quotes, is neither masked nor shown: the text is refused.

use std::collections::BTreeSet;

use super::{MARKER, Redactor, json, scan::Region};
use crate::invisible_chars::is_unseen;

/// Shorter texts are not masked.
const SHORTEST: usize = 6;

/// Why a text cannot be shown to whoever has to approve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unmaskable {
    /// A secret value stands where a mask would hide more than the value, or where it is split.
    #[error(
        "the call contains a secret value in a place where it cannot be hidden without hiding what would be done; \
         pass it by environment"
    )]
    Secret,
    /// The text of a mask occurs in the call itself, beside a value that has to be masked.
    #[error(
        "the call contains a secret value and the text {MARKER}, which could not be told from its mask; leave one out"
    )]
    Ambiguous,
    /// A part of the call is not JSON.
    #[error("the call cannot be shown, because a part of it is not JSON")]
    NotJson,
}

/// Masks the parts of one approval request, and counts what it masked.
#[derive(Debug)]
pub struct Masker<'r> {
    redactor: &'r Redactor,
    values: BTreeSet<String>,
    /// Whether the text of a mask occurs in a part itself.
    marker: bool,
}

impl<'r> Masker<'r> {
    /// Begins a request; `redactor` knows the values.
    pub fn new(redactor: &'r Redactor) -> Self {
        Self { redactor, values: BTreeSet::new(), marker: false }
    }

    /// Masks the known values in a text.
    ///
    /// With every mask replaced by the value that it stands for, the result is the text again.
    pub fn text(&mut self, text: &str) -> Result<String, Unmaskable> {
        let mut shown = String::with_capacity(text.len());
        let mut from = 0;
        for region in self.redactor.known(text).ok_or(Unmaskable::Secret)? {
            let hidden = text.get(region.start..region.end).filter(|hidden| is_plain_literal(hidden));
            let hidden = hidden.ok_or(Unmaskable::Secret)?;
            shown.push_str(text.get(from..region.start).unwrap_or_default());
            shown.push_str(MARKER);
            self.values.insert(hidden.to_owned());
            from = region.end;
        }
        shown.push_str(text.get(from..).unwrap_or_default());
        self.marker |= text.contains(MARKER);
        let joined = joined(&shown);
        match self.redactor.known(&joined) {
            Some(split) if split.is_empty() => Ok(shown),
            Some(_) | None => Err(Unmaskable::Secret),
        }
    }

    /// Masks the known values in the strings of a JSON text, keys included.
    pub fn json(&mut self, text: &str) -> Result<String, Unmaskable> {
        json::map_strings(text, |string| self.text(string))
    }

    /// Ends the request: returns how many different values were masked.
    ///
    /// In a request with masks, every [`MARKER`] is one; in a request without, none is.
    pub fn finish(self) -> Result<usize, Unmaskable> {
        if self.marker && !self.values.is_empty() {
            return Err(Unmaskable::Ambiguous);
        }
        Ok(self.values.len())
    }
}

impl Redactor {
    /// Returns the last position at or before `at` that lies in no known value.
    ///
    /// Text that is cut there holds no half of a value, which nobody would recognise.
    pub fn cut(&self, text: &str, at: usize) -> usize {
        let at = super::boundary(text, at.min(text.len()));
        let known = self.known(text).unwrap_or_else(|| vec![Region { start: 0, end: text.len() }]);
        known.iter().find(|region| region.start < at && at < region.end).map_or(at, |region| region.start)
    }

    /// Returns the tokens in `text`: plain literals that are known for secrets by themselves, wherever they stand.
    ///
    /// What is one only by the name before it (`password=…`) may be anything, and is left out.
    pub fn tokens(&self, text: &str) -> Vec<String> {
        let regions = self.regions(text);
        let parts = regions.iter().filter_map(|region| text.get(region.start..region.end));
        let is_token = |part: &&str| *part != MARKER && is_plain_literal(part) && self.text(part) == MARKER;
        parts.filter(is_token).map(str::to_owned).collect()
    }
}

/// Whether a text is one literal word wherever a shell, or a program with options, meets it.
///
/// Nothing in it expands, separates, quotes, matches names or assigns, and it begins no option and no comment.
fn is_plain_literal(text: &str) -> bool {
    let inner = text.trim_end_matches('=');
    let plain = |letter: char| letter.is_alphanumeric() || "_-+/.:@%,^~!#".contains(letter);
    text.chars().count() >= SHORTEST
        && inner.chars().all(plain)
        && !inner.starts_with(['-', '~', '#', '!', '.', '/'])
        && !inner.contains("..")
}

/// The text without what joins the parts of a word in a shell, and without what is not seen.
fn joined(text: &str) -> String {
    let text = text.replace("\\\n", "");
    text.chars().filter(|letter| !matches!(letter, '\'' | '"' | '\\') && !is_unseen(*letter)).collect()
}
