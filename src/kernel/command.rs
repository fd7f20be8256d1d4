//! The commands of a session, their callers, and the replies.

use super::event::{Adjustment, ApprovalScope, Branch, Budget, Criterion, Decision, GateQuestion, Image, Opening};
use super::id::{CallId, Fingerprint, GateId, Json, MessageId, ParticipantId, RunId, Seq};
use super::import::Import;
use super::refusal::Refusal;
use super::time::Now;

/// The sender of a command. It is derived from the connection, never from what the client claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The id of the connection.
    pub id: ParticipantId,
    /// The kind of connection, as gate decisions record it.
    pub source: String,
    /// The upper bound of its rights.
    pub rights: Rights,
}

/// The rights of a participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Start, steer and queue messages.
    pub prompt: bool,
    /// Vote on gates.
    pub decide: bool,
    /// Cancel runs, rename and end the session.
    pub control: bool,
}

impl Rights {
    /// All rights: those of the owner.
    pub const ALL: Self = Self { prompt: true, decide: true, control: true };
    /// No rights: a read-only participant.
    pub const NONE: Self = Self { prompt: false, decide: false, control: false };

    /// Returns the rights that both sides grant.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            prompt: self.prompt && other.prompt,
            decide: self.decide && other.decide,
            control: self.control && other.control,
        }
    }
}

/// A request to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Creates the session. It is the first command of every session.
    Open(Box<Opening>),
    /// Starts a run.
    Prompt(Box<Prompt>),
    /// Starts a run when the active one has ended, or at once if none is active.
    Queue(Box<Prompt>),
    /// Removes a message from the queue.
    Unqueue {
        /// The message to remove.
        message: MessageId,
    },
    /// Lists the queued messages.
    ListQueue,
    /// Sends a message into the active run.
    Steer(Box<Steer>),
    /// Votes on a gate.
    Decide(Box<GateVote>),
    /// Cancels a run.
    Cancel {
        /// The run to cancel; `None` means the active one.
        run: Option<RunId>,
        /// A machine-readable reason.
        reason: String,
    },
    /// Subscribes to events after a position.
    Attach {
        /// The last event that the subscriber has seen.
        seen: Seq,
        /// The rights that the subscriber asks for; the connection's own rights still bound them.
        rights: Rights,
    },
    /// Subscribes like `Attach`, and also sends a summary of the session state after the missed events.
    Resume {
        /// The last event that the subscriber has seen.
        seen: Seq,
        /// The rights that the subscriber asks for; the connection's own rights still bound them.
        rights: Rights,
    },
    /// Unsubscribes.
    Detach,
    /// Returns a snapshot for a client that renders the session.
    Describe,
    /// Lists the open gates.
    ListGates,
    /// Renames the session.
    Rename {
        /// The new name.
        name: String,
    },
    /// Ends the session: it accepts no more messages.
    End,
    /// Increments the session's version for a change that records no other event.
    BumpVersion {
        /// The name of the change, chosen by the caller.
        change: String,
    },
    /// Resets the session's version and accepts messages again, after a client has loaded the session from outside.
    Load,
    /// Reopens the session as a new one: its conversation and settings no longer apply.
    Reopen(Box<Opening>),
    /// Changes the provider, the model or other settings.
    Adjust(Box<Adjustment>),
    /// Runs a tool for the user, outside any run.
    UserCommand(Box<UserCommand>),
    /// Stops a user command.
    StopUserCommand {
        /// The call to stop; `None` stops all of them.
        call: Option<CallId>,
    },
    /// Replaces the older part of the conversation with a summary.
    Compact {
        /// Instructions for the summary, redacted.
        instructions: Option<String>,
    },
    /// Aborts the compaction in progress.
    StopCompaction,
    /// Stops retrying a provider that does not answer.
    StopRetry,
    /// Continues from an earlier point of the conversation.
    Branch(Branch),
    /// Imports a conversation from elsewhere.
    Import(Box<Import>),
}

/// The queue in which a command waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Handled before all ordinary commands, whatever is running.
    Control,
    /// Handled in order of arrival.
    Ordinary,
}

/// What a command does to stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// It only reads.
    ReadOnly,
    /// It only stops something.
    Stop,
    /// It adds something.
    Write,
}

impl Command {
    /// Returns what the command does to stored state. When storage fails, reading and stopping stay possible.
    pub fn access_kind(&self) -> AccessKind {
        match self {
            Self::ListQueue
            | Self::Attach { .. }
            | Self::Resume { .. }
            | Self::Detach
            | Self::Describe
            | Self::ListGates => AccessKind::ReadOnly,
            Self::Cancel { .. } | Self::StopUserCommand { .. } | Self::StopCompaction | Self::StopRetry => {
                AccessKind::Stop
            }
            Self::Decide(vote) if vote.decision == Decision::Deny => AccessKind::Stop,
            Self::Decide(_)
            | Self::Open(_)
            | Self::Prompt(_)
            | Self::Queue(_)
            | Self::Unqueue { .. }
            | Self::Steer(_)
            | Self::Rename { .. }
            | Self::End
            | Self::BumpVersion { .. }
            | Self::Load
            | Self::Reopen(_)
            | Self::Adjust(_)
            | Self::UserCommand(_)
            | Self::Compact { .. }
            | Self::Branch(_)
            | Self::Import(_) => AccessKind::Write,
        }
    }

    /// Returns whether the events that the command records give the session a new version.
    ///
    /// A command that only starts a task does not: its sender learns when the task has succeeded and then sends
    /// `BumpVersion`. An import does not either, because it comes with a `Branch` or a `Load`, which do.
    pub const fn bumps_version(&self) -> bool {
        !matches!(self, Self::Open(_) | Self::UserCommand(_) | Self::Compact { .. } | Self::Import(_))
    }

    /// Returns the queue in which the command waits. Control commands never wait behind ordinary ones.
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
            | Self::BumpVersion { .. }
            | Self::Load
            | Self::Reopen(_)
            | Self::Adjust(_)
            | Self::UserCommand(_)
            | Self::Compact { .. }
            | Self::Branch(_)
            | Self::Import(_) => Urgency::Ordinary,
            Self::Steer(_)
            | Self::Decide(_)
            | Self::Cancel { .. }
            | Self::StopUserCommand { .. }
            | Self::StopCompaction
            | Self::StopRetry => Urgency::Control,
        }
    }
}

/// A message that starts a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The id of the new run, minted by the driver.
    pub run: RunId,
    /// Its id, which is also its idempotency key.
    pub message: MessageId,
    /// Its text, redacted.
    pub text: String,
    /// The attached images.
    pub images: Vec<Image>,
    /// Acceptance criteria to check after the run.
    pub criteria: Vec<Criterion>,
    /// How long the run may take, in milliseconds.
    pub time_limit: Option<u64>,
    /// The budget of the run; beyond it a gate asks.
    pub budget: Budget,
    /// Policy rules for the run's tool calls, redacted.
    pub rules: Vec<String>,
    /// Whether the provider comes from the sender's environment. If that environment is missing, no other provider
    /// may be used.
    pub needs_environment: bool,
    /// Digest of the message, which detects a reused id.
    pub fingerprint: Fingerprint,
}

/// A message into the active run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steer {
    /// Its id, which is also its idempotency key.
    pub message: MessageId,
    /// Its text, redacted.
    pub text: String,
    /// The attached images.
    pub images: Vec<Image>,
    /// Digest of the message, which detects a reused id.
    pub fingerprint: Fingerprint,
}

/// A tool call made for the user, outside any run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserCommand {
    /// The id of the call, minted by the driver.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// Its arguments: a JSON object, redacted.
    pub args: Json,
    /// Whether the model sees the call in its context.
    pub in_context: bool,
}

/// A vote at a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateVote {
    /// The gate.
    pub gate: GateId,
    /// The run that the gate must belong to, if given.
    pub run: Option<RunId>,
    /// Approve or deny.
    pub decision: Decision,
    /// The chosen option. The default is the first for approval and the last for denial.
    pub choice: Option<String>,
    /// A comment, redacted.
    pub comment: Option<String>,
    /// How long an approval lasts.
    pub scope: ApprovalScope,
    /// The submitted form, redacted.
    pub answer: Option<Json>,
}

/// The successful reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The session was opened.
    Opened(Phase),
    /// The message was accepted and has a run.
    Prompted {
        /// Its run; for a repeated message, the run of the first one.
        run: RunId,
        /// Whether the message was a repetition.
        repeated: Repetition,
    },
    /// The message was queued.
    Queued {
        /// The run that it will start.
        run: RunId,
        /// Its position in the queue, counted from one; zero if its run has started.
        position: usize,
    },
    /// The message was removed from the queue.
    Unqueued,
    /// The queue, oldest first.
    Queue(Vec<QueueEntry>),
    /// The message was delivered to the run.
    Steered(RunId),
    /// The vote was counted.
    Decided,
    /// The run is being cancelled.
    Cancelling,
    /// The subscriber is attached.
    Attached {
        /// The phase of the session.
        phase: Phase,
        /// The range of events that is replayed.
        replay: Replay,
    },
    /// The subscriber is detached.
    Detached,
    /// A snapshot for rendering the session.
    Described(Box<Snapshot>),
    /// The open gates, ordered by expiry.
    Gates {
        /// The run that waits for them.
        run: Option<RunId>,
        /// Their questions.
        questions: Vec<GateQuestion>,
    },
    /// The session was renamed.
    Renamed,
    /// The session has ended.
    Ended,
    /// The version was incremented.
    VersionBumped,
    /// The version was reset.
    Loaded,
    /// The settings apply from the next turn on.
    Adjusted,
    /// The tool has started.
    UserCommandStarted(CallId),
    /// The processes of the user command are being stopped.
    StoppingUserCommand,
    /// The compaction has started; the sequence number of its first event identifies it.
    CompactionStarted(Seq),
    /// The compaction was aborted.
    CompactionStopped,
    /// The retries were stopped.
    RetryStopped,
    /// The conversation continues from the branch point.
    Branched,
    /// The import is complete.
    Imported,
}

/// Whether a command is new or repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetition {
    /// It was new.
    First,
    /// It repeats a command that was answered before.
    Repeated,
}

/// The reply to a command; every command gets exactly one.
pub type Reply = Result<Answer, Refusal>;

/// A queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEntry {
    /// Its id.
    pub message: MessageId,
    /// The run that it will start.
    pub run: RunId,
    /// Its text.
    pub text: String,
}

/// The range of events that an attached subscriber gets again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// The first position that may be sent.
    pub from: Seq,
    /// The newest position.
    pub to: Seq,
    /// Whether events are missing.
    pub gap: Gap,
}

/// Whether the history between a subscriber's position and the newest event is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// Nothing is missing.
    None,
    /// The events before `earliest` are gone.
    Lost {
        /// The earliest position that is still stored.
        earliest: Seq,
    },
    /// The position was never issued: the subscriber's position belongs to another history.
    Foreign,
}

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// No run has started yet.
    Idle,
    /// A run is active.
    Running,
    /// A run waits for a gate decision.
    Waiting,
    /// The last run succeeded.
    Completed,
    /// The last run failed, or was denied.
    Failed,
    /// The last run was cancelled.
    Cancelled,
}

/// Everything that a client needs to render a session from scratch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The phase of the session.
    pub phase: Phase,
    /// The parameters with which the session was opened.
    pub opening: Opening,
    /// The display name.
    pub name: Option<String>,
    /// The id of the active run.
    pub run: Option<RunId>,
    /// The open gate that expires first.
    pub question: Option<GateQuestion>,
    /// The number of open gates.
    pub open_gates: usize,
    /// The tail of the last assistant text.
    pub last_text: String,
    /// The tail of the last user message.
    pub last_message: String,
    /// The newest event.
    pub last_seq: Seq,
    /// When the session was opened.
    pub opened_at: Now,
    /// When the last event happened.
    pub updated_at: Now,
    /// The last run, its outcome and its exit code.
    pub last_run: Option<(RunId, super::event::RunOutcome, u8)>,
    /// The number of queued messages.
    pub queued: usize,
    /// Whether the session accepts messages.
    pub open: Openness,
    /// The version, incremented with every change.
    pub version: u64,
    /// Settings that differ from the opening.
    pub adjusted: Adjustment,
}

impl Snapshot {
    /// Returns the working directory of the session: its resolved path if that was recorded, else the given one.
    pub fn workspace(&self) -> &str {
        let noted = self.adjusted.workspace.as_ref().or(self.opening.workspace.as_ref());
        noted.map_or(&self.opening.cwd, |workspace| &workspace.path)
    }

    /// Returns the provider in use.
    pub fn provider(&self) -> &str {
        self.adjusted.provider.as_ref().unwrap_or(&self.opening.provider)
    }

    /// Returns the model in use.
    pub fn model(&self) -> Option<&String> {
        let began = self.opening.model.as_ref().filter(|_| self.adjusted.provider.is_none());
        self.adjusted.model.as_ref().or(began)
    }
}

/// Whether a session accepts messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openness {
    /// It accepts messages.
    Open,
    /// It has ended.
    Ended,
}

/// An event sent to one subscriber only. It takes a sequence number and is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrivateEvent {
    /// Part of the history is missing.
    Gap {
        /// Its position.
        seq: Seq,
        /// When the gap was detected.
        at: Now,
        /// The last event that the subscriber has seen.
        seen: Seq,
        /// The missing range.
        gap: Gap,
    },
    /// The baseline state after a gap.
    Snapshot {
        /// Its position.
        seq: Seq,
        /// When the snapshot was taken.
        at: Now,
        /// The snapshot.
        snapshot: Box<Snapshot>,
    },
    /// The session state, for a subscriber that asked for it after its missed events.
    Summary {
        /// Its position.
        seq: Seq,
        /// When the snapshot was taken.
        at: Now,
        /// The last event that the snapshot includes; the subscriber receives the summary after that event.
        after: Seq,
        /// The snapshot.
        snapshot: Box<Snapshot>,
    },
    /// The session and its whole history were deleted.
    Deleted {
        /// Its position, the last one of the session.
        seq: Seq,
        /// When it was deleted.
        at: Now,
        /// Who deleted it.
        by: String,
    },
}
