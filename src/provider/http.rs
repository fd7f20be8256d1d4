//! HTTP to models' servers: one pool of connections for all sessions, TLS with the roots that browsers trust.
//!
//! It follows no redirect, as that would show a key to whoever it leads to, and it knows no proxy.

use std::error::Error;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{Kind, ModelError};

/// The connections of all sessions to all servers.
#[derive(Debug)]
pub(super) struct Pool {
    client: OnceLock<Client<HttpsConnector<HttpConnector>, Full<Bytes>>>,
    connect: Duration,
}

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Where to.
    pub(super) url: String,
    /// With what; keys among it are marked as not to be shown.
    pub(super) headers: HeaderMap,
    /// What is sent; nothing makes it a question for what is there.
    pub(super) body: Option<Bytes>,
}

impl Pool {
    /// Makes an empty pool, in which a connection may take `connect` to be made.
    pub(super) const fn new(connect: Duration) -> Self {
        Self { client: OnceLock::new(), connect }
    }

    /// Sends a request and waits for the head of the answer.
    pub(super) async fn send(&self, call: Call, within: Duration) -> Result<Response<Incoming>, ModelError> {
        let method = if call.body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::new(Full::new(call.body.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = call.url.parse().map_err(|_| {
            ModelError::new(Kind::NotConfigured, format!("{} is no URL that can be called", call.url))
        })?;
        *request.headers_mut() = call.headers;
        let agent = HeaderValue::from_static(concat!("pushd/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(hyper::header::USER_AGENT).or_insert(agent);
        let client = self.client()?;
        match timeout(within, client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(failed(&call.url, &error)),
            Err(_) => Err(silent(within)),
        }
    }

    fn client(&self) -> Result<&Client<HttpsConnector<HttpConnector>, Full<Bytes>>, ModelError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let made = make(self.connect)
            .map_err(|error| ModelError::new(Kind::Failed, format!("cannot set up TLS: {error}")))?;
        Ok(self.client.get_or_init(|| made))
    }
}

/// Reads a body to its end, or as much of it as is wanted.
pub(super) async fn read_body(
    response: Response<Incoming>,
    limit: usize,
    within: Duration,
) -> Result<Vec<u8>, ModelError> {
    let deadline = Instant::now() + within;
    let mut body = response.into_body();
    let mut read = Vec::new();
    while read.len() < limit {
        match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Ok(Some(Err(error))) => return Err(broken(&error)),
            Ok(None) => break,
            Err(_) => return Err(silent(within)),
        }
    }
    read.truncate(limit);
    Ok(read)
}

/// Makes the error of an answer whose body breaks off.
pub(super) fn broken(error: &hyper::Error) -> ModelError {
    ModelError::new(Kind::Cut, "the server ended its answer in the middle").with_detail(&chain(error))
}

/// Makes the error of an answer that does not come.
pub(super) fn silent(waited: Duration) -> ModelError {
    let message = format!("the server has sent nothing for {} s", waited.as_secs_f64());
    ModelError::new(Kind::Silent, message)
}

fn make(connect: Duration) -> io::Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(connect));
    tcp.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
        .map_err(io::Error::other)?
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    // Idle connections go when the server closes them or the next question finds them old: no timer runs meanwhile.
    Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(IDLE).build(connector))
}

fn failed(url: &str, error: &ClientError) -> ModelError {
    let why = chain(error);
    if error.is_connect() {
        let place = url.parse::<hyper::Uri>().ok().and_then(|uri| uri.authority().map(ToString::to_string));
        let place = place.unwrap_or_else(|| url.to_owned());
        return ModelError::new(Kind::Unreachable, format!("cannot reach {place}: {}", cause(error)))
            .with_detail(&why);
    }
    let inner = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
    if inner.is_some_and(hyper::Error::is_parse) {
        return ModelError::new(Kind::Garbage, "the server's answer is no HTTP").with_detail(&why);
    }
    ModelError::new(Kind::Cut, "the server closed the connection without an answer").with_detail(&why)
}

/// Returns what lies at the bottom of an error.
fn cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// How many idle connections to one server are kept.
const IDLE: usize = 8;
