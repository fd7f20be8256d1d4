//! The bounded cache of finished commands.
//!
//! Beyond its limit the oldest outcome is evicted. Large reply bodies share a limit of their own: beyond it the
//! oldest bodies are dropped, and the remaining outcomes still prevent a repeated execution.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::id::SessionId;
use super::super::time::Now;
use super::limits::CommandLogLimits;
use super::record::{CommandOutcome, CommandRecord, ReplyBody, quoted_id};

/// A slot in the cache; slots are ordered by when the commands ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OutcomeSlot(u64);

/// A finished command.
#[derive(Debug)]
pub(super) struct FinishedCommand {
    pub(super) record: Arc<CommandRecord>,
    pub(super) outcome: CommandOutcome,
    pub(super) at: Now,
    /// Whether it has a stored record.
    pub(super) stored: bool,
}

/// The cache of finished commands.
#[derive(Debug, Default)]
pub(super) struct OutcomeCache {
    done: BTreeMap<OutcomeSlot, FinishedCommand>,
    next: u64,
    /// The slots with a large body, and its size.
    large: BTreeMap<OutcomeSlot, usize>,
    large_bytes: usize,
}

impl OutcomeCache {
    /// Adds a command as the newest.
    pub(super) fn insert(&mut self, done: FinishedCommand, limits: &CommandLogLimits) -> OutcomeSlot {
        let slot = OutcomeSlot(self.next);
        self.next += 1;
        let bytes = done.outcome.body.len();
        self.done.insert(slot, done);
        if bytes > limits.body_bytes {
            self.large.insert(slot, bytes);
            self.large_bytes += bytes;
            self.evict_large_bodies(limits.large_bytes);
        }
        slot
    }

    /// Evicts the oldest command if there are more than `most`.
    pub(super) fn evict_beyond(&mut self, most: usize) -> Option<(OutcomeSlot, FinishedCommand)> {
        if self.done.len() <= most {
            return None;
        }
        let (slot, done) = self.done.pop_first()?;
        self.release_bytes(slot);
        Some((slot, done))
    }

    /// Removes all commands of a session, and the reply bodies of other commands that mention it.
    pub(super) fn remove_session(&mut self, session: &SessionId) -> Vec<(OutcomeSlot, FinishedCommand)> {
        let own = |done: &FinishedCommand| done.record.session.as_ref() == Some(session);
        let mut emptied: Vec<OutcomeSlot> =
            self.done.iter().filter(|(_, done)| own(done)).map(|(slot, _)| *slot).collect();
        let erased = emptied.iter().filter_map(|slot| Some((*slot, self.done.remove(slot)?))).collect();
        let quoted = quoted_id(session);
        for (slot, done) in &mut self.done {
            if done.outcome.body.text().is_some_and(|text| text.contains(&quoted)) {
                done.outcome.body = ReplyBody::Removed;
                emptied.push(*slot);
            }
        }
        for slot in emptied {
            self.release_bytes(slot);
        }
        erased
    }

    pub(super) fn get(&self, slot: OutcomeSlot) -> Option<&FinishedCommand> {
        self.done.get(&slot)
    }

    pub(super) fn len(&self) -> usize {
        self.done.len()
    }

    fn evict_large_bodies(&mut self, most: usize) {
        while self.large_bytes > most {
            let Some((slot, bytes)) = self.large.pop_first() else { return };
            self.large_bytes -= bytes;
            if let Some(done) = self.done.get_mut(&slot) {
                done.outcome.body = ReplyBody::TooLarge(bytes as u64);
            }
        }
    }

    fn release_bytes(&mut self, slot: OutcomeSlot) {
        if let Some(bytes) = self.large.remove(&slot) {
            self.large_bytes -= bytes;
        }
    }
}
