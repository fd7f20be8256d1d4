//! Branches: the conversation is restored to an earlier event.

use std::sync::Arc;

use super::Conversation;
use super::assistant::{AssistantMessage, Block};
use super::item::{Item, ItemContent};
use super::progress::Progress;
use crate::kernel::event::{Branch, Event};
use crate::kernel::id::Seq;

impl Conversation {
    /// Returns the branch point just before an event.
    pub fn branch_before(&self, seq: Seq) -> Branch {
        let until = Seq::new(seq.number().saturating_sub(1));
        let summary = self.summaries.iter().rev().find(|summary| summary.created_at <= until);
        Branch { until, from: summary.map_or(self.start, |summary| summary.kept_from) }
    }

    /// Removes everything after a branch point.
    pub(super) fn rewind_to(&mut self, event: &Event, branch: Branch) {
        self.discard_draft(event);
        self.items.retain_mut(|item| rewind_item(item, branch.until));
        self.summaries.retain(|summary| summary.created_at <= branch.until);
        if self.items.is_empty() && self.summaries.is_empty() {
            self.start = branch.from;
        }
        self.pending = None;
        self.unsettled.clear();
        self.interruption = None;
        self.counted = None;
        // A branch needs an idle session: what was active at its point has ended since.
        self.progress = Progress::default();
    }
}

/// Restores an item to its state after an event; returns whether it existed.
fn rewind_item(item: &mut Arc<Item>, until: Seq) -> bool {
    let ItemContent::AssistantMessage(message) = &item.content else { return item.last_seq <= until };
    if item.last_seq <= until {
        if has_later_parts(message, until)
            && let Some(message) = Arc::make_mut(item).assistant_mut()
        {
            remove_later_parts(message, until);
        }
        return true;
    }
    // The message was not complete, but some of its texts were.
    let item = Arc::make_mut(item);
    let Some(last_seq) = item.assistant_mut().and_then(|message| message.supersede(until)) else { return false };
    item.last_seq = last_seq;
    true
}

fn has_later_parts(message: &AssistantMessage, until: Seq) -> bool {
    message.blocks.iter().any(|block| match block {
        Block::Thinking(_) => false,
        Block::Text(text) => text.completion.as_ref().is_some_and(|completion| completion.seq > until),
        Block::Call(call) => {
            call.request.as_ref().is_some_and(|request| request.seq > until)
                || call.completion.as_ref().is_some_and(|completion| completion.seq > until)
        }
    })
}

fn remove_later_parts(message: &mut AssistantMessage, until: Seq) {
    message.blocks.retain(|block| !matches!(block, Block::Text(text) if text.first_seq > until));
    for block in &mut message.blocks {
        match block {
            Block::Thinking(_) => {}
            Block::Text(text) => text.completion = text.completion.take().filter(|completion| completion.seq <= until),
            Block::Call(call) => {
                call.request = call.request.take().filter(|request| request.seq <= until);
                call.completion = call.completion.take().filter(|completion| completion.seq <= until);
            }
        }
    }
}
