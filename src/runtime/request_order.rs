//! The order in which the requests of one connection are handled.
//!
//! A request that may wait for something (a disk, a session that is loaded, a directory) is handled in a task of its own,
//! and what comes after it waits behind it, in order. Control overtakes: a cancel or a decision waits for nothing but
//! earlier commands of the same connection for the same session. The queue is bounded by the permits that requests hold.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

use super::requests::Desk;
use crate::kernel::id::SessionId;
use crate::protocol::push::decode::{Ask, Request, SessionAsk};

/// Requests that wait for their turn.
#[derive(Default)]
pub(super) struct RequestQueue {
    waiting: VecDeque<(Request, OwnedSemaphorePermit)>,
    /// Whether a task handles them.
    busy: bool,
    /// The session for which the request at work is a command.
    current: Option<SessionId>,
}

/// How a request is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handling {
    /// It stops or decides something: past whatever waits.
    Control,
    /// It waits for nothing once its session is in memory.
    Quick,
    /// It may wait for something.
    Slow,
}

impl Handling {
    /// Returns how a request is handled.
    pub(super) const fn of(ask: &Ask) -> Self {
        match ask {
            Ask::Session { ask: SessionAsk::Cancel { .. } | SessionAsk::Decide(_), .. } => Self::Control,
            Ask::Session { ask: SessionAsk::Messages { .. }, .. } => Self::Slow,
            Ask::Session { .. }
            | Ask::Hello { .. }
            | Ask::Ping
            | Ask::Metrics { sandbox: false }
            | Ask::Speak(_)
            | Ask::CheckJournal { .. }
            | Ask::Drain { .. } => Self::Quick,
            Ask::StartSession(_)
            | Ask::ListSessions(_)
            | Ask::ListApprovals { .. }
            | Ask::ListGrants
            | Ask::RevokeGrant { .. }
            | Ask::ListProviders
            | Ask::Reload
            | Ask::Metrics { sandbox: true } => Self::Slow,
        }
    }
}

impl RequestQueue {
    /// Tells whether a command for a session waits or is at work, which control must not overtake.
    fn holds_command_for(&self, session: &SessionId) -> bool {
        let waiting = self.waiting.iter().filter_map(|(request, _)| commanded(&request.ask));
        self.current.iter().chain(waiting).any(|commanded| commanded == session)
    }

    fn next(&mut self) -> Option<(Request, OwnedSemaphorePermit)> {
        let next = self.waiting.pop_front();
        self.busy = next.is_some();
        self.current = next.as_ref().and_then(|(request, _)| commanded(&request.ask).cloned());
        next
    }
}

/// Returns the session that a request does something with; one that only reads does nothing.
const fn commanded(ask: &Ask) -> Option<&SessionId> {
    match ask {
        Ask::Session {
            ask: SessionAsk::Messages { .. } | SessionAsk::Snapshot | SessionAsk::ListQueue,
            ..
        } => None,
        Ask::Session { id, .. } => Some(id),
        Ask::Hello { .. }
        | Ask::Ping
        | Ask::Metrics { .. }
        | Ask::Speak(_)
        | Ask::CheckJournal { .. }
        | Ask::Drain { .. }
        | Ask::StartSession(_)
        | Ask::ListSessions(_)
        | Ask::ListApprovals { .. }
        | Ask::ListGrants
        | Ask::RevokeGrant { .. }
        | Ask::ListProviders
        | Ask::Reload => None,
    }
}

impl Desk {
    /// Handles a request when it is its turn.
    pub(super) async fn take(self: &Arc<Self>, request: Request, permit: OwnedSemaphorePermit) {
        let at_once = {
            let queue = self.queue();
            match (Handling::of(&request.ask), &request.ask) {
                (Handling::Control, Ask::Session { id, .. }) => !queue.holds_command_for(id),
                (Handling::Quick, Ask::Session { id, .. }) => {
                    !queue.busy && self.server().hub().is_loaded(id)
                }
                (Handling::Quick, _) => !queue.busy,
                (Handling::Control | Handling::Slow, _) => false,
            }
        };
        if at_once {
            // Boxed: a connection that is silent holds no room for what a request needs.
            return Box::pin(self.handle(request, permit)).await;
        }
        let mut queue = self.queue();
        queue.waiting.push_back((request, permit));
        if !std::mem::replace(&mut queue.busy, true) {
            tokio::spawn(Turns(Arc::clone(self)).handle_all());
        }
    }

    fn queue(&self) -> MutexGuard<'_, RequestQueue> {
        self.waiting().lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that handles requests in order, as long as there are any.
struct Turns(Arc<Desk>);

impl Turns {
    async fn handle_all(self) {
        loop {
            let next = self.0.queue().next();
            let Some((request, permit)) = next else { return };
            self.0.handle(request, permit).await;
        }
    }
}

impl Drop for Turns {
    /// Whoever waits behind a request that panics is answered.
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        let left = std::mem::take(&mut queue.waiting);
        (queue.busy, queue.current) = (false, None);
        drop(queue);
        for (request, permit) in left {
            self.0.interrupt(request, permit);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::protocol::push::decode::{self, DecodeLimits};

    #[test]
    fn control_overtakes_queries_and_no_command_for_its_session() {
        let mut queue = RequestQueue::default();
        let (one, other) = (SessionId::from("s1"), SessionId::from("s2"));
        add(&mut queue, "get_session_messages", r#"{"sessionId":"s1"}"#);
        add(&mut queue, "list_sessions", "{}");
        assert!(!queue.holds_command_for(&one));
        add(&mut queue, "send_user_message", r#"{"sessionId":"s1","text":"go"}"#);
        assert!(queue.holds_command_for(&one));
        assert!(!queue.holds_command_for(&other));
        // Also while it is at work.
        assert!(queue.next().is_some() && queue.next().is_some() && queue.next().is_some());
        assert!(queue.holds_command_for(&one));
        assert!(queue.next().is_none());
        assert!(!queue.holds_command_for(&one) && !queue.busy);
    }

    fn add(queue: &mut RequestQueue, kind: &str, payload: &str) {
        let line = format!(
            r#"{{"v":"push.runtime.v1","kind":"request","requestId":"r","type":"{kind}","payload":{payload}}}"#
        );
        let Ok(request) = decode::decode(line.as_bytes(), &DecodeLimits::default()) else { panic!("{line}") };
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        queue.waiting.push_back((request, permit));
    }
}
