//! The WebSocket handshake: one request and one response, within a time limit.

use std::convert::Infallible;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::frames::{self, FrameReader, FrameWriter};
use super::access_policy::{AccessPolicy, AccessRefusal, UpgradeReply, WebEndpoint, bearer_token};

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The request was refused, and the client got the reason.
    #[error(transparent)]
    Refused(AccessRefusal),
    /// The request did not arrive in time.
    #[error("the handshake took too long")]
    TimedOut,
    /// The connection broke, or the client did not speak HTTP.
    #[error("the handshake failed")]
    Failed(#[source] io::Error),
}

/// Authorizes a request after the access policy has accepted its origin.
pub trait Authorizer: Sync {
    /// A value that is held as long as the connection lasts.
    type Permit: Send + Sync;

    /// Decides whether the request is accepted, given its token.
    fn authorize(&self, token: Option<String>) -> impl Future<Output = Result<Self::Permit, AccessRefusal>> + Send;
}

/// A connection after a successful handshake.
#[derive(Debug)]
pub struct UpgradedConnection<P> {
    /// The value held as long as the connection lasts.
    pub permit: P,
    /// The name of the protocol that the path selects.
    pub protocol: &'static str,
    /// The reading half.
    pub reader: FrameReader,
    /// The writing half.
    pub writer: FrameWriter,
}

/// Serves the one request of a connection, which then becomes a WebSocket or ends; `limit` bounds the time.
pub async fn handshake<E: Authorizer>(
    stream: TcpStream,
    policy: &AccessPolicy,
    limit: Duration,
    authorizer: &E,
) -> Result<UpgradedConnection<E::Permit>, HandshakeError> {
    let outcome = OnceLock::new();
    let outcome_cell = &outcome;
    let service = service_fn(move |request: Request<Incoming>| async move {
        let (decided, response) = match decide(&request, policy, authorizer).await {
            Ok((permit, upgrade, endpoint)) => (Ok((permit, endpoint)), upgrade_response(&upgrade)),
            Err(refusal) => (Err(refusal), refusal_response(refusal)),
        };
        // A connection has one request, so the cell is set once.
        let _ = outcome_cell.set(decided);
        Ok::<_, Infallible>(response)
    });
    let mut http = http1::Builder::new();
    http.max_buf_size(HEAD_BYTES).max_headers(HEADERS);
    let serving = http.serve_connection(TokioIo::new(stream), service).without_shutdown();
    let parts = match timeout(limit, serving).await {
        Ok(Ok(parts)) => parts,
        Ok(Err(error)) => return Err(HandshakeError::Failed(io::Error::other(error))),
        Err(_) => return Err(HandshakeError::TimedOut),
    };
    let (stream, early) = (parts.io.into_inner(), parts.read_buf);
    match outcome.into_inner() {
        Some(Ok((permit, endpoint))) => {
            let (reader, writer) = frames::web_socket(stream, early, endpoint.socket);
            Ok(UpgradedConnection { permit, protocol: endpoint.protocol, reader, writer })
        }
        Some(Err(refusal)) => {
            close_after_refusal(stream).await;
            Err(HandshakeError::Refused(refusal))
        }
        None => Err(HandshakeError::Failed(io::ErrorKind::UnexpectedEof.into())),
    }
}

async fn decide<E: Authorizer>(
    request: &Request<Incoming>,
    policy: &AccessPolicy,
    authorizer: &E,
) -> Result<(E::Permit, UpgradeReply, WebEndpoint), AccessRefusal> {
    policy.check_origin(request)?;
    let permit = authorizer.authorize(bearer_token(request)).await?;
    let (upgrade, endpoint) = policy.negotiate(request)?;
    Ok((permit, upgrade, endpoint))
}

fn upgrade_response(upgrade: &UpgradeReply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&upgrade.accept) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = upgrade.protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    response
}

fn refusal_response(refusal: AccessRefusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{refusal}\n")));
    *response.status_mut() = refusal.status();
    let headers = response.headers_mut();
    // A connection serves no second request.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.extend(refusal.header());
    response
}

/// Closes a connection after a refusal. Unread data would reset it, so the peer's remaining bytes are read and
/// discarded.
async fn close_after_refusal(mut stream: TcpStream) {
    let read_out = async {
        let mut unread = vec![0; 4 * 1024];
        stream.shutdown().await?;
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    // A slower peer has used up its time.
    let _ = timeout(LINGER, read_out).await;
}

/// The maximum size of a request head, and the maximum number of its headers.
const HEAD_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;

/// How long a peer has to read the refusal.
const LINGER: Duration = Duration::from_secs(1);
