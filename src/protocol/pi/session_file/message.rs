//! The messages of a conversation, as a session file keeps them.
//!
//! They are plain values: whoever tells a session's story in another way turns it into these and back.

use crate::kernel::id::Json;
use crate::kernel::time::Now;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The user's.
    User(User),
    /// The model's.
    Assistant(Box<Assistant>),
    /// What a tool gave back to the model.
    ToolResult(Box<ToolResult>),
    /// A command that the user ran beside the conversation.
    Bash(Box<Bash>),
    /// What an extension put into the conversation.
    Custom(Custom),
    /// What a branch that was left behind was about.
    BranchSummary(BranchSummary),
    /// What the conversation before it was about.
    CompactionSummary(CompactionSummary),
}

impl Message {
    /// When it was said.
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

/// A piece of what a user or a tool said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Words.
    Text(String),
    /// A picture.
    Image {
        /// What kind of picture, such as `image/png`.
        mime: String,
        /// The picture in base64, as it was received: nobody has looked whether it is one.
        data: String,
    },
}

/// Joins the words of some pieces, each on lines of its own.
pub(super) fn text_of(content: &[Content]) -> String {
    let mut text = String::new();
    for piece in content {
        match piece {
            Content::Text(words) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(words);
            }
            Content::Image { .. } => {}
        }
    }
    text
}

/// A user's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// What was said.
    pub content: Vec<Content>,
    /// When.
    pub at: Now,
}

impl User {
    /// Returns its words without its pictures.
    pub fn text(&self) -> String {
        text_of(&self.content)
    }
}

/// A model's message: one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Assistant {
    /// What it said, thought and wanted done, in order.
    pub blocks: Vec<Block>,
    /// The dialect of its server; may be empty.
    pub api: String,
    /// Whose model it was.
    pub provider: String,
    /// Which model.
    pub model: String,
    /// What it used.
    pub usage: Usage,
    /// Why it stopped.
    pub stop: Stop,
    /// What went wrong, if something did.
    pub error: Option<String>,
    /// When it began.
    pub at: Now,
}

/// A part of a model's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Words.
    Text(String),
    /// Reasoning.
    Thinking(String),
    /// A tool to be used.
    ToolCall {
        /// This use.
        id: String,
        /// The tool.
        name: String,
        /// Its arguments, a JSON object.
        args: Json,
    },
}

/// Why a model's message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It was done.
    Stop,
    /// It had no more room.
    Length,
    /// It waits for tools.
    ToolUse,
    /// Something went wrong.
    Error,
    /// Somebody stopped it.
    Aborted,
}

impl Stop {
    /// Every reason with its word.
    const WORDS: [(Self, &'static str); 5] = [
        (Self::Stop, "stop"),
        (Self::Length, "length"),
        (Self::ToolUse, "toolUse"),
        (Self::Error, "error"),
        (Self::Aborted, "aborted"),
    ];

    /// Returns the word of a file for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolUse => "toolUse",
            Self::Error => "error",
            Self::Aborted => "aborted",
        }
    }

    /// Reads a word; one that is unknown is taken for a plain end.
    pub(super) fn read(word: &str) -> Self {
        Self::WORDS.iter().find(|(_, known)| *known == word).map_or(Self::Stop, |(stop, _)| *stop)
    }
}

/// What a turn used, in tokens and money.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Tokens read, without those of the cache.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens read that went into it.
    pub cache_write: u64,
    /// All of them.
    pub total: u64,
    /// What they cost.
    pub cost: Cost,
}

/// What tokens cost, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Those read.
    pub input: f64,
    /// Those written.
    pub output: f64,
    /// Those from the cache.
    pub cache_read: f64,
    /// Those into the cache.
    pub cache_write: f64,
    /// All of them.
    pub total: f64,
}

/// What a tool gave back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The use of the tool.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// What it printed or returned.
    pub content: Vec<Content>,
    /// The tool's own particulars.
    pub details: Option<Json>,
    /// Whether it failed.
    pub is_error: bool,
    /// When it was done.
    pub at: Now,
}

impl ToolResult {
    /// Returns its words without its pictures.
    pub fn text(&self) -> String {
        text_of(&self.content)
    }
}

/// A command of the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bash {
    /// The command.
    pub command: String,
    /// What it printed.
    pub output: String,
    /// How it ended, unless it was cut.
    pub exit_code: Option<i64>,
    /// Whether somebody stopped it.
    pub cancelled: bool,
    /// Whether some of its output was left out.
    pub truncated: bool,
    /// Where all of it is.
    pub full_output: Option<String>,
    /// Whether the model is not told of it.
    pub excluded: bool,
    /// When it ran.
    pub at: Now,
}

/// A message of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Custom {
    /// Whose it is.
    pub kind: String,
    /// What it says.
    pub content: Vec<Content>,
    /// Whether people are shown it.
    pub display: bool,
    /// When.
    pub at: Now,
}

/// What a branch that was left was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchSummary {
    /// In words.
    pub summary: String,
    /// The entry at which it was left.
    pub from: String,
    /// When.
    pub at: Now,
}

/// What the conversation so far was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionSummary {
    /// In words.
    pub summary: String,
    /// How many tokens it stands for, about.
    pub tokens_before: u64,
    /// When.
    pub at: Now,
}
