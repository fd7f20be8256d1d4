//! One lock per session, for work on a session that must not be done twice at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

use crate::kernel::id::SessionId;

/// Locks by session. Locks of different sessions are independent, and an unused lock takes no memory.
#[derive(Debug, Default)]
pub(super) struct SessionLocks {
    locks: Mutex<BTreeMap<SessionId, Weak<tokio::sync::Mutex<()>>>>,
}

impl SessionLocks {
    /// Waits for the lock of a session.
    pub(super) async fn lock(&self, session: &SessionId) -> OwnedMutexGuard<()> {
        self.get(session).lock_owned().await
    }

    fn get(&self, session: &SessionId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(session).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        locks.insert(session.clone(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_locked_once_and_others_not_at_all() {
        let (locks, one, other) = (SessionLocks::default(), SessionId::from("one"), SessionId::from("other"));
        let held = locks.get(&one).try_lock_owned().unwrap();
        assert!(locks.get(&one).try_lock_owned().is_err());
        assert!(locks.get(&other).try_lock_owned().is_ok());
        drop(held);
        assert!(locks.get(&one).try_lock_owned().is_ok());
        assert_eq!(locks.locks.lock().unwrap().len(), 1, "unused locks are removed");
    }
}
