//! The languages that models' servers speak, behind one face.

use serde_json::Value;

use super::anthropic;
use super::error::{Kind, ModelError};
use super::limits::TurnLimits;
use super::model::{Piece, Request, TurnEnd};
use super::ollama;
use super::openai;

/// A language of models' servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// Ollama's own.
    Ollama,
    /// Chat completions, as OpenAI and many others serve them.
    OpenAi,
    /// Messages, as Anthropic serves them.
    Anthropic,
}

/// What the body of a request depends on besides the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Habits {
    /// Whether the server calls the limit on tokens by its newer name.
    pub token_limit: TokenLimit,
    /// How large a context the server is to make for the model, where it lets one say.
    pub context_tokens: Option<u32>,
}

/// What a server of chat completions calls the limit on tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TokenLimit {
    /// `max_tokens`, which all but one know.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which OpenAI's own wants.
    MaxCompletionTokens,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ollama, Self::OpenAi, Self::Anthropic];

    /// Returns the name that settings use, which is also that of the provider which speaks it by default.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ollama => "ollama",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// Returns where questions are sent, below the base URL.
    pub const fn chat_path(self) -> &'static str {
        match self {
            Self::Ollama => "/api/chat",
            Self::OpenAi => "/chat/completions",
            Self::Anthropic => "/v1/messages",
        }
    }

    /// Returns where the list of models is, below the base URL.
    pub const fn models_path(self) -> &'static str {
        match self {
            Self::Ollama => "/api/tags",
            Self::OpenAi => "/models",
            Self::Anthropic => "/v1/models?limit=1000",
        }
    }

    /// Writes a request as the server wants it.
    pub fn body(self, request: &Request, habits: Habits) -> Value {
        match self {
            Self::Ollama => ollama::encode::body(request, habits),
            Self::OpenAi => openai::encode::body(request, habits),
            Self::Anthropic => anthropic::encode::body(request),
        }
    }

    /// Reads a list of models; `None` if it is none.
    pub fn models(self, body: &[u8]) -> Option<Vec<String>> {
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

/// Reads an answer: bytes in, cut anywhere, pieces out.
#[derive(Debug)]
pub struct Reader(Inner);

#[derive(Debug)]
enum Inner {
    Ollama(ollama::read::Reading),
    OpenAi(openai::read::Reading),
    Anthropic(Box<anthropic::read::Reading>),
}

impl Reader {
    /// Starts to read an answer; names are made up from `label` for calls that have none.
    pub fn new(dialect: Dialect, limits: TurnLimits, label: &str) -> Self {
        let label = label.to_owned();
        Self(match dialect {
            Dialect::Ollama => Inner::Ollama(ollama::read::Reading::new(limits, label)),
            Dialect::OpenAi => Inner::OpenAi(openai::read::Reading::new(limits, label)),
            Dialect::Anthropic => Inner::Anthropic(Box::new(anthropic::read::Reading::new(limits, label))),
        })
    }

    /// Reads on and adds to `out`, where text goes on in its last piece; what comes before an error is there all the same.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<Piece>) -> Result<(), ModelError> {
        match &mut self.0 {
            Inner::Ollama(reading) => reading.feed(bytes, out),
            Inner::OpenAi(reading) => reading.feed(bytes, out),
            Inner::Anthropic(reading) => reading.feed(bytes, out),
        }
    }

    /// Nothing more comes: takes what is left, and fails if the answer is not whole.
    pub fn finish(&mut self, out: &mut Vec<Piece>) -> Result<(), ModelError> {
        match &mut self.0 {
            Inner::Ollama(reading) => reading.finish(out),
            Inner::OpenAi(reading) => reading.finish(out),
            Inner::Anthropic(reading) => reading.finish(out),
        }
    }

    /// Returns whether the answer is whole, so that nothing more need be waited for.
    pub const fn is_done(&self) -> bool {
        match &self.0 {
            Inner::Ollama(reading) => reading.is_done(),
            Inner::OpenAi(reading) => reading.is_done(),
            Inner::Anthropic(reading) => reading.is_done(),
        }
    }

    /// Returns what is known of the end.
    pub fn end(&self) -> TurnEnd {
        match &self.0 {
            Inner::Ollama(reading) => reading.end(),
            Inner::OpenAi(reading) => reading.end(),
            Inner::Anthropic(reading) => reading.end(),
        }
    }
}

/// Reads the arguments of a call as an object; what is none is shown to the model under a name of its own.
pub(super) fn arguments(args: &str) -> Value {
    match serde_json::from_str(args) {
        Ok(Value::Object(object)) => Value::Object(object),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => {
            serde_json::json!({ "invalid_arguments": args })
        }
    }
}

/// Writes the name of a tool as every server takes it: a model may have made up one that its own server refuses.
pub(super) fn tool_name(name: &str) -> String {
    let safe = |letter: char| {
        if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_') { letter } else { '_' }
    };
    let name: String = name.chars().take(NAME_LETTERS).map(safe).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// How long the name of a tool may be for the strictest of servers.
const NAME_LETTERS: usize = 64;

/// Judges what is wrong with the last, unended line of an answer: what begins well was cut.
pub(super) fn at_the_end(error: ModelError) -> ModelError {
    let rest = error.detail.as_deref().unwrap_or_default();
    let begun = !rest.is_empty()
        && ["data: ", "event: ", "id: ", "retry: "].iter().any(|field| field.starts_with(rest));
    if error.kind == Kind::Garbage && (rest.starts_with('{') || begun) { cut() } else { error }
}

/// Makes the error of an answer that ended too early.
pub(super) fn cut() -> ModelError {
    ModelError::new(Kind::Cut, "the server ended its answer in the middle")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::model::{Entry, Outcome, Wanted};
    use crate::provider::samples;

    #[test]
    fn a_name_that_a_model_made_up_is_refused_by_no_server() {
        for (name, told) in [
            ("sandbox_exec", "sandbox_exec"),
            ("", "unnamed"),
            ("read file", "read_file"),
            ("functions.réad:0", "functions_r_ad_0"),
            (&"n".repeat(100), &"n".repeat(64)),
        ] {
            let mut request = samples::question("go");
            let calls = vec![Wanted { id: "c1".into(), tool: name.into(), args: "{}".into() }];
            request.entries.push(Entry::Assistant { carry: None, said: String::new(), calls });
            let (id, tool) = ("c1".to_owned(), name.to_owned());
            request.entries.push(Entry::Result { id, tool, text: "no".into(), outcome: Outcome::Failed });
            for dialect in Dialect::ALL {
                let body = dialect.body(&request, Habits::default());
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
