//! The sessions in memory, and the way in and out of it.
//!
//! A session that is asked for is loaded once, however many ask; one that is idle writes itself down and is forgotten.
//! A lane that breaks is forgotten too, and the next command brings its session back from the journal.

pub mod removal;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{error, info};

use super::checkpoint;
use super::feed::Listener;
use super::lane::{Asked, Beginning, Ended, Lane, LaneHandle};
use super::world::World;
use crate::adapter::push::record::{self, RecordError};
use crate::journal::{Create, ReadError, Stored};
use crate::kernel::command::Phase;
use crate::kernel::event::Event;
use crate::kernel::id::SessionId;
use crate::kernel::session::{Missing, Session};

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
        let listeners = self.lock().get(id).map(LaneHandle::listeners).unwrap_or_default();
        self.load(id, listeners).await
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
        let session =
            self.restore(stored).map_err(|source| LoadError::Record { session: id.clone(), source })?;
        info!(session = %id, seq = %session.state().last_seq, "session loaded");
        Ok(Some(self.start(id, session, Beginning::Restored { token_hash, listeners })))
    }

    /// Starts the lane of a new session.
    pub fn create(self: &Arc<Self>, id: &SessionId, create: Create) -> LaneHandle {
        self.start(id, Session::new(self.world.limits.session), Beginning::New(create))
    }

    /// Brings back every session whose run was unfinished when the daemon last ended.
    pub async fn recover(self: &Arc<Self>) {
        let active = match self.world.journal.active().await {
            Ok(active) => active,
            Err(error) => return error!(%error, "cannot tell which runs are unfinished"),
        };
        for id in active {
            if let Err(error) = self.lane(&id).await {
                error!(session = %id, %error, "an unfinished run could not be brought back");
            }
        }
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

    /// Waits until every lane has ended; the word to close was given before.
    pub async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.running.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
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

    fn restore(&self, stored: Stored) -> Result<Session, RecordError> {
        let missing = Missing { floor: stored.floor, holes: stored.holes };
        // A checkpoint of another version is as good as none: the whole history makes the same state.
        let checkpoint = stored.checkpoint.and_then(|kept| checkpoint::decode(&kept.bytes).ok());
        let from = checkpoint.unwrap_or_default();
        let mut tail = Vec::new();
        for block in &stored.tail {
            for line in block.bytes.split_inclusive(|byte| *byte == b'\n') {
                let event: Event = record::decode_event(line)?;
                if event.seq > from.last_seq {
                    tail.push(event);
                }
            }
        }
        Ok(Session::restore(self.world.limits.session, from, &tail, stored.reserved, missing))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, LaneHandle>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
