//! A lane whose journal cannot store anything: what it still does, and what it refuses.
//!
//! On a full disk a run pauses: its batch waits for space, and nothing is lost. An input that ends something (a
//! cancel, a denial, the end of a run) may use the disk reserve. After a failed sync nothing can be stored: active
//! work is ended, inputs that end something are applied and published, and nothing new starts. Reads continue in both
//! cases. A session whose state is lost is read-only, too.

use tracing::{error, warn};

use super::batch::{Delivery, PendingBatch};
use super::{InFlight, Lane, LaneError};
use crate::journal::{Batch, CommitError};
use crate::kernel::command::{AccessKind, Caller, Command};
use crate::kernel::event::{Event, EventKind, RunEvent, RunOutcome, RunReport};
use crate::kernel::session::Input;
use crate::record;
use crate::runtime::feed::Block;

/// Whether a session was restored completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integrity {
    /// The state is complete.
    Intact,
    /// The state before the remaining events is lost; nothing may be written that would overwrite it.
    Damaged,
}

/// What the lane can do with the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StorageState {
    /// It can store everything.
    Writable,
    /// It can only read until the daemon is restarted.
    ///
    /// Events are published under sequence numbers that are reserved on disk; others may be issued again after the
    /// restart.
    Failed,
    /// It can only read: the state of this session is lost, and what is left must not be overwritten.
    Damaged,
}

impl StorageState {
    /// Returns the storage state of a restored session.
    pub(super) const fn from_integrity(integrity: Integrity) -> Self {
        match integrity {
            Integrity::Intact => Self::Writable,
            Integrity::Damaged => Self::Damaged,
        }
    }
}

/// The state of the batch in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitState {
    /// It is submitted to the journal.
    Submitted,
    /// It waits for free disk space.
    WaitingForSpace,
}

impl Lane {
    /// Returns why storage refuses a command; `None` if it is accepted.
    pub(super) fn storage_refusal(&self, caller: &Caller, command: &Command) -> Option<LaneError> {
        // Whoever becomes a participant is recorded.
        let admits = self.session.admits(caller, command);
        match if admits { AccessKind::Write } else { command.policy().access } {
            AccessKind::ReadOnly | AccessKind::Stop => None,
            AccessKind::Write if self.is_damaged() => Some(LaneError::Damaged),
            AccessKind::Write if self.is_read_only() => Some(LaneError::StorageFailed),
            AccessKind::Write if self.services.journal.is_full() => Some(LaneError::StorageFull),
            AccessKind::Write => None,
        }
    }

    /// Returns whether this lane can store nothing.
    pub(super) const fn is_read_only(&self) -> bool {
        matches!(self.storage, StorageState::Failed | StorageState::Damaged)
    }

    /// Returns whether the state of the session is lost.
    pub(super) const fn is_damaged(&self) -> bool {
        matches!(self.storage, StorageState::Damaged)
    }

    /// Handles a sync failure that another session has caused.
    pub(super) fn check_journal_failure(&mut self) {
        if !self.is_read_only() && self.services.journal.has_failed() {
            self.handle_storage_failure();
        }
    }

    /// Returns whether the batch in flight waits for free disk space.
    pub(super) fn is_waiting_for_space(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|flight| flight.state == CommitState::WaitingForSpace)
    }

    /// Returns whether the batch in flight waits for disk space, or is submitted while the disk is full.
    pub(super) fn may_wait_for_space(&self) -> bool {
        self.is_waiting_for_space() || (self.in_flight.is_some() && self.services.journal.is_full())
    }

    /// Handles a failed commit; returns whether the lane can continue.
    pub(super) fn handle_commit_error(&mut self, error: &CommitError) -> bool {
        match error {
            CommitError::Full if self.run_persisted => {
                if let Some(flight) = &mut self.in_flight {
                    warn!(session = %self.id, "disk full: the run waits for free space");
                    flight.state = CommitState::WaitingForSpace;
                }
                true
            }
            CommitError::SyncFailed { .. } | CommitError::StorageFailed => {
                self.handle_storage_failure();
                true
            }
            CommitError::Full
            | CommitError::Conflict(_)
            | CommitError::Busy
            | CommitError::Sqlite { .. }
            | CommitError::Closed => false,
        }
    }

    /// Ends the lane after a failed commit: answers all waiting requests with the error. Nothing of the batch was
    /// published.
    pub(super) fn fail(&mut self, error: &CommitError) {
        error!(session = %self.id, error = %error, "the journal refused a batch");
        self.inbox.close();
        let in_flight = self.in_flight.take().map(|in_flight| in_flight.after);
        let pending = std::mem::take(&mut self.pending).into_after();
        for delivery in in_flight.into_iter().chain([pending]).flat_map(|after| after.deliveries) {
            if let Delivery::Reply(reply_guard, _) = delivery {
                let full = matches!(error, CommitError::Full);
                reply_guard.send(Err(if full {
                    LaneError::StorageFull
                } else {
                    LaneError::Storage(error.to_string())
                }));
            }
        }
    }

    /// Handles a failed sync, after which the lane ends without storing anything; returns whether it was one.
    pub(super) fn handle_sync_failure(&mut self, error: &CommitError) -> bool {
        let failed = matches!(error, CommitError::SyncFailed { .. } | CommitError::StorageFailed);
        if failed {
            self.handle_storage_failure();
        }
        failed
    }

    /// Submits a batch that waits for space again, because an input behind it ends something.
    ///
    /// It does so once: if the disk reserve does not suffice either, the batch waits like any other.
    pub(super) fn submit_in_flight_urgently(&mut self) {
        if let Some(flight) = &mut self.in_flight
            && flight.state == CommitState::WaitingForSpace
            && !flight.batch.urgent
        {
            flight.batch.urgent = true;
            self.submit_in_flight();
        }
    }

    /// Submits the batch in flight.
    pub(super) fn submit_in_flight(&mut self) {
        if let Some(flight) = &mut self.in_flight {
            flight.done = self.services.journal.commit(flight.batch.clone());
            flight.state = CommitState::Submitted;
        }
    }

    /// Answers a read at once, without waiting for a batch that waits for disk space.
    pub(super) fn answer_without_commit(&mut self, ask: impl FnOnce(&mut Self)) {
        let waiting = std::mem::take(&mut self.pending);
        ask(self);
        let new = std::mem::replace(&mut self.pending, waiting);
        if new.persists_nothing() {
            self.publish_commit(new.into_after(), None);
        } else {
            self.pending.append(new);
        }
    }

    /// Delivers the pending batch without a commit. Only inputs that end something get here.
    pub(super) fn deliver_uncommitted(&mut self) {
        let pending: PendingBatch = std::mem::take(&mut self.pending);
        let (_, block, mut after) = pending.into_batch(&self.id, None, None);
        // Nothing may start without a stored record.
        after.effects.clear();
        after.run_ended = false;
        after.session_changes.clear();
        let changed = block.is_some();
        let published = block.filter(|block| self.may_publish_uncommitted(block));
        self.publish_commit(after, published);
        if changed && !self.is_damaged() && self.run_continues() {
            self.apply_storage_failure();
            // The recursion ends: no run continues after this.
            self.deliver_uncommitted();
        }
    }

    /// Returns whether uncommitted events may be published: their sequence numbers must not be issued again after a
    /// restart.
    fn may_publish_uncommitted(&self, block: &Block) -> bool {
        self.storage == StorageState::Failed && block.last <= self.reserved_on_disk
    }

    /// Returns whether the run would perform a further action, which it cannot without a stored record.
    fn run_continues(&self) -> bool {
        let state = self.session.state();
        !state.awaits_gate() && state.run.as_ref().is_some_and(|run| run.stopping.is_none())
    }

    /// Starts the lane with a journal that can only be read.
    pub(super) fn set_read_only(&mut self) {
        self.storage = StorageState::Failed;
    }

    /// Handles a failed sync: answers all waiting requests and ends the active work.
    ///
    /// Decided events that are not published yet are published: they may include the end of a run that a client waits
    /// for, and the session is in that state whatever the next start finds on disk.
    fn handle_storage_failure(&mut self) {
        error!(session = %self.id, "storage failed; ending active work");
        let in_flight = self.in_flight.take();
        let pending = std::mem::take(&mut self.pending);
        self.storage = StorageState::Failed;
        let in_flight = in_flight.map(|flight| (flight.block, flight.after));
        let (_, block, after) = pending.into_batch(&self.id, None, None);
        let (blocks, afters): (Vec<_>, Vec<_>) = in_flight.into_iter().chain([(block, after)]).unzip();
        for delivery in afters.into_iter().flat_map(|after| after.deliveries) {
            match delivery {
                Delivery::Reply(reply_guard, _) => reply_guard.send(Err(LaneError::OutcomeUnknown)),
                delivery @ (Delivery::Private(..) | Delivery::Subscribe(..) | Delivery::Unsubscribe(_)) => {
                    self.deliver(delivery);
                }
            }
        }
        for block in blocks.into_iter().flatten() {
            if self.may_publish_uncommitted(&block) {
                self.feed.publish(self.without_success(block));
            }
        }
        self.apply_storage_failure();
    }

    /// Applies the storage failure to the session, which reports it and ends active work.
    fn apply_storage_failure(&mut self) {
        let message = "nothing can be stored: a sync of the journal failed; restart the daemon".to_owned();
        self.apply(Input::StorageFailed { code: STORAGE_FAILED.to_owned(), message }, None);
    }

    /// Returns an uncommitted block as it is published: no run is reported as successful without a stored record.
    fn without_success(&self, block: Block) -> Block {
        let mut lines = Vec::with_capacity(block.lines.len());
        for line in block.lines.split_inclusive(|byte| *byte == b'\n') {
            match record::decode_event(line) {
                Ok(Event {
                    kind: EventKind::Run(RunEvent::Ended(report)),
                    seq,
                    at,
                    run,
                    version,
                    origin,
                    audience,
                }) if report.outcome == RunOutcome::Success => {
                    let reason = Some(STORAGE_FAILED.to_ascii_lowercase());
                    let summary = "the end of the run could not be stored: a sync of the journal failed".to_owned();
                    let report = RunReport { outcome: RunOutcome::Failed, reason, summary, exit_code: 1, ..*report };
                    let kind = EventKind::Run(RunEvent::Ended(Box::new(report)));
                    record::event_line(&self.id, &Event { seq, at, run, version, origin, audience, kind }, &mut lines);
                }
                Ok(_) | Err(_) => lines.extend_from_slice(line),
            }
        }
        let published = Block::new(block.first, block.last, lines.into());
        if block.is_restricted() { published.restricted() } else { published }
    }
}

impl InFlight {
    pub(super) fn new(batch: Batch, after: super::AfterCommit, block: Option<super::Block>, lane: &Lane) -> Self {
        let done = lane.services.journal.commit(batch.clone());
        Self { done, after, block, batch, state: CommitState::Submitted }
    }

    /// Waits for the result of the commit.
    pub(super) async fn wait_for_commit(&mut self) -> Result<(), CommitError> {
        (&mut self.done).await.unwrap_or(Err(CommitError::Closed))
    }
}

/// The error code.
const STORAGE_FAILED: &str = "STORAGE_FAILED";
