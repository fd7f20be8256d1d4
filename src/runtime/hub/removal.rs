//! Deletion of sessions: a lane in memory ends first, and the session cannot be loaded meanwhile.

use std::sync::Arc;

use tracing::error;

use super::Hub;
use super::restore::{RestoredSession, restore};
use crate::journal::{Batch, CommitError, Conflict, JobError, ReadError};
use crate::kernel::command::{Phase, PrivateEvent};
use crate::kernel::id::{Seq, SessionId};
use crate::runtime::lane::{DeleteReply, DeletionCause, Integrity, LaneHandle};
use crate::runtime::outbox::OutboxItem;

/// Why a session was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// There is no such session.
    #[error("the session does not exist; `push sessions` lists the sessions")]
    NotFound,
    /// It has an active run.
    #[error("a run is active in this session; `push cancel SESSION` cancels it")]
    Active,
    /// The daemon shuts down.
    #[error("the daemon is stopping; try again in a moment")]
    Closing,
    /// It cannot be read, so its activity is unknown.
    #[error("cannot read the session: {0}")]
    Read(#[from] ReadError),
    /// The journal refused or interrupted the deletion; an interrupted one continues later.
    #[error("the journal could not delete the session: {0}")]
    Journal(#[source] JobError),
}

impl Hub {
    /// Deletes a session and everything that belongs to it, if its condition holds; returns the size of its events in
    /// bytes.
    ///
    /// The session is unreachable, and its subscribers are notified, before its last byte is erased; the result comes
    /// after.
    pub async fn delete(self: &Arc<Self>, id: &SessionId, departure: DeletionCause) -> Result<u64, DeleteError> {
        // Held until the session is unreachable: a load in between would restart it.
        let turn = self.loading.lock(id).await;
        if self.services.closing.is_set() {
            return Err(DeleteError::Closing);
        }
        let journal = &self.services.journal;
        if journal.has_failed() {
            // Data that is in memory alone would be lost, and nothing on disk would be deleted.
            return Err(DeleteError::Journal(JobError::Commit(CommitError::StorageFailed)));
        }
        let listed = self.lock().get(id).cloned();
        let farewell = match self.loaded_lane(id) {
            Some(lane) => match lane.delete(departure.clone()).await {
                Some(DeleteReply::Accepted(farewell)) => Some(farewell),
                Some(DeleteReply::Refused) => return Err(DeleteError::Active),
                None => self.check_stored(id, &departure).await?,
            },
            None => self.check_stored(id, &departure).await?,
        };
        // A failure to measure it does not prevent the deletion.
        let bytes = journal.measure(id.clone(), u64::MAX).await.ok().flatten().map_or(0, |size| size.bytes);
        // There may be no receiver.
        let _ = self.services.deleted.send(id.clone());
        // Its approvals disappear.
        self.services.approvals_revision.send_modify(|revision| *revision += 1);
        let mut erased = journal.delete(id.clone());
        // The journal processes requests in order: after this reply the session is unreachable, or the deletion was
        // refused.
        let _ = journal.commit(Batch::new(id.clone())).await;
        // A small session may be erased already.
        let already = erased.try_recv().ok();
        if let Some(Err(error)) = already {
            self.restore_subscribers(id, listed).await;
            return Err(delete_error(error));
        }
        if let (Some(lane), Some(farewell)) = (listed, farewell) {
            notify_subscribers(&lane, &farewell);
        }
        drop(turn);
        let erased = match already {
            Some(erased) => erased,
            None => erased.await.unwrap_or(Err(JobError::Commit(CommitError::Closed))),
        };
        erased.map_err(delete_error)?;
        self.services.index.remove(id).await;
        Ok(bytes)
    }

    /// Returns the size of a session's events in bytes, if the session could be deleted.
    pub async fn measure(&self, id: &SessionId) -> Result<u64, DeleteError> {
        let size = self.services.journal.measure(id.clone(), u64::MAX).await?.ok_or(DeleteError::NotFound)?;
        let active = match self.loaded_lane(id) {
            Some(lane) => matches!(lane.phase(), Phase::Running | Phase::Waiting),
            None => size.active,
        };
        if active { Err(DeleteError::Active) } else { Ok(size.bytes) }
    }

    /// Notifies a loaded session which of its events retention removed.
    pub async fn raise_floor(&self, id: &SessionId, floor: Seq) {
        // A load in progress may have read the events before the removal.
        let _turn = self.loading.lock(id).await;
        if let Some(lane) = self.loaded_lane(id) {
            lane.raise_floor(floor);
        }
    }

    /// Checks by its stored state whether a session that is not in memory may be deleted; returns the event for its
    /// subscribers.
    async fn check_stored(
        &self,
        id: &SessionId,
        departure: &DeletionCause,
    ) -> Result<Option<PrivateEvent>, DeleteError> {
        let stored = match (self.services.journal.load(id.clone()).await, departure) {
            (Ok(Some(stored)), _) => stored,
            (Ok(None), _) => return Err(DeleteError::NotFound),
            (Err(error), DeletionCause::Retention) => return Err(error.into()),
            // An unreadable session can be deleted on request.
            (Err(_), DeletionCause::Requested { .. }) => return Ok(None),
        };
        let active = stored.meta.has_run();
        let Ok(RestoredSession { mut session, integrity }) = restore(&self.services, id, stored).await else {
            return if active || *departure == DeletionCause::Retention { Err(DeleteError::Active) } else { Ok(None) };
        };
        let may_go = match (integrity, departure) {
            (Integrity::Intact, DeletionCause::Requested { .. }) => session.state().run.is_none(),
            (Integrity::Intact, DeletionCause::Retention) => session.is_idle(),
            // It is unknown whether a run is unfinished; only the owner may decide to delete it.
            (Integrity::Damaged, DeletionCause::Requested { .. }) => true,
            (Integrity::Damaged, DeletionCause::Retention) => false,
        };
        if !may_go {
            return Err(DeleteError::Active);
        }
        Ok(Some(session.deletion_notice(departure.by(), self.services.clock.now())))
    }

    /// Restarts a session that could not be deleted, if it has subscribers.
    async fn restore_subscribers(self: &Arc<Self>, id: &SessionId, listed: Option<LaneHandle>) {
        let listeners = listed.map(|lane| lane.subscribers()).unwrap_or_default();
        if listeners.is_empty() {
            return;
        }
        if let Err(error) = self.load(id, listeners).await {
            error!(session = %id, %error, "cannot restart a session that could not be deleted");
        }
    }
}

fn notify_subscribers(lane: &LaneHandle, notice: &PrivateEvent) {
    for listener in lane.subscribers() {
        listener.outbox.push(OutboxItem::Private { session: lane.id().clone(), event: notice.clone() });
    }
}

fn delete_error(error: JobError) -> DeleteError {
    match error {
        JobError::Commit(CommitError::Conflict(Conflict::NoSuchSession)) => DeleteError::NotFound,
        JobError::Commit(_) | JobError::Damaged { .. } => DeleteError::Journal(error),
    }
}
