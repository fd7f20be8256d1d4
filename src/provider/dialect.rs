//! The wire protocols of model servers behind one interface.
//!
//! Everything that depends on the protocol is in the folder that implements [`Dialect`]; the rest of the crate uses
//! the list of dialects.

use std::fmt;

use hyper::header::{AUTHORIZATION, HeaderName};
use serde_json::Value;

use super::endpoint::Endpoint;
use super::error::{ModelError, ModelErrorKind};
use super::limits::TurnLimits;
use super::model::{Delta, Request, TurnEnd};
use super::{anthropic, ollama, openai};
use crate::config::settings::ProviderKind;

/// The built-in dialects, in the order of the set-up dialogue. A new one is a folder and a line here.
pub const BUILT_IN: Dialects = &[
    &ollama::Ollama, //
    &openai::OpenAi,
    &anthropic::Anthropic,
];

/// A list of dialects.
pub type Dialects = &'static [&'static dyn Dialect];

/// The wire protocol of a model server.
pub trait Dialect: fmt::Debug + Send + Sync {
    /// Returns what the configuration depends on: the name, the variable of the base URL, the default context window.
    fn kind(&self) -> ProviderKind;

    /// Returns the name in the settings, which is also the name of the built-in provider of this dialect.
    fn name(&self) -> &'static str {
        self.kind().name
    }

    /// Returns what the set-up dialogue says and asks about the built-in provider.
    fn setup(&self) -> SetupText;

    /// Returns whether its servers run on the user's machine, so that they need no key and their models cost nothing.
    fn is_local(&self) -> bool {
        false
    }

    /// Returns the base URL of the built-in provider.
    fn default_base_url(&self) -> &'static str;

    /// Completes what users write in place of a URL.
    fn complete_url(&self, written: &str) -> String {
        written.to_owned()
    }

    /// Normalizes the path of a base URL, to which the paths of this dialect are appended.
    fn normalize_path<'a>(&self, path: &'a str) -> &'a str {
        path
    }

    /// Returns the hosts that are known to require a key.
    fn hosts_with_key(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the header that carries the key.
    fn authorization(&self, key: &str) -> (HeaderName, String) {
        (AUTHORIZATION, format!("Bearer {key}"))
    }

    /// Returns the headers of every request, names in lower case.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Encodes the request for a turn to a server.
    ///
    /// Path, body and decoder belong together, so that a dialect with several forms can choose one by server and
    /// model.
    fn encode(&self, request: &Request, server: &ServerContext<'_>) -> EncodedTurn;

    /// Returns the path of the model list, below the base URL.
    fn models_path(&self) -> &'static str;

    /// Parses a list of models; `None` if the body is not one.
    fn parse_models(&self, body: &[u8]) -> Option<Vec<String>>;

    /// Returns the requests that may find a model's context window, in the order in which they are tried.
    fn window_queries(&self, endpoint: &Endpoint, model: &str) -> Vec<WindowQuery>;

    /// Returns whether the client chooses the context window, up to the maximum of the model.
    fn is_window_client_sized(&self) -> bool {
        false
    }

    /// Returns what to do about a model that the server does not have, if that is known.
    fn missing_model_remedy(&self, _model: &str) -> Option<String> {
        None
    }
}

/// What the set-up dialogue says and asks about the built-in provider of a dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetupText {
    /// The description in the list of providers.
    pub description: &'static str,
    /// The question for the base URL while none is configured; `None` if the default is not to be changed.
    pub base_url_question: Option<&'static str>,
}

/// The properties of a server that affect a request.
#[derive(Debug, Clone, Copy)]
pub struct ServerContext<'a> {
    /// The endpoint of the server.
    pub endpoint: &'a Endpoint,
    /// The context size to request, where the server lets the client choose it.
    pub context_tokens: u32,
}

/// The encoded request for a turn.
#[derive(Debug)]
pub struct EncodedTurn {
    /// The path, below the base URL.
    pub path: &'static str,
    /// The body.
    pub body: Value,
    /// Creates the decoder of a response; the text is the prefix of generated ids for calls without one.
    pub decoder: fn(TurnLimits, String) -> Box<dyn ResponseDecoder>,
}

/// A request that may find the context window of a model.
#[derive(Debug)]
pub struct WindowQuery {
    /// The URL.
    pub url: String,
    /// The body of a POST request; `None` makes it a GET request.
    pub body: Option<Value>,
    /// Parses the window of a model from the response.
    pub parse: fn(&[u8], &str) -> Option<u32>,
}

/// Decodes a response: chunks of bytes, split anywhere, become deltas.
pub trait ResponseDecoder: fmt::Debug + Send {
    /// Decodes `bytes` and appends to `out`; text extends the last delta. Deltas before an error are in `out` as
    /// well.
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// Ends the input: decodes the rest, and fails if the response is incomplete.
    fn finish(&mut self, out: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// Returns whether the response is complete, so that no more input is needed.
    fn is_done(&self) -> bool;

    /// Returns the end of the turn as far as it is known.
    fn end(&self) -> TurnEnd;
}

/// Returns the dialect with this name.
pub fn find(dialects: Dialects, name: &str) -> Option<&'static dyn Dialect> {
    dialects.iter().copied().find(|dialect| dialect.name() == name)
}

/// Returns the kinds of providers for the configuration.
pub fn kinds(dialects: Dialects) -> Vec<ProviderKind> {
    dialects.iter().map(|dialect| dialect.kind()).collect()
}

/// Parses the names in a list of models, which is in one field of the body.
pub(super) fn parse_model_list(body: &[u8], list: &str, name: &str) -> Option<Vec<String>> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let names = value.get(list)?.as_array()?.iter().filter_map(|model| model.get(name)?.as_str());
    Some(names.map(str::to_owned).collect())
}

/// Parses the arguments of a call as an object; arguments that are not an object are wrapped as
/// `invalid_arguments`.
pub(super) fn parse_arguments(args: &str) -> Value {
    match serde_json::from_str(args) {
        Ok(Value::Object(object)) => Value::Object(object),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => {
            serde_json::json!({ "invalid_arguments": args })
        }
    }
}

/// Returns a tool name that every server accepts: a model may have invented one that its own server rejects.
pub(super) fn sanitize_tool_name(name: &str) -> String {
    let safe = |letter: char| {
        if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_') { letter } else { '_' }
    };
    let name: String = name.chars().take(MAX_TOOL_NAME_CHARS).map(safe).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// The maximum length of a tool name on the strictest server.
const MAX_TOOL_NAME_CHARS: usize = 64;

/// Classifies the error of the last line, which has no line end: a valid beginning means that the response was
/// interrupted.
pub(super) fn classify_trailing_error(error: ModelError) -> ModelError {
    let rest = error.detail.as_deref().unwrap_or_default();
    let begun =
        !rest.is_empty() && ["data: ", "event: ", "id: ", "retry: "].iter().any(|field| field.starts_with(rest));
    if error.kind == ModelErrorKind::InvalidResponse && (rest.starts_with('{') || begun) {
        interrupted_error()
    } else {
        error
    }
}

/// Creates the error of a response that ended too early.
pub(super) fn interrupted_error() -> ModelError {
    ModelError::new(ModelErrorKind::Interrupted, "the server closed the connection before its response was complete")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::model::{CallOutcome, Entry, ToolCall};
    use crate::provider::samples;

    #[test]
    fn an_invented_tool_name_is_sanitized_for_every_dialect() {
        for (name, expected) in [
            ("sandbox_exec", "sandbox_exec"),
            ("", "unnamed"),
            ("read file", "read_file"),
            ("functions.réad:0", "functions_r_ad_0"),
            (&"n".repeat(100), &"n".repeat(64)),
        ] {
            let mut request = samples::text_request("go");
            let calls = vec![ToolCall { id: "c1".into(), tool: name.into(), args: "{}".into() }];
            request.entries.push(Entry::Assistant { provider_state: None, text: String::new(), calls });
            let (id, tool) = ("c1".to_owned(), name.to_owned());
            request.entries.push(Entry::Result { id, tool, text: "no".into(), outcome: CallOutcome::Failed });
            for dialect in BUILT_IN {
                let endpoint = Endpoint::default_for(*dialect);
                let server = ServerContext { endpoint: &endpoint, context_tokens: 1 };
                let messages = &dialect.encode(&request, &server).body["messages"];
                let named = [
                    &messages[1]["tool_calls"][0]["function"]["name"],
                    &messages[1]["content"][0]["name"],
                    &messages[2]["tool_name"],
                ];
                let named: Vec<&Value> = named.into_iter().filter(|name| !name.is_null()).collect();
                assert!(!named.is_empty() && named.iter().all(|name| *name == expected), "{dialect:?}: {named:?}");
            }
        }
    }
}
