//! A lane whose journal cannot store anything: what it still does, and what it refuses.
//!
//! On a full disk a run pauses: its batch waits for space, and nothing is lost. An input that ends something (a
//! cancel, a denial, the end of a run) may use the disk reserve. After a failed sync nothing can be stored: active
//! work is ended, inputs that end something are applied and published, and nothing new starts. Reads continue in both
//! cases. A session whose state is lost is read-only, too.

use tracing::{error, warn};

use super::batch::{Answered, Gathering};
use super::{InFlight, Lane, Trouble};
use crate::journal::{Batch, CommitError, Early};
use crate::kernel::command::{Change, Command};
use crate::kernel::event::{Event, EventKind, Outcome, RunReport};
use crate::kernel::session::Input;
use crate::protocol::push::{encode, record};
use crate::runtime::feed::Block;
use crate::runtime::hub::Integrity;

/// What the lane can do with the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// It can store everything.
    Sound,
    /// It can only read until the daemon is restarted.
    ///
    /// Events are published under sequence numbers that are reserved on disk; others may be issued again after the
    /// restart.
    Failed,
    /// It can only read: the state of this session is lost, and what is left must not be overwritten.
    Damaged,
}

impl Storage {
    /// Returns the storage state of a restored session.
    pub(super) const fn of(integrity: Integrity) -> Self {
        match integrity {
            Integrity::Whole => Self::Sound,
            Integrity::Damaged => Self::Damaged,
        }
    }
}

/// The state of the batch in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flight {
    /// It is published and will be submitted in a moment, after its subscribers have run.
    PutOff,
    /// It is submitted to the journal.
    Under,
    /// It waits for free disk space.
    Grounded,
}

impl Lane {
    /// Returns why storage refuses a command; `None` if it is accepted.
    pub(super) fn refuses(&self, command: &Command) -> Option<Trouble> {
        match command.change() {
            Change::Nothing | Change::End => None,
            Change::More if self.is_damaged() => Some(Trouble::Damaged),
            Change::More if self.has_failed() => Some(Trouble::Failed),
            Change::More if self.world.journal.is_full() => Some(Trouble::Full),
            Change::More => None,
        }
    }

    /// Returns whether this lane can store nothing.
    pub(super) const fn has_failed(&self) -> bool {
        matches!(self.storage, Storage::Failed | Storage::Damaged)
    }

    /// Returns whether the state of the session is lost.
    pub(super) const fn is_damaged(&self) -> bool {
        matches!(self.storage, Storage::Damaged)
    }

    /// Handles a sync failure that another session has caused.
    pub(super) fn learn_of_failure(&mut self) {
        if !self.has_failed() && self.world.journal.has_failed() {
            self.storage_failed();
        }
    }

    /// Returns whether the batch in flight waits for free disk space.
    pub(super) fn is_grounded(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|flight| flight.state == Flight::Grounded)
    }

    /// Returns whether the batch in flight is not submitted yet.
    pub(super) fn is_put_off(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|flight| flight.state == Flight::PutOff)
    }

    /// Returns whether the batch in flight waits for disk space, or is submitted while the disk is full.
    pub(super) fn may_be_held_up(&self) -> bool {
        self.is_grounded() || (self.in_flight.is_some() && self.world.journal.is_full())
    }

    /// Handles a failed commit; returns whether the lane can continue.
    pub(super) fn survives(&mut self, trouble: &CommitError) -> bool {
        match trouble {
            CommitError::Busy | CommitError::Sqlite { .. } | CommitError::Conflict(_)
                if self.hands_in_again(trouble) =>
            {
                true
            }
            CommitError::Full if self.kept_run => {
                if let Some(flight) = &mut self.in_flight {
                    warn!(session = %self.id, "disk full: the run waits for free space");
                    flight.state = Flight::Grounded;
                }
                true
            }
            CommitError::SyncFailed { .. } | CommitError::StorageFailed => {
                self.storage_failed();
                true
            }
            CommitError::Full
            | CommitError::Conflict(_)
            | CommitError::Busy
            | CommitError::Sqlite { .. }
            | CommitError::Closed => false,
        }
    }

    /// Submits a refused batch again if its events are already published; returns whether it did.
    ///
    /// A busy database is retried without limit. A damaged one is salvaged before the second and last attempt.
    fn hands_in_again(&mut self, trouble: &CommitError) -> bool {
        let Some(flight) = self.in_flight.as_mut().filter(|flight| flight.early.is_some()) else {
            return false;
        };
        if flight.again && !matches!(trouble, CommitError::Busy) {
            return false;
        }
        warn!(session = %self.id, error = %trouble, "the journal refused published events; submitting them again");
        flight.again = true;
        self.take_off();
        true
    }

    /// Ends the lane after a failed commit: answers all waiting requests with the error. Nothing uncommitted was
    /// published, or it was submitted twice.
    pub(super) fn fail(&mut self, trouble: &CommitError) {
        error!(session = %self.id, error = %trouble, "the journal refused a batch");
        self.control.close();
        self.commands.close();
        let in_flight = self.in_flight.take().map(|in_flight| in_flight.after);
        let gathered = std::mem::take(&mut self.gathering).into_after();
        for answer in in_flight.into_iter().chain([gathered]).flat_map(|after| after.answers) {
            if let Answered::Reply(respond, _) = answer {
                let full = matches!(trouble, CommitError::Full);
                respond.answer(Err(if full { Trouble::Full } else { Trouble::Storage(trouble.to_string()) }));
            }
        }
    }

    /// Handles a failed sync, after which the lane ends without storing anything; returns whether it was one.
    pub(super) fn has_failed_with(&mut self, trouble: &CommitError) -> bool {
        let failed = matches!(trouble, CommitError::SyncFailed { .. } | CommitError::StorageFailed);
        if failed {
            self.storage_failed();
        }
        failed
    }

    /// Submits a batch that waits for space again, because an input behind it ends something.
    ///
    /// It does so once: if the disk reserve does not suffice either, the batch waits like any other.
    pub(super) fn take_off_urgently(&mut self) {
        if let Some(flight) = &mut self.in_flight
            && flight.state == Flight::Grounded
            && !flight.batch.urgent
        {
            flight.batch.urgent = true;
            self.take_off();
        }
    }

    /// Submits the batch in flight.
    pub(super) fn take_off(&mut self) {
        if let Some(flight) = &mut self.in_flight {
            flight.done = Some(self.world.journal.commit(flight.batch.clone()));
            flight.state = Flight::Under;
        }
    }

    /// Answers a read at once, without waiting for a batch that waits for disk space.
    pub(super) fn answer_past(&mut self, ask: impl FnOnce(&mut Self)) {
        let waiting = std::mem::take(&mut self.gathering);
        ask(self);
        let new = std::mem::replace(&mut self.gathering, waiting);
        if new.keeps_nothing() {
            self.follow(new.into_after(), None);
        } else {
            self.gathering.append(new);
        }
    }

    /// Delivers the pending batch without a commit. Only inputs that end something get here.
    pub(super) fn do_without_keeping(&mut self) {
        let gathered: Gathering = std::mem::take(&mut self.gathering);
        let (_, block, mut after) = gathered.into_batch(&self.id, None, None);
        // Nothing may start without a stored record.
        after.doing.clear();
        after.run_ended = false;
        after.session_changes.clear();
        let changed = block.is_some();
        let shown = block.filter(|block| self.may_show_unkept(block));
        self.follow(after, shown);
        if changed && !self.is_damaged() && self.runs_on() {
            self.apply_unkept();
            // The recursion ends: no run continues after this.
            self.do_without_keeping();
        }
    }

    /// Returns whether uncommitted events may be published: their sequence numbers must not be issued again after a
    /// restart.
    fn may_show_unkept(&self, block: &Block) -> bool {
        self.storage == Storage::Failed && block.last <= self.reserved_on_disk
    }

    /// Returns whether the run would perform a further action, which it cannot without a stored record.
    fn runs_on(&self) -> bool {
        let state = self.session.state();
        state.gates.is_empty() && state.run.as_ref().is_some_and(|run| run.stopping.is_none())
    }

    /// Submits events that are published and not submitted yet; releases their early record after the commit.
    pub(super) fn keep_what_was_shown(&mut self) {
        let Some(InFlight { early: Some(early), done, batch, state, .. }) = self.in_flight.take() else {
            return;
        };
        let done = match state {
            Flight::Under => done,
            Flight::PutOff | Flight::Grounded => Some(self.world.journal.commit(batch)),
        };
        // Without a runtime the process is exiting, and the next start recovers the early record.
        if let (Some(done), Ok(runtime)) = (done, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                if let Ok(Ok(())) = done.await {
                    early.done();
                }
            });
        }
    }

    /// Starts the lane with a journal that can only be read.
    pub(super) fn begin_read_only(&mut self) {
        self.storage = Storage::Failed;
    }

    /// Handles a failed sync: answers all waiting requests and ends the active work.
    ///
    /// Decided events that are not published yet are published: they may include the end of a run that a client waits
    /// for, and the session is in that state whatever the next start finds on disk.
    fn storage_failed(&mut self) {
        error!(session = %self.id, "storage failed; ending active work");
        let in_flight = self.in_flight.take();
        let gathered = std::mem::take(&mut self.gathering);
        self.storage = Storage::Failed;
        let in_flight = in_flight.map(|flight| (flight.block, flight.after));
        let (_, block, after) = gathered.into_batch(&self.id, None, None);
        let (blocks, afters): (Vec<_>, Vec<_>) = in_flight.into_iter().chain([(block, after)]).unzip();
        for answer in afters.into_iter().flat_map(|after| after.answers) {
            match answer {
                Answered::Reply(respond, _) => respond.answer(Err(Trouble::Unsure)),
                answer @ (Answered::Private(..) | Answered::Subscribe(..) | Answered::Unsubscribe(_)) => {
                    self.give(answer);
                }
            }
        }
        for block in blocks.into_iter().flatten() {
            // Blocks that were published early are not published again.
            if block.last > self.feed.newest() && self.may_show_unkept(&block) {
                self.feed.show(self.unkept(block));
            }
        }
        self.apply_unkept();
    }

    /// Applies the storage failure to the session, which reports it and ends active work.
    fn apply_unkept(&mut self) {
        let message = "nothing can be stored: a sync of the journal failed; restart the daemon".to_owned();
        self.apply(Input::Unkept { code: STORAGE_FAILED.to_owned(), message }, None);
    }

    /// Returns an uncommitted block as it is published: no run is reported as successful without a stored record.
    fn unkept(&self, block: Block) -> Block {
        let mut lines = Vec::with_capacity(block.lines.len());
        for line in block.lines.split_inclusive(|byte| *byte == b'\n') {
            match record::decode_event(line) {
                Ok(Event { kind: EventKind::RunEnded(report), seq, at, run, version, origin })
                    if report.outcome == Outcome::Success =>
                {
                    let reason = Some(STORAGE_FAILED.to_ascii_lowercase());
                    let summary =
                        "the end of the run could not be stored: a sync of the journal failed".to_owned();
                    let report =
                        RunReport { outcome: Outcome::Failed, reason, summary, exit_code: 1, ..*report };
                    let kind = EventKind::RunEnded(Box::new(report));
                    encode::event_line(&self.id, &Event { seq, at, run, version, origin, kind }, &mut lines);
                }
                Ok(_) | Err(_) => lines.extend_from_slice(line),
            }
        }
        Block { lines: lines.into(), ..block }
    }
}

impl Drop for Lane {
    /// Commits what a panicked lane has published and not submitted yet.
    fn drop(&mut self) {
        self.keep_what_was_shown();
    }
}

impl InFlight {
    pub(super) fn new(batch: Batch, after: super::After, block: Option<super::Block>, lane: &Lane) -> Self {
        let done = Some(lane.world.journal.commit(batch.clone()));
        Self { done, after, block, early: None, again: false, batch, state: Flight::Under }
    }

    /// Creates a batch whose block is already published.
    pub(super) const fn put_off(
        batch: Batch,
        after: super::After,
        block: Option<super::Block>,
        early: Early,
    ) -> Self {
        Self { done: None, after, block, early: Some(early), again: false, batch, state: Flight::PutOff }
    }

    /// Waits for the result of the commit; forever if the batch is not submitted.
    pub(super) async fn landed(&mut self) -> Result<(), CommitError> {
        match &mut self.done {
            Some(done) => done.await.unwrap_or(Err(CommitError::Closed)),
            None => std::future::pending().await,
        }
    }
}

/// The error code.
const STORAGE_FAILED: &str = "STORAGE_FAILED";
