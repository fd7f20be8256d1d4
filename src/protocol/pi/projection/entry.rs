//! The conversation: an ordered list of messages in their JSON form, with summaries and branch points.
//!
//! A summary hides the entries before it but removes none, because a fork may start from one of them. A fork removes
//! the entries after its branch point.

use std::sync::Arc;

use serde::Deserialize;

use super::object_writer::object;
use super::parts::{ForkMessage, ForkPoint, Summary};
use crate::kernel::event::{Branch, Compaction, Event};
use crate::kernel::id::Seq;
use crate::kernel::time::Now;
use crate::protocol::pi::encode::Stats;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The position of its first event.
    pub seq: Seq,
    /// Its index among the entries of that event, from zero.
    pub part: u32,
    /// The position of the last event that changed it.
    pub last_seq: Seq,
    /// The time of its first event.
    pub at: Now,
    /// The role of its author.
    pub role: Role,
    /// The message as JSON.
    pub json: Arc<str>,
    /// The session file entry it was imported from; empty for an entry that the import made up.
    pub origin: Option<Arc<str>>,
}

/// The role of a message's author.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant {
        /// The number of tool calls it requested.
        calls: u64,
    },
    /// The result of a tool call that the model requested.
    ToolResult,
    /// A shell command of the user.
    BashExecution,
    /// A summary that replaces the entries before an event.
    CompactionSummary {
        /// The first event that stays visible.
        kept_from: Seq,
        /// The approximate tokens of the conversation before the compaction.
        tokens_before: u64,
    },
}

impl Entry {
    /// Returns the entry id that clients use.
    pub fn id(&self) -> String {
        entry_id(self.seq, self.part)
    }
}

/// Returns the session file entry that an event was imported from.
pub(super) fn origin(event: &Event) -> Option<Arc<str>> {
    event.origin.as_deref().map(Arc::from)
}

fn entry_id(seq: Seq, part: u32) -> String {
    match part {
        0 => format!("{:08x}", seq.number()),
        part => format!("{:08x}-{part}", seq.number()),
    }
}

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Conversation {
    entries: Vec<Entry>,
    /// The first event of the conversation; an earlier conversation may precede it in the session.
    base: Seq,
}

impl Conversation {
    /// Appends an entry.
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Inserts a tool result after the message that requested the call and after that message's other results.
    ///
    /// A user message may have arrived meanwhile, but models require the results directly after the calls.
    pub(super) fn push_result(&mut self, wanted_by: Option<(Seq, u32)>, entry: Entry) {
        let found = wanted_by
            .and_then(|(seq, part)| self.entries.iter().rposition(|entry| entry.seq == seq && entry.part == part));
        let Some(wanted_at) = found else { return self.push(entry) };
        let results = self.entries[wanted_at + 1..].iter();
        let results = results.take_while(|entry| entry.role == Role::ToolResult).count();
        self.entries.insert(wanted_at + 1 + results, entry);
    }

    /// Appends a compaction summary and returns it.
    pub(super) fn compact(&mut self, event: &Event, compaction: &Compaction) -> Summary {
        let (seq, at) = (event.seq, event.at);
        let json = object(|message| {
            message
                .text("role", "compactionSummary")
                .text("summary", &compaction.summary)
                .number("tokensBefore", compaction.tokens_before)
                .number("timestamp", at.0)
                .end();
        });
        let (kept_from, tokens_before) = (compaction.kept_from, compaction.tokens_before);
        let role = Role::CompactionSummary { kept_from, tokens_before };
        self.push(Entry { seq, part: 0, last_seq: seq, at, role, json, origin: origin(event) });
        self.summary_of(kept_from, tokens_before, compaction.summary.clone())
    }

    /// Sets the first event of the session; nothing before it exists.
    pub(super) fn set_base(&mut self, first: Seq) {
        self.base = self.base.max(first);
    }

    /// Rewinds the conversation to its state after an event.
    pub(super) fn branch(&mut self, until: Seq, from: Seq) {
        // An entry that was incomplete at that point was not part of the conversation.
        self.entries.retain(|entry| entry.last_seq <= until);
        if self.entries.is_empty() {
            self.base = from;
        }
    }

    /// Returns the number of entries, including hidden ones.
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the entries from a position on, without summaries.
    pub(super) fn since(&self, position: usize) -> impl Iterator<Item = &Entry> {
        let said = self.entries.iter().skip(position);
        said.filter(|entry| !matches!(entry.role, Role::CompactionSummary { .. }))
    }

    /// Returns every entry, including those that a summary replaces.
    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Returns the visible entries: the latest summary and the entries it does not replace.
    pub(super) fn visible(&self) -> impl Iterator<Item = &Entry> {
        let (summary, kept_from) = match self.latest_summary(Seq::new(u64::MAX)) {
            Some((summary, kept_from)) => (Some(summary), kept_from),
            None => (None, Seq::ZERO),
        };
        let kept = self
            .entries
            .iter()
            .filter(move |entry| entry.seq >= kept_from && !matches!(entry.role, Role::CompactionSummary { .. }));
        summary.into_iter().chain(kept)
    }

    /// Returns the latest summary.
    pub(super) fn summary(&self) -> Option<Summary> {
        #[derive(Deserialize)]
        struct Message {
            summary: String,
        }
        let (entry, kept_from) = self.latest_summary(Seq::new(u64::MAX))?;
        let Role::CompactionSummary { tokens_before, .. } = entry.role else { return None };
        let message: Message = serde_json::from_str(&entry.json).ok()?;
        Some(self.summary_of(kept_from, tokens_before, message.summary))
    }

    /// Returns the messages that a fork can start from.
    pub(super) fn fork_messages(&self) -> Vec<ForkMessage> {
        let users = self.entries.iter().filter(|entry| entry.role == Role::User);
        users.map(|entry| ForkMessage { entry_id: entry.id(), text: text_of(&entry.json) }).collect()
    }

    /// Finds the fork point that excludes a user message.
    pub(super) fn fork_point(&self, id: &str) -> Option<ForkPoint> {
        let entry = self.entries.iter().find(|entry| entry.role == Role::User && entry.id() == id)?;
        let Branch { until, from } = self.branch_before(entry.seq);
        Some(ForkPoint { text: text_of(&entry.json), until, from })
    }

    /// Returns the branch point just before an event.
    pub(super) fn branch_before(&self, seq: Seq) -> Branch {
        let until = Seq::new(seq.number().saturating_sub(1));
        let from = self.latest_summary(until).map_or(self.base, |(_, kept_from)| kept_from);
        Branch { until, from }
    }

    /// Returns the text of the last assistant message that has one.
    pub(super) fn last_text(&self) -> Option<String> {
        let said = self.entries.iter().rev().filter(|entry| matches!(entry.role, Role::Assistant { .. }));
        said.map(|entry| text_of(&entry.json)).find(|text| !text.trim().is_empty())
    }

    /// Adds the counts of the visible entries.
    pub(super) fn add_counts(&self, stats: &mut Stats) {
        for entry in self.visible() {
            stats.total_messages += 1;
            match entry.role {
                Role::User => stats.user_messages += 1,
                Role::Assistant { calls } => {
                    stats.assistant_messages += 1;
                    stats.tool_calls += calls;
                }
                Role::ToolResult => stats.tool_results += 1,
                Role::BashExecution | Role::CompactionSummary { .. } => {}
            }
        }
    }

    fn latest_summary(&self, until: Seq) -> Option<(&Entry, Seq)> {
        self.entries.iter().rev().filter(|entry| entry.seq <= until).find_map(|entry| match entry.role {
            Role::CompactionSummary { kept_from, .. } => Some((entry, kept_from)),
            Role::User | Role::Assistant { .. } | Role::ToolResult | Role::BashExecution => None,
        })
    }

    fn summary_of(&self, kept_from: Seq, tokens_before: u64, summary: String) -> Summary {
        let kept = self
            .entries
            .iter()
            .find(|entry| entry.seq >= kept_from && !matches!(entry.role, Role::CompactionSummary { .. }));
        let first_kept_entry_id = kept.map_or_else(|| entry_id(kept_from, 0), Entry::id);
        Summary { summary, first_kept_entry_id, tokens_before }
    }
}

/// Returns the concatenated text blocks of a message.
pub(super) fn text_of(json: &str) -> String {
    blocks_of(json).into_iter().filter(|block| block.r#type == "text").map(|block| block.text).collect()
}

/// A content block of a message, reduced to its text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TextBlock {
    r#type: String,
    text: String,
}

fn blocks_of(json: &str) -> Vec<TextBlock> {
    #[derive(Deserialize)]
    struct Message {
        content: Vec<TextBlock>,
    }
    serde_json::from_str(json).map(|message: Message| message.content).unwrap_or_default()
}
