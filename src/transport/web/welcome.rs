//! The handshake of a WebSocket: one request, one answer, in good time.

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

use super::super::frames::{self, Receiving, Sending};
use super::door::{Door, Grant, Refusal, token};
use super::socket::SocketLimits;

/// What is allowed to a connection on its way in, and then.
#[derive(Debug, Clone, Copy)]
pub struct WelcomeLimits {
    /// How long the handshake may take.
    pub handshake: Duration,
    /// What holds afterwards.
    pub socket: SocketLimits,
}

/// Why a connection became no WebSocket.
#[derive(Debug, thiserror::Error)]
pub enum Unwelcome {
    /// It was turned away, and told why.
    #[error(transparent)]
    Refused(Refusal),
    /// It did not ask in time.
    #[error("the handshake took too long")]
    Slow,
    /// It broke, or did not speak HTTP.
    #[error("the handshake failed")]
    Broken(#[source] io::Error),
}

/// Answers the one request of a connection; what it becomes is for `entry` to say, which is given the request's token.
pub async fn welcome<E>(
    stream: TcpStream,
    door: &Door,
    limits: WelcomeLimits,
    entry: E,
) -> Result<(Receiving, Sending), Unwelcome>
where
    E: AsyncFn(Option<String>) -> Result<(), Refusal>,
{
    let refused = OnceLock::new();
    let (door, entry, verdict) = (&door, &entry, &refused);
    let service = service_fn(async move |request: Request<Incoming>| {
        let outcome = decide(&request, door, entry).await;
        // There is one request.
        let _ = verdict.set(outcome.as_ref().err().copied());
        Ok::<_, Infallible>(match outcome {
            Ok(grant) => granted(&grant),
            Err(refusal) => answer(refusal),
        })
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(HEAD_BYTES).max_headers(HEADERS);
    let serving = http.serve_connection(TokioIo::new(stream), service).without_shutdown();
    let parts = match timeout(limits.handshake, serving).await {
        Ok(Ok(parts)) => parts,
        Ok(Err(error)) => return Err(Unwelcome::Broken(io::Error::other(error))),
        Err(_) => return Err(Unwelcome::Slow),
    };
    let stream = parts.io.into_inner();
    match refused.get() {
        Some(None) => Ok(frames::web(stream, parts.read_buf, limits.socket)),
        Some(Some(refusal)) => {
            part(stream).await;
            Err(Unwelcome::Refused(*refusal))
        }
        None => Err(Unwelcome::Broken(io::ErrorKind::UnexpectedEof.into())),
    }
}

async fn decide<E>(request: &Request<Incoming>, door: &Door, entry: &E) -> Result<Grant, Refusal>
where
    E: AsyncFn(Option<String>) -> Result<(), Refusal>,
{
    door.admits(request)?;
    entry(token(request)).await?;
    door.grants(request)
}

fn granted(grant: &Grant) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&grant.accept) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = grant.protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    response
}

fn answer(refusal: Refusal) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{refusal}\n")));
    *response.status_mut() = refusal.status();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.extend(refusal.header());
    response
}

/// Ends a connection so that its peer can read the answer: what it still sends is taken and thrown away.
async fn part(mut stream: TcpStream) {
    let read_out = async {
        let mut unread = vec![0; 4 * 1024];
        stream.shutdown().await?;
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    // Who takes longer has had its time.
    let _ = timeout(LINGER, read_out).await;
}

/// How large a request's head may be, and how many headers it may have.
const HEAD_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;

/// How long a peer has to read why it was turned away.
const LINGER: Duration = Duration::from_secs(1);
