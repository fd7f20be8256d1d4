//! The sessions that a connection may be subscribed to, so that each is notified when the connection closes.
//!
//! The table stays close to the number of active subscriptions: a detach removes its entry, and entries of unloaded
//! sessions are pruned before the table doubles.

use std::collections::BTreeMap;

use crate::kernel::id::SessionId;

/// The subscriptions of one connection.
#[derive(Debug)]
pub(super) struct Subscriptions {
    /// The generation of the latest subscription, by session.
    sessions: BTreeMap<SessionId, u64>,
    last_generation: u64,
    /// The size at which entries of unloaded sessions are pruned.
    prune_at: usize,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self { sessions: BTreeMap::new(), last_generation: 0, prune_at: PRUNE_MIN }
    }
}

impl Subscriptions {
    /// Records a subscription to a session; `is_live` tells which sessions are loaded.
    pub(super) fn add(&mut self, session: &SessionId, is_live: impl Fn(&SessionId) -> bool) {
        if self.sessions.len() >= self.prune_at {
            self.sessions.retain(|session, _| is_live(session));
            self.prune_at = PRUNE_MIN.max(2 * self.sessions.len());
        }
        self.last_generation += 1;
        self.sessions.insert(session.clone(), self.last_generation);
    }

    /// Returns the generation of the current subscription, for [`Subscriptions::remove`].
    pub(super) fn generation(&self, session: &SessionId) -> Option<u64> {
        self.sessions.get(session).copied()
    }

    /// Removes a subscription, unless it was renewed since generation `as_of`.
    pub(super) fn remove(&mut self, session: &SessionId, as_of: Option<u64>) {
        if self.generation(session) == as_of {
            self.sessions.remove(session);
        }
    }

    /// Removes and returns all sessions.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = SessionId> + use<> {
        std::mem::take(&mut self.sessions).into_keys()
    }
}

/// The table size below which nothing is pruned.
const PRUNE_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unloaded_sessions_are_pruned() {
        let mut subscriptions = Subscriptions::default();
        let name = |number: usize| SessionId::from(format!("s{number}"));
        for number in 0..10_000 {
            // The newest ten sessions are loaded.
            subscriptions.add(&name(number), |session| (number - 10..number).any(|live| name(live) == *session));
            assert!(subscriptions.sessions.len() <= PRUNE_MIN, "{number}");
        }
        assert!(subscriptions.take_all().any(|session| session == name(9_999)));
    }

    #[test]
    fn loaded_sessions_are_never_pruned() {
        let mut subscriptions = Subscriptions::default();
        for number in 0..1_000 {
            subscriptions.add(&SessionId::from(format!("s{number}")), |_| true);
        }
        assert_eq!(subscriptions.take_all().count(), 1_000);
    }

    #[test]
    fn a_detach_does_not_remove_a_newer_subscription() {
        let (mut subscriptions, session) = (Subscriptions::default(), SessionId::from("s"));
        subscriptions.add(&session, |_| true);
        let before = subscriptions.generation(&session);
        subscriptions.add(&session, |_| true);
        subscriptions.remove(&session, before);
        assert!(subscriptions.generation(&session).is_some(), "it was attached again meanwhile");
        subscriptions.remove(&session, subscriptions.generation(&session));
        assert_eq!(subscriptions.generation(&session), None);
    }
}
