//! HTTP to models' servers: connections that are used again by all sessions, TLS with the roots that browsers trust.
//!
//! It follows no redirect, as that would show a key to whoever it leads to, and it knows no proxy. A connection has no
//! task of its own while somebody uses it ([`link`]); when nobody does, it waits in the [`pool`].

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

/// What all sessions ask all servers with.
#[derive(Debug)]
pub(super) struct Client {
    connector: OnceLock<Connector>,
    connect: Duration,
    pool: Arc<Pool>,
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

impl Client {
    /// Makes one without any connection, for which making one may take `connect`.
    pub(super) fn new(connect: Duration) -> Self {
        Self { connector: OnceLock::new(), connect, pool: Arc::default() }
    }

    /// Sends a request and waits for the head of the answer.
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
            // The server has closed an idle connection before anything was asked on it: nothing has failed.
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

/// Whether anything was asked on a connection before.
enum Used {
    Before,
    Never,
}

/// Makes a call what goes over the wire, and says where to.
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

/// Reads a body to its end, or as much of it as is wanted.
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

/// Makes the error of an answer whose body breaks off.
pub(super) fn broken(error: &hyper::Error) -> ModelError {
    ModelError::new(Kind::Cut, "the server ended its answer in the middle").with_detail(&chain(error))
}

/// Makes the error of an answer that does not come.
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
    ModelError::new(Kind::NotConfigured, format!("{url} is no URL that can be called"))
}

fn unreachable(origin: &Origin, error: &(dyn Error + 'static)) -> ModelError {
    let message = format!("cannot reach {}: {}", origin.name(), cause(error));
    ModelError::new(Kind::Unreachable, message).with_detail(&chain(error))
}

fn unanswered(error: &hyper::Error) -> ModelError {
    let (kind, message) = if error.is_parse() {
        (Kind::Garbage, "the server's answer is no HTTP")
    } else {
        (Kind::Cut, "the server closed the connection without an answer")
    };
    ModelError::new(kind, message).with_detail(&chain(error))
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
