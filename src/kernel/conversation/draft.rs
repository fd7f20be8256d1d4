//! The message that the assistant is writing: it has no usage and no calls yet, and is no item.

use std::sync::Arc;

use super::assistant::{AssistantMessage, AssistantText, Block, Completion, MessageEnd};
use super::item::{Item, ItemContent};
use crate::kernel::event::Event;
use crate::kernel::id::{MessageId, RunId, Seq};
use crate::kernel::time::Now;

/// The message that the assistant is writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) first_seq: Seq,
    pub(super) last_seq: Seq,
    pub(super) at: Now,
    pub(super) run: Option<RunId>,
    pub(super) origin: Option<Arc<str>>,
    pub(super) message: AssistantMessage,
    /// Whether its text is complete.
    pub(super) text_complete: bool,
}

/// The kind of a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeltaKind {
    Text,
    Thinking,
}

impl Draft {
    /// Creates an empty message of a turn.
    pub(super) fn new(event: &Event, turn: Seq, provider: &Arc<str>, model: &Arc<str>) -> Self {
        let message = AssistantMessage {
            turn,
            provider: Arc::clone(provider),
            model: Arc::clone(model),
            blocks: Vec::new(),
            usage: None,
            provider_state: None,
            end: MessageEnd::Complete,
        };
        let (first_seq, at, run) = (event.seq, event.at, event.run.clone());
        Self { first_seq, last_seq: first_seq, at, run, origin: origin(event), message, text_complete: false }
    }

    /// Notes an event that adds to it.
    pub(super) fn touch(&mut self, event: &Event) {
        self.last_seq = event.seq;
        if self.origin.is_none() {
            self.origin = origin(event);
        }
    }

    /// Appends a delta.
    pub(super) fn append(&mut self, event: &Event, kind: DeltaKind, delta: &str) {
        self.touch(event);
        match (self.message.blocks.last_mut(), kind) {
            (Some(Block::Text(AssistantText { text, completion: None, .. })), DeltaKind::Text)
            | (Some(Block::Thinking(text)), DeltaKind::Thinking) => text.push_str(delta),
            (_, DeltaKind::Text) => {
                let (first_seq, text) = (event.seq, delta.to_owned());
                self.message.blocks.push(Block::Text(AssistantText { first_seq, text, completion: None }));
            }
            (_, DeltaKind::Thinking) => self.message.blocks.push(Block::Thinking(delta.to_owned())),
        }
    }

    /// Completes its text; without deltas it is empty.
    pub(super) fn complete_text(&mut self, event: &Event, message: &MessageId) {
        self.text_complete = true;
        let completion = Some(Completion { message: message.clone(), seq: event.seq, at: event.at });
        match self.message.incomplete_text_mut() {
            Some(text) => text.completion = completion,
            None => {
                let text = AssistantText { first_seq: event.seq, text: String::new(), completion };
                self.message.blocks.push(Block::Text(text));
            }
        }
    }

    /// Returns the item.
    pub(super) fn into_item(self) -> Item {
        let Self { first_seq, last_seq, at, run, origin, mut message, text_complete: _ } = self;
        message.shrink();
        Item { first_seq, last_seq, at, run, origin, content: ItemContent::AssistantMessage(message) }
    }
}

/// Returns the session file entry that an event was imported from.
pub(super) fn origin(event: &Event) -> Option<Arc<str>> {
    event.origin.as_deref().map(Arc::from)
}
