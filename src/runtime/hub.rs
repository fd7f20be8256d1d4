//! The sessions in memory, and the way in and out of it.
//!
//! A session that is asked for is loaded once, however many ask; one that is idle writes itself down and is forgotten.
//! A lane that breaks is forgotten too, and the next command brings its session back from the journal.

pub mod removal;
mod restore;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::feed::Listener;
use super::lane::{Asked, Beginning, Ended, Lane, LaneHandle};
use super::world::World;
use crate::journal::{Create, ReadError};
use crate::kernel::command::Phase;
use crate::kernel::id::{ParticipantId, SessionId};
use crate::kernel::session::Session;
use crate::protocol::push::record::RecordError;
use restore::{Restored, restore};

pub use restore::Integrity;

/// Why a session could not be brought back.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The journal could not be read.
    #[error("cannot read session {session}: {source}")]
    Read {
        /// Which session.
        session: SessionId,
        /// What the journal said.
        source: ReadError,
    },
    /// The daemon stops; a second lane of the session would write beside the one that is closing.
    #[error("the daemon is stopping; try again in a moment")]
    Closing,
    /// The journal holds something that is not an event.
    #[error("session {session} holds an event that cannot be read: {source}")]
    Record {
        /// Which session.
        session: SessionId,
        /// What is wrong.
        source: RecordError,
    },
}

/// How long a session that broke rests before it is brought back unasked.
const PAUSE: Duration = Duration::from_millis(500);

/// How long checks of what commands have changed are waited for when the daemon ends.
const CHECKS: Duration = Duration::from_secs(10);

/// The lanes of a daemon.
pub struct Hub {
    world: Arc<World>,
    lanes: Mutex<HashMap<SessionId, LaneHandle>>,
    /// Loads happen one after the other, so that no session is loaded twice.
    loading: tokio::sync::Mutex<()>,
    running: AtomicU64,
    ended: Notify,
}

impl Hub {
    /// Makes a hub without sessions.
    pub fn new(world: Arc<World>) -> Arc<Self> {
        Arc::new(Self {
            world,
            lanes: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
            running: AtomicU64::new(0),
            ended: Notify::new(),
        })
    }

    /// Returns what lanes and connections share.
    pub const fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Returns the lane of a session, brought back from the journal if need be; `None` if there is no such session.
    pub async fn lane(self: &Arc<Self>, id: &SessionId) -> Result<Option<LaneHandle>, LoadError> {
        if let Some(lane) = self.resident(id) {
            return Ok(Some(lane));
        }
        let _one_at_a_time = self.loading.lock().await;
        if let Some(lane) = self.resident(id) {
            return Ok(Some(lane));
        }
        if self.world.closing.has_begun() {
            return Err(LoadError::Closing);
        }
        // A lane that broke is still listed, with those who listened to it.
        let listed = self.lock().get(id).map(LaneHandle::listeners);
        if listed.is_some() {
            // It may have left a batch with the journal, which belongs to what is read here.
            self.world.journal.barrier(id.clone()).await;
        }
        self.load(id, listed.unwrap_or_default()).await
    }

    /// Brings a session back from the journal, with who listens to it; the caller has its turn to load.
    async fn load(
        self: &Arc<Self>,
        id: &SessionId,
        listeners: Vec<Listener>,
    ) -> Result<Option<LaneHandle>, LoadError> {
        let stored = self.world.journal.load(id.clone()).await;
        let Some(stored) = stored.map_err(|source| LoadError::Read { session: id.clone(), source })? else {
            return Ok(None);
        };
        let token_hash = stored.token_hash;
        let Restored { session, integrity } = restore(&self.world, id, stored).await?;
        info!(session = %id, seq = %session.state().last_seq, ?integrity, "session loaded");
        Ok(Some(self.start(id, session, Beginning::Restored { token_hash, listeners, integrity })))
    }

    /// Starts the lane of a new session.
    pub fn create(self: &Arc<Self>, id: &SessionId, create: Create) -> LaneHandle {
        self.start(id, Session::new(self.world.limits.session), Beginning::New(create))
    }

    /// Brings back every session whose run was unfinished when the daemon last ended.
    ///
    /// One that is in memory already costs nothing, so that whoever needs all of them may ask for this at any time.
    pub async fn recover(self: &Arc<Self>) -> Result<(), ReadError> {
        for id in self.world.journal.active().await? {
            if let Err(error) = self.lane(&id).await {
                error!(session = %id, %error, "an unfinished run could not be brought back");
            }
        }
        Ok(())
    }

    /// Brings a command that reached a closing lane to the session's next life.
    pub(super) fn redirect(self: &Arc<Self>, id: SessionId, asked: Box<Asked>) {
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            if let Ok(Some(lane)) = hub.lane(&id).await {
                // A second closed door answers by dropping the command.
                let _ = lane.ask(asked);
            }
        });
    }

    /// Tells a session in memory that a connection is gone.
    pub fn gone(&self, id: &SessionId, who: ParticipantId) {
        if let Some(lane) = self.lock().get(id) {
            lane.gone(who);
        }
    }

    /// Tells whether a session is in memory and takes commands.
    pub fn is_loaded(&self, id: &SessionId) -> bool {
        self.resident(id).is_some()
    }

    /// Tells whether a session is in memory, or about to come back to it.
    pub fn holds(&self, id: &SessionId) -> bool {
        self.lock().contains_key(id)
    }

    /// Returns all lanes.
    pub fn lanes(&self) -> Vec<LaneHandle> {
        self.lock().values().cloned().collect()
    }

    /// Returns how many runs are at work, those that wait for a verdict not counted.
    pub fn working(&self) -> usize {
        self.lock().values().filter(|lane| lane.phase() == Phase::Running).count()
    }

    /// Waits until no run is at work.
    pub async fn work_over(&self) {
        loop {
            let changed = self.world.settled.notified();
            if self.working() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Takes no new runs from now on.
    pub fn drain(&self) {
        self.world.draining.begin();
    }

    /// Tells whether new runs are refused.
    pub fn is_draining(&self) -> bool {
        self.world.draining.has_begun()
    }

    /// Waits until every lane has ended and what commands have changed was checked; the word to close was given before.
    pub async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.running.load(Ordering::Acquire) == 0 {
                break;
            }
            ended.await;
        }
        // What a command has changed in a git directory is undone after its processes have ended.
        if let Err(pending) = self.world.sandboxes.local().pending_checks().finished(CHECKS).await {
            warn!(pending, "git directories that commands may have changed were not compared in time");
        }
    }

    fn resident(&self, id: &SessionId) -> Option<LaneHandle> {
        self.lock().get(id).filter(|lane| lane.is_open()).cloned()
    }

    fn start(self: &Arc<Self>, id: &SessionId, session: Session, beginning: Beginning) -> LaneHandle {
        let lane = Lane::new(id.clone(), session, beginning, Arc::clone(&self.world));
        let handle = lane.handle();
        self.lock().insert(id.clone(), handle.clone());
        self.running.fetch_add(1, Ordering::AcqRel);
        let hub = Arc::clone(self);
        let id = id.clone();
        let running = tokio::spawn(lane.run(Arc::clone(self)));
        tokio::spawn(async move {
            let ended = running.await.unwrap_or_else(|panic| {
                error!(session = %id, %panic, "a lane broke");
                Ended::Broken
            });
            if ended == Ended::Broken {
                // It is listed until the journal has done with what it left.
                hub.world.journal.barrier(id.clone()).await;
                // Boxed, as every session in memory holds this future.
                Box::pin(hub.bring_back(&id)).await;
            }
            hub.lane_ended(&id);
        });
        handle
    }

    /// Gives a session that broke its next life, unless nobody waits for it.
    async fn bring_back(self: &Arc<Self>, id: &SessionId) {
        let waited_for = |lane: &LaneHandle| {
            !lane.listeners().is_empty() || matches!(lane.phase(), Phase::Running | Phase::Waiting)
        };
        while self.lock().get(id).is_some_and(|lane| !lane.is_open() && waited_for(lane)) {
            // What broke it may last: a full disk is not asked a thousand times a second.
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.world.closing.wait() => return,
            }
            match self.lane(id).await {
                Ok(_) => return,
                Err(error) => error!(session = %id, %error, "a broken session could not be brought back"),
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
