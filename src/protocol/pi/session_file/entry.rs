//! A session file as a value: its header, and its entries, which form a tree.

use crate::kernel::time::Now;

use super::message::{Content, Message};

/// The version that is written; older ones are read, newer ones refused.
pub(super) const VERSION: u32 = 3;

/// The first line of a file. All of it is the file's claim and nobody else's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The version of the format that the file was written in.
    pub version: u32,
    /// The session's id.
    pub id: String,
    /// When the session began.
    pub created: Now,
    /// The directory of its tools; may be empty, relative or gone.
    pub cwd: String,
    /// The session or file that it was made from.
    pub parent: Option<String>,
}

impl Header {
    /// Makes the header of a new file.
    pub fn new(id: impl Into<String>, cwd: impl Into<String>, created: Now) -> Self {
        Self { version: VERSION, id: id.into(), created, cwd: cwd.into(), parent: None }
    }
}

/// One line after the header.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its name within the file.
    pub id: String,
    /// The entry before it on its branch; it stands earlier in the file.
    pub parent: Option<String>,
    /// When it was written.
    pub at: Now,
    /// What it says.
    pub change: Change,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Something was said.
    Message(Message),
    /// From here on another model answers.
    Model {
        /// Whose.
        provider: String,
        /// Which.
        model: String,
    },
    /// From here on it thinks more or less.
    Thinking {
        /// How much, in the protocol's word.
        level: String,
    },
    /// From here on a summary stands for what was before.
    Compaction {
        /// In words.
        summary: String,
        /// The first entry that is still told word by word.
        first_kept: String,
        /// How many tokens the conversation had, about.
        tokens_before: u64,
    },
    /// Another branch was left; this is what it was about.
    BranchSummary {
        /// In words.
        summary: String,
        /// Where it was left.
        from: String,
    },
    /// An extension said something to the model.
    CustomMessage {
        /// Whose it is.
        kind: String,
        /// What it says.
        content: Vec<Content>,
        /// Whether people are shown it.
        display: bool,
    },
    /// The session has a name, or none any more.
    Name(Option<String>),
    /// Something else, which changes nothing of the conversation.
    Other {
        /// Its type.
        kind: String,
    },
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Its first line.
    pub header: Header,
    /// The others, in their order; parents stand before their children, and no id occurs twice.
    pub entries: Vec<Entry>,
    /// The name that the header gave; entries may give another.
    pub(super) header_name: Option<String>,
    /// Whether the last line was only half written, and is not counted.
    pub torn: bool,
    /// How many entries, messages and blocks were passed over because nobody here knows their kind, or because they were cut
    /// short.
    pub unknown: u64,
    /// How many bytes the file had.
    pub bytes: u64,
    /// How many of them are whole lines.
    pub(crate) whole: u64,
}

impl Stored {
    /// Returns the session's name: the one that was given last.
    pub fn name(&self) -> Option<&str> {
        let given = self.entries.iter().rev().find_map(|entry| match &entry.change {
            Change::Name(name) => Some(name.as_deref()),
            Change::Message(_)
            | Change::Model { .. }
            | Change::Thinking { .. }
            | Change::Compaction { .. }
            | Change::BranchSummary { .. }
            | Change::CustomMessage { .. }
            | Change::Other { .. } => None,
        });
        given.unwrap_or(self.header_name.as_deref())
    }

    /// Returns the id of the entry that the next one would follow.
    pub fn leaf(&self) -> Option<&str> {
        self.entries.last().map(|entry| entry.id.as_str())
    }
}
