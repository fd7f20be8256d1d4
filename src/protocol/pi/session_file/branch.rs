//! The branch of a file that counts: from its root to the entry that was written last, and what a model is told of it.

use std::collections::BTreeMap;

use super::entry::{Change, Entry, Stored};
use super::message::{BranchSummary, CompactionSummary, Custom, Message};

/// A conversation, ready to be gone on with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    /// What is told, in order; after a compaction its summary is the first.
    pub told: Vec<Told>,
    /// Whose model answered last, or was chosen since, and which.
    pub model: Option<(String, String)>,
    /// How much it was to think, in the protocol's word.
    pub thinking: Option<String>,
    /// The compaction that shortened it, if any.
    pub compacted: Option<Compacted>,
}

/// A message with the entry that it stands in.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The entry's id.
    pub entry: String,
    /// The message.
    pub message: Message,
}

/// The last compaction of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// The entry's id.
    pub entry: String,
    /// The first entry that is still told word by word; may be none of the branch.
    pub first_kept: String,
    /// How many tokens the conversation had before, about.
    pub tokens_before: u64,
}

impl Stored {
    /// Returns the entries from the root to the one that was written last.
    pub fn branch(&self) -> Vec<&Entry> {
        let by_id: BTreeMap<&str, &Entry> =
            self.entries.iter().map(|entry| (entry.id.as_str(), entry)).collect();
        let mut branch = Vec::new();
        let mut next = self.entries.last();
        // Parents stand before their children, so that this ends; the bound is for entries that were made by hand.
        while let Some(entry) = next.filter(|_| branch.len() < self.entries.len()) {
            branch.push(entry);
            next = entry.parent.as_deref().and_then(|parent| by_id.get(parent).copied());
        }
        branch.reverse();
        branch
    }

    /// Returns the last compaction of the branch with what it kept, and everything after it; the whole branch without one.
    ///
    /// The summary comes first, so that it stands for nothing of the rest.
    pub fn since_compaction(&self) -> Vec<&Entry> {
        let branch = self.branch();
        let Some(at) = branch.iter().rposition(|entry| matches!(entry.change, Change::Compaction { .. }))
        else {
            return branch;
        };
        let Change::Compaction { first_kept, .. } = &branch[at].change else { return branch };
        let kept = branch[..at].iter().position(|entry| entry.id == *first_kept).unwrap_or(at);
        let rest = branch[kept..at].iter().chain(&branch[at + 1..]);
        std::iter::once(&branch[at]).chain(rest).copied().collect()
    }

    /// Returns what is told of the branch: its messages, from the last compaction on.
    pub fn conversation(&self) -> Conversation {
        let branch = self.branch();
        let mut conversation = Conversation::default();
        for entry in &branch {
            conversation.note(entry);
        }
        conversation.told = match &conversation.compacted {
            None => branch.iter().filter_map(|entry| told(entry)).collect(),
            Some(compacted) => since(&branch, compacted),
        };
        conversation
    }
}

impl Conversation {
    /// Takes from an entry what it says about the model.
    fn note(&mut self, entry: &Entry) {
        match &entry.change {
            Change::Model { provider, model } => self.model = Some((provider.clone(), model.clone())),
            Change::Message(Message::Assistant(message)) if !message.model.is_empty() => {
                self.model = Some((message.provider.clone(), message.model.clone()));
            }
            Change::Thinking { level } => self.thinking = Some(level.clone()),
            Change::Compaction { first_kept, tokens_before, .. } => {
                self.compacted = Some(Compacted {
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

/// The summary, what was kept before it, and all after it.
fn since(branch: &[&Entry], compacted: &Compacted) -> Vec<Told> {
    let at = branch.iter().position(|entry| entry.id == compacted.entry).unwrap_or(0);
    let (before, after) = branch.split_at(at);
    let kept = before.iter().position(|entry| entry.id == compacted.first_kept).unwrap_or(at);
    let (summary, after) = after.split_at(after.len().min(1));
    let summary = summary.iter().filter_map(|entry| match &entry.change {
        Change::Compaction { summary, tokens_before, .. } => Some(Told {
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
    summary.chain(before[kept..].iter().chain(after).filter_map(|entry| told(entry))).collect()
}

/// What an entry adds to the conversation.
fn told(entry: &Entry) -> Option<Told> {
    let message = match &entry.change {
        Change::Message(message) => message.clone(),
        Change::BranchSummary { summary, from } => Message::BranchSummary(BranchSummary {
            summary: summary.clone(),
            from: from.clone(),
            at: entry.at,
        }),
        Change::CustomMessage { kind, content, display } => Message::Custom(Custom {
            kind: kind.clone(),
            content: content.clone(),
            display: *display,
            at: entry.at,
        }),
        // An earlier compaction is part of what the last one sums up.
        Change::Compaction { .. }
        | Change::Model { .. }
        | Change::Thinking { .. }
        | Change::Name(_)
        | Change::Other { .. } => return None,
    };
    Some(Told { entry: entry.id.clone(), message })
}
