//! A lane whose journal does not take anything: what it still does, and what it refuses.
//!
//! On a full disk a run stands still: its batch waits for room, and nothing of it is lost. What ends something (a cancel, a
//! denial, the end of a run) may use the room that is kept for it. After a failed sync nothing can be kept any more: the
//! work that is under way is ended, what ends something is done and shown, and nothing new begins. Reading goes on in
//! both cases. A session whose state is lost is only read, too.

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

/// What the journal is good for, as far as the lane knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// Everything.
    Sound,
    /// Reading alone, until the daemon is started anew.
    ///
    /// What happens is shown under the numbers that are reserved on disk: others may be issued again after the restart.
    Failed,
    /// Reading alone: the state of this session is lost, and what is left of it is not to be replaced.
    Damaged,
}

impl Storage {
    /// Returns what the journal is good for in a session that was brought back.
    pub(super) const fn of(integrity: Integrity) -> Self {
        match integrity {
            Integrity::Whole => Self::Sound,
            Integrity::Damaged => Self::Damaged,
        }
    }
}

/// Where the batch in flight is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flight {
    /// It is shown already, and is handed to the journal in a moment: whoever listens has its turn first.
    PutOff,
    /// The journal has it.
    Under,
    /// It waits until there is room.
    Grounded,
}

impl Lane {
    /// Returns why a command cannot be taken now.
    pub(super) fn refuses(&self, command: &Command) -> Option<Trouble> {
        match command.change() {
            Change::Nothing | Change::End => None,
            Change::More if self.is_damaged() => Some(Trouble::Damaged),
            Change::More if self.has_failed() => Some(Trouble::Failed),
            Change::More if self.world.journal.is_full() => Some(Trouble::Full),
            Change::More => None,
        }
    }

    /// Tells whether nothing can be kept in this life of the session.
    pub(super) const fn has_failed(&self) -> bool {
        matches!(self.storage, Storage::Failed | Storage::Damaged)
    }

    /// Tells whether the state of the session is lost.
    pub(super) const fn is_damaged(&self) -> bool {
        matches!(self.storage, Storage::Damaged)
    }

    /// Takes notice of a sync that failed for another session.
    pub(super) fn learn_of_failure(&mut self) {
        if !self.has_failed() && self.world.journal.has_failed() {
            self.storage_failed();
        }
    }

    /// Tells whether a batch waits for room.
    pub(super) fn is_grounded(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|flight| flight.state == Flight::Grounded)
    }

    /// Tells whether a batch is still to be handed to the journal.
    pub(super) fn is_put_off(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|flight| flight.state == Flight::PutOff)
    }

    /// Tells whether what waits for the batch in flight may wait for room: it does, or it is tried while there is none.
    pub(super) fn may_be_held_up(&self) -> bool {
        self.is_grounded() || (self.in_flight.is_some() && self.world.journal.is_full())
    }

    /// Takes a commit's failure; returns whether the lane can go on.
    pub(super) fn survives(&mut self, trouble: &CommitError) -> bool {
        match trouble {
            CommitError::Busy | CommitError::Sqlite { .. } | CommitError::Conflict(_)
                if self.hands_in_again(trouble) =>
            {
                true
            }
            CommitError::Full if self.kept_run => {
                if let Some(flight) = &mut self.in_flight {
                    warn!(session = %self.id, "a run waits for room on the disk");
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

    /// Hands in again what was refused and has been seen all the same; returns whether that makes sense.
    ///
    /// A database that somebody else uses is waited for. One that is broken is salvaged before the batch comes again.
    fn hands_in_again(&mut self, trouble: &CommitError) -> bool {
        let Some(flight) = self.in_flight.as_mut().filter(|flight| flight.early.is_some()) else {
            return false;
        };
        if flight.again && !matches!(trouble, CommitError::Busy) {
            return false;
        }
        warn!(session = %self.id, error = %trouble, "the journal did not take what is shown already; it is handed in again");
        flight.again = true;
        self.take_off();
        true
    }

    /// What could not be kept was not shown, or was handed in twice; everybody who waits is told, and the session begins again.
    pub(super) fn fail(&mut self, trouble: &CommitError) {
        error!(session = %self.id, error = %trouble, "the journal did not take a batch");
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

    /// Tells whether a failure is one after which the lane ends without keeping anything.
    pub(super) fn has_failed_with(&mut self, trouble: &CommitError) -> bool {
        let failed = matches!(trouble, CommitError::SyncFailed { .. } | CommitError::StorageFailed);
        if failed {
            self.storage_failed();
        }
        failed
    }

    /// Hands a batch that waits for room to the journal again because something behind it ends.
    ///
    /// Once: where the room that is kept for ends did not suffice either, it waits like any other.
    pub(super) fn take_off_urgently(&mut self) {
        if let Some(flight) = &mut self.in_flight
            && flight.state == Flight::Grounded
            && !flight.batch.urgent
        {
            flight.batch.urgent = true;
            self.take_off();
        }
    }

    /// Hands a batch that waited to the journal.
    pub(super) fn take_off(&mut self) {
        if let Some(flight) = &mut self.in_flight {
            flight.done = Some(self.world.journal.commit(flight.batch.clone()));
            flight.state = Flight::Under;
        }
    }

    /// Answers a command that keeps nothing at once, past a batch that waits for room.
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

    /// Does what has gathered without keeping it: only what ends something gets here.
    pub(super) fn do_without_keeping(&mut self) {
        let gathered: Gathering = std::mem::take(&mut self.gathering);
        let (_, block, mut after) = gathered.into_batch(&self.id, None, None);
        // Nothing may begin of which there is no record.
        after.doing.clear();
        after.run_ended = false;
        after.session_changes.clear();
        let changed = block.is_some();
        let shown = block.filter(|block| self.may_show_unkept(block));
        self.follow(after, shown);
        if changed && !self.is_damaged() && self.runs_on() {
            self.apply_unkept();
            // Once: nothing runs on after that.
            self.do_without_keeping();
        }
    }

    /// Tells whether events that are not kept may be shown: none of their numbers is issued again after a restart.
    fn may_show_unkept(&self, block: &Block) -> bool {
        self.storage == Storage::Failed && block.last <= self.reserved_on_disk
    }

    /// Tells whether a run would have to do something next: it can do nothing of which there is no record.
    fn runs_on(&self) -> bool {
        let state = self.session.state();
        state.gates.is_empty() && state.run.as_ref().is_some_and(|run| run.stopping.is_none())
    }

    /// Hands in what is shown and was not handed in yet; its place in memory is given free once the journal has it.
    pub(super) fn keep_what_was_shown(&mut self) {
        let Some(InFlight { early: Some(early), done, batch, state, .. }) = self.in_flight.take() else {
            return;
        };
        let done = match state {
            Flight::Under => done,
            Flight::PutOff | Flight::Grounded => Some(self.world.journal.commit(batch)),
        };
        // Without a runtime the process ends, and the next start takes it up.
        if let (Some(done), Ok(runtime)) = (done, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                if let Ok(Ok(())) = done.await {
                    early.done();
                }
            });
        }
    }

    /// Begins a life in a journal that can only be read.
    pub(super) fn begin_read_only(&mut self) {
        self.storage = Storage::Failed;
    }

    /// Nothing can be kept any more: everybody is told, and the work under way is ended.
    ///
    /// What had been decided and was not shown yet is shown: it may hold the end of a run for which somebody waits, and the
    /// session is in that state whatever the next start finds on disk.
    fn storage_failed(&mut self) {
        error!(session = %self.id, "nothing can be kept any more; the work under way is ended");
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
            // Not again what was shown early.
            if block.last > self.feed.newest() && self.may_show_unkept(&block) {
                self.feed.show(self.unkept(block));
            }
        }
        self.apply_unkept();
    }

    /// Has the session say that nothing can be kept, and end what is at work.
    fn apply_unkept(&mut self) {
        let message =
            "nothing can be kept any more: a sync of the journal failed; restart the daemon".to_owned();
        self.apply(Input::Unkept { code: STORAGE_FAILED.to_owned(), message }, None);
    }

    /// Returns a block as it is shown when it could not be kept: no run is reported as successful without a record of it.
    fn unkept(&self, block: Block) -> Block {
        let mut lines = Vec::with_capacity(block.lines.len());
        for line in block.lines.split_inclusive(|byte| *byte == b'\n') {
            match record::decode_event(line) {
                Ok(Event { kind: EventKind::RunEnded(report), seq, at, run, version, origin })
                    if report.outcome == Outcome::Success =>
                {
                    let reason = Some(STORAGE_FAILED.to_ascii_lowercase());
                    let summary = "its end could not be stored: a sync of the journal failed".to_owned();
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
    /// What a lane that panics has shown and not handed in yet is kept all the same.
    fn drop(&mut self) {
        self.keep_what_was_shown();
    }
}

impl InFlight {
    pub(super) fn new(batch: Batch, after: super::After, block: Option<super::Block>, lane: &Lane) -> Self {
        let done = Some(lane.world.journal.commit(batch.clone()));
        Self { done, after, block, early: None, again: false, batch, state: Flight::Under }
    }

    /// Takes a batch whose block is shown already.
    pub(super) const fn put_off(
        batch: Batch,
        after: super::After,
        block: Option<super::Block>,
        early: Early,
    ) -> Self {
        Self { done: None, after, block, early: Some(early), again: false, batch, state: Flight::PutOff }
    }

    /// Waits until the journal has answered: for ever, if it does not have the batch.
    pub(super) async fn landed(&mut self) -> Result<(), CommitError> {
        match &mut self.done {
            Some(done) => done.await.unwrap_or(Err(CommitError::Closed)),
            None => std::future::pending().await,
        }
    }
}

/// The word for programs.
const STORAGE_FAILED: &str = "STORAGE_FAILED";
