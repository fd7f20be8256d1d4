//! The wire protocols of model servers behind one interface.

use serde_json::Value;

use super::anthropic;
use super::error::{ModelError, ModelErrorKind};
use super::limits::TurnLimits;
use super::model::{Delta, Request, TurnEnd};
use super::ollama;
use super::openai;

/// The wire protocol of a model server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// The chat API of Ollama.
    Ollama,
    /// Chat completions, as served by OpenAI and many others.
    OpenAi,
    /// The messages API of Anthropic.
    Anthropic,
}

/// Properties of a server that affect the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quirks {
    /// The name of the server's field for the token limit.
    pub token_limit: TokenLimit,
    /// The context size to request, where the server lets the client choose it.
    pub context_tokens: Option<u32>,
}

/// The field for the token limit of a chat completions server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenLimit {
    /// `max_tokens`, which all servers but one accept.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which OpenAI's server requires.
    MaxCompletionTokens,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Ollama, Self::OpenAi, Self::Anthropic];

    /// Returns the name in the settings, which is also the name of the built-in provider of this dialect.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ollama => "ollama",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// Returns the path for turns, below the base URL.
    pub const fn chat_path(self) -> &'static str {
        match self {
            Self::Ollama => "/api/chat",
            Self::OpenAi => "/chat/completions",
            Self::Anthropic => "/v1/messages",
        }
    }

    /// Returns the path of the model list, below the base URL.
    pub const fn models_path(self) -> &'static str {
        match self {
            Self::Ollama => "/api/tags",
            Self::OpenAi => "/models",
            Self::Anthropic => "/v1/models?limit=1000",
        }
    }

    /// Encodes a request for the server.
    pub fn body(self, request: &Request, habits: Quirks) -> Value {
        match self {
            Self::Ollama => ollama::encode::body(request, habits),
            Self::OpenAi => openai::encode::body(request, habits),
            Self::Anthropic => anthropic::encode::body(request),
        }
    }

    /// Parses a list of models; `None` if the body is not one.
    pub fn parse_models(self, body: &[u8]) -> Option<Vec<String>> {
        let value: Value = serde_json::from_slice(body).ok()?;
        let (list, name) = match self {
            Self::Ollama => (value.get("models")?, "name"),
            Self::OpenAi => (value.get("data")?, "id"),
            Self::Anthropic => (value.get("data")?, "id"),
        };
        let names = list.as_array()?.iter().filter_map(|model| model.get(name)?.as_str());
        Some(names.map(str::to_owned).collect())
    }
}

/// Decodes a response: chunks of bytes, split anywhere, become deltas.
#[derive(Debug)]
pub struct ResponseDecoder(Inner);

#[derive(Debug)]
enum Inner {
    Ollama(ollama::decode::Decoder),
    OpenAi(openai::decode::Decoder),
    Anthropic(Box<anthropic::decode::Decoder>),
}

impl ResponseDecoder {
    /// Starts to decode a response; `label` is the prefix of generated ids for calls without one.
    pub fn new(dialect: Dialect, limits: TurnLimits, label: &str) -> Self {
        let label = label.to_owned();
        Self(match dialect {
            Dialect::Ollama => Inner::Ollama(ollama::decode::Decoder::new(limits, label)),
            Dialect::OpenAi => Inner::OpenAi(openai::decode::Decoder::new(limits, label)),
            Dialect::Anthropic => Inner::Anthropic(Box::new(anthropic::decode::Decoder::new(limits, label))),
        })
    }

    /// Decodes `bytes` and appends to `out`; text extends the last delta. Deltas before an error are in `out` as
    /// well.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ModelError> {
        match &mut self.0 {
            Inner::Ollama(reading) => reading.feed(bytes, out),
            Inner::OpenAi(reading) => reading.feed(bytes, out),
            Inner::Anthropic(reading) => reading.feed(bytes, out),
        }
    }

    /// Ends the input: decodes the rest, and fails if the response is incomplete.
    pub fn finish(&mut self, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        match &mut self.0 {
            Inner::Ollama(reading) => reading.finish(out),
            Inner::OpenAi(reading) => reading.finish(out),
            Inner::Anthropic(reading) => reading.finish(out),
        }
    }

    /// Returns whether the response is complete, so that no more input is needed.
    pub const fn is_done(&self) -> bool {
        match &self.0 {
            Inner::Ollama(reading) => reading.is_done(),
            Inner::OpenAi(reading) => reading.is_done(),
            Inner::Anthropic(reading) => reading.is_done(),
        }
    }

    /// Returns the end of the turn as far as it is known.
    pub fn end(&self) -> TurnEnd {
        match &self.0 {
            Inner::Ollama(reading) => reading.end(),
            Inner::OpenAi(reading) => reading.end(),
            Inner::Anthropic(reading) => reading.end(),
        }
    }
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
        for (name, told) in [
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
            for dialect in Dialect::ALL {
                let body = dialect.body(&request, Quirks::default());
                let messages = &body["messages"];
                let named = match dialect {
                    Dialect::Ollama => &messages[1]["tool_calls"][0]["function"]["name"],
                    Dialect::OpenAi => &messages[1]["tool_calls"][0]["function"]["name"],
                    Dialect::Anthropic => &messages[1]["content"][0]["name"],
                };
                assert_eq!(named, told, "{dialect:?}");
                if dialect == Dialect::Ollama {
                    assert_eq!(messages[2]["tool_name"], told, "a result has the name of its call");
                }
            }
        }
    }
}
