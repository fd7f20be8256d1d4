//! The keys of the open objects, and the detection of duplicates.
//!
//! Keys are compared after unescaping: `"a"` and `"\u0061"` are the same key. They are stored as positions, eight
//! bytes each, and compared when their object closes, so that a hostile object costs O(n log n) time in its size.

use super::JsonError;
use super::lexer::{Lexer, StringForm, StringToken};

/// The keys of all open objects, innermost last.
#[derive(Debug, Default)]
pub(super) struct Keys {
    keys: Vec<Key>,
    /// The unescaped text of keys with escapes, concatenated.
    unescaped: Vec<u8>,
    objects: Vec<Object>,
}

/// A key, as a range of the text or of the unescaped bytes.
#[derive(Debug, Clone, Copy)]
struct Key {
    from: u32,
    /// The length, with the flag `UNESCAPED` if the range refers to the unescaped bytes.
    length: u32,
}

/// Where the keys of one object start.
#[derive(Debug)]
struct Object {
    keys: usize,
    unescaped: usize,
}

impl Keys {
    /// Starts an object.
    pub(super) fn open(&mut self) {
        self.objects.push(Object { keys: self.keys.len(), unescaped: self.unescaped.len() });
    }

    /// Adds a key of the innermost object.
    pub(super) fn add(&mut self, text: &Lexer<'_>, token: StringToken) {
        let key = match token.form {
            StringForm::Plain => Key::new(token.from, token.to, 0),
            StringForm::Escaped => {
                let from = self.unescaped.len();
                text.unescape(token, &mut self.unescaped);
                Key::new(from, self.unescaped.len(), UNESCAPED)
            }
        };
        self.keys.push(key);
    }

    /// Ends the innermost object, and returns an error if one of its keys is a duplicate.
    pub(super) fn close(&mut self, text: &Lexer<'_>) -> Result<(), JsonError> {
        let Some(object) = self.objects.pop() else { return Ok(()) };
        let unescaped = &self.unescaped;
        let keys = &mut self.keys[object.keys..];
        let duplicate = match keys.len() {
            0 | 1 => None,
            2..=SCAN_LIMIT => find_duplicate_by_scan(keys, text, unescaped),
            _ => find_duplicate_by_sort(keys, text, unescaped),
        };
        if let Some(key) = duplicate {
            return Err(JsonError::DuplicateKey { key: prefix(key.bytes(text, unescaped)) });
        }
        self.keys.truncate(object.keys);
        self.unescaped.truncate(object.unescaped);
        Ok(())
    }
}

impl Key {
    fn new(from: usize, to: usize, flag: u32) -> Self {
        // Longer lines are rejected, and unescaping never lengthens a key.
        Self { from: narrow(from), length: narrow(to - from) | flag }
    }

    fn bytes<'b>(self, text: &Lexer<'b>, unescaped: &'b [u8]) -> &'b [u8] {
        let from = wide(self.from);
        let to = from + wide(self.length & !UNESCAPED);
        match self.length & UNESCAPED {
            0 => text.between(from, to),
            _ => &unescaped[from..to],
        }
    }
}

fn find_duplicate_by_scan(keys: &[Key], text: &Lexer<'_>, unescaped: &[u8]) -> Option<Key> {
    keys.iter().enumerate().find_map(|(index, key)| {
        let bytes = key.bytes(text, unescaped);
        keys[..index].iter().any(|other| other.bytes(text, unescaped) == bytes).then_some(*key)
    })
}

fn find_duplicate_by_sort(keys: &mut [Key], text: &Lexer<'_>, unescaped: &[u8]) -> Option<Key> {
    keys.sort_unstable_by(|one, other| one.bytes(text, unescaped).cmp(other.bytes(text, unescaped)));
    keys.windows(2).find_map(|pair| match pair {
        [one, other] if one.bytes(text, unescaped) == other.bytes(text, unescaped) => Some(*one),
        _ => None,
    })
}

/// Returns the first characters of a key, for an error message.
fn prefix(key: &[u8]) -> String {
    String::from_utf8_lossy(key).chars().take(SHOWN_CHARS).collect()
}

fn narrow(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

fn wide(position: u32) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

/// Marks a range of the unescaped bytes.
const UNESCAPED: u32 = 1 << 31;

/// Up to this many keys are compared pairwise, which is faster than sorting them.
const SCAN_LIMIT: usize = 12;

/// How many characters of a duplicate key are shown.
const SHOWN_CHARS: usize = 64;
