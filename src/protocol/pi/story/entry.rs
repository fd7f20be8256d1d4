//! The conversation: messages in order, each as the JSON that it is, with what was summarised and where it forked.
//!
//! A summary hides what is before it and removes nothing: a fork may begin there. A fork removes what came after.

use std::sync::Arc;

use serde::Deserialize;

use super::parts::{ForkMessage, ForkPoint, Summary};
use super::write::object;
use crate::kernel::event::{Branch, Compaction, Event};
use crate::kernel::id::Seq;
use crate::kernel::time::Now;
use crate::protocol::pi::encode::Stats;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The event with which it began.
    pub seq: Seq,
    /// Which of several that one event made, counted from zero.
    pub part: u32,
    /// The last event that added to it.
    pub till: Seq,
    /// When it began.
    pub at: Now,
    /// Whose it is.
    pub role: Role,
    /// The whole message, as JSON.
    pub json: Arc<str>,
    /// The entry of a session file that it was imported from; empty for what an import added that stands in no file.
    pub origin: Option<Arc<str>>,
}

/// Whose a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A user's.
    User,
    /// The model's.
    Assistant {
        /// How many tools it wanted used.
        calls: u64,
    },
    /// A tool's, that the model wanted used.
    ToolResult,
    /// A shell command of the user's.
    BashExecution,
    /// It stands for what was said before an event.
    CompactionSummary {
        /// The first event that is still told word by word.
        kept_from: Seq,
        /// How many tokens the conversation had before, about.
        tokens_before: u64,
    },
}

impl Entry {
    /// Returns the name under which a client can come back to it.
    pub fn id(&self) -> String {
        entry_id(self.seq, self.part)
    }
}

/// Returns the entry of a file that an event was imported from.
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
    /// The first event of it, where another conversation was left behind.
    base: Seq,
}

impl Conversation {
    /// Adds a message at the end.
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Adds what came of a call, behind the message that wanted it and what came of others of its calls.
    ///
    /// A user may have said something meanwhile; a model must hear what came of a call before anything else.
    pub(super) fn push_result(&mut self, wanted_by: Option<(Seq, u32)>, entry: Entry) {
        let found = wanted_by.and_then(|(seq, part)| {
            self.entries.iter().rposition(|entry| entry.seq == seq && entry.part == part)
        });
        let Some(wanted_at) = found else { return self.push(entry) };
        let results = self.entries[wanted_at + 1..].iter();
        let results = results.take_while(|entry| entry.role == Role::ToolResult).count();
        self.entries.insert(wanted_at + 1 + results, entry);
    }

    /// Puts a summary in the place of what is before an event, and returns it.
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
        self.push(Entry { seq, part: 0, till: seq, at, role, json, origin: origin(event) });
        self.summarised(kept_from, tokens_before, compaction.summary.clone())
    }

    /// Learns of the first event that there is; nothing before it can be told.
    pub(super) fn begin(&mut self, first: Seq) {
        self.base = self.base.max(first);
    }

    /// Goes back to how it was after an event.
    pub(super) fn branch(&mut self, until: Seq, from: Seq) {
        // What was not whole by then was not said.
        self.entries.retain(|entry| entry.till <= until);
        if self.entries.is_empty() {
            self.base = from;
        }
    }

    /// Returns how many messages there are, summarised or not.
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns what was said from a position on.
    pub(super) fn since(&self, position: usize) -> impl Iterator<Item = &Entry> {
        let said = self.entries.iter().skip(position);
        said.filter(|entry| !matches!(entry.role, Role::CompactionSummary { .. }))
    }

    /// Returns every message, also those for which a summary stands.
    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Returns the messages as they are told: the latest summary, and what it does not stand for.
    pub(super) fn told(&self) -> impl Iterator<Item = &Entry> {
        let (summary, kept_from) = match self.latest_summary(Seq::new(u64::MAX)) {
            Some((summary, kept_from)) => (Some(summary), kept_from),
            None => (None, Seq::ZERO),
        };
        let kept = self.entries.iter().filter(move |entry| {
            entry.seq >= kept_from && !matches!(entry.role, Role::CompactionSummary { .. })
        });
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
        Some(self.summarised(kept_from, tokens_before, message.summary))
    }

    /// Returns the messages from which a fork may begin.
    pub(super) fn fork_messages(&self) -> Vec<ForkMessage> {
        let users = self.entries.iter().filter(|entry| entry.role == Role::User);
        users.map(|entry| ForkMessage { entry_id: entry.id(), text: text_of(&entry.json) }).collect()
    }

    /// Finds where the fork begins that leaves a message of a user's out.
    pub(super) fn fork_point(&self, id: &str) -> Option<ForkPoint> {
        let entry = self.entries.iter().find(|entry| entry.role == Role::User && entry.id() == id)?;
        let Branch { until, from } = self.branch_before(entry.seq);
        Some(ForkPoint { text: text_of(&entry.json), until, from })
    }

    /// Returns the point just before an event, as a branch begins there.
    pub(super) fn branch_before(&self, seq: Seq) -> Branch {
        let until = Seq::new(seq.number().saturating_sub(1));
        let from = self.latest_summary(until).map_or(self.base, |(_, kept_from)| kept_from);
        Branch { until, from }
    }

    /// Returns what the model said last.
    pub(super) fn last_text(&self) -> Option<String> {
        let said = self.entries.iter().rev().filter(|entry| matches!(entry.role, Role::Assistant { .. }));
        said.map(|entry| text_of(&entry.json)).find(|text| !text.trim().is_empty())
    }

    /// Counts the messages as they are told.
    pub(super) fn count(&self, stats: &mut Stats) {
        for entry in self.told() {
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

    fn summarised(&self, kept_from: Seq, tokens_before: u64, summary: String) -> Summary {
        let kept = self
            .entries
            .iter()
            .find(|entry| entry.seq >= kept_from && !matches!(entry.role, Role::CompactionSummary { .. }));
        let first_kept_entry_id = kept.map_or_else(|| entry_id(kept_from, 0), Entry::id);
        Summary { summary, first_kept_entry_id, tokens_before }
    }
}

/// Returns the words of a message: its texts, one after the other.
pub(super) fn text_of(json: &str) -> String {
    blocks_of(json).into_iter().filter(|block| block.r#type == "text").map(|block| block.text).collect()
}

/// A block of a message's content, as far as it is words.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Words {
    r#type: String,
    text: String,
}

fn blocks_of(json: &str) -> Vec<Words> {
    #[derive(Deserialize)]
    struct Message {
        content: Vec<Words>,
    }
    serde_json::from_str(json).map(|message: Message| message.content).unwrap_or_default()
}
