//! A lane whose journal does not take anything: what it still does, and what it refuses.
//!
//! On a full disk a run stands still: its batch waits for room, and nothing of it is lost. What ends something (a cancel, a
//! denial, the end of a run) may use the room that is kept for it. After a failed sync nothing can be kept any more: the
//! work that is under way is ended, what ends something is done and shown, and nothing new begins. Reading goes on in
//! both cases.

use tracing::{error, warn};

use super::batch::{Answered, Gathering};
use super::{InFlight, Lane, Trouble};
use crate::journal::{Batch, CommitError, Early};
use crate::kernel::command::{Change, Command};
use crate::kernel::session::Input;

/// What the journal is good for, as far as the lane knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storage {
    /// Everything.
    Sound,
    /// Reading alone, until the daemon is started anew.
    Failed {
        /// Whether the numbers that are on disk are used up: then nothing can be shown any more.
        mute: bool,
    },
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
            Change::More if self.has_failed() => Some(Trouble::Failed),
            Change::More if self.world.journal.is_full() => Some(Trouble::Full),
            Change::More => None,
        }
    }

    /// Tells whether nothing can be kept until the daemon is started anew.
    pub(super) const fn has_failed(&self) -> bool {
        matches!(self.storage, Storage::Failed { .. })
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
        let Storage::Failed { mute } = &mut self.storage else { return };
        // Numbers beyond those on disk would be given to other events after the restart.
        *mute |= gathered.reserves();
        let silent = *mute;
        let (_, block, mut after) = gathered.into_batch(&self.id, None, None);
        // Nothing may begin of which there is no record.
        after.doing.clear();
        after.run_ended = false;
        self.follow(after, block.filter(|_| !silent));
    }

    /// Begins a life in a journal that can only be read.
    pub(super) fn begin_read_only(&mut self) {
        self.storage = Storage::Failed { mute: true };
    }

    /// Nothing can be kept any more: everybody is told, and the work under way is ended.
    fn storage_failed(&mut self) {
        error!(session = %self.id, "nothing can be kept any more; the work under way is ended");
        let in_flight = self.in_flight.take();
        let gathered = std::mem::take(&mut self.gathering);
        let reserves = gathered.reserves() || in_flight.as_ref().is_some_and(InFlight::reserves);
        self.storage = Storage::Failed { mute: reserves };
        let answers = in_flight.into_iter().map(|flight| flight.after).chain([gathered.into_after()]);
        for answer in answers.flat_map(|after| after.answers) {
            match answer {
                Answered::Reply(respond, _) => respond.answer(Err(Trouble::Unsure)),
                answer @ (Answered::Private(..) | Answered::Subscribe(..) | Answered::Unsubscribe(_)) => {
                    self.give(answer);
                }
            }
        }
        let message =
            "nothing can be kept any more: a sync of the journal failed; restart the daemon".to_owned();
        self.apply(Input::Unkept { code: STORAGE_FAILED.to_owned(), message }, None);
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

    const fn reserves(&self) -> bool {
        self.batch.reserve.is_some()
    }
}

/// The word for programs.
const STORAGE_FAILED: &str = "STORAGE_FAILED";
