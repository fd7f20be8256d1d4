//! The server of a provider as one session uses it: endpoint, key, and the interpretation of its error responses.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};

use super::circuit::Circuit;
use super::complaint::{Complaint, quote};
use super::dialect::{Dialect, Habits, TokenLimit};
use super::error::{Kind, ModelError, excerpt};
use super::http::{Call, Client, read_body};
use super::keys::{Found, Key};
use super::limits::Limits;
use super::place::Place;
use super::retry::asked_pause;
use super::window::{self, Windows};

/// The server of a provider as one session uses it.
#[derive(Debug)]
pub(super) struct Target {
    /// The provider's name in settings.
    pub(super) name: String,
    pub(super) dialect: Dialect,
    pub(super) place: Place,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) key: Option<Found>,
    /// Instructions for setting the key.
    pub(super) key_advice: String,
    pub(super) context_tokens: u32,
    /// Whether the user configured `context_tokens`.
    pub(super) context_set: bool,
    pub(super) windows: Arc<Windows>,
    pub(super) limits: Limits,
    pub(super) client: Arc<Client>,
    pub(super) circuit: Arc<Circuit>,
}

impl Target {
    /// Returns the properties of the server that affect the body of a request.
    pub(super) fn habits(&self) -> Habits {
        let token_limit =
            if self.place.is_openai() { TokenLimit::MaxCompletionTokens } else { TokenLimit::MaxTokens };
        Habits { token_limit, context_tokens: Some(self.context_tokens) }
    }

    /// Creates a request to a path below the base URL.
    pub(super) fn call(&self, path: &str, body: Option<Bytes>) -> Result<Call, ModelError> {
        self.call_at(format!("{}{path}", self.place.base), body)
    }

    /// Returns a model's context window: the value of its server, limited by the configured one.
    pub(super) fn window(&self, model: &str) -> u32 {
        match self.windows.known(&self.place.server(), model).flatten() {
            Some(tokens) if self.context_set || window::is_made_to_measure(self.dialect) => {
                tokens.min(self.context_tokens)
            }
            Some(tokens) => tokens,
            None => self.context_tokens,
        }
    }

    /// Caches the window that the error of a conversation that is too long names; returns whether it names one.
    pub(super) fn learn_window(&self, model: &str, error: &ModelError) -> bool {
        let named = window::in_error(error);
        if named.is_some() {
            self.windows.learn(self.place.server(), model, named);
        }
        named.is_some()
    }

    /// Queries the server for a model's context window, unless the cached value is recent.
    pub(super) async fn look_up_window(&self, model: &str) {
        let server = self.place.server();
        if self.windows.known(&server, model).is_some() {
            return;
        }
        let found = match self.dialect {
            Dialect::Ollama => {
                let body = Bytes::from(serde_json::json!({ "model": model }).to_string());
                window::in_description(&self.body_of(self.call("/api/show", Some(body))).await)
            }
            Dialect::OpenAi => {
                let listed = self.body_of(self.call(self.dialect.models_path(), None)).await;
                match window::in_list(&listed, model) {
                    None if !self.place.wants_key() => {
                        let properties = self.call_at(format!("{server}/props"), None);
                        window::in_properties(&self.body_of(properties).await)
                    }
                    found => found,
                }
            }
            Dialect::Anthropic => {
                window::in_list(&self.body_of(self.call(self.dialect.models_path(), None)).await, model)
            }
        };
        self.windows.learn(server, model, found);
    }

    /// Returns the body of a successful response; it is empty if the request fails.
    async fn body_of(&self, call: Result<Call, ModelError>) -> Vec<u8> {
        let Ok(call) = call else { return Vec::new() };
        let within = self.limits.lookup;
        let Ok(response) = self.client.send(call, within).await else { return Vec::new() };
        let succeeded = response.status().is_success();
        let body = read_body(response, self.limits.turn.line_bytes, within).await.unwrap_or_default();
        if succeeded { body } else { Vec::new() }
    }

    fn call_at(&self, url: String, body: Option<Bytes>) -> Result<Call, ModelError> {
        let mut headers = HeaderMap::new();
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if self.dialect == Dialect::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        if let Some(found) = &self.key {
            let (name, value) = self.key_header(&found.key)?;
            headers.insert(name, value);
        }
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        Ok(Call { url, headers, body })
    }

    /// Converts an unsuccessful response to an error.
    pub(super) fn refusal(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        model: &str,
    ) -> ModelError {
        let complaint = Complaint::of_body(status.as_u16(), body);
        let text = String::from_utf8_lossy(body);
        let (said, detail) = quote(&complaint.message, &text);
        let kind = complaint.kind();
        let message = self.sentence(kind, status, headers, &said, model);
        let mut error = ModelError::new(kind, message).with_detail(detail);
        error.window = window::in_text(&text);
        error.retry_after = pause(headers);
        self.hide(error)
    }

    /// Redacts the key in an error, in case the server repeated it.
    pub(super) fn hide(&self, error: ModelError) -> ModelError {
        match &self.key {
            Some(found) => error.map_texts(|text| found.key.hide_in(text)),
            None => error,
        }
    }

    fn key_header(&self, key: &Key) -> Result<(HeaderName, HeaderValue), ModelError> {
        let (name, text) = match self.dialect {
            Dialect::Ollama => (AUTHORIZATION, format!("Bearer {}", key.expose())),
            Dialect::OpenAi => (AUTHORIZATION, format!("Bearer {}", key.expose())),
            Dialect::Anthropic => (HeaderName::from_static("x-api-key"), key.expose().to_owned()),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| {
            let message =
                format!("the key for {} has characters that are not allowed; {}", self.name, self.key_advice);
            ModelError::new(Kind::NotConfigured, message)
        })?;
        value.set_sensitive(true);
        Ok((name, value))
    }

    fn sentence(
        &self,
        kind: Kind,
        status: StatusCode,
        headers: &HeaderMap,
        said: &str,
        model: &str,
    ) -> String {
        let Self { name, key_advice, .. } = self;
        let code = status.as_u16();
        let told = if said.is_empty() { String::new() } else { format!(": {said}") };
        if kind == Kind::Unauthorized {
            return match &self.key {
                Some(found) => {
                    format!("{name} refuses the key from {} ({code}){told}; {key_advice}", found.source)
                }
                None => format!("{name} requires a key ({code}){told}; {key_advice}"),
            };
        }
        if kind == Kind::ModelNotFound {
            return match self.dialect {
                Dialect::Ollama => {
                    format!("{name} has no model {model}{told}; run `ollama pull {model}`")
                }
                Dialect::OpenAi => format!("{name} has no model {model}{told}"),
                Dialect::Anthropic => format!("{name} has no model {model}{told}"),
            };
        }
        if status.is_redirection() {
            let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("another URL");
            return format!(
                "{name} redirects to {}; set its base URL to that location",
                excerpt(to, SENTENCE_BYTES)
            );
        }
        if status == StatusCode::NOT_FOUND {
            return format!("{name} answered {code}{told}; check that {} is its base URL", self.place.base);
        }
        format!("{name} answered {code}{told}")
    }
}

fn pause(headers: &HeaderMap) -> Option<std::time::Duration> {
    asked_pause(headers.get(RETRY_AFTER)?.to_str().ok()?, SystemTime::now())
}

/// How much of a server's text is quoted in a message.
const SENTENCE_BYTES: usize = 300;
