//! Access control by the request alone: its host, origin, method, path and upgrade.
//!
//! A web page can make a browser send requests to this machine, and can let its own host name resolve to it (DNS
//! rebinding). The `Origin` header reveals the first, the `Host` header the second. A header that must be unique and
//! occurs twice is rejected.

use data_encoding::BASE64;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode, Version};
use sha1::{Digest, Sha1};

use super::socket::SocketLimits;

/// The policy that a request must satisfy.
#[derive(Debug, Clone)]
pub struct AccessPolicy {
    /// The host names of this server besides the loopback names; any port is accepted.
    pub hosts: Vec<String>,
    /// The allowed origins of web pages.
    pub origins: Vec<String>,
    /// The paths that serve a WebSocket.
    pub endpoints: Vec<WebEndpoint>,
}

/// A path that serves a WebSocket.
#[derive(Debug, Clone, Copy)]
pub struct WebEndpoint {
    /// The path.
    pub path: &'static str,
    /// The name of its protocol, and the WebSocket subprotocol for clients that offer one.
    pub protocol: &'static str,
    /// The limits of its connections.
    pub socket: SocketLimits,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessRefusal {
    /// The `Host` header names another server.
    #[error("the Host header does not name this server: add the name to `hosts` if it should")]
    Host,
    /// The `Origin` header names a web page that is not allowed.
    #[error("this origin is not allowed: add it to `origins` if it should be")]
    Origin,
    /// Another user of this machine sent it without a token.
    #[error("connections of other users need a token; `push token new` creates one")]
    OtherUser,
    /// A process that a model's command started sent it.
    #[error("a command of a model may not connect to the daemon")]
    ToolProcess,
    /// The process that opened the connection no longer holds it.
    #[error("no process holds this connection open any more; keep it open until the reply arrives")]
    NoOwningProcess,
    /// A token is required.
    #[error(
        "a token is needed: `Authorization: Bearer TOKEN`, or the subprotocol `bearer.TOKEN`; create one with `push token new`"
    )]
    TokenRequired,
    /// The token is not valid.
    #[error("this token is not valid")]
    InvalidToken,
    /// Too many invalid tokens were tried.
    #[error("too many invalid tokens; try again in {seconds} s")]
    TokensThrottled {
        /// When tokens are checked again, in seconds.
        seconds: u64,
    },
    /// The tokens cannot be read.
    #[error("the tokens cannot be read; see the daemon's log")]
    TokensUnreadable,
    /// There are too many connections.
    #[error("too many connections")]
    TooManyConnections,
    /// The method is not GET.
    #[error("only GET is served")]
    Method,
    /// The path is not served.
    #[error("this path is not served")]
    Path,
    /// The request is no WebSocket upgrade.
    #[error("this path serves WebSocket connections only")]
    NotAWebSocket,
    /// The request asks for another WebSocket version.
    #[error("only version 13 of the WebSocket protocol is supported")]
    UnsupportedVersion,
    /// The WebSocket key is missing or malformed.
    #[error("the key of the WebSocket is missing or malformed")]
    Key,
}

impl AccessRefusal {
    /// Returns its HTTP status.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin | Self::OtherUser | Self::ToolProcess | Self::NoOwningProcess => StatusCode::FORBIDDEN,
            Self::TokenRequired | Self::InvalidToken => StatusCode::UNAUTHORIZED,
            Self::TokensThrottled { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::TokensUnreadable => StatusCode::INTERNAL_SERVER_ERROR,
            Self::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Path => StatusCode::NOT_FOUND,
            Self::NotAWebSocket | Self::UnsupportedVersion => StatusCode::UPGRADE_REQUIRED,
            Self::Key => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the response header that goes with it.
    pub(super) fn header(self) -> Option<(HeaderName, HeaderValue)> {
        let fixed = |name, value| Some((name, HeaderValue::from_static(value)));
        match self {
            Self::TokenRequired | Self::InvalidToken => fixed(header::WWW_AUTHENTICATE, "Bearer"),
            Self::TokensThrottled { seconds } => Some((header::RETRY_AFTER, HeaderValue::from(seconds))),
            Self::Method => fixed(header::ALLOW, "GET"),
            Self::NotAWebSocket => fixed(header::UPGRADE, "websocket"),
            Self::UnsupportedVersion => fixed(header::SEC_WEBSOCKET_VERSION, "13"),
            Self::Host
            | Self::Origin
            | Self::OtherUser
            | Self::ToolProcess
            | Self::NoOwningProcess
            | Self::TokensUnreadable
            | Self::TooManyConnections
            | Self::Path
            | Self::Key => None,
        }
    }
}

/// The negotiated parts of a successful upgrade.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UpgradeReply {
    /// The value of `Sec-WebSocket-Accept`.
    pub(super) accept: String,
    /// The selected subprotocol.
    pub(super) protocol: Option<&'static str>,
}

impl AccessPolicy {
    /// Checks the host and the origin of a request; nothing else is considered before that.
    pub(super) fn check_origin<B>(&self, request: &Request<B>) -> Result<(), AccessRefusal> {
        let headers = request.headers();
        let host = single_value(headers, &header::HOST).ok_or(AccessRefusal::Host)?;
        // The absolute form of the target, as sent to a proxy, names the host again.
        let named = request.uri().authority().map(Authority::as_str);
        if !std::iter::once(host).chain(named).all(|host| self.is_own_host(host)) {
            return Err(AccessRefusal::Host);
        }
        if !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        match single_value(headers, &header::ORIGIN) {
            Some(origin) if self.origins.iter().any(|allowed| allowed == origin) => Ok(()),
            Some(_) | None => Err(AccessRefusal::Origin),
        }
    }

    /// Checks that an allowed request is a valid WebSocket upgrade, and returns the parts of the response.
    pub(super) fn negotiate<B>(&self, request: &Request<B>) -> Result<(UpgradeReply, WebEndpoint), AccessRefusal> {
        if request.method() != Method::GET {
            return Err(AccessRefusal::Method);
        }
        let endpoint = self.endpoints.iter().find(|endpoint| endpoint.path == request.uri().path());
        let endpoint = endpoint.ok_or(AccessRefusal::Path)?;
        let headers = request.headers();
        let upgrades = list_contains(headers, &header::UPGRADE, "websocket")
            && list_contains(headers, &header::CONNECTION, "upgrade")
            && request.version() == Version::HTTP_11;
        if !upgrades {
            return Err(AccessRefusal::NotAWebSocket);
        }
        if single_value(headers, &header::SEC_WEBSOCKET_VERSION) != Some("13") {
            return Err(AccessRefusal::UnsupportedVersion);
        }
        let key = single_value(headers, &header::SEC_WEBSOCKET_KEY).ok_or(AccessRefusal::Key)?;
        if BASE64.decode(key.as_bytes()).map_or(0, |bytes| bytes.len()) != 16 {
            return Err(AccessRefusal::Key);
        }
        let is_offered = offered_protocols(headers).any(|offer| offer == endpoint.protocol);
        let reply = UpgradeReply { accept: accept_key(key), protocol: is_offered.then_some(endpoint.protocol) };
        Ok((reply, *endpoint))
    }

    fn is_own_host(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        let known = LOOPBACK.iter().copied().chain(self.hosts.iter().map(String::as_str));
        known.into_iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Host names that always refer to this machine.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Returns the bearer token of a request. A token in the URL is ignored, because URLs end up in logs.
pub(super) fn bearer_token<B>(request: &Request<B>) -> Option<String> {
    let headers = request.headers();
    if headers.contains_key(header::AUTHORIZATION) {
        let (scheme, token) = single_value(headers, &header::AUTHORIZATION)?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned());
    }
    // A web page can set no other header.
    offered_protocols(headers).find_map(|offer| offer.strip_prefix("bearer.")).map(str::to_owned)
}

/// Returns the value of a header that occurs exactly once and is text.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

fn list_items<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim)
}

fn list_contains(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    list_items(headers, name).any(|listed| listed.eq_ignore_ascii_case(word))
}

fn offered_protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    list_items(headers, &header::SEC_WEBSOCKET_PROTOCOL)
}

/// Removes the port; `None` if the rest is not a valid port.
fn without_port(host: &str) -> Option<&str> {
    let end = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, port) = host.split_at_checked(end)?;
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

/// Computes `Sec-WebSocket-Accept` as RFC 6455 defines it.
fn accept_key(key: &str) -> String {
    let mut digest = Sha1::new();
    digest.update(key.as_bytes());
    digest.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64.encode(&digest.finalize())
}

#[cfg(test)]
#[path = "access_policy_tests.rs"]
mod tests;
