//! The inputs of a lane, its handle, and the replies to its requests.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

use super::command_inbox::CommandSender;
use super::unload::{DeleteReply, DeleteRequest, DeletionCause};
use crate::kernel::command::{Caller, Command, Phase, Reply, Urgency};
use crate::kernel::environment::Environment;
use crate::kernel::id::{ParticipantId, Seq, SessionId};
use crate::provider::Starter;
use crate::runtime::feed::{Feed, Subscriber};
use crate::runtime::outbox::Outbox;

/// An input that a lane handles before commands. It is boxed, because every session in memory has a channel of them.
#[derive(Debug)]
pub enum LaneInput {
    /// A control command of a client, and the number of commands that were sent to the lane before it.
    Control(Box<LaneRequest>, u64),
    /// A connection is closed.
    Disconnected(ParticipantId),
    /// Retention removed the events up to this position.
    RaiseFloor(Seq),
    /// The session is to be deleted.
    Delete(Box<DeleteRequest>),
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
    control: mpsc::Sender<Box<LaneInput>>,
    commands: CommandSender,
    feed: Arc<Feed>,
    phase: Arc<AtomicU8>,
    token_hash: Arc<Mutex<[u8; 32]>>,
}

/// The lane has ended; the request is returned.
#[derive(Debug)]
pub struct LaneClosed(pub Box<LaneRequest>);

impl LaneHandle {
    pub(super) fn new(
        id: SessionId,
        control: mpsc::Sender<Box<LaneInput>>,
        commands: CommandSender,
        feed: Arc<Feed>,
        token: [u8; 32],
    ) -> Self {
        Self { id, control, commands, feed, phase: Arc::default(), token_hash: Arc::new(Mutex::new(token)) }
    }

    /// Sends a command; if the inbox is full it is answered with `Busy`.
    pub fn send_request(&self, request: Box<LaneRequest>) -> Result<(), LaneClosed> {
        let sent = match request.command.urgency() {
            Urgency::Ordinary => self.commands.try_send(request),
            Urgency::Control => match self.control.try_reserve() {
                Ok(slot) => {
                    slot.send(Box::new(LaneInput::Control(request, self.commands.sent())));
                    Ok(())
                }
                Err(TrySendError::Full(())) => Err(TrySendError::Full(request)),
                Err(TrySendError::Closed(())) => Err(TrySendError::Closed(request)),
            },
        };
        match sent {
            Ok(()) => {}
            Err(TrySendError::Full(request)) => request.reply_guard.send(Err(LaneError::Busy)),
            Err(TrySendError::Closed(request)) => return Err(LaneClosed(request)),
        }
        Ok(())
    }

    /// Asks the lane to end for a deletion; `None` if it has ended by itself.
    pub async fn delete(&self, cause: DeletionCause) -> Option<DeleteReply> {
        let (reply, answered) = oneshot::channel();
        let leave = LaneInput::Delete(Box::new(DeleteRequest { cause, reply }));
        self.control.send(Box::new(leave)).await.ok()?;
        answered.await.ok()
    }

    /// Tells the lane which events retention removed. A lane that has ended reads it when the session is loaded
    /// again.
    pub async fn raise_floor(&self, floor: Seq) {
        let _ = self.control.send(Box::new(LaneInput::RaiseFloor(floor))).await;
    }

    /// Tells the lane that a connection is closed; if the inbox is full a task waits for space.
    pub fn disconnected(&self, participant: ParticipantId) {
        self.feed.unsubscribe(participant);
        if let Err(TrySendError::Full(input)) = self.control.try_send(Box::new(LaneInput::Disconnected(participant))) {
            let control = self.control.clone();
            tokio::spawn(async move { control.send(input).await });
        }
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
        !self.control.is_closed()
    }

    /// Returns the last published phase of the session.
    pub fn phase(&self) -> Phase {
        PHASES.get(usize::from(self.phase.load(Ordering::Relaxed))).copied().unwrap_or(Phase::Idle)
    }

    /// Publishes the phase of the session; returns whether it changed.
    pub(super) fn set_phase(&self, phase: Phase) -> bool {
        let index = PHASES.iter().position(|known| *known == phase).and_then(|index| u8::try_from(index).ok());
        let index = index.unwrap_or_default();
        self.phase.swap(index, Ordering::Relaxed) != index
    }

    /// Returns the hash of the attach token.
    pub fn token_hash(&self) -> [u8; 32] {
        *self.token_hash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the hash of the attach token.
    pub fn replace_token(&self, hash: [u8; 32]) {
        *self.token_hash.lock().unwrap_or_else(PoisonError::into_inner) = hash;
    }
}

const PHASES: [Phase; 6] =
    [Phase::Idle, Phase::Running, Phase::Waiting, Phase::Completed, Phase::Failed, Phase::Cancelled];
