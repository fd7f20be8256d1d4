//! One server as one session asks it: where, with which key, and what its refusals mean.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};

use super::circuit::Circuit;
use super::complaint::Complaint;
use super::dialect::{Dialect, Habits, TokenLimit};
use super::error::{Kind, ModelError, excerpt};
use super::http::{Call, Client, read_body};
use super::keys::{Found, Key};
use super::limits::Limits;
use super::place::Place;
use super::retry::asked_pause;
use super::window::{self, Windows};

/// One server as one session asks it.
#[derive(Debug)]
pub(super) struct Target {
    /// The provider's name in settings.
    pub(super) name: String,
    pub(super) dialect: Dialect,
    pub(super) place: Place,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) key: Option<Found>,
    /// How a key is set, for people.
    pub(super) key_advice: String,
    pub(super) context_tokens: u32,
    /// Whether somebody has set that.
    pub(super) context_set: bool,
    pub(super) windows: Arc<Windows>,
    pub(super) limits: Limits,
    pub(super) client: Arc<Client>,
    pub(super) circuit: Arc<Circuit>,
}

impl Target {
    /// Returns what the body of a request depends on besides the request.
    pub(super) fn habits(&self) -> Habits {
        let token_limit =
            if self.place.is_openai() { TokenLimit::MaxCompletionTokens } else { TokenLimit::MaxTokens };
        Habits { token_limit, context_tokens: Some(self.context_tokens) }
    }

    /// Makes a request to a path below the base URL.
    pub(super) fn call(&self, path: &str, body: Option<Bytes>) -> Result<Call, ModelError> {
        self.call_at(format!("{}{path}", self.place.base), body)
    }

    /// Returns how many tokens a model takes: what its server says, within what is set.
    pub(super) fn window(&self, model: &str) -> u32 {
        match self.windows.known(&self.place.server(), model).flatten() {
            Some(tokens) if self.context_set || window::is_made_to_measure(self.dialect) => {
                tokens.min(self.context_tokens)
            }
            Some(tokens) => tokens,
            None => self.context_tokens,
        }
    }

    /// Keeps the window that a server names when it finds a conversation too long; tells whether it names one.
    pub(super) fn learn_window(&self, model: &str, error: &ModelError) -> bool {
        let named = window::in_error(error);
        if named.is_some() {
            self.windows.learn(self.place.server(), model, named);
        }
        named.is_some()
    }

    /// Asks the server how many tokens a model takes, unless that was done lately.
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

    /// Returns the body of an answer; a server that does not answer has said nothing.
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

    /// Makes an answer that is no success an error.
    pub(super) fn refusal(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        model: &str,
    ) -> ModelError {
        let complaint = Complaint::of_body(status.as_u16(), body);
        let text = String::from_utf8_lossy(body);
        let said = if complaint.message.is_empty() { text.trim() } else { complaint.message.trim() };
        let kind = complaint.kind();
        let message = self.sentence(kind, status, headers, &excerpt(said, SENTENCE_BYTES), model);
        let mut error = ModelError::new(kind, message).with_detail(&text);
        error.retry_after = pause(headers);
        self.hide(error)
    }

    /// Takes the key out of what is shown, should a server have repeated it.
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
                format!("the key for {} holds what no key can hold; {}", self.name, self.key_advice);
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
                None => format!("{name} wants a key ({code}){told}; {key_advice}"),
            };
        }
        if kind == Kind::ModelNotFound {
            return match self.dialect {
                Dialect::Ollama => {
                    format!("{name} has no model {model}{told}; `ollama pull {model}` gets it")
                }
                Dialect::OpenAi => format!("{name} has no model {model}{told}"),
                Dialect::Anthropic => format!("{name} has no model {model}{told}"),
            };
        }
        if status.is_redirection() {
            let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("another place");
            return format!(
                "{name} sends on to {}; set its base URL to where it is",
                excerpt(to, SENTENCE_BYTES)
            );
        }
        if status == StatusCode::NOT_FOUND {
            return format!(
                "nothing is there ({code}){told}; is {} the base URL of {name}?",
                self.place.base
            );
        }
        format!("{name} answered {code}{told}")
    }
}

fn pause(headers: &HeaderMap) -> Option<std::time::Duration> {
    asked_pause(headers.get(RETRY_AFTER)?.to_str().ok()?, SystemTime::now())
}

/// How much of what a server said is quoted in a sentence.
const SENTENCE_BYTES: usize = 300;
