//! What a story hands out.

use bytes::Bytes;
use serde::Serialize;

use crate::kernel::id::Seq;

/// Something that happened in a session, as its subscribers are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    name: &'static str,
    body: Bytes,
}

impl SessionEvent {
    /// Takes an event that was written down; `body` is one JSON object whose `type` is `name`.
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

/// A summary that stands for the older part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The summary.
    pub summary: String,
    /// The first entry that is still told word by word.
    pub first_kept_entry_id: String,
    /// How many tokens the conversation had before, about.
    pub tokens_before: u64,
}

/// A message from which a fork may begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkMessage {
    /// Its entry.
    pub entry_id: String,
    /// What it says.
    pub text: String,
}

/// Where a fork begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPoint {
    /// What the message says, for the user to say it otherwise.
    pub text: String,
    /// The last event that still counts.
    pub until: Seq,
    /// The first event that was told word by word at that point.
    pub from: Seq,
}
