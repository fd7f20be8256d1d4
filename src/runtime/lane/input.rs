//! What comes to a lane from outside, and how it is answered.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

use super::leaving::{Departure, Leave, Leaving};
use crate::kernel::command::{Caller, Command, Phase, Reply, Urgency};
use crate::kernel::id::{ParticipantId, Seq, SessionId};
use crate::protocol::push::decode::Environment;
use crate::runtime::feed::{Feed, Listener};
use crate::runtime::outbox::Outbox;

/// Something for a lane; it travels boxed, as every session in memory holds room for many.
#[derive(Debug)]
pub enum LaneInput {
    /// Somebody asks for something.
    Asked(Box<Asked>),
    /// A connection is gone.
    Gone(ParticipantId),
    /// The events up to there were removed on purpose.
    Forget(Seq),
    /// The session is to be deleted.
    Leave(Box<Leave>),
}

/// A command on its way to a session.
#[derive(Debug)]
pub struct Asked {
    /// Who asks.
    pub caller: Caller,
    /// For what, as it was sent: the lane makes it safe to keep.
    pub command: Command,
    /// The version that the session must have for it.
    pub if_version: Option<u64>,
    /// How it is answered.
    pub respond: Respond,
    /// Where the asker listens.
    pub outbox: Arc<Outbox>,
    /// The environment that came with it.
    pub environment: Option<Environment>,
}

/// Why a command got no answer from its session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The journal did not take it.
    #[error("it could not be stored: {0}")]
    Storage(String),
    /// There is no room for it.
    #[error("the disk is full; nothing new is taken until there is room")]
    Full,
    /// Nothing can be kept any more.
    #[error("the journal could not be synced; nothing new is taken until the daemon is restarted")]
    Failed,
    /// What the session was is lost, and nothing may take its place.
    #[error(
        "the session is damaged: its checkpoint cannot be read and the beginning of its history was removed by \
         retention; it can be read and deleted, and takes nothing new: start another session"
    )]
    Damaged,
    /// It was handed to a journal that then failed.
    #[error("the journal could not be synced; whether this was kept is known after the daemon is restarted")]
    Unsure,
    /// The session ended under it.
    #[error("the session was interrupted; it is safe to ask again")]
    Interrupted,
    /// Too much waits for the session.
    #[error("the session is busy")]
    Busy,
}

/// What a session says to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The answer.
    pub reply: Reply,
    /// The session's version after it.
    pub version: u64,
}

type Answerer = Box<dyn FnOnce(Result<Told, Trouble>) + Send>;

/// The duty to answer a command exactly once: dropped, it answers that the session was interrupted.
pub struct Respond(Option<Answerer>);

impl Respond {
    /// Makes an answer go through `answerer`.
    pub fn new(answerer: impl FnOnce(Result<Told, Trouble>) + Send + 'static) -> Self {
        Self(Some(Box::new(answerer)))
    }

    /// Answers.
    pub fn answer(mut self, told: Result<Told, Trouble>) {
        if let Some(answerer) = self.0.take() {
            answerer(told);
        }
    }
}

impl Drop for Respond {
    fn drop(&mut self) {
        if let Some(answerer) = self.0.take() {
            answerer(Err(Trouble::Interrupted));
        }
    }
}

impl fmt::Debug for Respond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Respond")
    }
}

/// The way to a lane.
#[derive(Debug, Clone)]
pub struct LaneHandle {
    id: SessionId,
    control: mpsc::Sender<Box<LaneInput>>,
    commands: mpsc::Sender<Box<LaneInput>>,
    feed: Arc<Feed>,
    phase: Arc<AtomicU8>,
    token: Arc<Mutex<[u8; 32]>>,
}

/// The lane has ended; what was to be sent is given back.
#[derive(Debug)]
pub struct LaneOver(pub Box<Asked>);

impl LaneHandle {
    pub(super) fn new(
        id: SessionId,
        control: mpsc::Sender<Box<LaneInput>>,
        commands: mpsc::Sender<Box<LaneInput>>,
        feed: Arc<Feed>,
        token: [u8; 32],
    ) -> Self {
        Self { id, control, commands, feed, phase: Arc::default(), token: Arc::new(Mutex::new(token)) }
    }

    /// Hands a command in; one that finds no room is answered at once.
    pub fn ask(&self, asked: Box<Asked>) -> Result<(), LaneOver> {
        let inbox = match asked.command.urgency() {
            Urgency::Control => &self.control,
            Urgency::Ordinary => &self.commands,
        };
        let refused = match inbox.try_send(Box::new(LaneInput::Asked(asked))) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        let full = matches!(refused, TrySendError::Full(_));
        match *refused.into_inner() {
            LaneInput::Asked(asked) if full => asked.respond.answer(Err(Trouble::Busy)),
            LaneInput::Asked(asked) => return Err(LaneOver(asked)),
            // Nothing but a question was sent.
            LaneInput::Gone(_) | LaneInput::Forget(_) | LaneInput::Leave(_) => {}
        }
        Ok(())
    }

    /// Has the lane end for good if it may; `None` when it has ended by itself.
    pub async fn leave(&self, departure: Departure) -> Option<Leaving> {
        let (answer, answered) = oneshot::channel();
        let leave = LaneInput::Leave(Box::new(Leave { departure, answer }));
        self.control.send(Box::new(leave)).await.ok()?;
        answered.await.ok()
    }

    /// Tells the lane which events were removed on purpose; one that has ended reads it when it comes back.
    pub async fn forget(&self, floor: Seq) {
        let _ = self.control.send(Box::new(LaneInput::Forget(floor))).await;
    }

    /// Tells the lane that a connection is gone; it waits for room in the background.
    pub fn gone(&self, who: ParticipantId) {
        self.feed.remove(who);
        if let Err(TrySendError::Full(input)) = self.control.try_send(Box::new(LaneInput::Gone(who))) {
            let control = self.control.clone();
            tokio::spawn(async move { control.send(input).await });
        }
    }

    /// Returns the session.
    pub const fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns who listens to the session.
    pub fn listeners(&self) -> Vec<Listener> {
        self.feed.listeners()
    }

    /// Tells whether the lane still takes commands.
    pub fn is_open(&self) -> bool {
        !self.control.is_closed()
    }

    /// Returns what the session was doing when it last said so.
    pub fn phase(&self) -> Phase {
        PHASES.get(usize::from(self.phase.load(Ordering::Relaxed))).copied().unwrap_or(Phase::Idle)
    }

    /// Says what the session is doing, and returns whether that is news.
    pub(super) fn publish(&self, phase: Phase) -> bool {
        let index =
            PHASES.iter().position(|known| *known == phase).and_then(|index| u8::try_from(index).ok());
        let index = index.unwrap_or_default();
        self.phase.swap(index, Ordering::Relaxed) != index
    }

    /// Returns what is kept of the token that attaches to the session.
    pub fn token_hash(&self) -> [u8; 32] {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes another token attach to the session.
    pub fn replace_token(&self, hash: [u8; 32]) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = hash;
    }
}

const PHASES: [Phase; 6] =
    [Phase::Idle, Phase::Running, Phase::Waiting, Phase::Completed, Phase::Failed, Phase::Cancelled];
