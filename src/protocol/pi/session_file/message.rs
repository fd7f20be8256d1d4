//! The messages of a conversation, as a session file stores them.
//!
//! They are plain values; other representations of a conversation convert to them and back.

use crate::kernel::id::Json;
use crate::kernel::time::Now;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A user message.
    User(User),
    /// An assistant message.
    Assistant(Box<Assistant>),
    /// The result of a tool call.
    ToolResult(Box<ToolResult>),
    /// A shell command that the user ran outside any run.
    Bash(Box<Bash>),
    /// A message of an extension.
    Custom(Custom),
    /// The summary of an abandoned branch.
    BranchSummary(BranchSummary),
    /// The summary of the earlier conversation.
    CompactionSummary(CompactionSummary),
}

impl Message {
    /// Returns the time of the message.
    pub const fn at(&self) -> Now {
        match self {
            Self::User(message) => message.at,
            Self::Assistant(message) => message.at,
            Self::ToolResult(message) => message.at,
            Self::Bash(message) => message.at,
            Self::Custom(message) => message.at,
            Self::BranchSummary(message) => message.at,
            Self::CompactionSummary(message) => message.at,
        }
    }
}

/// A content block of a user message or a tool result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A text.
    Text(String),
    /// An image.
    Image {
        /// Its media type, such as `image/png`.
        mime: String,
        /// The image in base64 as received; it is not validated.
        data: String,
    },
}

/// Joins the texts of content blocks with newlines.
pub(super) fn text_of(content: &[Content]) -> String {
    let mut text = String::new();
    for part in content {
        match part {
            Content::Text(part) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(part);
            }
            Content::Image { .. } => {}
        }
    }
    text
}

/// A user's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its content.
    pub content: Vec<Content>,
    /// The time of the message.
    pub at: Now,
}

impl User {
    /// Returns its text without its images.
    pub fn text(&self) -> String {
        text_of(&self.content)
    }
}

/// An assistant message: one turn of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Assistant {
    /// Its text, thinking and tool calls, in order.
    pub blocks: Vec<Block>,
    /// The API of the model's server; may be empty.
    pub api: String,
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Its token usage.
    pub usage: Usage,
    /// Why it stopped.
    pub stop: StopReason,
    /// The error, if the turn failed.
    pub error: Option<String>,
    /// When the turn started.
    pub at: Now,
}

/// A content block of an assistant message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Text.
    Text(String),
    /// Reasoning.
    Thinking(String),
    /// A tool call.
    ToolCall {
        /// The id of the call.
        id: String,
        /// The name of the tool.
        name: String,
        /// Its arguments, a JSON object.
        args: Json,
    },
}

/// Why an assistant message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model finished.
    Stop,
    /// The output limit was reached.
    Length,
    /// It waits for tool results.
    ToolUse,
    /// The turn failed.
    Error,
    /// The turn was aborted.
    Aborted,
}

impl StopReason {
    /// Every reason with its name in a file.
    const NAMES: [(Self, &'static str); 5] = [
        (Self::Stop, "stop"),
        (Self::Length, "length"),
        (Self::ToolUse, "toolUse"),
        (Self::Error, "error"),
        (Self::Aborted, "aborted"),
    ];

    /// Returns its name in a file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolUse => "toolUse",
            Self::Error => "error",
            Self::Aborted => "aborted",
        }
    }

    /// Parses a name; an unknown one counts as [`Stop`](Self::Stop).
    pub(super) fn parse(word: &str) -> Self {
        Self::NAMES.iter().find(|(_, known)| *known == word).map_or(Self::Stop, |(stop, _)| *stop)
    }
}

/// The token usage and cost of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Input tokens, without cached ones.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_write: u64,
    /// The total number of tokens.
    pub total: u64,
    /// The cost.
    pub cost: Cost,
}

/// The cost of a turn in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Cost of input tokens.
    pub input: f64,
    /// Cost of output tokens.
    pub output: f64,
    /// Cost of tokens read from the cache.
    pub cache_read: f64,
    /// Cost of tokens written to the cache.
    pub cache_write: f64,
    /// The total cost.
    pub total: f64,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the call.
    pub call: String,
    /// The name of the tool.
    pub tool: String,
    /// Its output.
    pub content: Vec<Content>,
    /// Tool-specific details.
    pub details: Option<Json>,
    /// Whether it failed.
    pub is_error: bool,
    /// When the call finished.
    pub at: Now,
}

impl ToolResult {
    /// Returns its text without its images.
    pub fn text(&self) -> String {
        text_of(&self.content)
    }
}

/// A shell command of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bash {
    /// The command.
    pub command: String,
    /// Its output.
    pub output: String,
    /// Its exit code, unless it was stopped.
    pub exit_code: Option<i64>,
    /// Whether the user stopped it.
    pub cancelled: bool,
    /// Whether its output is truncated.
    pub truncated: bool,
    /// The file with the full output.
    pub full_output: Option<String>,
    /// Whether it is excluded from the model's context.
    pub excluded: bool,
    /// When it ran.
    pub at: Now,
}

/// A message of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Custom {
    /// Its type, chosen by the extension.
    pub kind: String,
    /// Its content.
    pub content: Vec<Content>,
    /// Whether clients display it.
    pub display: bool,
    /// The time of the message.
    pub at: Now,
}

/// The summary of an abandoned branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchSummary {
    /// The text of the summary.
    pub summary: String,
    /// The id of that branch's last entry.
    pub from: String,
    /// The time of the summary.
    pub at: Now,
}

/// The summary of the earlier conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionSummary {
    /// The text of the summary.
    pub summary: String,
    /// The approximate tokens of the conversation it replaces.
    pub tokens_before: u64,
    /// The time of the summary.
    pub at: Now,
}
