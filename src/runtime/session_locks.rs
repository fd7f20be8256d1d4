//! One lock per key, such as a session, for work that must not be done twice at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

use crate::kernel::id::SessionId;

/// Locks by session.
pub(super) type SessionLocks = KeyedLocks<SessionId>;

/// Locks by key. Locks of different keys are independent, and an unused lock takes no memory.
#[derive(Debug)]
pub(super) struct KeyedLocks<K> {
    locks: Mutex<BTreeMap<K, Weak<tokio::sync::Mutex<()>>>>,
}

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self { locks: Mutex::default() }
    }
}

impl<K: Ord + Clone> KeyedLocks<K> {
    /// Waits for the lock of a key.
    pub(super) async fn lock(&self, key: &K) -> OwnedMutexGuard<()> {
        self.get(key).lock_owned().await
    }

    fn get(&self, key: &K) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        let lock = Arc::default();
        locks.insert(key.clone(), Arc::downgrade(&lock));
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
