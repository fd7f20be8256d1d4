//! Private keys in PEM armor: `-----BEGIN … PRIVATE KEY-----` to `-----END …-----`.
//!
//! Certificates and public keys are not matched. A key without an end is hidden as far as it looks like one.

use super::{scan::Region, shape::reach};

/// The maximum length of a PEM label.
const LABEL: usize = 64;
/// A key without an end after this many bytes is not a key.
const PEM_BODY: usize = 64 * 1024;
const END: &[u8] = b"-----END ";

/// Matches a block that may be a private key, from after `-----BEGIN ` on.
pub(super) enum Pem {
    Label { label: Vec<u8>, dashes: usize },
    Body(Body),
    End { length: usize, dashes: usize, body: Body },
}

#[derive(Clone, Copy)]
pub(super) struct Body {
    line: Line,
    backslash: bool,
    /// How many bytes of [`END`] the last bytes match.
    ending: usize,
    length: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Fresh,
    Word,
    Header,
    Other,
}

impl Default for Pem {
    fn default() -> Self {
        Self::Label { label: Vec::new(), dashes: 0 }
    }
}

impl Pem {
    /// Consumes the byte at offset `at` of a block that started at `start`; returns false when the block has ended.
    pub(super) fn feed(&mut self, byte: u8, at: usize, start: usize, cover: &mut Option<Region>) -> bool {
        match self {
            Self::Label { label, dashes } => {
                *dashes = if byte == b'-' { *dashes + 1 } else { 0 };
                label.push(byte);
                if *dashes == 5 {
                    let private = label.windows(11).any(|words| words == b"PRIVATE KEY");
                    let body = Body { line: Line::Other, backslash: false, ending: 0, length: 0 };
                    *self = Self::Body(body);
                    if private {
                        reach(cover, start, at);
                    }
                    return private;
                }
                let fits = byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ' || byte == b'-';
                fits && label.len() <= LABEL
            }
            Self::Body(body) => {
                if !body.takes(byte) {
                    return false;
                }
                reach(cover, start, at);
                if body.ending == END.len() {
                    *self = Self::End { length: 0, dashes: 0, body: *body };
                }
                true
            }
            Self::End { length, dashes, body } => {
                *length += 1;
                *dashes = if byte == b'-' { *dashes + 1 } else { 0 };
                let goes_on = body.takes(byte);
                if goes_on {
                    reach(cover, start, at);
                }
                if goes_on && (*length > LABEL || body.line == Line::Fresh) {
                    *self = Self::Body(*body);
                    return true;
                }
                goes_on && *dashes < 5
            }
        }
    }
}

impl Body {
    /// Whether `byte` can be part of a PEM key, which may be indented, quoted, commented out or JSON-escaped.
    ///
    /// Headers such as `Version: …` may contain anything. Code and prose soon fail, so that a text which merely
    /// mentions the header of a key is not hidden.
    fn takes(&mut self, byte: u8) -> bool {
        self.length += 1;
        self.ending = match byte {
            _ if END.get(self.ending) == Some(&byte) => self.ending + 1,
            b'-' if self.ending == 5 => 5,
            b'-' => 1,
            _ => 0,
        };
        let escaped_newline = self.backslash && (byte == b'n' || byte == b'r');
        self.backslash = byte == b'\\';
        self.line = match (self.line, byte) {
            (_, b'\n' | b'\r') => Line::Fresh,
            _ if escaped_newline => Line::Fresh,
            (Line::Fresh, b' ' | b'\t' | b'>' | b'|' | b'#' | b'+' | b'"' | b'\'' | b'\\') => Line::Fresh,
            (Line::Fresh | Line::Word, b'-' | b'a'..=b'z' | b'A'..=b'Z') => Line::Word,
            (Line::Word, b':') => Line::Header,
            (Line::Header, _) => Line::Header,
            (Line::Fresh | Line::Word | Line::Other, _) => Line::Other,
        };
        let fits = byte.is_ascii_alphanumeric() || b"+/=-\\\"'>|#,:* \t\r\n".contains(&byte);
        self.length <= PEM_BODY && (fits || self.line == Line::Header)
    }
}
