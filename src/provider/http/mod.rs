//! The HTTP client for model servers: connections that all sessions share, and TLS with the web PKI roots.
//!
//! It follows no redirect, because that would send a key to another server, and it uses no proxy. A connection in
//! use has no task of its own ([`connection`]); an idle one waits in the [`pool`].

mod connection;
mod pool;

use std::error::Error;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::service::Service;
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::service::TowerToHyperService;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{ModelError, ModelErrorKind};
pub(super) use connection::{BodyFrame, ResponseBody};
use connection::{HttpConnection, WireRequest};
use pool::{ConnectionPool, Origin};

type Connector = TowerToHyperService<HttpsConnector<HttpConnector>>;

/// The HTTP client of all sessions.
#[derive(Debug)]
pub(super) struct HttpClient {
    connector: OnceLock<Connector>,
    connect_timeout: Duration,
    pool: Arc<ConnectionPool>,
}

/// A request to send.
#[derive(Debug, Clone)]
pub(super) struct OutgoingRequest {
    /// The URL.
    pub(super) url: String,
    /// The headers; keys among them are marked as sensitive.
    pub(super) headers: HeaderMap,
    /// The body of a POST request; `None` makes it a GET request.
    pub(super) body: Option<Bytes>,
}

impl HttpClient {
    /// Creates a client without connections; `connect` is the timeout of a connection attempt.
    pub(super) fn new(connect_timeout: Duration) -> Self {
        Self { connector: OnceLock::new(), connect_timeout, pool: Arc::default() }
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(
        &self,
        call: OutgoingRequest,
        within: Duration,
    ) -> Result<Response<ResponseBody>, ModelError> {
        let (origin, question) = build_request(call)?;
        timeout(within, self.dispatch(origin, question)).await.unwrap_or_else(|_| Err(timeout_error(within)))
    }

    async fn dispatch(&self, origin: Origin, mut question: WireRequest) -> Result<Response<ResponseBody>, ModelError> {
        loop {
            let (mut link, used) = match self.pool.take(&origin) {
                Some(link) => (link, ConnectionReuse::Reused),
                None => (self.connect(&origin).await?, ConnectionReuse::Fresh),
            };
            let mut error = match link.send(question).await {
                Ok(answer) => {
                    return Ok(answer.map(|body| ResponseBody::new(link, body, Arc::clone(&self.pool), origin)));
                }
                Err(error) => error,
            };
            // The server closed an idle connection before the request was sent: retry on another one.
            question = match (used, error.take_message()) {
                (ConnectionReuse::Reused, Some(question)) => question,
                (ConnectionReuse::Reused, None) | (ConnectionReuse::Fresh, _) => {
                    return Err(exchange_error(&error.into_error()));
                }
            };
        }
    }

    async fn connect(&self, origin: &Origin) -> Result<HttpConnection, ModelError> {
        let uri = origin.uri().map_err(|_| invalid_url(origin.authority()))?;
        let wire = self.connector()?.call(uri).await.map_err(|error| connect_error(origin, &*error))?;
        HttpConnection::handshake(wire).await.map_err(|error| exchange_error(&error))
    }

    fn connector(&self) -> Result<&Connector, ModelError> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector);
        }
        let made = build_connector(self.connect_timeout)
            .map_err(|error| ModelError::new(ModelErrorKind::Failed, format!("cannot set up TLS: {error}")))?;
        Ok(self.connector.get_or_init(|| made))
    }
}

/// Whether a connection was used before.
enum ConnectionReuse {
    Reused,
    Fresh,
}

/// Builds the HTTP request and returns it with the origin of its server.
fn build_request(call: OutgoingRequest) -> Result<(Origin, WireRequest), ModelError> {
    let uri: Uri = call.url.parse().map_err(|_| invalid_url(&call.url))?;
    let origin = Origin::from_uri(&uri).ok_or_else(|| invalid_url(&call.url))?;
    let host = HeaderValue::try_from(origin.host()).map_err(|_| invalid_url(&call.url))?;
    let method = if call.body.is_some() { Method::POST } else { Method::GET };
    let mut question = Request::new(Full::new(call.body.unwrap_or_default()));
    *question.method_mut() = method;
    *question.uri_mut() = uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
    *question.headers_mut() = call.headers;
    let agent = HeaderValue::from_static(concat!("pushd/", env!("CARGO_PKG_VERSION")));
    question.headers_mut().entry(USER_AGENT).or_insert(agent);
    question.headers_mut().entry(HOST).or_insert(host);
    Ok((origin, question))
}

/// Reads a body to its end, or up to `limit` bytes.
pub(super) async fn read_body(
    response: Response<ResponseBody>,
    limit: usize,
    within: Duration,
) -> Result<Vec<u8>, ModelError> {
    let deadline = Instant::now() + within;
    let mut stream = response.into_body();
    let mut read = Vec::new();
    while read.len() < limit {
        match timeout_at(deadline, stream.frame()).await {
            Ok(Some(Ok(frame))) => read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Ok(Some(Err(error))) => return Err(body_error(&error)),
            Ok(None) => {
                stream.release();
                break;
            }
            Err(_) => return Err(timeout_error(within)),
        }
    }
    read.truncate(limit);
    Ok(read)
}

/// Creates the error of a response body that ends early.
pub(super) fn body_error(error: &hyper::Error) -> ModelError {
    ModelError::new(ModelErrorKind::Interrupted, "the server closed the connection before its response was complete")
        .with_detail(&error_chain(error))
}

/// Creates the error of a response that timed out.
pub(super) fn timeout_error(waited: Duration) -> ModelError {
    let message = format!("the server has sent nothing for {} s", waited.as_secs_f64());
    ModelError::new(ModelErrorKind::TimedOut, message)
}

fn build_connector(connect: Duration) -> io::Result<Connector> {
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
    Ok(TowerToHyperService::new(connector))
}

fn invalid_url(url: &str) -> ModelError {
    ModelError::new(ModelErrorKind::NotConfigured, format!("{url} is not a valid URL"))
}

fn connect_error(origin: &Origin, error: &(dyn Error + 'static)) -> ModelError {
    let message = format!("cannot reach {}: {}", origin.authority(), root_cause(error));
    ModelError::new(ModelErrorKind::Unreachable, message)
}

fn exchange_error(error: &hyper::Error) -> ModelError {
    let (kind, message) = if error.is_parse() {
        (ModelErrorKind::InvalidResponse, "the server's response is not valid HTTP")
    } else {
        (ModelErrorKind::Interrupted, "the server closed the connection without a response")
    };
    ModelError::new(kind, message).with_detail(&error_chain(error))
}

/// Returns the innermost error of a chain.
fn root_cause(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
