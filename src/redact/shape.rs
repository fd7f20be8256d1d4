//! The shapes of secrets: tokens with a known prefix, JWTs, PEM keys, passwords in URLs.
//!
//! A shape starts where the automaton finds its prefix, and is then fed byte by byte. Until it is certain, text is
//! held back from `held_from`; once certain it covers a region, which may grow until the shape ends. A shape that
//! is certain stays so when more text follows: hence no exact lengths, and redaction is idempotent.

use super::{
    assignment::{self, AssignmentStyle, KeyStrength, ValueMatcher},
    pem::PemMatcher,
    scan::Region,
    url::UrlMatcher,
};

/// The maximum length of the header of a JWT.
const JWT_HEADER_MAX: usize = 8 * 1024;
/// A run of this length without a digit is not a token.
const UNCERTAIN_MAX: usize = 256;

/// The shape that starts where a pattern of the automaton ends.
#[derive(Clone, Copy)]
pub(super) enum ShapeStart {
    Token(TokenSpec),
    Jwt,
    Pem,
    Url,
    /// `Bearer`, `Basic` and the like, which need less evidence after `Authorization:`.
    Scheme {
        alone: bool,
    },
    /// `=` or `:`, which matter after a key that suggests a secret.
    Separator(u8),
    /// A command-line option that suggests a secret, before its value.
    Option(KeyStrength),
}

/// The format of a token with a known prefix.
#[derive(Clone, Copy)]
pub(super) struct TokenSpec {
    class: CharClass,
    /// The minimum number of characters after the prefix.
    min_length: usize,
    /// The length from which on no digit is needed.
    certain_length: usize,
    /// Whether the prefix must be at the start of a word.
    needs_word_start: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Upper,
    Alphanumeric,
    Word,
    Dashed,
    Credential,
}

impl CharClass {
    fn contains(self, byte: u8) -> bool {
        match self {
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Alphanumeric => byte.is_ascii_alphanumeric(),
            Self::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Self::Dashed => byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-',
            Self::Credential => byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte),
        }
    }
}

/// Returns the starts of all shapes.
pub(super) fn shape_starts() -> Vec<(&'static [u8], ShapeStart)> {
    let token = |class, least, undoubted, edge| {
        ShapeStart::Token(TokenSpec { class, min_length: least, certain_length: undoubted, needs_word_start: edge })
    };
    let github = token(CharClass::Word, 20, 20, false);
    let slack = token(CharClass::Dashed, 10, usize::MAX, false);
    let stripe = token(CharClass::Alphanumeric, 16, 16, true);
    let scheme = |alone| ShapeStart::Scheme { alone };
    vec![
        (b"sk-", token(CharClass::Dashed, 20, usize::MAX, true)),
        (b"sk-ant-", token(CharClass::Dashed, 16, usize::MAX, false)),
        (b"sk_live_", stripe),
        (b"sk_test_", stripe),
        (b"rk_live_", stripe),
        (b"rk_test_", stripe),
        (b"ghp_", github),
        (b"gho_", github),
        (b"ghs_", github),
        (b"ghu_", github),
        (b"ghr_", github),
        (b"github_pat_", token(CharClass::Word, 20, usize::MAX, false)),
        (b"glpat-", token(CharClass::Dashed, 16, usize::MAX, false)),
        (b"xoxa-", slack),
        (b"xoxb-", slack),
        (b"xoxp-", slack),
        (b"xoxr-", slack),
        (b"xoxs-", slack),
        (b"AKIA", token(CharClass::Upper, 16, 16, true)),
        (b"ASIA", token(CharClass::Upper, 16, usize::MAX, true)),
        (b"AIza", token(CharClass::Dashed, 30, usize::MAX, true)),
        (b"npm_", token(CharClass::Alphanumeric, 30, 30, true)),
        (b"pypi-", token(CharClass::Dashed, 30, usize::MAX, true)),
        (b"hf_", token(CharClass::Alphanumeric, 30, 30, true)),
        (b"att_", token(CharClass::Dashed, 32, usize::MAX, true)),
        (b"ptk_", token(CharClass::Dashed, 32, usize::MAX, true)),
        (b"eyJ", ShapeStart::Jwt),
        (b"-----BEGIN ", ShapeStart::Pem),
        (b"://", ShapeStart::Url),
        (b"Bearer ", scheme(true)),
        (b"bearer ", scheme(true)),
        (b"BEARER ", scheme(true)),
        (b"Basic ", scheme(false)),
        (b"basic ", scheme(false)),
        (b"Token ", scheme(false)),
        (b"token ", scheme(false)),
        (b"=", ShapeStart::Separator(b'=')),
        (b":", ShapeStart::Separator(b':')),
        (b"--password ", ShapeStart::Option(KeyStrength::Strong)),
        (b"--passphrase ", ShapeStart::Option(KeyStrength::Strong)),
        (b"--secret ", ShapeStart::Option(KeyStrength::Strong)),
        (b"--api-key ", ShapeStart::Option(KeyStrength::Strong)),
        (b"--token ", ShapeStart::Option(KeyStrength::Weak)),
    ]
}

impl ShapeStart {
    /// Returns the shape that starts here, if the text `before` allows one.
    ///
    /// The pattern is at `start..end` of the complete text.
    pub(super) fn start_shape(self, before: &[u8], start: usize, end: usize) -> Option<ShapeMatcher> {
        let (held_from, kind) = match self {
            Self::Token(token) if token.needs_word_start && !at_word_start(before) => return None,
            Self::Token(token) => (start, ShapeKind::Run(TokenRun::new(token))),
            Self::Jwt if !at_word_start(before) => return None,
            Self::Jwt => (start, ShapeKind::Jwt(JwtMatcher { header: 0, rest: None, dots: 0 })),
            Self::Pem => (start, ShapeKind::Pem(PemMatcher::default())),
            Self::Url if !before.last().is_some_and(u8::is_ascii_alphanumeric) => return None,
            Self::Url => (end, ShapeKind::Url(UrlMatcher::default())),
            Self::Scheme { alone } => {
                let authorized = assignment::is_authorization(before);
                if !(authorized || alone && at_word_start(before)) {
                    return None;
                }
                let (least, undoubted) = if authorized { (6, 6) } else { (10, 20) };
                let token = TokenSpec {
                    class: CharClass::Credential,
                    min_length: least,
                    certain_length: undoubted,
                    needs_word_start: false,
                };
                (end, ShapeKind::Run(TokenRun::new(token)))
            }
            Self::Separator(separator) => {
                let (key, style) = assignment::key_before(before, separator)?;
                (end, ShapeKind::Value(ValueMatcher::new(key, style, separator)))
            }
            Self::Option(key) => (end, ShapeKind::Value(ValueMatcher::new(key, AssignmentStyle::Colon, b' '))),
        };
        Some(ShapeMatcher { held_from, cover: None, kind })
    }
}

/// Whether a word may start after `before`.
///
/// The closing bracket of a marker is not a word boundary: the text that the marker replaced is unknown.
fn at_word_start(before: &[u8]) -> bool {
    match before {
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., last] => !(last.is_ascii_alphanumeric() || b"_-]".contains(last)),
        [] => true,
    }
}

/// An active shape.
pub(super) struct ShapeMatcher {
    held_from: usize,
    cover: Option<Region>,
    kind: ShapeKind,
}

enum ShapeKind {
    Run(TokenRun),
    Jwt(JwtMatcher),
    Pem(PemMatcher),
    Url(UrlMatcher),
    Value(ValueMatcher),
}

impl ShapeMatcher {
    /// Consumes the byte at offset `at`; returns false when the shape has ended before it, or with it.
    pub(super) fn feed(&mut self, byte: u8, at: usize) -> bool {
        match &mut self.kind {
            ShapeKind::Run(run) => run.feed(byte, at, self.held_from, &mut self.cover),
            ShapeKind::Jwt(jwt) => jwt.feed(byte, at, self.held_from, &mut self.cover),
            ShapeKind::Pem(pem) => pem.feed(byte, at, self.held_from, &mut self.cover),
            ShapeKind::Url(url) => url.feed(byte, at, &mut self.cover),
            ShapeKind::Value(value) => value.feed(byte, at, &mut self.held_from, &mut self.cover),
        }
    }

    /// Handles the end of the text.
    pub(super) fn finish(&mut self) {
        if let ShapeKind::Value(value) = &mut self.kind {
            value.finish(&mut self.cover);
        }
    }

    /// Returns the offset before which the shape claims nothing more.
    pub(super) fn held_from(&self) -> usize {
        self.cover.map_or(self.held_from, |cover| cover.end)
    }

    /// Returns the region that the shape certainly covers.
    pub(super) fn cover(&self) -> Option<Region> {
        self.cover
    }

    /// Whether this is a word that is certain and continues; a second one would cover nothing new.
    pub(super) fn is_open_ended(&self) -> bool {
        matches!(&self.kind, ShapeKind::Value(value) if value.is_open_ended())
    }

    /// Whether `other`, which starts now, cannot cover anything that this shape does not.
    ///
    /// This bounds the number of active shapes in text that consists of prefixes.
    pub(super) fn subsumes(&self, other: &Self) -> bool {
        self.cover.is_some()
            && match (&self.kind, &other.kind) {
                (ShapeKind::Run(this), ShapeKind::Run(that)) => this.token.class == that.token.class,
                (ShapeKind::Jwt(_), ShapeKind::Jwt(_)) => true,
                (ShapeKind::Pem(_), ShapeKind::Pem(_)) => true,
                (
                    ShapeKind::Run(_) | ShapeKind::Jwt(_) | ShapeKind::Pem(_) | ShapeKind::Url(_) | ShapeKind::Value(_),
                    _,
                ) => false,
            }
    }
}

/// Extends `cover` to include the byte `at`; a new region starts at `start`.
pub(super) fn extend_cover(cover: &mut Option<Region>, start: usize, at: usize) {
    *cover = Some(Region { start: cover.map_or(start, |region| region.start), end: at + 1 });
}

struct TokenRun {
    token: TokenSpec,
    length: usize,
    digit: bool,
    dots: usize,
}

impl TokenRun {
    fn new(token: TokenSpec) -> Self {
        Self { token, length: 0, digit: false, dots: 0 }
    }

    fn feed(&mut self, byte: u8, at: usize, start: usize, cover: &mut Option<Region>) -> bool {
        if !self.token.class.contains(byte) {
            return false;
        }
        self.length += 1;
        self.digit |= byte.is_ascii_digit();
        // A full stop belongs to the token only if the token continues after it.
        self.dots = if byte == b'.' { self.dots + 1 } else { 0 };
        let certain = self.length >= self.token.min_length && (self.digit || self.length >= self.token.certain_length);
        if certain && self.dots == 0 {
            extend_cover(cover, start, at);
        }
        self.dots <= 2 && (cover.is_some() || self.length <= UNCERTAIN_MAX)
    }
}

struct JwtMatcher {
    header: usize,
    /// How many bytes followed the first dot.
    rest: Option<usize>,
    dots: usize,
}

impl JwtMatcher {
    fn feed(&mut self, byte: u8, at: usize, start: usize, cover: &mut Option<Region>) -> bool {
        self.dots = if byte == b'.' { self.dots + 1 } else { 0 };
        match &mut self.rest {
            None if byte == b'.' => {
                self.rest = Some(0);
                self.header >= 10
            }
            None => {
                self.header += 1;
                CharClass::Dashed.contains(byte) && self.header <= JWT_HEADER_MAX
            }
            Some(_) if byte != b'.' && !CharClass::Dashed.contains(byte) => false,
            Some(rest) => {
                *rest += 1;
                if *rest >= 10 && self.dots == 0 {
                    extend_cover(cover, start, at);
                }
                self.dots <= 2
            }
        }
    }
}
