//! What a lane shows to queries: the snapshot of the session, and its conversation, if both are stored.
//!
//! A published snapshot answers queries without the lane, until the session changes.

use std::sync::Arc;

use super::{Lane, batch};
use crate::journal::Meta;
use crate::kernel::command::{Caller, Command, Right};
use crate::kernel::conversation::Conversation;
use crate::kernel::id::Seq;
use crate::kernel::refusal::Refusal;
use crate::kernel::session::Input;

impl Lane {
    /// Publishes what the session is like, if nothing of it waits for the journal.
    pub(super) fn publish_snapshot(&mut self) {
        if self.in_flight.is_none() && self.pending.persists_nothing() && !self.is_read_only() {
            self.handle.set_snapshot(Some(Arc::new(self.session.snapshot())));
            self.has_published_snapshot = true;
        }
    }

    /// Withdraws the published snapshot before an input that may change the session.
    pub(super) fn withdraw_snapshot(&mut self, input: &Input) {
        let is_query = matches!(input, Input::Command { command: Command::Describe, .. });
        if !is_query && std::mem::take(&mut self.has_published_snapshot) {
            self.handle.set_snapshot(None);
        }
    }

    /// Returns the conversation after an event, if it is in memory and stored.
    pub(super) fn stored_conversation(&mut self, caller: &Caller, after: Seq) -> Result<Option<Conversation>, Refusal> {
        self.session.require(caller, Right::Read)?;
        let is_stored = self.in_flight.is_none() && self.pending.is_empty() && !self.is_read_only();
        Ok(if is_stored { self.conversation.since(after) } else { None })
    }

    /// Publishes whether approvals are open.
    pub(super) fn publish_open_gates(&self) {
        self.handle.set_open_gates(!self.is_damaged() && self.session.has_open_gates());
    }

    /// Returns the row of the session.
    pub(super) fn meta(&self) -> Meta {
        batch::meta(&self.id, &self.session.snapshot(), self.session.has_open_gates())
    }
}
