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
use super::http::{Call, Client};
use super::keys::{Found, Key};
use super::limits::Limits;
use super::place::Place;
use super::retry::asked_pause;

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
        Ok(Call { url: format!("{}{path}", self.place.base), headers, body })
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
