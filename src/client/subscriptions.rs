//! The subscribed sessions of a client, the last event received of each, and the queue of received events.
//!
//! Pure. Every event is delivered at most once: events that the daemon sends again after a reconnect are dropped by
//! their seq.

use std::collections::{BTreeMap, VecDeque};

use crate::protocol::push::client::{Event, Replay, Response};

/// What an attached client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everything that its user may do.
    Full,
    /// Receive events only.
    ReadOnly,
    /// Receive events only, and a snapshot of the session that marks the end of the missed ones.
    History,
    /// Receive events only, also those that are not for the owner; the daemon records it.
    AsOwner,
}

/// The position of the client in one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// The seq of the last event received.
    pub(super) seen: u64,
    /// The access with which it is attached.
    pub(super) access: Access,
}

/// The subscribed sessions and their received events.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    sessions: BTreeMap<String, Position>,
    queued: VecDeque<Event>,
    /// The request for pending approvals, while they are watched.
    approvals: Option<ApprovalsWatch>,
}

/// The request for pending approvals, whose reply waits for a change.
#[derive(Debug, Default)]
struct ApprovalsWatch {
    request_id: String,
    /// The reply that was not taken.
    reply: Option<String>,
}

impl Subscriptions {
    /// Accepts events of `session` after `seen`; events of other sessions are dropped.
    pub(super) fn track(&mut self, session: &str, seen: u64, access: Access) {
        self.sessions.insert(session.to_owned(), Position { seen, access });
    }

    /// Prepares for a replay of everything after `seen`.
    ///
    /// Queued events after `seen` are dropped, because the replay delivers them again. After a gap the daemon's seqs
    /// may be lower than those the client has received, so every seq is accepted.
    pub(super) fn rewind(&mut self, session: &str, seen: u64, access: Access, replay: &Replay) {
        self.queued.retain(|event| event.session != session || event.seq <= seen);
        self.track(session, if replay.gap { 0 } else { seen }, access);
    }

    /// Queues an event, unless it was received before or its session has no subscription.
    pub(super) fn accept(&mut self, event: Event) {
        let Some(position) = self.sessions.get_mut(&event.session) else { return };
        if event.seq > position.seen {
            position.seen = event.seq;
            self.queued.push_back(event);
        }
    }

    /// Drops the subscription to `session` and its queued events.
    pub(super) fn unsubscribe(&mut self, session: &str) {
        self.sessions.remove(session);
        self.queued.retain(|event| event.session != session);
    }

    /// Remembers the request whose reply has the pending approvals; an empty id if it could not be sent.
    pub(super) fn watch_approvals(&mut self, request_id: String) {
        self.approvals.get_or_insert_default().request_id = request_id;
    }

    /// Returns whether pending approvals are watched.
    pub(super) const fn watches_approvals(&self) -> bool {
        self.approvals.is_some()
    }

    /// Returns whether a response is that to the request for pending approvals.
    pub(super) fn expects(&self, response: &Response) -> bool {
        self.approvals.as_ref().is_some_and(|watch| watch.request_id == response.request_id)
    }

    /// Keeps the reply with the pending approvals. A refusal is dropped: the daemon closes.
    pub(super) fn accept_response(&mut self, response: Response) {
        if let Some(watch) = self.approvals.as_mut().filter(|watch| watch.request_id == response.request_id) {
            watch.reply = response.outcome.ok();
        }
    }

    /// Takes the reply with the pending approvals.
    pub(super) fn take_approvals(&mut self) -> Option<String> {
        self.approvals.as_mut()?.reply.take()
    }

    /// Returns the oldest queued event.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queued.pop_front()
    }

    /// Returns whether there is a subscription to a session.
    pub(super) fn contains(&self, session: &str) -> bool {
        self.sessions.contains_key(session)
    }

    /// Returns whether there is no subscription.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns the position in each subscribed session.
    pub(super) fn positions(&self) -> Vec<(String, Position)> {
        self.sessions.iter().map(|(session, position)| (session.clone(), *position)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::push::client::EventContent;

    #[test]
    fn an_event_is_delivered_once() {
        let mut watch = subscriptions_at("s", 0);
        for seq in [1, 2, 2, 1, 3, 3] {
            watch.accept(event("s", seq));
        }
        assert_eq!(drain(&mut watch), [1, 2, 3]);
        watch.accept(event("s", 3));
        assert_eq!(drain(&mut watch), [0; 0]);
    }

    #[test]
    fn every_session_has_its_own_position() {
        let mut watch = subscriptions_at("a", 5);
        watch.track("b", 0, Access::ReadOnly);
        watch.accept(event("a", 5));
        watch.accept(event("b", 5));
        watch.accept(event("nobody's", 9));
        assert_eq!(drain(&mut watch), [5]);
        let seen: Vec<_> = watch.positions().into_iter().map(|(name, at)| (name, at.seen)).collect();
        assert_eq!(seen, [("a".to_owned(), 5), ("b".to_owned(), 5)]);
    }

    #[test]
    fn a_second_attach_drops_events_that_are_replayed() {
        let mut watch = subscriptions_at("s", 0);
        watch.accept(event("s", 50));
        watch.rewind("s", 0, Access::Full, &Replay { from_seq: 1, to_seq: 50, gap: false });
        for seq in [1, 2, 50] {
            watch.accept(event("s", seq));
        }
        assert_eq!(drain(&mut watch), [1, 2, 50]);
    }

    #[test]
    fn after_a_gap_lower_seqs_are_accepted() {
        let mut watch = subscriptions_at("s", 900);
        watch.rewind("s", 900, Access::Full, &Replay { from_seq: 0, to_seq: 10, gap: true });
        watch.accept(event("s", 11));
        assert_eq!(drain(&mut watch), [11]);
    }

    fn subscriptions_at(session: &str, seen: u64) -> Subscriptions {
        let mut watch = Subscriptions::default();
        watch.track(session, seen, Access::Full);
        watch
    }

    fn drain(watch: &mut Subscriptions) -> Vec<u64> {
        std::iter::from_fn(|| watch.pop()).map(|event| event.seq).collect()
    }

    fn event(session: &str, seq: u64) -> Event {
        Event {
            session: session.to_owned(),
            run: None,
            seq,
            at: 0,
            content: EventContent::Deleted,
            line: String::new(),
        }
    }
}
