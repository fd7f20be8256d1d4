//! The server of a provider as one session uses it: endpoint, key, and the interpretation of its error responses.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};

use super::api_error::{ApiError, quote};
use super::circuit::Circuit;
use super::dialect::{Dialect, EncodedTurn, ServerContext};
use super::endpoint::Endpoint;
use super::error::{ModelError, ModelErrorKind, excerpt};
use super::http::{HttpClient, OutgoingRequest, read_body};
use super::keys::{Key, ResolvedKey};
use super::limits::Limits;
use super::model::Request;
use super::retry::parse_retry_after;
use super::window::{self, WindowCache};

/// The server of a provider as one session uses it.
#[derive(Debug)]
pub(super) struct Target {
    /// The provider's name in settings.
    pub(super) name: String,
    pub(super) dialect: &'static dyn Dialect,
    pub(super) endpoint: Endpoint,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) key: Option<ResolvedKey>,
    /// Instructions for setting the key.
    pub(super) key_help: String,
    pub(super) context_tokens: u32,
    /// Whether the user configured `context_tokens`.
    pub(super) context_tokens_set: bool,
    pub(super) window_cache: Arc<WindowCache>,
    pub(super) limits: Limits,
    pub(super) client: Arc<HttpClient>,
    pub(super) circuit: Arc<Circuit>,
}

impl Target {
    /// Encodes the request for a turn.
    pub(super) fn encode(&self, request: &Request) -> EncodedTurn {
        let server = ServerContext { endpoint: &self.endpoint, context_tokens: self.context_tokens };
        self.dialect.encode(request, &server)
    }

    /// Creates a request to a path below the base URL.
    pub(super) fn request(&self, path: &str, body: Option<Bytes>) -> Result<OutgoingRequest, ModelError> {
        self.request_at(format!("{}{path}", self.endpoint.base_url), body)
    }

    /// Returns a model's context window: the value of its server, limited by the configured one.
    pub(super) fn window(&self, model: &str) -> u32 {
        match self.window_cache.get(&self.endpoint.origin(), model).flatten() {
            Some(tokens) if self.context_tokens_set || self.dialect.is_window_client_sized() => {
                tokens.min(self.context_tokens)
            }
            Some(tokens) => tokens,
            None => self.context_tokens,
        }
    }

    /// Caches the window that the error of a conversation that is too long names; returns whether it names one.
    pub(super) fn learn_window(&self, model: &str, error: &ModelError) -> bool {
        let named = window::from_error(error);
        if named.is_some() {
            self.window_cache.insert(self.endpoint.origin(), model, named);
        }
        named.is_some()
    }

    /// Queries the server for a model's context window, unless the cached value is recent.
    pub(super) async fn look_up_window(&self, model: &str) {
        let server = self.endpoint.origin();
        if self.window_cache.get(&server, model).is_some() {
            return;
        }
        let mut found = None;
        for query in self.dialect.window_queries(&self.endpoint, model) {
            let body = query.body.map(|body| Bytes::from(body.to_string()));
            found = (query.parse)(&self.fetch_body(self.request_at(query.url, body)).await, model);
            if found.is_some() {
                break;
            }
        }
        self.window_cache.insert(server, model, found);
    }

    /// Returns the body of a successful response; it is empty if the request fails.
    async fn fetch_body(&self, call: Result<OutgoingRequest, ModelError>) -> Vec<u8> {
        let Ok(call) = call else { return Vec::new() };
        let within = self.limits.lookup_timeout;
        let Ok(response) = self.client.send(call, within).await else { return Vec::new() };
        let succeeded = response.status().is_success();
        let body = read_body(response, self.limits.turn.line_bytes, within).await.unwrap_or_default();
        if succeeded { body } else { Vec::new() }
    }

    fn request_at(&self, url: String, body: Option<Bytes>) -> Result<OutgoingRequest, ModelError> {
        let mut headers = HeaderMap::new();
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in self.dialect.headers() {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        if let Some(found) = &self.key {
            let (name, value) = self.key_header(&found.key)?;
            headers.insert(name, value);
        }
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        Ok(OutgoingRequest { url, headers, body })
    }

    /// Converts an unsuccessful response to an error.
    pub(super) fn error_from_response(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        model: &str,
    ) -> ModelError {
        let api_error = ApiError::from_body(status.as_u16(), body);
        let text = String::from_utf8_lossy(body);
        let (server_message, detail) = quote(&api_error.message, &text);
        let kind = api_error.kind();
        let message = self.describe_error(kind, status, headers, &server_message, model);
        let mut error = ModelError::new(kind, message).with_detail(detail);
        error.window = window::from_text(&text);
        error.retry_after = retry_after(headers);
        self.redact(error)
    }

    /// Redacts the key in an error, in case the server repeated it.
    pub(super) fn redact(&self, error: ModelError) -> ModelError {
        match &self.key {
            Some(found) => error.map_texts(|text| found.key.redact_in(text)),
            None => error,
        }
    }

    fn key_header(&self, key: &Key) -> Result<(HeaderName, HeaderValue), ModelError> {
        let (name, text) = self.dialect.authorization(key.expose());
        let mut value = HeaderValue::from_str(&text).map_err(|_| {
            let message = format!("the key for {} has characters that are not allowed; {}", self.name, self.key_help);
            ModelError::new(ModelErrorKind::NotConfigured, message)
        })?;
        value.set_sensitive(true);
        Ok((name, value))
    }

    fn describe_error(
        &self,
        kind: ModelErrorKind,
        status: StatusCode,
        headers: &HeaderMap,
        server_message: &str,
        model: &str,
    ) -> String {
        let Self { name, key_help, .. } = self;
        let code = status.as_u16();
        let suffix = if server_message.is_empty() { String::new() } else { format!(": {server_message}") };
        if kind == ModelErrorKind::Unauthorized {
            return match &self.key {
                Some(found) => {
                    format!("{name} refuses the key from {} ({code}){suffix}; {key_help}", found.source)
                }
                None => format!("{name} requires a key ({code}){suffix}; {key_help}"),
            };
        }
        if kind == ModelErrorKind::ModelNotFound {
            let remedy = self.dialect.missing_model_remedy(model).map(|remedy| format!("; {remedy}"));
            return format!("{name} has no model {model}{suffix}{}", remedy.unwrap_or_default());
        }
        if status.is_redirection() {
            let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("another URL");
            return format!("{name} redirects to {}; set its base URL to that location", excerpt(to, QUOTE_BYTES));
        }
        if status == StatusCode::NOT_FOUND {
            return format!("{name} answered {code}{suffix}; check that {} is its base URL", self.endpoint.base_url);
        }
        format!("{name} answered {code}{suffix}")
    }
}

fn retry_after(headers: &HeaderMap) -> Option<std::time::Duration> {
    parse_retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, SystemTime::now())
}

/// How much of a server's text is quoted in a message.
const QUOTE_BYTES: usize = 300;
