//! The registry of lanes: it loads sessions, restarts failed lanes and unloads idle ones.
//!
//! Concurrent requests load a session once. An idle lane stores a checkpoint and is removed. A failed lane is removed
//! too, and the next command restores its session from the journal.

pub mod removal;
mod restore;

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, OnceCell};
use tracing::{error, info, warn};

use super::feed::Subscriber;
use super::lane::{Lane, LaneEnd, LaneExit, LaneHandle, LaneRequest, LaneStart, StoredBytes};
use super::services::Services;
use super::session_locks::SessionLocks;
use crate::journal::{Create, ReadError};
use crate::kernel::command::Phase;
use crate::kernel::id::{ConnectionId, SessionId};
use crate::kernel::session::Session;
use crate::record::RecordError;
use restore::{RestoredSession, restore};

/// Why a session could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The journal could not be read.
    #[error("cannot read session {session}: {source}")]
    Read {
        /// The session.
        session: SessionId,
        /// The error of the journal.
        source: ReadError,
    },
    /// The daemon shuts down; a second lane of the session would write beside the one that is closing.
    #[error("the daemon is stopping; try again in a moment")]
    Closing,
    /// The journal holds a line that is not an event.
    #[error("session {session} has an event that cannot be decoded: {source}")]
    Record {
        /// The session.
        session: SessionId,
        /// The decoding error.
        source: RecordError,
    },
}

/// The delay before a failed lane is restarted without a request.
const RESTART_DELAY: Duration = Duration::from_millis(500);

/// How long shutdown waits for the checks of git directories that commands have changed.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// The registry of a daemon's lanes.
pub struct Hub {
    services: Arc<Services>,
    lanes: Mutex<HashMap<SessionId, LaneHandle>>,
    /// Held while a session is loaded or deleted, so that it is loaded once; other sessions do not wait.
    loading: SessionLocks,
    running: AtomicU64,
    ended: Notify,
    /// Set when the recovery of all unfinished runs is committed.
    recovered: OnceCell<()>,
}

impl Hub {
    /// Creates an empty hub.
    pub fn new(services: Arc<Services>) -> Arc<Self> {
        Arc::new(Self {
            services,
            lanes: Mutex::default(),
            loading: SessionLocks::default(),
            running: AtomicU64::new(0),
            ended: Notify::new(),
            recovered: OnceCell::new(),
        })
    }

    /// Returns the shared services.
    pub const fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// Returns the lane of a session and loads it if necessary; `None` if there is no such session.
    pub async fn lane(self: &Arc<Self>, id: &SessionId) -> Result<Option<LaneHandle>, LoadError> {
        match self.loaded_lane(id) {
            Some(lane) => Ok(Some(lane)),
            // Boxed, because most callers find the lane.
            None => Box::pin(self.load_lane(id)).await,
        }
    }

    async fn load_lane(self: &Arc<Self>, id: &SessionId) -> Result<Option<LaneHandle>, LoadError> {
        let _one_at_a_time = self.loading.lock(id).await;
        if let Some(lane) = self.loaded_lane(id) {
            return Ok(Some(lane));
        }
        if self.services.closing.is_set() {
            return Err(LoadError::Closing);
        }
        // A failed lane is still listed, with its subscribers.
        let listed = self.lock().get(id).map(LaneHandle::subscribers);
        if listed.is_some() {
            // It may have submitted a batch, which must be part of what is read here.
            self.services.journal.barrier(id.clone()).await;
        }
        self.load(id, listed.unwrap_or_default()).await
    }

    /// Loads a session with its subscribers; the caller holds its lock.
    async fn load(
        self: &Arc<Self>,
        id: &SessionId,
        listeners: Vec<Subscriber>,
    ) -> Result<Option<LaneHandle>, LoadError> {
        let stored = self.services.journal.load(id.clone()).await;
        let Some(stored) = stored.map_err(|source| LoadError::Read { session: id.clone(), source })? else {
            return Ok(None);
        };
        let token_hash = stored.token_hash;
        let bytes = StoredBytes::of(&stored);
        let RestoredSession { session, integrity } = restore(&self.services, id, stored).await?;
        info!(session = %id, seq = %session.state().last_seq, ?integrity, "session loaded");
        Ok(Some(self.start_lane(id, session, LaneStart::Restored { token_hash, listeners, integrity, bytes })))
    }

    /// Starts the lane of a new session.
    pub fn create(self: &Arc<Self>, id: &SessionId, create: Create) -> LaneHandle {
        self.start_lane(id, Session::new(self.services.limits.session), LaneStart::New(create))
    }

    /// Loads every session with a run or an approval that was unfinished at the last shutdown.
    ///
    /// Sessions in memory cost nothing, so this may be called at any time.
    pub async fn recover(self: &Arc<Self>) -> Result<(), ReadError> {
        for id in self.services.journal.active_sessions().await? {
            if let Err(error) = self.lane(&id).await {
                error!(session = %id, %error, "cannot restore an unfinished run");
            }
        }
        Ok(())
    }

    /// Returns the cell that is set when the recovery of all unfinished runs is committed.
    pub const fn recovered(&self) -> &OnceCell<()> {
        &self.recovered
    }

    /// Sends requests that reached a closing lane to the next lane of the session.
    fn redirect(self: &Arc<Self>, id: SessionId, requests: VecDeque<Box<LaneRequest>>) {
        if requests.is_empty() {
            return;
        }
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            for request in requests {
                if let Ok(Some(lane)) = hub.lane(&id).await {
                    // If this lane is closed too, the request is dropped, and its reply guard answers `Interrupted`.
                    let _ = lane.send_request(request);
                }
            }
        });
    }

    /// Notifies a loaded session that a connection is closed.
    pub fn disconnected(&self, id: &SessionId, who: ConnectionId) {
        if let Some(lane) = self.lock().get(id) {
            lane.disconnected(who);
        }
    }

    /// Returns whether a session is in memory and accepts commands.
    pub fn is_loaded(&self, id: &SessionId) -> bool {
        self.loaded_lane(id).is_some()
    }

    /// Returns whether a session is in memory or about to be restarted.
    pub fn is_listed(&self, id: &SessionId) -> bool {
        self.lock().contains_key(id)
    }

    /// Returns all lanes.
    pub fn lanes(&self) -> Vec<LaneHandle> {
        self.lock().values().cloned().collect()
    }

    /// Returns the number of runs in progress, without those that wait for a decision.
    pub fn running_count(&self) -> usize {
        self.lock().values().filter(|lane| lane.phase() == Phase::Running).count()
    }

    /// Waits until no run is in progress.
    pub async fn wait_until_idle(&self) {
        loop {
            let changed = self.services.phase_changed.notified();
            if self.running_count() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Refuses new runs from now on.
    pub fn drain(&self) {
        self.services.draining.set();
    }

    /// Returns whether new runs are refused.
    pub fn is_draining(&self) -> bool {
        self.services.draining.is_set()
    }

    /// Waits until every lane has ended and all git directories are checked. The shutdown was signalled before.
    pub async fn wait_for_lanes(&self) {
        loop {
            let ended = self.ended.notified();
            if self.running.load(Ordering::Acquire) == 0 {
                break;
            }
            ended.await;
        }
        // Changes of a command in a git directory are undone after its processes have ended.
        if let Err(pending) = self.services.sandboxes.local().pending_checks().wait_finished(CHECK_TIMEOUT).await {
            warn!(pending, "git directories that commands may have changed were not checked in time");
        }
    }

    /// Returns the lane of a session that is in memory and accepts commands.
    pub fn loaded_lane(&self, id: &SessionId) -> Option<LaneHandle> {
        self.lock().get(id).filter(|lane| lane.is_open()).cloned()
    }

    fn start_lane(self: &Arc<Self>, id: &SessionId, session: Session, beginning: LaneStart) -> LaneHandle {
        let lane = Lane::new(id.clone(), session, beginning, Arc::clone(&self.services));
        let handle = lane.handle();
        self.lock().insert(id.clone(), handle.clone());
        self.running.fetch_add(1, Ordering::AcqRel);
        let hub = Arc::clone(self);
        let id = id.clone();
        // One task: a second one that waits for the first would take memory in every session.
        tokio::spawn(async move {
            let LaneExit { end, unhandled } = {
                let mut running = pin!(lane.run());
                let exit = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
                    Ok(Poll::Pending) => Poll::Pending,
                    Ok(Poll::Ready(exit)) => Poll::Ready(Some(exit)),
                    // The hook of the process has logged the message.
                    Err(_) => Poll::Ready(None),
                });
                exit.await.unwrap_or_else(|| {
                    error!(session = %id, "lane panicked");
                    LaneExit::from(LaneEnd::Broken)
                })
            };
            hub.redirect(id.clone(), unhandled);
            if end == LaneEnd::Broken {
                // The lane stays listed until the journal has processed its last batch.
                hub.services.journal.barrier(id.clone()).await;
                // Boxed, because every session in memory holds this future.
                Box::pin(hub.restart_lane(&id)).await;
            }
            hub.lane_ended(&id);
        });
        handle
    }

    /// Restarts a failed lane if it has subscribers, an unfinished run or an open approval.
    async fn restart_lane(self: &Arc<Self>, id: &SessionId) {
        let waited_for = |lane: &LaneHandle| {
            !lane.subscribers().is_empty()
                || lane.has_open_gates()
                || matches!(lane.phase(), Phase::Running | Phase::Waiting)
        };
        while self.lock().get(id).is_some_and(|lane| !lane.is_open() && waited_for(lane)) {
            // The cause may persist: a full disk is not retried a thousand times a second.
            tokio::select! {
                () = tokio::time::sleep(RESTART_DELAY) => {}
                () = self.services.closing.wait() => return,
            }
            match self.lane(id).await {
                Ok(_) => return,
                Err(error) => error!(session = %id, %error, "cannot restart a failed session"),
            }
        }
    }

    fn lane_ended(&self, id: &SessionId) {
        let mut lanes = self.lock();
        if lanes.get(id).is_some_and(|lane| !lane.is_open()) {
            lanes.remove(id);
        }
        drop(lanes);
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.ended.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, LaneHandle>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
