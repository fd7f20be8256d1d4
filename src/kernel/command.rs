//! The commands of a session, their callers, and the replies.

mod policy;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::audience::Audience;
use super::event::{
    Adjustment, ApprovalScope, Branch, Budget, Criterion, Decision, GateQuestion, Image, Opening, PostedMessage,
};
use super::fork::{Fork, ForkPoint};
use super::id::{CallId, ConnectionId, Fingerprint, GateId, Json, MessageId, ParticipantId, RunId, Seq};
use super::import::Import;
use super::participant::{Participant, Presence, Role};
pub use super::participant::{Right, Rights};
use super::quorum::Quorum;
use super::refusal::Refusal;
use super::time::Now;
pub use policy::{AccessKind, Action, CommandPolicy, Idempotency, Queue};

/// The sender of a command. It is derived from the connection, never from what the client claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The id of the connection.
    pub id: ConnectionId,
    /// The kind of connection, as events record it.
    pub source: String,
    /// The participant as which it acts; `None` means the owner of the daemon.
    pub participant: Option<ParticipantId>,
    /// The upper bound of its rights.
    pub rights: Rights,
    /// The participant itself, if every session admits it: the owner has given it a token.
    pub admission: Option<Arc<Participant>>,
}

impl Caller {
    /// Returns the owner of the daemon at a connection.
    pub const fn owner(id: ConnectionId, source: String) -> Self {
        Self { id, source, participant: None, rights: Rights::ALL, admission: None }
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
    /// Adds a participant, whom the driver has authenticated.
    Join(Box<Participant>),
    /// Ends the sender's own participation.
    Leave {
        /// Why, for people.
        reason: Option<String>,
    },
    /// Removes a participant.
    Remove {
        /// The participant.
        participant: ParticipantId,
        /// Why, for people.
        reason: Option<String>,
    },
    /// Replaces the roles and the capabilities of a participant.
    ChangeRoles {
        /// The participant.
        participant: ParticipantId,
        /// Its new roles.
        roles: BTreeSet<Role>,
        /// Its new capabilities.
        capabilities: Rights,
    },
    /// Grants a participant the right to approve by name, or revokes it.
    GrantApproval {
        /// The participant.
        participant: ParticipantId,
        /// Whether it has the right from here on.
        granted: bool,
    },
    /// Lists the participants.
    ListParticipants,
    /// Sends a message to an audience.
    Post(Box<Post>),
    /// Subscribes like `Attach` and receives everything, also what is not for the owner; that is recorded.
    Audit {
        /// The last event that the subscriber has seen.
        seen: Seq,
    },
    /// Opens a gate that belongs to no run.
    OpenGate(Box<GateProposal>),
    /// Returns what a fork of the session starts with. It records nothing: no fork changes its parent.
    PrepareFork {
        /// The last event that the fork inherits; `None` means the newest.
        at: Option<Seq>,
    },
    /// Creates the session as a fork of another. It is the first command of such a session.
    OpenFork(Box<Fork>),
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
    /// The rule that the approval grants in place of the offered one. The driver has checked that it covers the call.
    pub rule: Option<String>,
    /// The submitted form, redacted.
    pub answer: Option<Json>,
}

/// A message to an audience.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// Who receives it.
    pub audience: Audience,
    /// A machine-readable kind, chosen by the sender.
    pub kind: String,
    /// Its content: a JSON value, redacted.
    pub body: Json,
    /// Whether it is stored.
    pub retention: PostRetention,
}

/// Whether a posted message is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostRetention {
    /// It is an event of the session.
    Journaled,
    /// It reaches whoever is attached now and is never stored.
    Ephemeral,
}

/// A gate that belongs to no run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateProposal {
    /// The id of the gate, minted by the driver.
    pub gate: GateId,
    /// A machine-readable kind, such as a merge or a review.
    pub kind: String,
    /// A title for people.
    pub title: String,
    /// The exact question, redacted.
    pub summary: String,
    /// What it is about: a JSON object, redacted.
    pub details: Json,
    /// The options, if there are more than approve and deny; else empty. The first approves and the last denies.
    pub choices: Vec<String>,
    /// The rule by which votes settle it.
    pub quorum: Quorum,
    /// The only participants whose votes count, beside that rule; `None` where the rule alone decides.
    pub eligible: Option<BTreeSet<ParticipantId>>,
    /// The timeout in milliseconds; `None` means the default of the limits.
    pub timeout_millis: Option<u64>,
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
    /// The open gates with the run that waits for each, ordered by expiry.
    Gates(Vec<(Option<RunId>, GateQuestion)>),
    /// The gate is open.
    GateOpened,
    /// The message was posted.
    Posted,
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
    /// What a fork of the session starts with.
    ForkPrepared(Box<ForkPoint>),
    /// The participant has the requested state.
    ParticipantChanged,
    /// The participants and their presence, ordered by id.
    Participants(Vec<(Participant, Presence)>),
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
    pub open: SessionStatus,
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
pub enum SessionStatus {
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
    /// A message that is not stored.
    Posted {
        /// Its position.
        seq: Seq,
        /// When it was posted.
        at: Now,
        /// The message.
        message: Box<PostedMessage>,
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
