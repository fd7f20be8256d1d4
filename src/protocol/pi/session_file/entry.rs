//! A session file as a value: its header and its entries, which form a tree.

use crate::kernel::time::Now;

use super::message::{Content, Message};

/// The format version that is written; older ones are read, newer ones refused.
pub(super) const VERSION: u32 = 3;

/// The first line of a file. All of it is the unverified claim of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The format version of the file.
    pub version: u32,
    /// The session's id.
    pub id: String,
    /// When the session began.
    pub created: Now,
    /// The working directory of its tools; it may be empty, relative or missing.
    pub cwd: String,
    /// The session or file that it was forked from.
    pub parent: Option<String>,
}

impl Header {
    /// Creates the header of a new file.
    pub fn new(id: impl Into<String>, cwd: impl Into<String>, created: Now) -> Self {
        Self { version: VERSION, id: id.into(), created, cwd: cwd.into(), parent: None }
    }
}

/// One line after the header.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its id, unique within the file.
    pub id: String,
    /// The previous entry on its branch, which is an earlier line of the file.
    pub parent: Option<String>,
    /// When it was written.
    pub at: Now,
    /// Its content.
    pub change: Change,
}

/// The content of an entry.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A message.
    Message(Message),
    /// Another model answers from here on.
    Model {
        /// Its provider.
        provider: String,
        /// Its id.
        model: String,
    },
    /// The thinking level changes.
    Thinking {
        /// The level, by the protocol's name.
        level: String,
    },
    /// A summary replaces the earlier entries.
    Compaction {
        /// The text of the summary.
        summary: String,
        /// The id of the first entry that stays visible.
        first_kept: String,
        /// The approximate tokens of the conversation before the compaction.
        tokens_before: u64,
    },
    /// The user left another branch, which this summarizes.
    BranchSummary {
        /// The text of the summary.
        summary: String,
        /// The id of that branch's last entry.
        from: String,
    },
    /// A message of an extension to the model.
    CustomMessage {
        /// The type of the message, chosen by the extension.
        kind: String,
        /// Its content.
        content: Vec<Content>,
        /// Whether clients display it.
        display: bool,
    },
    /// The session is renamed, or loses its name.
    Name(Option<String>),
    /// An unknown entry, which does not affect the conversation.
    Other {
        /// Its type.
        kind: String,
    },
}

/// A parsed session file.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedSession {
    /// Its header.
    pub header: Header,
    /// The entries in file order; parents precede their children, and ids are unique.
    pub entries: Vec<Entry>,
    /// The session name in the header; entries may override it.
    pub(super) header_name: Option<String>,
    /// Whether the last line was torn, and is ignored.
    pub torn: bool,
    /// How many entries, messages and blocks were skipped because their kind is unknown or they are truncated.
    pub skipped: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The number of bytes in complete lines.
    pub(crate) complete_bytes: u64,
}

impl ParsedSession {
    /// Returns the session's name: the last one set.
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

    /// Returns the id of the last entry, the parent of the next one.
    pub fn leaf(&self) -> Option<&str> {
        self.entries.last().map(|entry| entry.id.as_str())
    }
}
