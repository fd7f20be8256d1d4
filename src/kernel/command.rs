//! What may be asked of a session, by whom, and what is answered.

use super::event::{Adjustment, Branch, Budget, Criterion, Decision, Image, Lasting, Opening, Question};
use super::id::{CallId, Fingerprint, GateId, Json, MessageId, ParticipantId, RunId, Seq};
use super::import::Import;
use super::refusal::Refusal;
use super::time::Now;

/// Who asks: derived from the connection, never from what it claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The connection.
    pub id: ParticipantId,
    /// The kind of connection, as verdicts name it.
    pub source: String,
    /// What it may do at most.
    pub rights: Rights,
}

/// What a participant may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Start, steer and queue messages.
    pub prompt: bool,
    /// Settle gates.
    pub decide: bool,
    /// Cancel runs, rename and end the session.
    pub control: bool,
}

impl Rights {
    /// Everything: the owner's.
    pub const ALL: Self = Self { prompt: true, decide: true, control: true };
    /// Watching alone.
    pub const NONE: Self = Self { prompt: false, decide: false, control: false };

    /// Returns what both allow.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            prompt: self.prompt && other.prompt,
            decide: self.decide && other.decide,
            control: self.control && other.control,
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Bring the session to life; the first command of each session.
    Open(Box<Opening>),
    /// Begin a run.
    Prompt(Box<Prompt>),
    /// Begin a run when the active one is over; at once when there is none.
    Queue(Box<Prompt>),
    /// Take a waiting message back.
    Unqueue {
        /// Which one.
        message: MessageId,
    },
    /// Tell what waits.
    ListQueue,
    /// Speak into the active run.
    Steer(Box<Steer>),
    /// Settle a gate.
    Decide(Box<Decide>),
    /// Stop a run.
    Cancel {
        /// Which one; the active one when not said.
        run: Option<RunId>,
        /// A word for why.
        reason: String,
    },
    /// Listen, from a position on.
    Attach {
        /// The last event that the listener has seen.
        seen: Seq,
        /// What the listener wants to be able to do at most.
        rights: Rights,
    },
    /// Listen, from a position on, and be shown the state of the session after what was missed.
    Resume {
        /// The last event that the listener has seen.
        seen: Seq,
        /// What the listener wants to be able to do at most.
        rights: Rights,
    },
    /// Stop listening.
    Detach,
    /// Tell what a client needs to draw the session.
    Describe,
    /// Tell which gates are open.
    ListGates,
    /// Give the session another name.
    Rename {
        /// The new name.
        name: String,
    },
    /// Take no more messages.
    End,
    /// Count a change that leaves no other trace.
    Touch {
        /// What was changed, in the caller's word.
        what: String,
    },
    /// Count the session's versions anew, and take messages again: it was brought in from outside.
    Load,
    /// Open the session again as a new one: nothing of its conversation and its settings counts any more.
    Reopen(Box<Opening>),
    /// Have somebody else answer, or in another way.
    Adjust(Box<Adjustment>),
    /// Use a tool for the user, beside any run.
    Aside(Box<Aside>),
    /// Stop a tool that is used for the user.
    StopAside {
        /// Which use; all of them when not said.
        call: Option<CallId>,
    },
    /// Put a summary in the place of the older part of the conversation.
    Compact {
        /// What the summary should heed, safe to keep.
        instructions: Option<String>,
    },
    /// Stop making a summary.
    StopCompaction,
    /// Ask a provider that did not answer no more.
    StopRetry,
    /// Go on from an earlier point of the conversation.
    Branch(Branch),
    /// Take in what was said elsewhere.
    Import(Box<Import>),
}

/// Which queue a command waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Taken before anything else, whatever runs.
    Control,
    /// Taken in order.
    Ordinary,
}

/// What a command does to what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It only looks.
    Nothing,
    /// It ends something.
    End,
    /// It adds something.
    More,
}

impl Command {
    /// Returns what the command does to what is kept: ending something must be possible when nothing can begin.
    pub fn change(&self) -> Change {
        match self {
            Self::ListQueue
            | Self::Attach { .. }
            | Self::Resume { .. }
            | Self::Detach
            | Self::Describe
            | Self::ListGates => Change::Nothing,
            Self::Cancel { .. } | Self::StopAside { .. } | Self::StopCompaction | Self::StopRetry => {
                Change::End
            }
            Self::Decide(vote) if vote.decision == Decision::Deny => Change::End,
            Self::Decide(_)
            | Self::Open(_)
            | Self::Prompt(_)
            | Self::Queue(_)
            | Self::Unqueue { .. }
            | Self::Steer(_)
            | Self::Rename { .. }
            | Self::End
            | Self::Touch { .. }
            | Self::Load
            | Self::Reopen(_)
            | Self::Adjust(_)
            | Self::Aside(_)
            | Self::Compact { .. }
            | Self::Branch(_)
            | Self::Import(_) => Change::More,
        }
    }

    /// Tells whether what the command records makes another version of the session.
    ///
    /// What only begins something does not: whoever asked for it knows when it has succeeded, and says so by a touch. What is
    /// taken in does not either: it comes with a branch or a load, which do.
    pub const fn makes_version(&self) -> bool {
        !matches!(self, Self::Open(_) | Self::Aside(_) | Self::Compact { .. } | Self::Import(_))
    }

    /// Returns which queue the command waits in: control never waits behind a flood of messages.
    pub const fn urgency(&self) -> Urgency {
        match self {
            Self::Open(_)
            | Self::Prompt(_)
            | Self::Queue(_)
            | Self::Unqueue { .. }
            | Self::ListQueue
            | Self::Attach { .. }
            | Self::Resume { .. }
            | Self::Detach
            | Self::Describe
            | Self::ListGates
            | Self::Rename { .. }
            | Self::End
            | Self::Touch { .. }
            | Self::Load
            | Self::Reopen(_)
            | Self::Adjust(_)
            | Self::Aside(_)
            | Self::Compact { .. }
            | Self::Branch(_)
            | Self::Import(_) => Urgency::Ordinary,
            Self::Steer(_)
            | Self::Decide(_)
            | Self::Cancel { .. }
            | Self::StopAside { .. }
            | Self::StopCompaction
            | Self::StopRetry => Urgency::Control,
        }
    }
}

/// A message that begins a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The run it begins, freshly minted.
    pub run: RunId,
    /// Its id, which is also its idempotency key.
    pub message: MessageId,
    /// Its text, safe to keep.
    pub text: String,
    /// The pictures that go with it.
    pub images: Vec<Image>,
    /// What must hold after the run.
    pub criteria: Vec<Criterion>,
    /// How long the run may take, in milliseconds.
    pub time_limit: Option<u64>,
    /// What the run may use before somebody is asked.
    pub budget: Budget,
    /// Rules for its calls, safe to keep.
    pub rules: Vec<String>,
    /// Whether its sender's environment says whom to ask: without one nobody else may be asked.
    pub needs_environment: bool,
    /// What the id stands for.
    pub fingerprint: Fingerprint,
}

/// A message into the active run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steer {
    /// Its id, which is also its idempotency key.
    pub message: MessageId,
    /// Its text, safe to keep.
    pub text: String,
    /// The pictures that go with it.
    pub images: Vec<Image>,
    /// What the id stands for.
    pub fingerprint: Fingerprint,
}

/// A use of a tool for the user, beside any run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// The use, freshly minted.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// Its arguments, safe to keep: a JSON object.
    pub args: Json,
    /// Whether the provider is told of it.
    pub told: bool,
}

/// A vote at a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decide {
    /// Which gate.
    pub gate: GateId,
    /// The run it should belong to.
    pub run: Option<RunId>,
    /// Yes or no.
    pub decision: Decision,
    /// Which of its choices; the first for yes and the last for no when not said.
    pub choice: Option<String>,
    /// A comment, safe to keep.
    pub comment: Option<String>,
    /// How long a yes holds.
    pub lasting: Lasting,
    /// What was filled in, safe to keep.
    pub answer: Option<Json>,
}

/// What a command is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The session lives.
    Opened(Phase),
    /// The message has this run.
    Prompted {
        /// Its run, also when it was known already.
        run: RunId,
        /// Whether this was a repetition.
        repeated: Repetition,
    },
    /// The message waits.
    Queued {
        /// The run it will begin.
        run: RunId,
        /// How many wait before it; none when it has begun.
        ahead: usize,
    },
    /// The message was taken back.
    Unqueued,
    /// What waits, first in front.
    Queue(Vec<Waiting>),
    /// The message reached the run.
    Steered(RunId),
    /// The vote counts.
    Decided,
    /// The run is being stopped.
    Cancelling,
    /// The listener is attached.
    Attached {
        /// What the session is doing.
        phase: Phase,
        /// What is sent again.
        replay: Replay,
    },
    /// The listener is gone.
    Detached,
    /// What a client needs to draw the session.
    Described(Box<Snapshot>),
    /// The open gates, the first to expire in front.
    Gates {
        /// The run that waits for them.
        run: Option<RunId>,
        /// What they ask.
        questions: Vec<Question>,
    },
    /// The name is taken.
    Renamed,
    /// No more messages.
    Ended,
    /// The change is counted.
    Touched,
    /// The versions count anew.
    Loaded,
    /// The next turn is taken so.
    Adjusted,
    /// The tool is being used.
    AsideBegan(CallId),
    /// What the tool has started is being ended.
    StoppingAside,
    /// The summary is being made; its beginning names it.
    CompactionBegan(Seq),
    /// The summary is not made.
    CompactionStopped,
    /// The provider is asked no more.
    RetryStopped,
    /// The conversation goes on from there.
    Branched,
    /// Everything was taken in.
    Imported,
}

/// Whether a command was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetition {
    /// It was new.
    First,
    /// It had been answered before.
    Again,
}

/// What one command is answered, once.
pub type Reply = Result<Answer, Refusal>;

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its id.
    pub message: MessageId,
    /// The run it will begin.
    pub run: RunId,
    /// Its text.
    pub text: String,
}

/// What an attached listener gets again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// The first position that may be sent.
    pub from: Seq,
    /// The last position there is.
    pub to: Seq,
    /// Whether something is missing.
    pub gap: Gap,
}

/// Whether the history between a listener's position and the newest event is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// Everything follows.
    None,
    /// The events up to and including this position are gone.
    Lost {
        /// The earliest position that is still kept.
        earliest: Seq,
    },
    /// The position was never issued: the listener remembers another history.
    Foreign,
}

/// What the session is doing, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was asked yet.
    Idle,
    /// A run is active.
    Running,
    /// A run waits for a verdict.
    Waiting,
    /// The last run did what it was asked to.
    Completed,
    /// The last run failed, or was denied.
    Failed,
    /// The last run was stopped.
    Cancelled,
}

/// What a client needs to draw a session it knows nothing of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// What it is doing.
    pub phase: Phase,
    /// How it began.
    pub opening: Opening,
    /// Its name for people.
    pub name: Option<String>,
    /// The active run.
    pub run: Option<RunId>,
    /// The oldest open gate, in full.
    pub question: Option<Question>,
    /// How many gates are open.
    pub open_gates: usize,
    /// The end of the last assistant text.
    pub last_text: String,
    /// The end of the last user message.
    pub last_message: String,
    /// The newest event.
    pub last_seq: Seq,
    /// When it began.
    pub opened_at: Now,
    /// When something last happened.
    pub updated_at: Now,
    /// How the last run ended, with its exit code.
    pub last_run: Option<(RunId, super::event::Outcome, u8)>,
    /// How many messages wait.
    pub queued: usize,
    /// Whether it takes messages.
    pub open: Openness,
    /// How often it was changed.
    pub version: u64,
    /// What is different from how it began.
    pub adjusted: Adjustment,
}

impl Snapshot {
    /// Returns the directory that the session works in: without links, as far as that was noted.
    pub fn workspace(&self) -> &str {
        let noted = self.adjusted.workspace.as_ref().or(self.opening.workspace.as_ref());
        noted.map_or(&self.opening.cwd, |workspace| &workspace.path)
    }

    /// Returns who answers.
    pub fn provider(&self) -> &str {
        self.adjusted.provider.as_ref().unwrap_or(&self.opening.provider)
    }

    /// Returns which model of the provider answers.
    pub fn model(&self) -> Option<&String> {
        let began = self.opening.model.as_ref().filter(|_| self.adjusted.provider.is_none());
        self.adjusted.model.as_ref().or(began)
    }
}

/// Whether a session takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openness {
    /// It does.
    Open,
    /// It was ended.
    Ended,
}

/// Something shown to one listener alone: it takes a number and is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Private {
    /// Part of the history is missing.
    Gap {
        /// Its position.
        seq: Seq,
        /// When it was found.
        at: Now,
        /// The last event that the listener has seen.
        seen: Seq,
        /// What is missing.
        gap: Gap,
    },
    /// The baseline after a gap.
    Snapshot {
        /// Its position.
        seq: Seq,
        /// When it was made.
        at: Now,
        /// The baseline.
        snapshot: Box<Snapshot>,
    },
    /// The state of the session, for a listener that wants it after what it missed.
    Summary {
        /// Its position.
        seq: Seq,
        /// When it was made.
        at: Now,
        /// The last event that it includes: the listener gets it behind that one.
        after: Seq,
        /// The state.
        snapshot: Box<Snapshot>,
    },
    /// The session is gone, with everything that was ever said in it.
    Deleted {
        /// Its position, the last one.
        seq: Seq,
        /// When it was deleted.
        at: Now,
        /// Who wanted it so.
        by: String,
    },
}
