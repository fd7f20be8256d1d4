//! Assignments to keys that suggest a secret: `password=…`, `token: …`, `"apiKey": "…"`, `--secret …`.
//!
//! The key is kept, the value is hidden. A value of fewer than 8 characters, a placeholder, a path or a piece of
//! code is kept; in doubt the value is hidden.

use super::{MARKER, scan::Region, shape::extend_cover};

/// Shorter values are not hidden.
const VALUE_BYTES_MIN: usize = 8;
/// An unquoted value that reaches this length is certain, and is dropped as it arrives.
const LONG_WORD: usize = 256;
/// A quoted value that reaches this length is certain, and is dropped as it arrives.
const LONG_QUOTE: usize = 1024;
/// The maximum number of blanks between the separator and the value.
const GAP_BLANKS_MAX: usize = 8;
/// Punctuation that ends a sentence or a bracket and is not part of a value.
const TRAILING: &[u8] = b",;:.)]}>|&\\";

const STRONG_KEYS: [&str; 16] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "access-key",
    "accesskey",
    "secret_key",
    "secretkey",
    "private_key",
    "privatekey",
    "account_key",
    "accountkey",
];
const WEAK_KEYS: [&str; 4] = ["token", "authorization", "credential", "credentials"];

/// How strongly a key suggests a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyStrength {
    /// An ordinary word after it is hidden too.
    Strong,
    /// An ordinary word after it is kept: parsers have tokens as well.
    Weak,
}

/// How the value is separated from its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AssignmentStyle {
    /// `key=value`
    Direct,
    /// `key = value`
    Spaced,
    /// `key: value`
    Colon,
}

/// Returns how strongly a name suggests a secret, by its last word.
pub(super) fn key_strength(name: &[u8]) -> Option<KeyStrength> {
    let ends_with = |word: &&str| {
        name.len().checked_sub(word.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(word.as_bytes()))
    };
    if STRONG_KEYS.iter().any(&ends_with) {
        Some(KeyStrength::Strong)
    } else if WEAK_KEYS.iter().any(ends_with) {
        Some(KeyStrength::Weak)
    } else {
        None
    }
}

/// Returns the key before a separator, if it suggests a secret.
pub(super) fn key_before(before: &[u8], separator: u8) -> Option<(KeyStrength, AssignmentStyle)> {
    let mut name = before.trim_ascii_end();
    let mut style = match separator {
        b':' => AssignmentStyle::Colon,
        _ if name.len() < before.len() => AssignmentStyle::Spaced,
        _ => AssignmentStyle::Direct,
    };
    if separator == b'=' && name.ends_with(b":") {
        name = name[..name.len() - 1].trim_ascii_end();
        style = AssignmentStyle::Spaced;
    }
    name = name.strip_suffix(b"?").unwrap_or(name);
    name = name.strip_suffix(b"]").unwrap_or(name);
    Some((key_strength(strip_quote(name))?, style))
}

/// Whether `before` ends in `Authorization:` or the like.
pub(super) fn is_authorization(before: &[u8]) -> bool {
    let opened = strip_quote(before).trim_ascii_end();
    let name = opened.strip_suffix(b":").or_else(|| opened.strip_suffix(b"=")).map(<[u8]>::trim_ascii_end);
    name.is_some_and(|name| {
        let name = strip_quote(name);
        name.len() >= 13 && name[name.len() - 13..].eq_ignore_ascii_case(b"authorization")
    })
}

/// Strips one quote from the end, and the backslashes before it.
fn strip_quote(text: &[u8]) -> &[u8] {
    let Some(mut bare) = text.strip_suffix(b"\"").or_else(|| text.strip_suffix(b"'")) else { return text };
    while let Some(shorter) = bare.strip_suffix(b"\\") {
        bare = shorter;
    }
    bare
}

/// Whether a quoted value is a secret, given that its key suggests one.
pub(super) fn is_secret(value: &[u8]) -> bool {
    value.len() >= VALUE_BYTES_MIN
        && !is_placeholder(value)
        && !value.windows(MARKER.len()).any(|part| part == MARKER.as_bytes())
}

/// Matches the value of an assignment, byte by byte.
pub(super) struct ValueMatcher {
    key: KeyStrength,
    style: AssignmentStyle,
    separator: u8,
    state: ValueState,
    start: usize,
    seen: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueState {
    Gap { blanks: usize },
    Backslash,
    Quoted { quote: u8, nested: bool, escaped: bool },
    Bare,
    LongQuoted { quote: u8 },
    LongBare { trailing: usize },
}

impl ValueMatcher {
    pub(super) fn new(key: KeyStrength, style: AssignmentStyle, separator: u8) -> Self {
        Self { key, style, separator, state: ValueState::Gap { blanks: 0 }, start: 0, seen: Vec::new() }
    }

    /// Whether the value has become certain and has not ended.
    pub(super) fn is_open_ended(&self) -> bool {
        matches!(self.state, ValueState::LongBare { .. })
    }

    pub(super) fn feed(&mut self, byte: u8, at: usize, held_from: &mut usize, cover: &mut Option<Region>) -> bool {
        match self.state {
            ValueState::Gap { blanks } => {
                *held_from = at;
                self.feed_gap(byte, at, blanks)
            }
            ValueState::Backslash if byte == b'"' || byte == b'\'' => {
                self.open_quote(byte, at, true);
                true
            }
            ValueState::Backslash => {
                self.seen.push(b'\\');
                self.state = ValueState::Bare;
                self.feed_bare(byte, at, cover)
            }
            ValueState::Bare => self.feed_bare(byte, at, cover),
            ValueState::Quoted { quote, nested, escaped } => {
                self.feed_quoted(byte, at, (quote, nested, escaped), cover)
            }
            ValueState::LongQuoted { quote } => {
                let goes_on = byte != quote && byte != b'\n';
                if goes_on {
                    extend_cover(cover, self.start, at);
                }
                goes_on
            }
            ValueState::LongBare { trailing } => {
                if ends_word(byte) {
                    return false;
                }
                let trailing = if TRAILING.contains(&byte) { trailing + 1 } else { 0 };
                if trailing == 0 {
                    extend_cover(cover, self.start, at);
                }
                self.state = ValueState::LongBare { trailing };
                trailing <= GAP_BLANKS_MAX
            }
        }
    }

    /// Handles the end of the text.
    pub(super) fn finish(&mut self, cover: &mut Option<Region>) {
        match self.state {
            ValueState::Bare => self.finish_word(cover),
            ValueState::Quoted { .. } => self.finish_unclosed(cover),
            ValueState::Gap { .. }
            | ValueState::Backslash
            | ValueState::LongQuoted { .. }
            | ValueState::LongBare { .. } => {}
        }
    }

    /// Handles a byte between the separator and the value.
    fn feed_gap(&mut self, byte: u8, at: usize, blanks: usize) -> bool {
        self.start = at;
        match byte {
            b' ' | b'\t' => {
                if self.style == AssignmentStyle::Direct {
                    self.style = AssignmentStyle::Spaced;
                }
                self.state = ValueState::Gap { blanks: blanks + 1 };
                return blanks < GAP_BLANKS_MAX;
            }
            b'>' if self.separator == b'=' && blanks == 0 => self.style = AssignmentStyle::Colon,
            _ if blanks == 0 && self.is_operator(byte) => return false,
            b'\n' | b'\r' => return false,
            b'-' if self.separator == b' ' => return false,
            b'"' | b'\'' => self.open_quote(byte, at, false),
            b'\\' => self.state = ValueState::Backslash,
            _ => {
                self.state = ValueState::Bare;
                self.seen.push(byte);
            }
        }
        true
    }

    /// Whether `byte` after the separator makes it an operator: `==`, `=~`, `::`, `:/`, `:=`.
    fn is_operator(&self, byte: u8) -> bool {
        match self.separator {
            b'=' => byte == b'=' || byte == b'~',
            b':' => byte == b':' || byte == b'/' || byte == b'=',
            _ => false,
        }
    }

    fn open_quote(&mut self, quote: u8, at: usize, nested: bool) {
        self.start = at + 1;
        self.state = ValueState::Quoted { quote, nested, escaped: false };
    }

    fn feed_quoted(&mut self, byte: u8, at: usize, stage: (u8, bool, bool), cover: &mut Option<Region>) -> bool {
        let (quote, nested, escaped) = stage;
        if byte == quote && !escaped {
            let mut value = self.seen.as_slice();
            while let (true, Some(shorter)) = (nested, value.strip_suffix(b"\\")) {
                value = shorter;
            }
            if is_secret(value) {
                *cover = Some(Region { start: self.start, end: self.start + value.len() });
            }
            return false;
        }
        if byte == b'\n' {
            self.finish_unclosed(cover);
            return false;
        }
        self.seen.push(byte);
        self.state = ValueState::Quoted { quote, nested, escaped: !nested && !escaped && byte == b'\\' };
        if self.seen.len() == LONG_QUOTE {
            extend_cover(cover, self.start, at);
            self.state = ValueState::LongQuoted { quote };
        }
        !self.seen.ends_with(MARKER.as_bytes())
    }

    fn feed_bare(&mut self, byte: u8, at: usize, cover: &mut Option<Region>) -> bool {
        if ends_word(byte) {
            self.finish_word(cover);
            return false;
        }
        self.seen.push(byte);
        if self.seen.ends_with(MARKER.as_bytes()) {
            return false;
        }
        if self.seen.len() < LONG_WORD {
            return true;
        }
        let secret = secret_word_length(&self.seen, self.key, self.style).is_some();
        if secret {
            extend_cover(cover, self.start, at);
            self.state = ValueState::LongBare { trailing: 0 };
        }
        secret
    }

    fn finish_word(&self, cover: &mut Option<Region>) {
        if let Some(length) = secret_word_length(&self.seen, self.key, self.style) {
            *cover = Some(Region { start: self.start, end: self.start + length });
        }
    }

    /// Handles a quote without an end in its line, which may be an apostrophe: only the first word counts.
    fn finish_unclosed(&self, cover: &mut Option<Region>) {
        let word = self.seen.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        if is_secret(word) {
            *cover = Some(Region { start: self.start, end: self.start + word.len() });
        }
    }
}

fn ends_word(byte: u8) -> bool {
    byte.is_ascii_whitespace() || b"\"'`".contains(&byte)
}

/// Returns the length of the secret part of a word, if it is secret.
fn secret_word_length(word: &[u8], key: KeyStrength, style: AssignmentStyle) -> Option<usize> {
    let mut value = word;
    while let [rest @ .., last] = value
        && TRAILING.contains(last)
    {
        value = rest;
    }
    let secret =
        value.len() >= VALUE_BYTES_MIN && !is_placeholder(word) && !is_code(value, &word[value.len()..], key, style);
    secret.then_some(value.len())
}

/// Whether a value refers to a secret instead of being one.
fn is_placeholder(value: &[u8]) -> bool {
    let same = value.windows(2).all(|pair| pair[0] == pair[1]);
    let begins = |beginnings: &[&[u8]]| beginnings.iter().any(|beginning| value.starts_with(beginning));
    let variable = value.strip_prefix(b"$").is_some_and(|name| {
        name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            && !(name.iter().any(u8::is_ascii_lowercase) && name.iter().any(u8::is_ascii_digit))
    });
    let path = value.starts_with(b"/")
        && value[1..].contains(&b'/')
        && value.iter().all(|byte| byte.is_ascii_alphabetic() || b"/._-".contains(byte));
    same || variable
        || path
        || begins(&[b"${", b"$(", b"{", b"[", b"(", b"<", b"./", b"../", b"~/", b"http://", b"https://"])
        || (value.len() > 2 && value.starts_with(b"%") && value.ends_with(b"%"))
}

/// Whether an unquoted value reads like code or prose: a name, a path of names, a call, a type.
fn is_code(value: &[u8], trailing: &[u8], key: KeyStrength, style: AssignmentStyle) -> bool {
    let sigils = value.iter().take_while(|byte| b"&*!".contains(byte)).count();
    let value = &value[sigils..];
    let mut rest = value;
    let mut steps = 0;
    loop {
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        if length == 0 || rest[0].is_ascii_digit() {
            return false;
        }
        rest = &rest[length..];
        let joint = [b".".as_slice(), b"::", b"->", b"?."].into_iter().find(|joint| {
            rest.strip_prefix(*joint).is_some_and(|after| after.first().is_some_and(|byte| !byte.is_ascii_digit()))
        });
        match joint {
            Some(joint) => rest = &rest[joint.len()..],
            None => break,
        }
        steps += 1;
    }
    let name = &value[..value.len() - rest.len()];
    let digits = name.iter().any(u8::is_ascii_digit);
    match rest.first() {
        Some(b'(' | b'[' | b'<' | b'{' | b'!') => !digits || steps > 0 || trailing.contains(&b')'),
        Some(_) => false,
        None if digits => false,
        None if steps > 0 => true,
        None => match style {
            AssignmentStyle::Direct => false,
            AssignmentStyle::Spaced => true,
            AssignmentStyle::Colon => {
                key == KeyStrength::Weak || name.contains(&b'_') || name.iter().any(u8::is_ascii_uppercase)
            }
        },
    }
}
