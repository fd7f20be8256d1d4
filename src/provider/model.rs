//! The seam between the run loop and the models: what is asked, what comes back.
//!
//! These are plain types that know no server's words; each dialect translates them. Nothing here is kept or shown as
//! it is: texts of models pass the redactor on their way into a session.

use serde_json::Value;

use crate::kernel::event::Image;

/// One turn that is asked of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The model, as its server names it.
    pub model: String,
    /// What the model is told about its task; may be empty.
    pub system: String,
    /// The conversation, oldest first.
    ///
    /// Each call of an assistant's entry is followed by its result before the next user's or assistant's entry.
    pub entries: Vec<Entry>,
    /// The tools it may want used.
    pub tools: Vec<ToolSpec>,
    /// How many tokens it may produce, thinking included; `None` leaves it to the server.
    pub max_tokens: Option<u32>,
    /// How much it is to think before it answers.
    pub thinking: Thinking,
}

/// One step of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// What the user says.
    User {
        /// The text; may be empty where there are pictures.
        text: String,
        /// The pictures that go with it.
        images: Vec<Image>,
    },
    /// What the model said and which tools it wanted used.
    Assistant {
        /// What [`TurnEnd::carry`] gave with it; another dialect's is ignored.
        carry: Option<String>,
        /// Its text; may be empty.
        said: String,
        /// The calls, in the order they came in.
        calls: Vec<Wanted>,
    },
    /// What came of a call.
    Result {
        /// The call, as [`Wanted::id`] names it.
        id: String,
        /// The tool.
        tool: String,
        /// What the model is told.
        text: String,
        /// Whether the tool did what was wanted.
        outcome: Outcome,
    },
}

impl Entry {
    /// Makes what the user says without pictures.
    pub const fn user(text: String) -> Self {
        Self::User { text, images: Vec::new() }
    }
}

/// Whether a tool did what was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It did.
    Fine,
    /// It did not, and the text says why.
    Failed,
}

/// A tool that a model wants used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Names the call in the conversation; made up where the server gives none.
    pub id: String,
    /// The tool, as the model spelled it.
    pub tool: String,
    /// The arguments, as the model wrote them: the text of one JSON object if it did well, anything otherwise.
    pub args: String,
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Value,
}

/// How much a model is to think before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thinking {
    /// As it does when nothing is said about it.
    #[default]
    Usual,
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

impl Thinking {
    /// Reads a word for it; the least and the most that some clients know are those that every server does.
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

/// A piece of a model's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A part of its text.
    Said(String),
    /// A part of its thinking.
    Thought(String),
    /// A call, whole.
    Call(Wanted),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// Why the model stopped.
    pub stop: Stop,
    /// What the turn cost.
    pub usage: Usage,
    /// What the dialect needs back with this turn's assistant entry; not for people.
    ///
    /// It holds the model's thinking as received, signed by some servers: it cannot be redacted without becoming
    /// worthless, and a conversation goes on without it.
    pub carry: Option<String>,
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It has said what it had to say.
    Done,
    /// It waits for the results of its calls.
    Calls,
    /// It reached a limit on length; a call that was cut is left out.
    Length,
    /// It, or its server, declined to answer.
    Refused,
    /// Something else, in the server's word; `unfinished` while the turn has not ended.
    Other(String),
}

/// What a turn cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens that went in, those of the cache included.
    pub input: u64,
    /// Tokens that came out, thinking included.
    pub output: u64,
    /// How many of `input` were read from the server's cache.
    pub cache_read: u64,
    /// How many of `input` were written to it.
    pub cache_write: u64,
    /// The price in millionths of a dollar, where the server says it.
    pub cost_microusd: Option<u64>,
}
