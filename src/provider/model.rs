//! The interface between the run loop and the models: requests, deltas and the end of a turn.
//!
//! These types are independent of any server's wire format; each dialect translates them. They are neither stored
//! nor shown directly: text from a model passes the redactor before it enters a session.

use serde_json::Value;

use crate::kernel::event::Image;

/// A request for one turn of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The model, as its server names it.
    pub model: String,
    /// The system prompt; may be empty.
    pub system: String,
    /// The conversation, oldest first.
    ///
    /// The result of each call of an assistant entry precedes the next user or assistant entry.
    pub entries: Vec<Entry>,
    /// The tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// The limit on output tokens, thinking included; `None` leaves it to the server.
    pub max_tokens: Option<u32>,
    /// The thinking level.
    pub thinking: Thinking,
}

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A message of the user.
    User {
        /// The text; may be empty if there are images.
        text: String,
        /// The images of the message.
        images: Vec<Image>,
    },
    /// A turn of the model: its text and its tool calls.
    Assistant {
        /// The [`TurnEnd::provider_state`] of the turn; a dialect ignores the state of another dialect.
        provider_state: Option<String>,
        /// The text; may be empty.
        text: String,
        /// The calls, in the order of arrival.
        calls: Vec<ToolCall>,
    },
    /// The result of a call.
    Result {
        /// The [`ToolCall::id`] of the call.
        id: String,
        /// The tool.
        tool: String,
        /// The text for the model.
        text: String,
        /// Whether the tool succeeded.
        outcome: CallOutcome,
    },
}

impl Entry {
    /// Creates a user message without images.
    pub const fn user(text: String) -> Self {
        Self::User { text, images: Vec::new() }
    }
}

/// The outcome of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The tool succeeded.
    Succeeded,
    /// The tool failed; the text gives the reason.
    Failed,
}

/// A tool call requested by a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Identifies the call in the conversation; generated where the server assigns none.
    pub id: String,
    /// The tool, as the model spelled it.
    pub tool: String,
    /// The arguments as the model wrote them: normally the text of one JSON object, but it may be any text.
    pub args: String,
}

/// The description of a tool for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Value,
}

/// The thinking level of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thinking {
    /// The request names no level; the server's default applies.
    #[default]
    ServerDefault,
    /// No thinking.
    Off,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
}

impl Thinking {
    /// Parses a level. `minimal` and `xhigh`, which some clients send, map to the nearest level that every server
    /// supports.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "off" | "none" => Self::Off,
            "minimal" | "low" => Self::Low,
            "medium" => Self::Medium,
            "high" | "xhigh" => Self::High,
            _ => return None,
        })
    }
}

/// A delta of a model's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// A part of the text.
    Text(String),
    /// A part of the thinking.
    Thinking(String),
    /// A complete tool call.
    ToolCall(ToolCall),
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// Why the model stopped.
    pub stop: StopReason,
    /// The tokens and the cost of the turn.
    pub usage: Usage,
    /// Opaque state that the dialect needs back with the assistant entry of this turn; it is not for display.
    ///
    /// It holds the model's thinking as received, signed by some servers. Redaction would invalidate the signature,
    /// so state that holds a secret is dropped; a conversation continues without it.
    pub provider_state: Option<String>,
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The model finished its turn.
    Done,
    /// The model waits for the results of its tool calls.
    ToolCalls,
    /// The model reached a limit on length; a truncated call is omitted.
    Length,
    /// The model or its server declined to answer.
    Refused,
    /// Another reason, as the server names it; `unfinished` while the turn has not ended.
    Other(String),
}

/// The tokens and the cost of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Output tokens, thinking included.
    pub output: u64,
    /// How many of `input` were read from the server's cache.
    pub cache_read: u64,
    /// How many of `input` were written to the server's cache.
    pub cache_write: u64,
    /// The cost in millionths of a dollar, where the server reports it.
    pub cost_microusd: Option<u64>,
}
