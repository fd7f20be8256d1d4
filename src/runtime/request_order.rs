//! The order in which the requests of one connection are handled.
//!
//! Commands of one session are handled in order, and commands of different sessions independently. Control (a cancel,
//! a decision) waits for earlier commands of its session alone. A query waits for earlier queries, and until every
//! earlier command of the connection is answered, so that it sees their changes. Neither a command nor control waits
//! for a query. Requests that may block (on a disk, on loading a session, on a directory) are handled in a task of
//! their own. The permits of the requests bound the queues.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};

use super::outbox::RequestPermit;
use super::requests::RequestHandler;
use crate::kernel::command::Queue;
use crate::kernel::id::SessionId;
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::{Intent, Request, SessionIntent};

/// The number of unanswered queries that a connection may have for each command.
pub(super) const QUERIES_PER_COMMAND: usize = 4;

/// A request that was read and is not handled yet.
pub(super) struct PendingRequest {
    pub(super) request: Request,
    pub(super) permit: RequestPermit,
    /// Set for commands.
    pub(super) command: Option<CommandGuard>,
}

/// The order of the requests of one connection.
pub(super) struct RequestOrder {
    queues: Mutex<RequestQueues>,
    /// Notified when a command is answered.
    answered: Notify,
    /// Bounds the responses to queries that are not written yet.
    unwritten_answers: Arc<Semaphore>,
}

/// An unanswered command; the guard is dropped when the command is answered.
pub(super) struct CommandGuard {
    order: Arc<RequestOrder>,
    number: u64,
}

impl Drop for CommandGuard {
    fn drop(&mut self) {
        self.order.lock().unanswered.remove(&self.number);
        self.order.answered.notify_waiters();
    }
}

impl RequestOrder {
    /// Creates empty queues; at most `max_unwritten` responses to queries may be unwritten.
    pub(super) fn new(max_unwritten: usize) -> Self {
        let unwritten_answers = Arc::new(Semaphore::new(max_unwritten));
        Self { queues: Mutex::default(), answered: Notify::new(), unwritten_answers }
    }

    /// Registers a command, so that later queries wait for its answer.
    fn track_command(self: &Arc<Self>) -> CommandGuard {
        let mut queues = self.lock();
        queues.commands_read += 1;
        let number = queues.commands_read;
        queues.unanswered.insert(number);
        CommandGuard { order: Arc::clone(self), number }
    }

    fn lock(&self) -> MutexGuard<'_, RequestQueues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The requests that are not handled yet.
#[derive(Default)]
struct RequestQueues {
    /// Commands by session, including the control behind them; those without a session share one queue. A queue
    /// exists while a task handles it.
    commands: BTreeMap<Option<SessionId>, VecDeque<PendingRequest>>,
    /// Queries, each with the number of commands that were read before it. The queue exists while a task handles it.
    queries: Option<VecDeque<(u64, PendingRequest)>>,
    commands_read: u64,
    /// The numbers of the unanswered commands.
    unanswered: BTreeSet<u64>,
}

/// The next step of the query task.
enum NextQuery {
    Handle(PendingRequest),
    /// An earlier command is not answered.
    Wait,
    /// The queue is empty.
    End,
}

impl RequestQueues {
    /// Adds a command or control; returns whether its queue needs a new task.
    fn add_command(&mut self, pending: PendingRequest) -> bool {
        match self.commands.entry(session_of(&pending.request.intent).cloned()) {
            Entry::Occupied(queue) => {
                queue.into_mut().push_back(pending);
                false
            }
            Entry::Vacant(entry) => {
                entry.insert(VecDeque::from([pending]));
                true
            }
        }
    }

    /// Adds a query; returns whether the queue needs a new task.
    fn add_query(&mut self, pending: PendingRequest) -> bool {
        let is_new = self.queries.is_none();
        self.queries.get_or_insert_default().push_back((self.commands_read, pending));
        is_new
    }

    fn next_command(&mut self, session: &Option<SessionId>) -> Option<PendingRequest> {
        let next = self.commands.get_mut(session)?.pop_front();
        if next.is_none() {
            self.commands.remove(session);
        }
        next
    }

    fn next_query(&mut self) -> NextQuery {
        let Some(queries) = &mut self.queries else { return NextQuery::End };
        let oldest = self.unanswered.first().copied().unwrap_or(u64::MAX);
        if queries.front().is_some_and(|(commands, _)| *commands >= oldest) {
            return NextQuery::Wait;
        }
        match queries.pop_front() {
            Some((_, pending)) => NextQuery::Handle(pending),
            None => {
                self.queries = None;
                NextQuery::End
            }
        }
    }

    /// Returns whether no query is queued and no command is unanswered.
    fn is_free_for_query(&self) -> bool {
        self.queries.is_none() && self.unanswered.is_empty()
    }
}

/// Returns the session that a request names.
const fn session_of(intent: &Intent) -> Option<&SessionId> {
    match intent {
        Intent::Session { id, .. } => Some(id),
        Intent::Hello { .. }
        | Intent::Ping
        | Intent::Metrics { .. }
        | Intent::SwitchProtocol(_)
        | Intent::Command(_)
        | Intent::CheckJournal { .. }
        | Intent::Drain { .. }
        | Intent::StartSession(_)
        | Intent::ListSessions(_)
        | Intent::ListApprovals { .. }
        | Intent::ListGrants
        | Intent::RevokeGrant { .. }
        | Intent::Search(_)
        | Intent::Stats(_)
        | Intent::ListProviders
        | Intent::Reload => None,
    }
}

/// Returns the refusal of a request beyond the bounds of a connection, of which `limit` is that of commands.
pub(super) fn too_many_requests(limit: usize) -> ErrorBody {
    let message = format!(
        "too many requests of this connection are unanswered (limit: {limit} commands and {} queries); wait for \
         responses before sending more",
        QUERIES_PER_COMMAND * limit
    );
    ErrorBody::transient(Code::InvalidRequest, message)
}

impl RequestHandler {
    /// Handles a request in its order. The reader waits only for requests that are handled inline.
    pub(super) async fn dispatch(self: &Arc<Self>, request: Request, permit: RequestPermit) {
        if matches!(request.intent, Intent::ListApprovals { known: Some(_), .. }) {
            // It waits for a change, and no other request waits for it.
            let (handler, pending) = (Arc::clone(self), PendingRequest { request, permit, command: None });
            tokio::spawn(async move { handler.handle(pending).await });
            return;
        }
        let queue = request.intent.action().policy().queue;
        let is_change = matches!(queue, Queue::Change | Queue::LongChange);
        let command = is_change.then(|| self.request_order().track_command());
        let pending = PendingRequest { request, permit, command };
        let inline = match queue {
            Queue::Immediate => Some(pending),
            Queue::Control | Queue::Change | Queue::LongChange => self.dispatch_command(pending),
            Queue::Read => self.dispatch_query(pending),
        };
        if let Some(pending) = inline {
            // Boxed, so that an idle connection does not hold its memory.
            Box::pin(self.handle(pending)).await;
        }
    }

    /// Queues a command or control, or returns it if it can be handled inline.
    fn dispatch_command(self: &Arc<Self>, pending: PendingRequest) -> Option<PendingRequest> {
        let session = session_of(&pending.request.intent).cloned();
        let mut queues = self.request_order().lock();
        if !queues.commands.contains_key(&session) && self.can_run_inline(&pending.request.intent) {
            return Some(pending);
        }
        if queues.add_command(pending) {
            tokio::spawn(CommandTask { handler: Arc::clone(self), session, ended: false }.handle_all());
        }
        None
    }

    /// Queues a query, or returns it if it can be handled inline.
    fn dispatch_query(self: &Arc<Self>, pending: PendingRequest) -> Option<PendingRequest> {
        let mut queues = self.request_order().lock();
        if queues.is_free_for_query()
            && self.can_run_inline(&pending.request.intent)
            && let Ok(answer) = Arc::clone(&self.request_order().unwritten_answers).try_acquire_owned()
        {
            return Some(PendingRequest { permit: pending.permit.with_answer(answer), ..pending });
        }
        if queues.add_query(pending) {
            tokio::spawn(QueryTask { handler: Arc::clone(self), ended: false }.handle_all());
        }
        None
    }

    /// Returns whether a request is answered or passed to its session without blocking.
    fn can_run_inline(&self, intent: &Intent) -> bool {
        match intent {
            // A command of the user is checked against rules, which are read from files.
            Intent::Session {
                body: SessionIntent::Messages { .. } | SessionIntent::UserCommand(_) | SessionIntent::Fork(_),
                ..
            } => false,
            Intent::Session { id, .. } => self.server().hub().is_loaded(id),
            Intent::Hello { .. }
            | Intent::Ping
            | Intent::Metrics { sandbox: false }
            | Intent::SwitchProtocol(_)
            | Intent::Command(_)
            | Intent::CheckJournal { .. }
            | Intent::Reload
            | Intent::Drain { .. } => true,
            Intent::StartSession(_)
            | Intent::ListSessions(_)
            | Intent::ListApprovals { .. }
            | Intent::ListGrants
            | Intent::RevokeGrant { .. }
            | Intent::Search(_)
            | Intent::Stats(_)
            | Intent::ListProviders
            | Intent::Metrics { sandbox: true } => false,
        }
    }
}

/// The task that handles the commands of one session, until the queue is empty.
struct CommandTask {
    handler: Arc<RequestHandler>,
    session: Option<SessionId>,
    /// Whether its queue is removed; a new queue of the session has a task of its own.
    ended: bool,
}

impl CommandTask {
    async fn handle_all(mut self) {
        loop {
            let next = self.handler.request_order().lock().next_command(&self.session);
            let Some(pending) = next else { break };
            self.handler.handle(pending).await;
        }
        self.ended = true;
    }
}

impl Drop for CommandTask {
    /// Answers the requests behind one that panics.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let left = self.handler.request_order().lock().commands.remove(&self.session);
        left.into_iter().flatten().for_each(|pending| self.handler.interrupt(pending));
    }
}

/// The task that handles queries, until the queue is empty.
struct QueryTask {
    handler: Arc<RequestHandler>,
    /// Whether its queue is removed; a new queue has a task of its own.
    ended: bool,
}

impl QueryTask {
    async fn handle_all(mut self) {
        let order = Arc::clone(self.handler.request_order());
        loop {
            // Created before the queue is read, so that no later notification is missed.
            let answered = order.answered.notified();
            let next = order.lock().next_query();
            match next {
                NextQuery::Handle(pending) => {
                    // While the peer reads no responses, no more queries are handled.
                    let Ok(answer) = Arc::clone(&order.unwritten_answers).acquire_owned().await else { return };
                    let permit = pending.permit.with_answer(answer);
                    self.handler.handle(PendingRequest { permit, ..pending }).await;
                }
                NextQuery::Wait => answered.await,
                NextQuery::End => break,
            }
        }
        self.ended = true;
    }
}

impl Drop for QueryTask {
    /// Answers the requests behind one that panics.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let left = self.handler.request_order().lock().queries.take();
        left.into_iter().flatten().for_each(|(_, pending)| self.handler.interrupt(pending));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::push::decode::{self, DecodeLimits};

    #[test]
    fn commands_of_one_session_wait_for_each_other_and_for_no_query() {
        let order = Arc::new(RequestOrder::new(1));
        let mut queues = order.lock();
        assert!(queues.add_query(pending("get_session_messages", r#"{"sessionId":"s1"}"#)));
        assert!(queues.add_command(pending("attach_session", r#"{"sessionId":"s1"}"#)));
        assert!(!queues.add_command(pending("cancel_run", r#"{"sessionId":"s1"}"#)));
        assert!(queues.add_command(pending("cancel_run", r#"{"sessionId":"s2"}"#)));
        let (one, other) = (Some(SessionId::from("s1")), Some(SessionId::from("s2")));
        for kind in ["attach_session", "cancel_run"] {
            assert_eq!(queues.next_command(&one).map(|next| next.request.tag.kind_name).as_deref(), Some(kind));
        }
        assert!(queues.next_command(&other).is_some());
        assert!(queues.next_command(&one).is_none() && queues.next_command(&other).is_none());
        assert!(queues.commands.is_empty());
    }

    #[test]
    fn a_query_waits_until_earlier_commands_are_answered() {
        let order = Arc::new(RequestOrder::new(1));
        let (first, second) = (order.track_command(), order.track_command());
        assert!(order.lock().add_query(pending("list_sessions", "{}")));
        let third = order.track_command();
        assert!(!order.lock().add_query(pending("list_sessions", "{}")));
        drop(second);
        assert!(matches!(order.lock().next_query(), NextQuery::Wait));
        drop(first);
        assert!(matches!(order.lock().next_query(), NextQuery::Handle(_)));
        assert!(matches!(order.lock().next_query(), NextQuery::Wait));
        drop(third);
        assert!(matches!(order.lock().next_query(), NextQuery::Handle(_)));
        assert!(matches!(order.lock().next_query(), NextQuery::End));
        assert!(order.lock().is_free_for_query());
    }

    fn pending(kind: &str, payload: &str) -> PendingRequest {
        let line = format!(
            r#"{{"v":"push.runtime.v1","kind":"request","requestId":"r","type":"{kind}","payload":{payload}}}"#
        );
        let Ok(request) = decode::decode(line.as_bytes(), &DecodeLimits::default()) else { panic!("{line}") };
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        PendingRequest { request, permit: RequestPermit::new(permit), command: None }
    }
}
