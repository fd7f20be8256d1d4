//! The active branch of a file, from the root to the last entry, and the conversation on it.

use std::collections::BTreeMap;

use super::entry::{Change, Entry, ParsedSession};
use super::message::{BranchSummary, CompactionSummary, Custom, Message};

/// A conversation that can be continued.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    /// The visible messages in order; after a compaction its summary is the first.
    pub messages: Vec<BranchMessage>,
    /// The provider and model that answered last or were selected since.
    pub model: Option<(String, String)>,
    /// The thinking level, by the protocol's name.
    pub thinking: Option<String>,
    /// The last compaction, if any.
    pub compaction: Option<AppliedCompaction>,
}

/// A message with the id of its entry.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchMessage {
    /// The entry's id.
    pub entry: String,
    /// The message.
    pub message: Message,
}

/// The last compaction of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedCompaction {
    /// The entry's id.
    pub entry: String,
    /// The id of the first entry that stays visible; it may not be on the branch.
    pub first_kept: String,
    /// The approximate tokens of the conversation before the compaction.
    pub tokens_before: u64,
}

impl ParsedSession {
    /// Returns the entries from the root to the last one.
    pub fn branch(&self) -> Vec<&Entry> {
        // Parsed parents precede their children; entries that a caller built may form a cycle, so each is visited once.
        let mut unvisited: BTreeMap<&str, &Entry> =
            self.entries.iter().map(|entry| (entry.id.as_str(), entry)).collect();
        let mut branch = Vec::new();
        let mut next = self.entries.last().and_then(|last| unvisited.remove(last.id.as_str()));
        while let Some(entry) = next {
            branch.push(entry);
            next = entry.parent.as_deref().and_then(|parent| unvisited.remove(parent));
        }
        branch.reverse();
        branch
    }

    /// Returns the last compaction of the branch, the entries it kept and everything after it; the whole branch without
    /// a compaction.
    ///
    /// The compaction comes first, so that it replaces none of the entries that follow.
    pub fn since_compaction(&self) -> Vec<&Entry> {
        let branch = self.branch();
        let Some(at) = branch.iter().rposition(|entry| matches!(entry.change, Change::Compaction { .. })) else {
            return branch;
        };
        let Change::Compaction { first_kept, .. } = &branch[at].change else { return branch };
        let kept = branch[..at].iter().position(|entry| entry.id == *first_kept).unwrap_or(at);
        let rest = branch[kept..at].iter().chain(&branch[at + 1..]);
        std::iter::once(&branch[at]).chain(rest).copied().collect()
    }

    /// Returns the conversation of the branch: its messages from the last compaction on.
    pub fn conversation(&self) -> Conversation {
        let branch = self.branch();
        let mut conversation = Conversation::default();
        for entry in &branch {
            conversation.apply_entry(entry);
        }
        conversation.messages = match &conversation.compaction {
            None => branch.iter().filter_map(|entry| branch_message(entry)).collect(),
            Some(compaction) => messages_since(&branch, compaction),
        };
        conversation
    }
}

impl Conversation {
    /// Updates the model, thinking level and compaction from an entry.
    fn apply_entry(&mut self, entry: &Entry) {
        match &entry.change {
            Change::Model { provider, model } => self.model = Some((provider.clone(), model.clone())),
            Change::Message(Message::Assistant(message)) if !message.model.is_empty() => {
                self.model = Some((message.provider.clone(), message.model.clone()));
            }
            Change::Thinking { level } => self.thinking = Some(level.clone()),
            Change::Compaction { first_kept, tokens_before, .. } => {
                self.compaction = Some(AppliedCompaction {
                    entry: entry.id.clone(),
                    first_kept: first_kept.clone(),
                    tokens_before: *tokens_before,
                });
            }
            Change::Message(_)
            | Change::BranchSummary { .. }
            | Change::CustomMessage { .. }
            | Change::Name(_)
            | Change::Other { .. } => {}
        }
    }
}

/// Returns the summary, the messages it kept and all later ones.
fn messages_since(branch: &[&Entry], compaction: &AppliedCompaction) -> Vec<BranchMessage> {
    let at = branch.iter().position(|entry| entry.id == compaction.entry).unwrap_or(0);
    let (before, after) = branch.split_at(at);
    let kept = before.iter().position(|entry| entry.id == compaction.first_kept).unwrap_or(at);
    let (summary, after) = after.split_at(after.len().min(1));
    let summary = summary.iter().filter_map(|entry| match &entry.change {
        Change::Compaction { summary, tokens_before, .. } => Some(BranchMessage {
            entry: entry.id.clone(),
            message: Message::CompactionSummary(CompactionSummary {
                summary: summary.clone(),
                tokens_before: *tokens_before,
                at: entry.at,
            }),
        }),
        Change::Message(_)
        | Change::Model { .. }
        | Change::Thinking { .. }
        | Change::BranchSummary { .. }
        | Change::CustomMessage { .. }
        | Change::Name(_)
        | Change::Other { .. } => None,
    });
    summary.chain(before[kept..].iter().chain(after).filter_map(|entry| branch_message(entry))).collect()
}

/// Returns the message that an entry adds to the conversation.
fn branch_message(entry: &Entry) -> Option<BranchMessage> {
    let message = match &entry.change {
        Change::Message(message) => message.clone(),
        Change::BranchSummary { summary, from } => {
            Message::BranchSummary(BranchSummary { summary: summary.clone(), from: from.clone(), at: entry.at })
        }
        Change::CustomMessage { kind, content, display } => {
            Message::Custom(Custom { kind: kind.clone(), content: content.clone(), display: *display, at: entry.at })
        }
        // The last compaction includes the earlier ones.
        Change::Compaction { .. }
        | Change::Model { .. }
        | Change::Thinking { .. }
        | Change::Name(_)
        | Change::Other { .. } => return None,
    };
    Some(BranchMessage { entry: entry.id.clone(), message })
}
