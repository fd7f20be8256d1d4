//! The shapes of secrets: tokens with a known prefix, JWTs, PEM keys, passwords in URLs.
//!
//! A shape starts where the automaton finds its prefix, and is then fed byte by byte. Until it is certain, text is
//! held back from `held_from`; once certain it covers a region, which may grow until the shape ends. A shape that
//! is certain stays so when more text follows: hence no exact lengths, and redaction is idempotent.

use super::{
    assignment::{self, Key, Style, Value},
    pem::Pem,
    scan::Region,
    url::Url,
};

/// The maximum length of the header of a JWT.
const JWT_HEADER: usize = 8 * 1024;
/// A run of this length without a digit is not a token.
const PATIENCE: usize = 256;

/// The shape that starts where a pattern of the automaton ends.
#[derive(Clone, Copy)]
pub(super) enum Begin {
    Token(Token),
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
    Option(Key),
}

/// The format of a token with a known prefix.
#[derive(Clone, Copy)]
pub(super) struct Token {
    class: Class,
    /// The minimum number of characters after the prefix.
    least: usize,
    /// The length from which on no digit is needed.
    undoubted: usize,
    /// Whether the prefix must be at the start of a word.
    edge: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Upper,
    Alphanumeric,
    Word,
    Dashed,
    Credential,
}

impl Class {
    fn has(self, byte: u8) -> bool {
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
pub(super) fn beginnings() -> Vec<(&'static [u8], Begin)> {
    let token = |class, least, undoubted, edge| Begin::Token(Token { class, least, undoubted, edge });
    let github = token(Class::Word, 20, 20, false);
    let slack = token(Class::Dashed, 10, usize::MAX, false);
    let stripe = token(Class::Alphanumeric, 16, 16, true);
    let scheme = |alone| Begin::Scheme { alone };
    vec![
        (b"sk-", token(Class::Dashed, 20, usize::MAX, true)),
        (b"sk-ant-", token(Class::Dashed, 16, usize::MAX, false)),
        (b"sk_live_", stripe),
        (b"sk_test_", stripe),
        (b"rk_live_", stripe),
        (b"rk_test_", stripe),
        (b"ghp_", github),
        (b"gho_", github),
        (b"ghs_", github),
        (b"ghu_", github),
        (b"ghr_", github),
        (b"github_pat_", token(Class::Word, 20, usize::MAX, false)),
        (b"glpat-", token(Class::Dashed, 16, usize::MAX, false)),
        (b"xoxa-", slack),
        (b"xoxb-", slack),
        (b"xoxp-", slack),
        (b"xoxr-", slack),
        (b"xoxs-", slack),
        (b"AKIA", token(Class::Upper, 16, 16, true)),
        (b"ASIA", token(Class::Upper, 16, usize::MAX, true)),
        (b"AIza", token(Class::Dashed, 30, usize::MAX, true)),
        (b"npm_", token(Class::Alphanumeric, 30, 30, true)),
        (b"pypi-", token(Class::Dashed, 30, usize::MAX, true)),
        (b"hf_", token(Class::Alphanumeric, 30, 30, true)),
        (b"att_", token(Class::Dashed, 32, usize::MAX, true)),
        (b"ptk_", token(Class::Dashed, 32, usize::MAX, true)),
        (b"eyJ", Begin::Jwt),
        (b"-----BEGIN ", Begin::Pem),
        (b"://", Begin::Url),
        (b"Bearer ", scheme(true)),
        (b"bearer ", scheme(true)),
        (b"BEARER ", scheme(true)),
        (b"Basic ", scheme(false)),
        (b"basic ", scheme(false)),
        (b"Token ", scheme(false)),
        (b"token ", scheme(false)),
        (b"=", Begin::Separator(b'=')),
        (b":", Begin::Separator(b':')),
        (b"--password ", Begin::Option(Key::Strong)),
        (b"--passphrase ", Begin::Option(Key::Strong)),
        (b"--secret ", Begin::Option(Key::Strong)),
        (b"--api-key ", Begin::Option(Key::Strong)),
        (b"--token ", Begin::Option(Key::Weak)),
    ]
}

impl Begin {
    /// Returns the shape that starts here, if the text `before` allows one.
    ///
    /// The pattern is at `start..end` of the complete text.
    pub(super) fn shape(self, before: &[u8], start: usize, end: usize) -> Option<Shape> {
        let (held_from, kind) = match self {
            Self::Token(token) if token.edge && !at_edge(before) => return None,
            Self::Token(token) => (start, Kind::Run(Run::new(token))),
            Self::Jwt if !at_edge(before) => return None,
            Self::Jwt => (start, Kind::Jwt(Jwt { header: 0, rest: None, dots: 0 })),
            Self::Pem => (start, Kind::Pem(Pem::default())),
            Self::Url if !before.last().is_some_and(u8::is_ascii_alphanumeric) => return None,
            Self::Url => (end, Kind::Url(Url::default())),
            Self::Scheme { alone } => {
                let authorized = assignment::is_authorization(before);
                if !(authorized || alone && at_edge(before)) {
                    return None;
                }
                let (least, undoubted) = if authorized { (6, 6) } else { (10, 20) };
                let token = Token { class: Class::Credential, least, undoubted, edge: false };
                (end, Kind::Run(Run::new(token)))
            }
            Self::Separator(separator) => {
                let (key, style) = assignment::key_before(before, separator)?;
                (end, Kind::Value(Value::new(key, style, separator)))
            }
            Self::Option(key) => (end, Kind::Value(Value::new(key, Style::Colon, b' '))),
        };
        Some(Shape { held_from, cover: None, kind })
    }
}

/// Whether a word may start after `before`.
///
/// The closing bracket of a marker is not a word boundary: the text that the marker replaced is unknown.
fn at_edge(before: &[u8]) -> bool {
    match before {
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., last] => !(last.is_ascii_alphanumeric() || b"_-]".contains(last)),
        [] => true,
    }
}

/// An active shape.
pub(super) struct Shape {
    held_from: usize,
    cover: Option<Region>,
    kind: Kind,
}

enum Kind {
    Run(Run),
    Jwt(Jwt),
    Pem(Pem),
    Url(Url),
    Value(Value),
}

impl Shape {
    /// Consumes the byte at offset `at`; returns false when the shape has ended before it, or with it.
    pub(super) fn feed(&mut self, byte: u8, at: usize) -> bool {
        match &mut self.kind {
            Kind::Run(run) => run.feed(byte, at, self.held_from, &mut self.cover),
            Kind::Jwt(jwt) => jwt.feed(byte, at, self.held_from, &mut self.cover),
            Kind::Pem(pem) => pem.feed(byte, at, self.held_from, &mut self.cover),
            Kind::Url(url) => url.feed(byte, at, &mut self.cover),
            Kind::Value(value) => value.feed(byte, at, &mut self.held_from, &mut self.cover),
        }
    }

    /// Handles the end of the text.
    pub(super) fn end(&mut self) {
        if let Kind::Value(value) = &mut self.kind {
            value.end(&mut self.cover);
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
        matches!(&self.kind, Kind::Value(value) if value.is_open_ended())
    }

    /// Whether `other`, which starts now, cannot cover anything that this shape does not.
    ///
    /// This bounds the number of active shapes in text that consists of prefixes.
    pub(super) fn stands_for(&self, other: &Self) -> bool {
        self.cover.is_some()
            && match (&self.kind, &other.kind) {
                (Kind::Run(this), Kind::Run(that)) => this.token.class == that.token.class,
                (Kind::Jwt(_), Kind::Jwt(_)) => true,
                (Kind::Pem(_), Kind::Pem(_)) => true,
                (Kind::Run(_) | Kind::Jwt(_) | Kind::Pem(_) | Kind::Url(_) | Kind::Value(_), _) => false,
            }
    }
}

/// Extends `cover` to include the byte `at`; a new region starts at `start`.
pub(super) fn reach(cover: &mut Option<Region>, start: usize, at: usize) {
    *cover = Some(Region { start: cover.map_or(start, |region| region.start), end: at + 1 });
}

struct Run {
    token: Token,
    length: usize,
    digit: bool,
    dots: usize,
}

impl Run {
    fn new(token: Token) -> Self {
        Self { token, length: 0, digit: false, dots: 0 }
    }

    fn feed(&mut self, byte: u8, at: usize, start: usize, cover: &mut Option<Region>) -> bool {
        if !self.token.class.has(byte) {
            return false;
        }
        self.length += 1;
        self.digit |= byte.is_ascii_digit();
        // A full stop belongs to the token only if the token continues after it.
        self.dots = if byte == b'.' { self.dots + 1 } else { 0 };
        let certain = self.length >= self.token.least && (self.digit || self.length >= self.token.undoubted);
        if certain && self.dots == 0 {
            reach(cover, start, at);
        }
        self.dots <= 2 && (cover.is_some() || self.length <= PATIENCE)
    }
}

struct Jwt {
    header: usize,
    /// How many bytes followed the first dot.
    rest: Option<usize>,
    dots: usize,
}

impl Jwt {
    fn feed(&mut self, byte: u8, at: usize, start: usize, cover: &mut Option<Region>) -> bool {
        self.dots = if byte == b'.' { self.dots + 1 } else { 0 };
        match &mut self.rest {
            None if byte == b'.' => {
                self.rest = Some(0);
                self.header >= 10
            }
            None => {
                self.header += 1;
                Class::Dashed.has(byte) && self.header <= JWT_HEADER
            }
            Some(_) if byte != b'.' && !Class::Dashed.has(byte) => false,
            Some(rest) => {
                *rest += 1;
                if *rest >= 10 && self.dots == 0 {
                    reach(cover, start, at);
                }
                self.dots <= 2
            }
        }
    }
}
