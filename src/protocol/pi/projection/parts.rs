//! The values that a projection returns.

use bytes::Bytes;
use serde::Serialize;

/// A session event as sent to subscribers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiEvent {
    name: &'static str,
    body: Bytes,
}

impl PiEvent {
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

/// Statistics of a session.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stats {
    /// User messages.
    pub user_messages: u64,
    /// Assistant messages.
    pub assistant_messages: u64,
    /// Tool calls that the model requested.
    pub tool_calls: u64,
    /// Results of these calls.
    pub tool_results: u64,
    /// All messages.
    pub total_messages: u64,
    /// Input tokens, without cached ones.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_write: u64,
    /// Cost in millionths of a US dollar, as far as it is known.
    pub cost: u64,
}
