//! The places that the protocol has at sessions: one a session, as long as somebody needs it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use super::seat::Seat;
use crate::kernel::id::SessionId;
use crate::runtime::session_locks::SessionLocks;

/// The places at sessions, by session.
#[derive(Default)]
pub(super) struct Seats {
    taken: Mutex<BTreeMap<SessionId, Arc<Seat>>>,
    /// A place is taken once, however many want it; who takes another does not wait for that.
    turns: SessionLocks,
}

impl Seats {
    pub(super) fn get(&self, session: &SessionId) -> Option<Sitting> {
        self.lock().get(session).filter(|seat| !seat.is_gone()).map(Sitting::new)
    }

    /// Returns what whoever takes a place at a session holds meanwhile.
    pub(super) async fn turn(&self, session: &SessionId) -> OwnedMutexGuard<()> {
        self.turns.lock(session).await
    }

    pub(super) fn put(&self, seat: Arc<Seat>) {
        self.lock().insert(seat.session().clone(), seat);
    }

    /// Gives up the place at a session, and returns it.
    pub(super) fn remove(&self, session: &SessionId) -> Option<Arc<Seat>> {
        self.lock().remove(session)
    }

    /// Has a connection that left hear nothing more, and returns the places that nobody needs any more.
    ///
    /// A place at which a command is at work is left to whoever leaves next.
    pub(super) fn unsubscribe(&self, id: u64) -> Vec<Arc<Seat>> {
        let mut taken = self.lock();
        for seat in taken.values() {
            seat.unsubscribe(id);
        }
        let empty: Vec<_> = taken.values().filter(|seat| !seat.is_needed()).cloned().collect();
        for seat in &empty {
            taken.remove(seat.session());
        }
        empty
    }

    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.lock().keys().cloned().collect()
    }

    /// Returns how many questions wait for an answer.
    pub(super) fn open_questions(&self) -> u64 {
        let taken = self.lock();
        taken.values().map(|seat| seat.tell(|story| story.open_questions())).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<Seat>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place while a command is at work at it: it is not given up, whoever leaves.
pub(super) struct Sitting(Arc<Seat>);

impl Sitting {
    pub(super) fn new(seat: &Arc<Seat>) -> Self {
        seat.sit_down();
        Self(Arc::clone(seat))
    }
}

impl Deref for Sitting {
    type Target = Arc<Seat>;

    fn deref(&self) -> &Arc<Seat> {
        &self.0
    }
}

impl Drop for Sitting {
    fn drop(&mut self) {
        self.0.stand_up();
    }
}
