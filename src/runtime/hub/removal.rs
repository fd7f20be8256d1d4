//! Removing sessions: one that is in memory leaves it first, and nobody can bring it back meanwhile.

use std::sync::Arc;

use bytes::Bytes;
use tracing::error;

use super::Hub;
use super::restore::{Integrity, Restored, restore};
use crate::journal::{Batch, CommitError, Conflict, MergeError, ReadError};
use crate::kernel::command::{Phase, Private};
use crate::kernel::id::{Seq, SessionId};
use crate::protocol::push::encode;
use crate::runtime::lane::{Departure, LaneHandle, Leaving};
use crate::runtime::outbox::Out;

/// Why a session was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// It is not there.
    #[error("there is no such session")]
    NotFound,
    /// Something goes on in it.
    #[error("a run is active in this session; cancel it first")]
    Active,
    /// The daemon stops.
    #[error("the daemon is stopping; try again in a moment")]
    Closing,
    /// Nobody can say whether something goes on in it.
    #[error("it cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The journal refused; what it has begun it goes on with.
    #[error("the journal did not delete it: {0}")]
    Journal(#[source] MergeError),
}

impl Hub {
    /// Deletes a session with everything of it, if it may go, and returns how many bytes of events it had.
    ///
    /// It is gone for everybody, and its listeners are told, before the last byte of it is erased; the answer comes after.
    pub async fn delete(self: &Arc<Self>, id: &SessionId, departure: Departure) -> Result<u64, DeleteError> {
        // Held until nobody can find it any more: a load in between would give it another life.
        let turn = self.loading.lock().await;
        if self.world.closing.has_begun() {
            return Err(DeleteError::Closing);
        }
        let journal = &self.world.journal;
        if journal.has_failed() {
            // What it holds in memory alone would be lost, and nothing of the rest would go.
            return Err(DeleteError::Journal(MergeError::Commit(CommitError::StorageFailed)));
        }
        let listed = self.lock().get(id).cloned();
        let farewell = match self.resident(id) {
            Some(lane) => match lane.leave(departure.clone()).await {
                Some(Leaving::Left(farewell)) => Some(farewell),
                Some(Leaving::Stays) => return Err(DeleteError::Active),
                None => self.judge_stored(id, &departure).await?,
            },
            None => self.judge_stored(id, &departure).await?,
        };
        // Its size is of interest, and no reason to keep it.
        let bytes = journal.weigh(id.clone(), u64::MAX).await.ok().flatten().map_or(0, |weight| weight.bytes);
        // Nobody may be interested.
        let _ = self.world.deleted.send(id.clone());
        let mut erased = journal.delete(id.clone());
        // The journal takes things in order: when this is answered, the session is gone, or that was refused.
        let _ = journal.commit(Batch::new(id.clone())).await;
        // A small one may be erased by now.
        let already = erased.try_recv().ok();
        if let Some(Err(error)) = already {
            self.take_back(id, listed).await;
            return Err(refused(error));
        }
        if let (Some(lane), Some(farewell)) = (listed, farewell) {
            tell_listeners(&lane, &farewell);
        }
        drop(turn);
        let erased = match already {
            Some(erased) => erased,
            None => erased.await.unwrap_or(Err(MergeError::Commit(CommitError::Closed))),
        };
        erased.map_err(refused)?;
        Ok(bytes)
    }

    /// Returns how many bytes of events a session has, if it could be deleted.
    pub async fn weigh(&self, id: &SessionId) -> Result<u64, DeleteError> {
        let weight = self.world.journal.weigh(id.clone(), u64::MAX).await?.ok_or(DeleteError::NotFound)?;
        let active = match self.resident(id) {
            Some(lane) => matches!(lane.phase(), Phase::Running | Phase::Waiting),
            None => weight.active,
        };
        if active { Err(DeleteError::Active) } else { Ok(weight.bytes) }
    }

    /// Tells a session that is in memory which of its events were removed on purpose.
    pub async fn forget(&self, id: &SessionId, floor: Seq) {
        // One that is being loaded may have been read before the removal.
        let _turn = self.loading.lock().await;
        if let Some(lane) = self.resident(id) {
            lane.forget(floor).await;
        }
    }

    /// Judges a session that is not in memory by what is stored of it, and returns what those who listened to it are told.
    async fn judge_stored(
        &self,
        id: &SessionId,
        departure: &Departure,
    ) -> Result<Option<Private>, DeleteError> {
        let stored = match (self.world.journal.load(id.clone()).await, departure) {
            (Ok(Some(stored)), _) => stored,
            (Ok(None), _) => return Err(DeleteError::NotFound),
            (Err(error), Departure::Retention) => return Err(error.into()),
            // What cannot be read can still be unwanted.
            (Err(_), Departure::Asked { .. }) => return Ok(None),
        };
        let active = stored.meta.active_run.is_some();
        let Ok(Restored { mut session, integrity }) = restore(&self.world, id, stored).await else {
            return if active || *departure == Departure::Retention {
                Err(DeleteError::Active)
            } else {
                Ok(None)
            };
        };
        let may_go = match (integrity, departure) {
            (Integrity::Whole, Departure::Asked { .. }) => session.state().run.is_none(),
            (Integrity::Whole, Departure::Retention) => session.is_idle(),
            // Whether a run of it is unfinished is not known; its owner may want it gone, and nobody else decides that.
            (Integrity::Damaged, Departure::Asked { .. }) => true,
            (Integrity::Damaged, Departure::Retention) => false,
        };
        if !may_go {
            return Err(DeleteError::Active);
        }
        Ok(Some(session.depart(departure.by(), self.world.clock.now())))
    }

    /// Gives a session that was to be deleted, and could not be, its listeners back.
    async fn take_back(self: &Arc<Self>, id: &SessionId, listed: Option<LaneHandle>) {
        let listeners = listed.map(|lane| lane.listeners()).unwrap_or_default();
        if listeners.is_empty() {
            return;
        }
        if let Err(error) = self.load(id, listeners).await {
            error!(session = %id, %error, "a session that could not be deleted could not be brought back");
        }
    }
}

fn tell_listeners(lane: &LaneHandle, farewell: &Private) {
    let mut line = Vec::new();
    encode::private_line(lane.id(), farewell, &mut line);
    let line = Bytes::from(line);
    for listener in lane.listeners() {
        listener.outbox.push(Out::Last { session: lane.id().clone(), line: line.clone() });
    }
}

fn refused(error: MergeError) -> DeleteError {
    match error {
        MergeError::Commit(CommitError::Conflict(Conflict::NoSuchSession)) => DeleteError::NotFound,
        MergeError::Commit(_) | MergeError::Damaged { .. } => DeleteError::Journal(error),
    }
}
