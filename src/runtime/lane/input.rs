//! The inputs of a lane, its handle, and the replies to its requests.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::inbox::{InboxSender, SendError};
use super::unload::{DeleteReply, DeleteRequest, DeletionCause};
use crate::kernel::command::{Caller, Command, Phase, Queue, Reply, Snapshot};
use crate::kernel::command_log::{CommandOutcome, CommandRecord};
use crate::kernel::conversation::Conversation;
use crate::kernel::environment::Environment;
use crate::kernel::id::{ConnectionId, Seq, SessionId};
use crate::kernel::refusal::Refusal;
use crate::provider::Starter;
use crate::runtime::feed::{Feed, Subscriber};
use crate::runtime::outbox::Outbox;

/// An input that a lane handles before commands.
#[derive(Debug)]
pub enum LaneInput {
    /// A control command of a client, and the number of commands that were sent to the lane before it.
    Control(Box<LaneRequest>, u64),
    /// A connection is closed.
    Disconnected(ConnectionId),
    /// Retention removed the events up to this position.
    RaiseFloor(Seq),
    /// The session is to be deleted.
    Delete(Box<DeleteRequest>),
    /// A query needs the conversation after an event.
    Conversation {
        /// Who reads it.
        caller: Caller,
        /// The event.
        after: Seq,
        /// Receives a copy if the conversation is in memory; dropped if the lane ends.
        reply: oneshot::Sender<Result<Option<Conversation>, Refusal>>,
    },
}

/// A command for a session.
#[derive(Debug)]
pub struct LaneRequest {
    /// The client.
    pub caller: Caller,
    /// The command as it was sent; the lane redacts it.
    pub command: Command,
    /// The version that the session must have.
    pub if_version: Option<u64>,
    /// Who starts a run with it.
    pub starter: Starter,
    /// Sends the reply.
    pub reply_guard: ReplyGuard,
    /// The outbox of the client.
    pub outbox: Arc<Outbox>,
    /// The environment that the client sent.
    pub environment: Option<Environment>,
    /// What is stored with its effect of a command of the command log.
    pub part: Option<CommandPart>,
}

/// A change of a session as part of a command of the command log.
#[derive(Debug)]
pub struct CommandPart {
    /// The command.
    pub record: Arc<CommandRecord>,
    /// Which of its changes this is.
    pub position: ChangePosition,
}

/// The position of a change among those of its command.
#[derive(Debug)]
pub enum ChangePosition {
    /// Others follow. The admission is stored with it, so that the command does not run again after a crash. It is synced
    /// with a later change or with the outcome, unless its own effect needs that.
    Step,
    /// It is the last one, and the outcome is not known yet. The admission is stored with it.
    Last,
    /// It is the last one, and a success is stored with it as the outcome, with this result.
    Outcome(Arc<str>),
}

/// Why a session did not answer a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// The journal refused the batch.
    #[error("cannot store the command: {0}")]
    Storage(String),
    /// The disk is full.
    #[error("the disk is full; no new commands are accepted until there is free space")]
    StorageFull,
    /// A sync of the journal failed.
    #[error("the journal could not be synced; no new commands are accepted until the daemon is restarted")]
    StorageFailed,
    /// The state of the session is lost and must not be overwritten.
    #[error(
        "the session is damaged: its checkpoint cannot be read and retention has removed the start of its \
         history; it can be read and deleted, but accepts no new commands; start another session"
    )]
    Damaged,
    /// A sync of the journal failed after the command was submitted.
    #[error("the journal could not be synced; restart the daemon to see whether the command was stored")]
    OutcomeUnknown,
    /// The lane ended before it could answer.
    #[error("the session was interrupted; send the request again")]
    Interrupted,
    /// The inbox of the session is full.
    #[error("the session is busy; try again in a moment")]
    Busy,
}

/// The reply of a session to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneReply {
    /// The result of the command.
    pub result: Reply,
    /// The session's version after the command.
    pub version: u64,
    /// The outcome of the command, if it is stored together with its effect.
    pub stored: Option<CommandOutcome>,
}

type ReplyFn = Box<dyn FnOnce(Result<LaneReply, LaneError>) + Send>;

/// The obligation to answer a command exactly once: if it is dropped, it answers `Interrupted`.
pub struct ReplyGuard(Option<ReplyFn>);

impl ReplyGuard {
    /// Creates a guard that replies through `answerer`.
    pub fn new(answerer: impl FnOnce(Result<LaneReply, LaneError>) + Send + 'static) -> Self {
        Self(Some(Box::new(answerer)))
    }

    /// Sends the reply.
    pub fn send(mut self, reply: Result<LaneReply, LaneError>) {
        if let Some(answerer) = self.0.take() {
            answerer(reply);
        }
    }
}

impl Drop for ReplyGuard {
    fn drop(&mut self) {
        if let Some(answerer) = self.0.take() {
            answerer(Err(LaneError::Interrupted));
        }
    }
}

impl fmt::Debug for ReplyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Respond")
    }
}

/// A handle to a lane.
#[derive(Debug, Clone)]
pub struct LaneHandle {
    id: SessionId,
    inbox: InboxSender,
    feed: Arc<Feed>,
    published: Arc<PublishedState>,
}

/// What a lane publishes, for readers that do not wait for it.
#[derive(Debug)]
struct PublishedState {
    phase: AtomicU8,
    /// Whether approvals are open, whether or not a run waits for them.
    open_gates: AtomicBool,
    token_hash: Mutex<[u8; 32]>,
    /// The snapshot of a session that has not changed since.
    snapshot: Mutex<Option<Arc<Snapshot>>>,
}

/// The lane has ended; the request is returned.
#[derive(Debug)]
pub struct LaneClosed(pub Box<LaneRequest>);

impl LaneHandle {
    pub(super) fn new(id: SessionId, inbox: InboxSender, feed: Arc<Feed>, token: [u8; 32]) -> Self {
        let (phase, token_hash, snapshot) = (AtomicU8::default(), Mutex::new(token), Mutex::default());
        Self {
            id,
            inbox,
            feed,
            published: Arc::new(PublishedState { phase, open_gates: AtomicBool::default(), token_hash, snapshot }),
        }
    }

    /// Sends a command; if the inbox is full it is answered with `Busy`.
    pub fn send_request(&self, request: Box<LaneRequest>) -> Result<(), LaneClosed> {
        let sent = match request.command.policy().queue {
            Queue::Control => self.inbox.send_control(request),
            Queue::Immediate | Queue::Change | Queue::LongChange | Queue::Read => self.inbox.send_command(request),
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Full(request)) => request.reply_guard.send(Err(LaneError::Busy)),
            Err(SendError::Closed(request)) => return Err(LaneClosed(request)),
        }
        Ok(())
    }

    /// Asks the lane to end for a deletion; `None` if it has ended by itself.
    pub async fn delete(&self, cause: DeletionCause) -> Option<DeleteReply> {
        let (reply, answered) = oneshot::channel();
        self.inbox.send_input(LaneInput::Delete(Box::new(DeleteRequest { cause, reply })));
        answered.await.ok()
    }

    /// Returns a copy of the conversation if the lane has all of it after an event in memory, and all of that is
    /// stored, or the refusal of a caller that may not read the session. A lane that is busy or has ended answers
    /// nothing.
    pub async fn conversation(&self, caller: &Caller, after: Seq) -> Option<Result<Option<Conversation>, Refusal>> {
        let (reply, answered) = oneshot::channel();
        self.inbox.try_send_input(LaneInput::Conversation { caller: caller.clone(), after, reply });
        timeout(CONVERSATION_TIMEOUT, answered).await.ok()?.ok()
    }

    /// Notifies the lane which events retention removed. A lane that has ended reads it when the session is loaded
    /// again.
    pub fn raise_floor(&self, floor: Seq) {
        self.inbox.send_input(LaneInput::RaiseFloor(floor));
    }

    /// Notifies the lane that a connection is closed.
    pub fn disconnected(&self, connection: ConnectionId) {
        self.feed.unsubscribe(connection);
        self.inbox.send_input(LaneInput::Disconnected(connection));
    }

    /// Returns the session id.
    pub const fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the subscribers of the session.
    pub fn subscribers(&self) -> Vec<Subscriber> {
        self.feed.subscribers()
    }

    /// Returns whether the lane accepts commands.
    pub fn is_open(&self) -> bool {
        !self.inbox.is_closed()
    }

    /// Returns the last published phase of the session.
    pub fn phase(&self) -> Phase {
        PHASES.get(usize::from(self.published.phase.load(Ordering::Relaxed))).copied().unwrap_or(Phase::Idle)
    }

    /// Publishes the phase of the session; returns whether it changed.
    pub(super) fn set_phase(&self, phase: Phase) -> bool {
        let index = PHASES.iter().position(|known| *known == phase).and_then(|index| u8::try_from(index).ok());
        let index = index.unwrap_or_default();
        self.published.phase.swap(index, Ordering::Relaxed) != index
    }

    /// Returns whether approvals are open, whether or not a run waits for them.
    pub fn has_open_gates(&self) -> bool {
        self.published.open_gates.load(Ordering::Relaxed)
    }

    /// Publishes whether approvals are open.
    pub(super) fn set_open_gates(&self, open: bool) {
        self.published.open_gates.store(open, Ordering::Relaxed);
    }

    /// Returns the hash of the attach token.
    pub fn token_hash(&self) -> [u8; 32] {
        *self.published.token_hash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the hash of the attach token.
    pub fn replace_token(&self, hash: [u8; 32]) {
        *self.published.token_hash.lock().unwrap_or_else(PoisonError::into_inner) = hash;
    }

    /// Returns the snapshot of a session that is stored and has not changed since it was described.
    ///
    /// It contains every change that the lane has confirmed. `None` if the lane has to be asked.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let snapshot = self.published.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone();
        snapshot.filter(|_| self.is_open())
    }

    /// Publishes the snapshot of the session, or withdraws it before the session changes.
    pub(super) fn set_snapshot(&self, snapshot: Option<Arc<Snapshot>>) {
        *self.published.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }
}

/// How long a query waits for a lane, for instance one that waits for a file system.
const CONVERSATION_TIMEOUT: Duration = Duration::from_millis(100);

const PHASES: [Phase; 6] =
    [Phase::Idle, Phase::Running, Phase::Waiting, Phase::Completed, Phase::Failed, Phase::Cancelled];
