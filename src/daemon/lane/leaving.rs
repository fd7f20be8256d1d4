//! How a lane ends in good order: parked when nothing happens, closed when the daemon stops.

use std::sync::Arc;

use super::batch;
use super::{Ended, Lane, LaneInput};
use crate::daemon::hub::Hub;
use crate::journal::{Batch, CommitError, Durability};

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
        self.control.close();
        self.commands.close();
        while let Ok(input) = self.control.try_recv().or_else(|_| self.commands.try_recv()) {
            match *input {
                LaneInput::Asked(asked) => hub.redirect(self.id.clone(), asked),
                // Nobody is attached, so nobody can leave.
                LaneInput::Gone(_) => {}
            }
        }
        Some(Ended::Parked)
    }

    /// Commits everything, with a checkpoint and the exact end of the numbers in use.
    async fn flush(&mut self) -> Result<(), CommitError> {
        while self.in_flight.is_some() || !self.gathering.is_empty() {
            self.submit();
            if let Some(in_flight) = &mut self.in_flight {
                match (&mut in_flight.done).await.unwrap_or(Err(CommitError::Closed)) {
                    Ok(()) => self.committed(),
                    Err(trouble) if self.has_failed_with(&trouble) => return Ok(()),
                    Err(trouble) => return Err(trouble),
                }
            }
        }
        if self.has_failed() {
            return Ok(());
        }
        let mut batch = Batch::new(self.id.clone());
        batch.reserve = Some(self.session.release());
        batch.checkpoint = Some(batch::checkpoint(self.session.state()));
        batch.meta = Some(self.meta());
        batch.durability = Durability::Synced;
        // The last words of a daemon that stops; a session that merely leaves memory can wait for room.
        batch.urgent = self.world.closing.has_begun();
        self.world.journal.commit(batch).await.unwrap_or(Err(CommitError::Closed))
    }

    pub(super) async fn close(&mut self) -> Ended {
        self.control.close();
        self.commands.close();
        // What a tool prints while it is being ended is not part of the story: the next life asks how it ended.
        self.work.kill();
        match self.flush().await {
            Ok(()) => Ended::Closed,
            Err(trouble) => {
                self.fail(&trouble);
                Ended::Broken
            }
        }
    }
}
