//! Who may come in, as far as a request alone tells: its host, its origin, its method, its path, and what it upgrades to.
//!
//! A web page may have a browser send requests to this machine, and may have its own name resolve to it. The first gives
//! itself away by its `Origin`, the second by its `Host`. Nothing of a request is believed that is there twice.

use data_encoding::BASE64;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode, Version};
use sha1::{Digest, Sha1};

/// What requests are held to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Door {
    /// The names by which this server may be called, beside those of the loopback; with any port.
    pub hosts: Vec<String>,
    /// The origins of web pages that may come in.
    pub origins: Vec<String>,
    /// Where a WebSocket is to be had.
    pub paths: &'static [&'static str],
    /// The subprotocol, for clients that ask for one.
    pub protocol: &'static str,
}

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The server was called by a name that is not its own.
    #[error("this server is not called that: add the name to `hosts` if it is")]
    Host,
    /// A web page sent it that may not.
    #[error("this origin is not allowed: add it to `origins` if it should be")]
    Origin,
    /// Another user of this machine sent it, without a token.
    #[error("this server is for its own user; others need a token")]
    Stranger,
    /// A command that a model chose sent it.
    #[error("a command of a model may not talk to the daemon")]
    OfATool,
    /// The process that opened the connection does not have it any more.
    #[error("no process holds this connection any more; keep it open until it is answered")]
    NoHolder,
    /// A token is needed.
    #[error(
        "a token is needed: `Authorization: Bearer TOKEN`, or the subprotocol `bearer.TOKEN`; `push token new` makes one"
    )]
    NoToken,
    /// The token is not valid.
    #[error("this token is not valid")]
    WrongToken,
    /// Too many tokens were tried.
    #[error("too many wrong tokens were tried; none is looked at for {seconds} s")]
    TooManyTokens {
        /// For how long.
        seconds: u64,
    },
    /// Tokens cannot be looked at.
    #[error("the tokens cannot be read; the daemon's log says more")]
    TokensUnreadable,
    /// There are too many connections.
    #[error("too many connections")]
    Full,
    /// It is none of those that are served.
    #[error("only GET is served")]
    Method,
    /// There is nothing there.
    #[error("there is nothing here")]
    Path,
    /// It does not ask for a WebSocket.
    #[error("a WebSocket is served here, and nothing else")]
    NotAWebSocket,
    /// It asks for a WebSocket of another version.
    #[error("version 13 of the WebSocket protocol is spoken here")]
    OtherVersion,
    /// It has no key, or not a good one.
    #[error("the key of the WebSocket is missing or malformed")]
    Key,
}

impl Refusal {
    /// Its number in HTTP.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin | Self::Stranger | Self::OfATool | Self::NoHolder => StatusCode::FORBIDDEN,
            Self::NoToken | Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::TooManyTokens { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::TokensUnreadable => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Full => StatusCode::SERVICE_UNAVAILABLE,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Path => StatusCode::NOT_FOUND,
            Self::NotAWebSocket | Self::OtherVersion => StatusCode::UPGRADE_REQUIRED,
            Self::Key => StatusCode::BAD_REQUEST,
        }
    }

    /// The header that goes with it.
    pub(super) fn header(self) -> Option<(HeaderName, HeaderValue)> {
        let fixed = |name, value| Some((name, HeaderValue::from_static(value)));
        match self {
            Self::NoToken | Self::WrongToken => fixed(header::WWW_AUTHENTICATE, "Bearer"),
            Self::TooManyTokens { seconds } => Some((header::RETRY_AFTER, HeaderValue::from(seconds))),
            Self::Method => fixed(header::ALLOW, "GET"),
            Self::NotAWebSocket => fixed(header::UPGRADE, "websocket"),
            Self::OtherVersion => fixed(header::SEC_WEBSOCKET_VERSION, "13"),
            Self::Host
            | Self::Origin
            | Self::Stranger
            | Self::OfATool
            | Self::NoHolder
            | Self::TokensUnreadable
            | Self::Full
            | Self::Path
            | Self::Key => None,
        }
    }
}

/// What a WebSocket is granted with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The answer to the request's key.
    pub(super) accept: String,
    /// The subprotocol that is spoken.
    pub(super) protocol: Option<&'static str>,
}

impl Door {
    /// Tells whether a request comes from where it may; nothing else of it counts before that.
    pub(super) fn admits<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let headers = request.headers();
        let host = only(headers, &header::HOST).ok_or(Refusal::Host)?;
        // A proxy's form of the target names the host once more.
        let named = request.uri().authority().map(Authority::as_str);
        if !std::iter::once(host).chain(named).all(|host| self.is_our_name(host)) {
            return Err(Refusal::Host);
        }
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        match only(headers, &header::ORIGIN) {
            Some(origin) if self.origins.iter().any(|allowed| allowed == origin) => Ok(()),
            Some(_) | None => Err(Refusal::Origin),
        }
    }

    /// Says what a request that may come in gets.
    pub(super) fn grants<B>(&self, request: &Request<B>) -> Result<Grant, Refusal> {
        if request.method() != Method::GET {
            return Err(Refusal::Method);
        }
        if !self.paths.contains(&request.uri().path()) {
            return Err(Refusal::Path);
        }
        let headers = request.headers();
        let upgrades = lists(headers, &header::UPGRADE, "websocket")
            && lists(headers, &header::CONNECTION, "upgrade")
            && request.version() == Version::HTTP_11;
        if !upgrades {
            return Err(Refusal::NotAWebSocket);
        }
        if only(headers, &header::SEC_WEBSOCKET_VERSION) != Some("13") {
            return Err(Refusal::OtherVersion);
        }
        let key = only(headers, &header::SEC_WEBSOCKET_KEY).ok_or(Refusal::Key)?;
        if BASE64.decode(key.as_bytes()).map_or(0, |bytes| bytes.len()) != 16 {
            return Err(Refusal::Key);
        }
        let protocol = offered(headers).any(|offer| offer == self.protocol).then_some(self.protocol);
        Ok(Grant { accept: accept(key), protocol })
    }

    fn is_our_name(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        let known = LOOPBACK.iter().copied().chain(self.hosts.iter().map(String::as_str));
        known.into_iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The names of this machine that nobody else can have.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Returns the token that a request brings; one in the address is none, since addresses are written down everywhere.
pub(super) fn token<B>(request: &Request<B>) -> Option<String> {
    let headers = request.headers();
    if headers.contains_key(header::AUTHORIZATION) {
        let (scheme, token) = only(headers, &header::AUTHORIZATION)?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned());
    }
    // The one header that a web page can set.
    offered(headers).find_map(|offer| offer.strip_prefix("bearer.")).map(str::to_owned)
}

/// Returns the value of a header that is there once, as text.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    listed(headers, name).any(|listed| listed.eq_ignore_ascii_case(word))
}

fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    listed(headers, &header::SEC_WEBSOCKET_PROTOCOL)
}

/// Takes the port off; `None` where what follows the name is none.
fn without_port(host: &str) -> Option<&str> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, port) = host.split_at_checked(end)?;
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

/// Shows that the request was understood, in the way that the protocol fixes.
fn accept(key: &str) -> String {
    let mut digest = Sha1::new();
    digest.update(key.as_bytes());
    digest.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64.encode(&digest.finalize())
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
