//! The values that a projection returns.

use bytes::Bytes;
use serde::Serialize;

use crate::kernel::id::Seq;

/// A session event as sent to subscribers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    name: &'static str,
    body: Bytes,
}

impl SessionEvent {
    /// Wraps a serialized event; `body` is one JSON object whose `type` is `name`.
    pub(super) const fn new(name: &'static str, body: Bytes) -> Self {
        Self { name, body }
    }

    /// Returns the type, such as `message_update`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the event as JSON, without the envelope.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

/// A summary that replaces the older part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The text of the summary.
    pub summary: String,
    /// The first entry that stays visible.
    pub first_kept_entry_id: String,
    /// The approximate tokens of the conversation before the compaction.
    pub tokens_before: u64,
}

/// A message that a fork can start from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkMessage {
    /// Its entry id.
    pub entry_id: String,
    /// Its text.
    pub text: String,
}

/// The branch point of a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPoint {
    /// The text of the message, for the user to edit.
    pub text: String,
    /// The last event of the kept history.
    pub until: Seq,
    /// The first event that was visible at that point.
    pub from: Seq,
}
