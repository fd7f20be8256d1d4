//! Private keys in PEM armor: `-----BEGIN … PRIVATE KEY-----` to `-----END …-----`.
//!
//! Certificates and public keys are not matched. A key without an end is hidden as far as it looks like one.

use super::{scan::Region, shape::extend_cover};

/// The maximum length of a PEM label.
const LABEL_BYTES_MAX: usize = 64;
/// A key without an end after this many bytes is not a key.
const BODY_BYTES_MAX: usize = 64 * 1024;
const END: &[u8] = b"-----END ";

/// Matches a block that may be a private key, from after `-----BEGIN ` on.
pub(super) enum PemMatcher {
    Label { label: Vec<u8>, dashes: usize },
    Body(PemBody),
    End { length: usize, dashes: usize, body: PemBody },
}

#[derive(Clone, Copy)]
pub(super) struct PemBody {
    line: LineState,
    backslash: bool,
    /// How many bytes of [`END`] the last bytes match.
    end_matched: usize,
    length: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineState {
    Fresh,
    Word,
    Header,
    Other,
}

impl Default for PemMatcher {
    fn default() -> Self {
        Self::Label { label: Vec::new(), dashes: 0 }
    }
}

impl PemMatcher {
    /// Consumes the byte at offset `at` of a block that started at `start`; returns false when the block has ended.
    pub(super) fn feed(&mut self, byte: u8, at: usize, start: usize, cover: &mut Option<Region>) -> bool {
        match self {
            Self::Label { label, dashes } => {
                *dashes = if byte == b'-' { *dashes + 1 } else { 0 };
                label.push(byte);
                if *dashes == 5 {
                    let private = label.windows(11).any(|words| words == b"PRIVATE KEY");
                    let body = PemBody { line: LineState::Other, backslash: false, end_matched: 0, length: 0 };
                    *self = Self::Body(body);
                    if private {
                        extend_cover(cover, start, at);
                    }
                    return private;
                }
                let fits = byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b' ' || byte == b'-';
                fits && label.len() <= LABEL_BYTES_MAX
            }
            Self::Body(body) => {
                if !body.accept(byte) {
                    return false;
                }
                extend_cover(cover, start, at);
                if body.end_matched == END.len() {
                    *self = Self::End { length: 0, dashes: 0, body: *body };
                }
                true
            }
            Self::End { length, dashes, body } => {
                *length += 1;
                *dashes = if byte == b'-' { *dashes + 1 } else { 0 };
                let goes_on = body.accept(byte);
                if goes_on {
                    extend_cover(cover, start, at);
                }
                if goes_on && (*length > LABEL_BYTES_MAX || body.line == LineState::Fresh) {
                    *self = Self::Body(*body);
                    return true;
                }
                goes_on && *dashes < 5
            }
        }
    }
}

impl PemBody {
    /// Whether `byte` can be part of a PEM key, which may be indented, quoted, commented out or JSON-escaped.
    ///
    /// Headers such as `Version: …` may contain anything. Code and prose soon fail, so that a text which merely
    /// mentions the header of a key is not hidden.
    fn accept(&mut self, byte: u8) -> bool {
        self.length += 1;
        self.end_matched = match byte {
            _ if END.get(self.end_matched) == Some(&byte) => self.end_matched + 1,
            b'-' if self.end_matched == 5 => 5,
            b'-' => 1,
            _ => 0,
        };
        let escaped_newline = self.backslash && (byte == b'n' || byte == b'r');
        self.backslash = byte == b'\\';
        self.line = match (self.line, byte) {
            (_, b'\n' | b'\r') => LineState::Fresh,
            _ if escaped_newline => LineState::Fresh,
            (LineState::Fresh, b' ' | b'\t' | b'>' | b'|' | b'#' | b'+' | b'"' | b'\'' | b'\\') => LineState::Fresh,
            (LineState::Fresh | LineState::Word, b'-' | b'a'..=b'z' | b'A'..=b'Z') => LineState::Word,
            (LineState::Word, b':') => LineState::Header,
            (LineState::Header, _) => LineState::Header,
            (LineState::Fresh | LineState::Word | LineState::Other, _) => LineState::Other,
        };
        let fits = byte.is_ascii_alphanumeric() || b"+/=-\\\"'>|#,:* \t\r\n".contains(&byte);
        self.length <= BODY_BYTES_MAX && (fits || self.line == LineState::Header)
    }
}
