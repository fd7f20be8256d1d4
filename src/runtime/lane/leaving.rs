//! How a session leaves memory: unloaded when it is idle, closed when the daemon shuts down, or deleted.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::batch;
use super::{Ended, Lane, LaneInput};
use crate::journal::{Batch, CommitError, Durability};
use crate::kernel::command::Private;
use crate::kernel::effect::Report;
use crate::kernel::session::Input;
use crate::runtime::hub::Hub;

/// A request that the lane ends, because the session is to be deleted.
#[derive(Debug)]
pub struct Leave {
    /// The cause, which sets the condition.
    pub departure: Departure,
    /// Receives the reply; dropped if the lane ends before it can reply.
    pub answer: oneshot::Sender<Leaving>,
}

/// Why a session is deleted, and under which condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Departure {
    /// A client requested it: the session must have no active run.
    Asked {
        /// The source of the client.
        by: String,
    },
    /// Retention: the session must be idle and without subscribers.
    Retention,
}

impl Departure {
    /// Returns the source that the deletion is attributed to.
    pub fn by(&self) -> &str {
        match self {
            Self::Asked { by } => by,
            Self::Retention => "retention",
        }
    }
}

/// The reply to a delete request.
#[derive(Debug)]
pub enum Leaving {
    /// The lane ends and writes nothing more; the event is for its subscribers, once the session is deleted.
    Left(Private),
    /// The session is unchanged.
    Stays,
}

impl Lane {
    /// Stores a checkpoint and unloads the session, unless an input has arrived meanwhile.
    ///
    /// Later requests find the lane closed and load the session again; requests in the inboxes are redirected.
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

    /// Ends the lane for a deletion, if the condition holds: commits and answers everything first, and writes nothing
    /// after.
    pub(super) async fn depart(&mut self, leave: Leave, hub: &Arc<Hub>) -> Option<Ended> {
        // A run that waits for disk space has not ended, whatever was decided since.
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
            // The requester may be gone.
            let _ = leave.answer.send(Leaving::Stays);
            return None;
        }
        self.shut(hub);
        let farewell = self.session.depart(leave.departure.by(), self.world.clock.now());
        let _ = leave.answer.send(Leaving::Left(farewell));
        Some(Ended::Deleted)
    }

    /// Closes the inboxes, and redirects the requests in them.
    fn shut(&mut self, hub: &Arc<Hub>) {
        self.control.close();
        self.commands.close();
        while let Ok(input) = self.control.try_recv().or_else(|_| self.commands.try_recv()) {
            match *input {
                LaneInput::Asked(asked) => hub.redirect(self.id.clone(), asked),
                // A disconnect needs no reply, the next lane reads the floor, and a dropped delete request is
                // repeated.
                LaneInput::Gone(_) | LaneInput::Forget(_) | LaneInput::Leave(_) => {}
            }
        }
    }

    /// Commits everything, with a checkpoint and the exact end of the used sequence numbers.
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
        // The final batch of a daemon that shuts down may use the disk reserve; an unload can wait for space.
        batch.urgent = self.world.closing.has_begun();
        self.world.journal.commit(batch).await.unwrap_or(Err(CommitError::Closed))?;
        self.reserved_on_disk = last;
        Ok(())
    }

    /// Commits the pending batches and performs their effects.
    async fn settle(&mut self) -> Result<(), CommitError> {
        while self.in_flight.is_some() || !self.gathering.is_empty() || !self.doing.is_empty() {
            self.submit();
            self.perform_waiting().await;
            if self.is_grounded() || self.is_put_off() {
                // The journal refused this batch and its result was consumed, so it is submitted once more.
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

    /// Handles the outputs and results of tools, and no report that would start something.
    fn take_results(&mut self) {
        while let Some(reported) = self.work.has_reported() {
            if matches!(reported.report, Report::Output { .. } | Report::Settled(_)) {
                self.report(*reported);
            }
        }
    }

    /// Ends a run whose provider would end it at its next turn, so that the journal holds its end at shutdown.
    fn finish_at_stop(&mut self) {
        let Some(turn) = self.session.next_turn() else { return };
        let provider = self.world.providers.get(turn.voice.provider.as_str());
        if let Some(finish) = provider.and_then(|provider| provider.finish_at_stop(&turn)) {
            self.apply(Input::FinishedAtStop(finish), None);
        }
    }

    pub(super) async fn close(&mut self) -> Ended {
        self.control.close();
        self.commands.close();
        let left = self.work.end().await;
        // After the end of its task: a tool that has exited by itself was not stopped.
        self.take_results();
        if !self.has_failed() {
            self.apply(Input::Halted { left }, None);
            self.finish_at_stop();
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
