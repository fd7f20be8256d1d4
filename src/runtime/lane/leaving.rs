//! How a session leaves memory: parked, to come back when it is asked for; closed, when the
//! daemon stops; or for good, because it is deleted.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::batch;
use super::{Ended, Lane, LaneInput};
use crate::journal::{Batch, CommitError, Durability};
use crate::kernel::command::Private;
use crate::kernel::effect::Report;
use crate::kernel::session::Input;
use crate::runtime::hub::Hub;

/// The wish that a session leaves memory for good.
#[derive(Debug)]
pub struct Leave {
    /// Under which condition.
    pub departure: Departure,
    /// Where it is said what became of it; dropped when the lane ends before it could say.
    pub answer: oneshot::Sender<Leaving>,
}

/// Who wants a session gone, and when it may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Departure {
    /// Somebody asked for it: it goes unless a run is active.
    Asked {
        /// Who.
        by: String,
    },
    /// It is old or takes too much room: it goes if nothing runs or waits in it and nobody listens.
    Retention,
}

impl Departure {
    /// Returns who is said to have wanted it.
    pub fn by(&self) -> &str {
        match self {
            Self::Asked { by } => by,
            Self::Retention => "retention",
        }
    }
}

/// What became of the wish.
#[derive(Debug)]
pub enum Leaving {
    /// The lane ends, and writes nothing any more; this is for those who listened, once the session is gone.
    Left(Private),
    /// The session does not go, and nothing has changed.
    Stays,
}

impl Lane {
    /// Writes the state down and leaves memory, unless something has happened meanwhile.
    ///
    /// What arrives from here on finds the lane closed and brings the session back; what had arrived is passed on.
    pub(super) async fn park(&mut self, hub: &Arc<Hub>) -> Option<Ended> {
        if let Err(trouble) = self.flush().await {
            self.fail(&trouble);
            return Some(Ended::Broken);
        }
        if !self.session.is_idle() || !self.control.is_empty() || !self.commands.is_empty() {
            return None;
        }
        self.shut(hub);
        Some(Ended::Parked)
    }

    /// Leaves memory for good if it may: what had been decided is kept and answered first, and nothing is written behind it.
    pub(super) async fn depart(&mut self, leave: Leave, hub: &Arc<Hub>) -> Option<Ended> {
        // A run that waits for room on the disk is not over, whatever was decided since.
        if self.is_grounded() {
            let _ = leave.answer.send(Leaving::Stays);
            return None;
        }
        if let Err(trouble) = self.settle().await {
            self.fail(&trouble);
            return Some(Ended::Broken);
        }
        let may_go = match &leave.departure {
            Departure::Asked { .. } => self.is_damaged() || self.session.state().run.is_none(),
            Departure::Retention => !self.is_damaged() && self.session.is_idle(),
        };
        if !may_go {
            // Whoever asked may have left.
            let _ = leave.answer.send(Leaving::Stays);
            return None;
        }
        self.shut(hub);
        let farewell = self.session.depart(leave.departure.by(), self.world.clock.now());
        let _ = leave.answer.send(Leaving::Left(farewell));
        Some(Ended::Deleted)
    }

    /// Takes nothing any more, and passes on what has arrived.
    fn shut(&mut self, hub: &Arc<Hub>) {
        self.control.close();
        self.commands.close();
        while let Ok(input) = self.control.try_recv().or_else(|_| self.commands.try_recv()) {
            match *input {
                LaneInput::Asked(asked) => hub.redirect(self.id.clone(), asked),
                // Who is gone needs no word, the next life reads what was removed, and a dropped wish is looked at again.
                LaneInput::Gone(_) | LaneInput::Forget(_) | LaneInput::Leave(_) => {}
            }
        }
    }

    /// Commits everything, with a checkpoint and the exact end of the numbers in use.
    async fn flush(&mut self) -> Result<(), CommitError> {
        self.settle().await?;
        if self.has_failed() {
            return Ok(());
        }
        let mut batch = Batch::new(self.id.clone());
        let last = self.session.release();
        batch.reserve = Some(last);
        batch.checkpoint = Some(batch::checkpoint(self.session.state()));
        batch.meta = Some(self.meta());
        batch.durability = Durability::Synced;
        // The last words of a daemon that stops; a session that merely leaves memory can wait for room.
        batch.urgent = self.world.closing.has_begun();
        self.world.journal.commit(batch).await.unwrap_or(Err(CommitError::Closed))?;
        self.reserved_on_disk = last;
        Ok(())
    }

    /// Commits what has gathered, and lets what follows from it follow.
    async fn settle(&mut self) -> Result<(), CommitError> {
        while self.in_flight.is_some() || !self.gathering.is_empty() || !self.doing.is_empty() {
            self.submit();
            self.perform_waiting().await;
            if self.is_grounded() || self.is_put_off() {
                // The answer to one that waits for room was taken when it was refused: the journal is asked once more.
                self.take_off();
            }
            if let Some(in_flight) = &mut self.in_flight {
                match in_flight.landed().await {
                    Ok(()) => self.committed(),
                    Err(trouble) if self.has_failed_with(&trouble) => return Ok(()),
                    Err(trouble) => return Err(trouble),
                }
            }
        }
        Ok(())
    }

    /// Takes what tools have printed and how they ended, and nothing that would begin something.
    fn take_results(&mut self) {
        while let Some(reported) = self.work.has_reported() {
            if matches!(reported.report, Report::Output { .. } | Report::Settled(_)) {
                self.report(*reported);
            }
        }
    }

    pub(super) async fn close(&mut self) -> Ended {
        self.control.close();
        self.commands.close();
        let left = self.work.end().await;
        // After the end of its task: a tool that has exited by itself meanwhile was not stopped.
        self.take_results();
        if !self.has_failed() {
            self.apply(Input::Halted { left }, None);
        }
        match self.flush().await {
            Ok(()) => Ended::Closed,
            Err(trouble) => {
                self.fail(&trouble);
                Ended::Broken
            }
        }
    }
}
