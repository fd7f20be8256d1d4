//! The items of a conversation: messages of users, messages of the assistant with their calls, and user commands.

use std::sync::Arc;

use super::assistant::{AssistantMessage, Block};
use crate::kernel::event::{CallResult, Image, Intention, Purpose, RunReport};
use crate::kernel::id::{MessageId, RunId, Seq};
use crate::kernel::time::Now;

/// An item of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its first event.
    pub first_seq: Seq,
    /// The last event that changed it. The requests of announced calls, and all results, have positions of their own.
    pub last_seq: Seq,
    /// The time of its first event.
    pub at: Now,
    /// The run it belongs to.
    pub run: Option<RunId>,
    /// The session file entry that it was imported from; empty if the import added it.
    pub origin: Option<Arc<str>>,
    /// What it is.
    pub content: ItemContent,
}

impl Item {
    /// Returns the message of the assistant, unless the item is something else or a superseded message.
    pub fn assistant(&self) -> Option<&AssistantMessage> {
        match &self.content {
            ItemContent::AssistantMessage(message) if !message.is_superseded() => Some(message),
            ItemContent::AssistantMessage(_)
            | ItemContent::UserMessage(_)
            | ItemContent::UserCommand(_)
            | ItemContent::LostCall(_) => None,
        }
    }

    /// Returns its place among the items: its first event that a reader sees. A message without text starts with its
    /// first call.
    pub fn place(&self) -> Seq {
        let first = self.assistant().and_then(|message| message.blocks.first());
        match first {
            Some(Block::Call(call)) if call.announcement.is_none() => {
                call.request.as_ref().map_or(self.first_seq, |request| request.seq)
            }
            Some(Block::Call(_) | Block::Text(_) | Block::Thinking(_)) | None => self.first_seq,
        }
    }

    /// Returns the message of the assistant for a change.
    pub(super) const fn assistant_mut(&mut self) -> Option<&mut AssistantMessage> {
        match &mut self.content {
            ItemContent::AssistantMessage(message) => Some(message),
            ItemContent::UserMessage(_) | ItemContent::UserCommand(_) | ItemContent::LostCall(_) => None,
        }
    }
}

/// The content of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemContent {
    /// A message of a user.
    UserMessage(UserMessage),
    /// A message of the assistant.
    AssistantMessage(AssistantMessage),
    /// A command of the user outside the run.
    UserCommand(UserCommand),
    /// The result of a call whose request is lost.
    LostCall(Arc<CallResult>),
}

/// A message of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMessage {
    /// Its id.
    pub message: MessageId,
    /// How it reached the model.
    pub delivery: Delivery,
    /// What interrupted the conversation before it.
    pub interruption: Option<Interruption>,
    /// Its text, redacted.
    pub text: String,
    /// The attached images.
    pub images: Vec<Image>,
}

/// How a message reached the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It started a run.
    Prompt,
    /// It was delivered to the active run.
    Steering,
}

/// What interrupted the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interruption {
    /// The previous run did not succeed.
    RunEnded(Arc<RunReport>),
    /// Events are lost.
    EventsLost,
}

/// A command of the user outside the run, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCommand {
    /// The command.
    pub intention: Arc<Intention>,
    /// Its result.
    pub result: Arc<CallResult>,
}

impl UserCommand {
    /// Returns whether the model sees the command.
    pub fn is_in_context(&self) -> bool {
        self.intention.purpose == (Purpose::UserCommand { in_context: true })
    }
}

/// A summary, which replaces everything before an event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// The event that created it.
    pub created_at: Seq,
    /// The time of that event.
    pub at: Now,
    /// The first event that it does not replace.
    pub kept_from: Seq,
    /// Its place among the items: before those from this event on. A message that was being written follows it.
    pub place: Seq,
    /// The approximate number of tokens before the compaction.
    pub tokens_before: u64,
    /// The summary, redacted.
    pub text: Arc<str>,
    /// The session file entry that it was imported from.
    pub origin: Option<Arc<str>>,
}

/// The tokens that the provider counted in its last request and response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedTokens {
    /// The first event of the turn up to which they are counted.
    pub turn: Seq,
    /// Their number.
    pub tokens: u64,
}
