//! Canonical JSON: every incoming line is validated and rewritten once, before any protocol reads it.
//!
//! The result is exactly one JSON object in UTF-8, bounded in depth, without duplicate keys in one object and without
//! white space between tokens, hence without a raw newline. Embedded in another client's stream, it can neither end
//! that stream's line nor be parsed in two ways. Tokens are copied as received: no number becomes a float and no key
//! moves. The scanner is a single pass with an explicit stack instead of recursion; it builds no tree and knows no
//! message.

mod keys;
mod lexer;

use keys::Keys;
use lexer::Lexer;

/// Limits for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum nesting depth of objects and arrays, the outermost included.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 64 }
    }
}

/// Why a line was rejected. The text may be sent to the author of the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The bytes are not UTF-8.
    #[error("not valid UTF-8 at byte {at}")]
    NotUtf8 {
        /// The first invalid byte.
        at: usize,
    },
    /// The text is not JSON, or continues after its end.
    #[error("not valid JSON at byte {at}")]
    NotJson {
        /// The first invalid byte.
        at: usize,
    },
    /// The text starts as JSON, but not as an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// Objects and arrays are nested too deeply.
    #[error("nested more than {limit} deep")]
    TooDeep {
        /// The maximum depth.
        limit: usize,
    },
    /// One object has the same key twice, possibly with different escapes.
    #[error("duplicate key {key:?}")]
    DuplicateKey {
        /// The key, truncated if it is long.
        key: String,
    },
    /// A `\u` escape is an unpaired surrogate.
    #[error("an unpaired surrogate at byte {at}")]
    LoneSurrogate {
        /// Where the escape starts.
        at: usize,
    },
    /// A number exceeds the range of a double, so that parsers would disagree about it.
    #[error("number out of range at byte {at}")]
    NumberOutOfRange {
        /// Where the number starts.
        at: usize,
    },
    /// The line is too long for 31-bit positions.
    #[error("too long")]
    TooLong,
}

/// Validates `line` and returns it without white space between its tokens.
pub fn canonicalize(line: &[u8], limits: Limits) -> Result<Vec<u8>, JsonError> {
    let text = std::str::from_utf8(line).map_err(|error| JsonError::NotUtf8 { at: error.valid_up_to() })?;
    if line.len() > MAX_BYTES {
        return Err(JsonError::TooLong);
    }
    Scanner::new(text, limits).run()
}

/// The tokens that may come next.
#[derive(Debug, Clone, Copy)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    Nothing,
}

/// An open container.
#[derive(Debug, Clone, Copy)]
enum Container {
    Object,
    Array,
}

struct Scanner<'a> {
    text: Lexer<'a>,
    limits: Limits,
    containers: Vec<Container>,
    keys: Keys,
    /// The start of the bytes that are validated and not yet copied.
    unwritten: usize,
    out: Vec<u8>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str, limits: Limits) -> Self {
        Self {
            text: Lexer::new(text),
            limits,
            containers: Vec::new(),
            keys: Keys::default(),
            unwritten: 0,
            out: Vec::with_capacity(text.len()),
        }
    }

    fn run(mut self) -> Result<Vec<u8>, JsonError> {
        self.skip_space();
        let mut expect = match self.text.peek() {
            Some(b'{') => Expect::Value,
            Some(b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                return Err(JsonError::NotAnObject);
            }
            _ => return Err(self.text.unexpected()),
        };
        while let Some(byte) = self.text.peek() {
            expect = match expect {
                Expect::Value => self.value(byte)?,
                Expect::ValueOrEnd if byte == b']' => self.close(Container::Array)?,
                Expect::ValueOrEnd => self.value(byte)?,
                Expect::KeyOrEnd if byte == b'}' => self.close(Container::Object)?,
                Expect::Key | Expect::KeyOrEnd => self.key(byte)?,
                Expect::Colon if byte == b':' => self.step(Expect::Value),
                Expect::CommaOrEnd => self.comma_or_end(byte)?,
                Expect::Colon | Expect::Nothing => return Err(self.text.unexpected()),
            };
            self.skip_space();
        }
        if !self.containers.is_empty() {
            return Err(self.text.unexpected());
        }
        self.write_to_here();
        Ok(self.out)
    }

    fn value(&mut self, byte: u8) -> Result<Expect, JsonError> {
        match byte {
            b'{' => return self.begin(Container::Object),
            b'[' => return self.begin(Container::Array),
            b'"' => drop(self.text.string()?),
            b'-' | b'0'..=b'9' => self.text.number()?,
            b't' => self.text.literal(b"true")?,
            b'f' => self.text.literal(b"false")?,
            b'n' => self.text.literal(b"null")?,
            _ => return Err(self.text.unexpected()),
        }
        Ok(Expect::CommaOrEnd)
    }

    fn key(&mut self, byte: u8) -> Result<Expect, JsonError> {
        if byte != b'"' {
            return Err(self.text.unexpected());
        }
        let key = self.text.string()?;
        self.keys.add(&self.text, key);
        Ok(Expect::Colon)
    }

    fn comma_or_end(&mut self, byte: u8) -> Result<Expect, JsonError> {
        match (byte, self.containers.last()) {
            (b',', Some(Container::Object)) => Ok(self.step(Expect::Key)),
            (b',', Some(Container::Array)) => Ok(self.step(Expect::Value)),
            (b'}', Some(Container::Object)) => self.close(Container::Object),
            (b']', Some(Container::Array)) => self.close(Container::Array),
            _ => Err(self.text.unexpected()),
        }
    }

    fn begin(&mut self, what: Container) -> Result<Expect, JsonError> {
        if self.containers.len() >= self.limits.depth {
            return Err(JsonError::TooDeep { limit: self.limits.depth });
        }
        self.containers.push(what);
        match what {
            Container::Object => {
                self.keys.open();
                Ok(self.step(Expect::KeyOrEnd))
            }
            Container::Array => Ok(self.step(Expect::ValueOrEnd)),
        }
    }

    fn close(&mut self, what: Container) -> Result<Expect, JsonError> {
        match what {
            Container::Object => self.keys.close(&self.text)?,
            Container::Array => {}
        }
        self.containers.pop();
        let next = if self.containers.is_empty() { Expect::Nothing } else { Expect::CommaOrEnd };
        Ok(self.step(next))
    }

    fn step(&mut self, next: Expect) -> Expect {
        self.text.step();
        next
    }

    fn skip_space(&mut self) {
        if self.text.at_space() {
            self.write_to_here();
            self.text.skip_space();
            self.unwritten = self.text.at();
        }
    }

    fn write_to_here(&mut self) {
        self.out.extend_from_slice(self.text.between(self.unwritten, self.text.at()));
    }
}

/// Positions of keys are stored in 31 bits.
const MAX_BYTES: usize = (1 << 31) - 1;

#[cfg(test)]
mod tests;
