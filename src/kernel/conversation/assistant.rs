//! A message of the assistant: its blocks, its calls with their results, and how it ended.

use std::borrow::Cow;
use std::sync::Arc;

use super::item::Interruption;
use crate::kernel::event::{CallResult, Intention, PendingCall, TokenUsage};
use crate::kernel::id::{CallId, Json, MessageId, Seq};
use crate::kernel::time::Now;

/// A message of the assistant. The messages of one turn of the provider are one message for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssistantMessage {
    /// The turn that it belongs to: the first event of the turn.
    pub turn: Seq,
    /// The provider.
    pub provider: Arc<str>,
    /// The model; empty if it is unknown.
    pub model: Arc<str>,
    /// Its content, in order.
    pub blocks: Vec<Block>,
    /// The usage of the turn, on the last message with text.
    pub usage: Option<TokenUsage>,
    /// Opaque state that the provider wants back with the turn's content, unchanged.
    pub provider_state: Option<String>,
    /// How it ended.
    pub end: MessageEnd,
}

impl AssistantMessage {
    /// Returns its texts.
    pub fn texts(&self) -> impl Iterator<Item = &AssistantText> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Text(text) => Some(text),
            Block::Thinking(_) | Block::Call(_) => None,
        })
    }

    /// Returns its whole text.
    pub fn text(&self) -> Cow<'_, str> {
        let mut texts = self.texts().map(|part| part.text.as_str());
        match (texts.next(), texts.next()) {
            (None, _) => Cow::Borrowed(""),
            (Some(only), None) => Cow::Borrowed(only),
            (Some(first), Some(second)) => Cow::Owned([first, second].into_iter().chain(texts).collect()),
        }
    }

    /// Returns the length of its whole text in bytes.
    pub fn text_len(&self) -> usize {
        self.texts().map(|part| part.text.len()).sum()
    }

    /// Returns its calls, in order.
    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &Call> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call(call) => Some(&**call),
            Block::Thinking(_) | Block::Text(_) => None,
        })
    }

    /// Returns whether it has a block that a reader sees. The message of a turn without output has none.
    pub fn has_content(&self) -> bool {
        self.blocks.iter().any(Block::is_shown)
    }

    /// Returns whether it is superseded.
    pub const fn is_superseded(&self) -> bool {
        matches!(self.end, MessageEnd::Superseded)
    }

    pub(super) fn calls_mut(&mut self) -> impl Iterator<Item = &mut Call> {
        self.blocks.iter_mut().filter_map(|block| match block {
            Block::Call(call) => Some(&mut **call),
            Block::Thinking(_) | Block::Text(_) => None,
        })
    }

    /// Returns the last text for a change, if it is not complete.
    pub(super) fn incomplete_text_mut(&mut self) -> Option<&mut AssistantText> {
        let mut texts = self.blocks.iter_mut().rev().filter_map(|block| match block {
            Block::Text(text) => Some(text),
            Block::Thinking(_) | Block::Call(_) => None,
        });
        texts.next().filter(|text| text.completion.is_none())
    }

    /// Removes everything that is not part of a text completed until an event; returns the event of the last completion.
    pub(super) fn supersede(&mut self, until: Seq) -> Option<Seq> {
        self.end = MessageEnd::Superseded;
        self.provider_state = None;
        self.blocks.retain(|block| matches!(block, Block::Text(_)));
        let completed = |block: &Block| match block {
            Block::Text(text) => Some(text.completion.as_ref()?.seq).filter(|seq| *seq <= until),
            Block::Thinking(_) | Block::Call(_) => None,
        };
        let last = self.blocks.iter().rposition(|block| completed(block).is_some());
        self.blocks.truncate(last.map_or(0, |last| last + 1));
        self.blocks.last().and_then(completed)
    }

    /// Frees unused memory.
    pub(super) fn shrink(&mut self) {
        self.blocks.shrink_to_fit();
        for block in &mut self.blocks {
            match block {
                Block::Thinking(text) | Block::Text(AssistantText { text, .. }) => text.shrink_to_fit(),
                Block::Call(_) => {}
            }
        }
    }
}

/// A block of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Reasoning.
    Thinking(String),
    /// Text for the user.
    Text(AssistantText),
    /// A tool call.
    Call(Box<Call>),
}

impl Block {
    /// Returns whether a reader sees it: a text that was completed without any delta is only a message.
    pub fn is_shown(&self) -> bool {
        match self {
            Self::Text(text) => text.completion.as_ref().is_none_or(|completion| completion.seq > text.first_seq),
            Self::Thinking(_) | Self::Call(_) => true,
        }
    }
}

/// How a message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageEnd {
    /// It is complete.
    Complete,
    /// Its run ended first. A message without content says that the run ended without an answer.
    Interrupted(Interruption),
    /// It is no part of the conversation: the provider was asked for it again, or the conversation continues before
    /// its end. Its texts are complete and stay messages.
    Superseded,
}

/// A text of the assistant. A text without a completion is continued by the next one of its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssistantText {
    /// Its first event.
    pub first_seq: Seq,
    /// The text so far.
    pub text: String,
    /// The message that it became when it was complete.
    pub completion: Option<Completion>,
}

/// The completion of an assistant's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The id of the message.
    pub message: MessageId,
    /// The event that completed the text.
    pub seq: Seq,
    /// The time of that event.
    pub at: Now,
}

/// A tool call of the model. It was announced with its turn, or requested, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its announcement, if some calls of its turn had to wait for others.
    pub announcement: Option<Announcement>,
    /// Its request.
    pub request: Option<CallRequest>,
    /// Its result.
    pub completion: Option<CallCompletion>,
}

/// The announcement of a call with its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Its index among the calls of the turn, from zero.
    pub index: u32,
    /// The call.
    pub call: PendingCall,
}

/// The request of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// The id of the call.
    pub id: CallId,
    /// The tool.
    pub tool: String,
    /// Its arguments, redacted.
    pub args: Json,
    /// The event that requested it.
    pub seq: Seq,
}

impl CallRequest {
    pub(super) fn new(seq: Seq, intention: &Intention) -> Self {
        let Intention { call, tool, args, purpose: _ } = intention;
        Self { id: call.clone(), tool: tool.clone(), args: args.clone(), seq }
    }
}

/// The completion of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallCompletion {
    /// The event that completed it.
    pub seq: Seq,
    /// The time of that event.
    pub at: Now,
    /// The session file entry that the result was imported from.
    pub origin: Option<Arc<str>>,
    /// The outcome.
    pub outcome: CallOutcome,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome {
    /// It has a result.
    Settled(Arc<CallResult>),
    /// It was announced and is never requested.
    Skipped(SkipReason),
}

impl CallCompletion {
    /// Returns the result; a skipped call has none.
    pub fn result(&self) -> Option<&CallResult> {
        match &self.outcome {
            CallOutcome::Settled(result) => Some(result),
            CallOutcome::Skipped(_) => None,
        }
    }
}

/// Why an announced call is never requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// A steering message arrived first.
    Steered,
    /// The run ended first.
    RunEnded,
}
