//! The lexer of the JSON scanner: validates tokens and skips over them.
//!
//! It copies nothing and does not track objects and arrays.

use super::JsonError;

/// A text and the current position in it.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

/// The content of a string token.
#[derive(Debug, Clone, Copy)]
pub(super) struct StringToken {
    /// The first byte after the opening quote.
    pub(super) from: usize,
    /// The closing quote.
    pub(super) to: usize,
    /// Whether it contains escapes.
    pub(super) form: StringForm,
}

/// Whether a string contains escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StringForm {
    /// It contains none.
    Plain,
    /// It contains at least one.
    Escaped,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0 }
    }

    pub(super) fn step(&mut self) {
        self.at += 1;
    }

    pub(super) fn skip_space(&mut self) {
        while self.at_space() {
            self.at += 1;
        }
    }

    /// Skips a string token; the opening quote is next.
    pub(super) fn string(&mut self) -> Result<StringToken, JsonError> {
        self.at += 1;
        let from = self.at;
        let mut spelling = StringForm::Plain;
        loop {
            self.plain_characters();
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    spelling = StringForm::Escaped;
                    self.escape()?;
                }
                // A control character, or the end of the text.
                _ => return Err(self.unexpected()),
            }
        }
        let to = self.at;
        self.at += 1;
        Ok(StringToken { from, to, form: spelling })
    }

    /// Skips a number token; `-` or a digit is next.
    pub(super) fn number(&mut self) -> Result<(), JsonError> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        let exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if exponent {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        // Only these can exceed the range of a double; all others need no conversion.
        if (exponent || self.at - from > ALWAYS_FINITE_LENGTH) && !self.is_finite(from) {
            return Err(JsonError::NumberOutOfRange { at: from });
        }
        Ok(())
    }

    /// Skips `word`, which must be next.
    pub(super) fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        for &byte in word {
            if self.peek() != Some(byte) {
                return Err(self.unexpected());
            }
            self.at += 1;
        }
        Ok(())
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(super) fn at_space(&self) -> bool {
        matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r'))
    }

    pub(super) fn between(&self, from: usize, to: usize) -> &'a [u8] {
        &self.bytes[from..to]
    }

    /// Returns the error for the next byte.
    pub(super) fn unexpected(&self) -> JsonError {
        JsonError::NotJson { at: self.at }
    }

    /// Appends the unescaped content of `token` to `out`.
    pub(super) fn unescape(&self, token: StringToken, out: &mut Vec<u8>) {
        // The token was validated, so scanning it again cannot fail.
        let mut text = Lexer { text: self.text, bytes: &self.bytes[..token.to], at: token.from };
        while text.at < token.to {
            let from = text.at;
            text.plain_characters();
            out.extend_from_slice(text.between(from, text.at));
            if text.peek() == Some(b'\\') {
                match text.escape() {
                    Ok(character) => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                    Err(_) => return,
                }
            }
        }
    }

    /// Skips characters without escapes.
    fn plain_characters(&mut self) {
        let rest = &self.bytes[self.at..];
        // Most strings are short, and testing each byte costs less than setting up a vectorized search.
        let near = rest.len().min(SHORT);
        if let Some(end) = rest[..near].iter().position(|&byte| !PLAIN[usize::from(byte)]) {
            self.at += end;
            return;
        }
        let far = memchr::memchr2(b'"', b'\\', &rest[near..]).map_or(rest.len(), |end| near + end);
        let plain = &rest[near..far];
        // Without an early return the compiler vectorizes this loop.
        let controls = plain.iter().fold(false, |found, &byte| found | (byte < b' '));
        let first_control = || plain.iter().position(|&byte| byte < b' ');
        self.at += near + controls.then(first_control).flatten().unwrap_or(plain.len());
    }

    /// Skips one escaped character (two escapes for a surrogate pair); the backslash is next.
    fn escape(&mut self) -> Result<char, JsonError> {
        let from = self.at;
        self.at += 1;
        let character = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(from),
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(character)
    }

    fn code_point(&mut self, from: usize) -> Result<char, JsonError> {
        let lone = JsonError::LoneSurrogate { at: from };
        let first = self.code_unit()?;
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or(lone);
        }
        if self.peek() != Some(b'\\') || self.bytes.get(self.at + 1) != Some(&b'u') {
            return Err(lone);
        }
        self.at += 1;
        let second = self.code_unit()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(lone);
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or(lone)
    }

    /// Reads `u` and four hexadecimal digits.
    fn code_unit(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            unit = unit << 4 | digit.ok_or_else(|| self.unexpected())?;
            self.at += 1;
        }
        Ok(unit)
    }

    /// Skips digits, at least one of them.
    fn digits(&mut self) -> Result<(), JsonError> {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.unexpected());
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn is_finite(&self, from: usize) -> bool {
        let number = self.text.get(from..self.at).and_then(|token| token.parse::<f64>().ok());
        number.is_some_and(f64::is_finite)
    }
}

/// How many bytes of a string are tested one by one before a vectorized search starts.
const SHORT: usize = 24;

/// A number without exponent of at most this many bytes is below the largest double, 1.8e308.
const ALWAYS_FINITE_LENGTH: usize = 308;

/// Which bytes stand for themselves in a string.
const PLAIN: [bool; 256] = plain();

const fn plain() -> [bool; 256] {
    let mut table = [true; 256];
    let mut byte = 0;
    while byte < b' ' as usize {
        table[byte] = false;
        byte += 1;
    }
    table[b'"' as usize] = false;
    table[b'\\' as usize] = false;
    table
}
