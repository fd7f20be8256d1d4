//! The HTTP client for model servers: connections that all sessions share, and TLS with the web PKI roots.
//!
//! It follows no redirect, because that would send a key to another server, and it uses no proxy. A connection in
//! use has no task of its own ([`connection`]); an idle one waits in the [`pool`].

mod link;
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

use super::error::{Kind, ModelError};
pub(super) use link::{Arrival, Stream};
use link::{Link, Question};
use pool::{Origin, Pool};

type Connector = TowerToHyperService<HttpsConnector<HttpConnector>>;

/// The HTTP client of all sessions.
#[derive(Debug)]
pub(super) struct Client {
    connector: OnceLock<Connector>,
    connect: Duration,
    pool: Arc<Pool>,
}

/// A request to send.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The URL.
    pub(super) url: String,
    /// The headers; keys among them are marked as sensitive.
    pub(super) headers: HeaderMap,
    /// The body of a POST request; `None` makes it a GET request.
    pub(super) body: Option<Bytes>,
}

impl Client {
    /// Creates a client without connections; `connect` is the timeout of a connection attempt.
    pub(super) fn new(connect: Duration) -> Self {
        Self { connector: OnceLock::new(), connect, pool: Arc::default() }
    }

    /// Sends a request and waits for the head of the response.
    pub(super) async fn send(&self, call: Call, within: Duration) -> Result<Response<Stream>, ModelError> {
        let (origin, question) = question(call)?;
        timeout(within, self.ask(origin, question)).await.unwrap_or_else(|_| Err(silent(within)))
    }

    async fn ask(&self, origin: Origin, mut question: Question) -> Result<Response<Stream>, ModelError> {
        loop {
            let (mut link, used) = match self.pool.take(&origin) {
                Some(link) => (link, Used::Before),
                None => (self.connect(&origin).await?, Used::Never),
            };
            let mut error = match link.ask(question).await {
                Ok(answer) => {
                    return Ok(answer.map(|body| Stream::new(link, body, Arc::clone(&self.pool), origin)));
                }
                Err(error) => error,
            };
            // The server closed an idle connection before the request was sent: retry on another one.
            question = match (used, error.take_message()) {
                (Used::Before, Some(question)) => question,
                (Used::Before, None) | (Used::Never, _) => return Err(unanswered(&error.into_error())),
            };
        }
    }

    async fn connect(&self, origin: &Origin) -> Result<Link, ModelError> {
        let uri = origin.uri().map_err(|_| no_url(origin.name()))?;
        let wire = self.connector()?.call(uri).await.map_err(|error| unreachable(origin, &*error))?;
        Link::over(wire).await.map_err(|error| unanswered(&error))
    }

    fn connector(&self) -> Result<&Connector, ModelError> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector);
        }
        let made = make(self.connect)
            .map_err(|error| ModelError::new(Kind::Failed, format!("cannot set up TLS: {error}")))?;
        Ok(self.connector.get_or_init(|| made))
    }
}

/// Whether a connection was used before.
enum Used {
    Before,
    Never,
}

/// Builds the HTTP request and returns it with the origin of its server.
fn question(call: Call) -> Result<(Origin, Question), ModelError> {
    let uri: Uri = call.url.parse().map_err(|_| no_url(&call.url))?;
    let origin = Origin::of(&uri).ok_or_else(|| no_url(&call.url))?;
    let host = HeaderValue::try_from(origin.host()).map_err(|_| no_url(&call.url))?;
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
    response: Response<Stream>,
    limit: usize,
    within: Duration,
) -> Result<Vec<u8>, ModelError> {
    let deadline = Instant::now() + within;
    let mut stream = response.into_body();
    let mut read = Vec::new();
    while read.len() < limit {
        match timeout_at(deadline, stream.frame()).await {
            Ok(Some(Ok(frame))) => read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Ok(Some(Err(error))) => return Err(broken(&error)),
            Ok(None) => {
                stream.give_back();
                break;
            }
            Err(_) => return Err(silent(within)),
        }
    }
    read.truncate(limit);
    Ok(read)
}

/// Creates the error of a response body that ends early.
pub(super) fn broken(error: &hyper::Error) -> ModelError {
    ModelError::new(Kind::Cut, "the server closed the connection before its response was complete")
        .with_detail(&chain(error))
}

/// Creates the error of a response that timed out.
pub(super) fn silent(waited: Duration) -> ModelError {
    let message = format!("the server has sent nothing for {} s", waited.as_secs_f64());
    ModelError::new(Kind::Silent, message)
}

fn make(connect: Duration) -> io::Result<Connector> {
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

fn no_url(url: &str) -> ModelError {
    ModelError::new(Kind::NotConfigured, format!("{url} is not a valid URL"))
}

fn unreachable(origin: &Origin, error: &(dyn Error + 'static)) -> ModelError {
    let message = format!("cannot reach {}: {}", origin.name(), cause(error));
    ModelError::new(Kind::Unreachable, message)
}

fn unanswered(error: &hyper::Error) -> ModelError {
    let (kind, message) = if error.is_parse() {
        (Kind::Garbage, "the server's response is not valid HTTP")
    } else {
        (Kind::Cut, "the server closed the connection without a response")
    };
    ModelError::new(kind, message).with_detail(&chain(error))
}

/// Returns the innermost error of a chain.
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
