//! The views of sessions: at most one per session, as long as it is used.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedMutexGuard;

use super::session_view::SessionView;
use crate::kernel::id::{ConnectionId, SessionId};
use crate::runtime::session_locks::SessionLocks;

/// Views by session.
#[derive(Default)]
pub(super) struct SessionViews {
    taken: Mutex<BTreeMap<SessionId, Arc<SessionView>>>,
    /// Ensures that concurrent requests create one view; other sessions do not wait.
    locks: SessionLocks,
}

impl SessionViews {
    pub(super) fn get(&self, session: &SessionId) -> Option<ViewLease> {
        self.lock().get(session).filter(|view| !view.is_deleted()).map(ViewLease::new)
    }

    /// Waits for the lock under which a view of a session is created.
    pub(super) async fn lock_session(&self, session: &SessionId) -> OwnedMutexGuard<()> {
        self.locks.lock(session).await
    }

    pub(super) fn put(&self, view: Arc<SessionView>) {
        self.lock().insert(view.session().clone(), view);
    }

    /// Removes and returns the view of a session.
    pub(super) fn remove(&self, session: &SessionId) -> Option<Arc<SessionView>> {
        self.lock().remove(session)
    }

    /// Unsubscribes a closed connection from all views, and removes and returns the views that are not needed any more.
    ///
    /// A view that a command uses is left for the next disconnect.
    pub(super) fn unsubscribe(&self, id: ConnectionId) -> Vec<Arc<SessionView>> {
        let mut taken = self.lock();
        for view in taken.values() {
            view.unsubscribe(id);
        }
        let empty: Vec<_> = taken.values().filter(|view| !view.is_needed()).cloned().collect();
        for view in &empty {
            taken.remove(view.session());
        }
        empty
    }

    /// Waits until every view has observed the events that are published now.
    pub(super) async fn wait_until_current(&self) {
        let views: Vec<_> = self.lock().values().cloned().collect();
        for view in views {
            view.wait_until_current().await;
        }
    }

    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.lock().keys().cloned().collect()
    }

    /// Returns the number of open questions.
    pub(super) fn open_questions(&self) -> u64 {
        let taken = self.lock();
        taken.values().map(|view| view.read(|projection| projection.open_questions())).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<SessionView>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A view in use by a command: it is not released when connections close.
pub(super) struct ViewLease(Arc<SessionView>);

impl ViewLease {
    pub(super) fn new(view: &Arc<SessionView>) -> Self {
        view.add_lease();
        Self(Arc::clone(view))
    }
}

impl Deref for ViewLease {
    type Target = Arc<SessionView>;

    fn deref(&self) -> &Arc<SessionView> {
        &self.0
    }
}

impl Drop for ViewLease {
    fn drop(&mut self) {
        self.0.remove_lease();
    }
}
