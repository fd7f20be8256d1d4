//! Events: what has happened to a session. Only events are journaled, sent to subscribers and folded into the state.

use super::id::{CallId, Fingerprint, GateId, Json, MessageId, RunId, Seq, SessionId};
use super::time::Now;

/// One event with its position in the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The sequence number: strictly increasing within the session, never reused.
    pub seq: Seq,
    /// When the event was recorded; for an imported event, when it happened.
    pub at: Now,
    /// The run it belongs to, if any.
    pub run: Option<RunId>,
    /// The session's version from here on. The first event of a command that changes the session carries it.
    pub version: Option<u64>,
    /// The session file entry that the event was imported from; empty if the import added the event itself.
    pub origin: Option<String>,
    /// The kind of event and its data.
    pub kind: EventKind,
}

/// The kind of an event and its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The session was opened, or opened again as a new one.
    SessionOpened(Box<Opening>),
    /// The session was renamed.
    SessionRenamed {
        /// The new name.
        name: String,
    },
    /// The session has ended and accepts no more messages.
    SessionEnded {
        /// Who ended it.
        by: String,
    },
    /// The version was incremented for a change that records no other event.
    VersionBumped {
        /// The name of the change, chosen by its caller.
        change: String,
        /// Who made it.
        by: String,
    },
    /// The session was loaded from outside: its version is reset, and it accepts messages even if it had ended.
    Loaded {
        /// Who loaded it.
        by: String,
    },
    /// The provider, the model or other settings changed.
    Adjusted {
        /// The changed settings.
        adjustment: Box<Adjustment>,
        /// Who changed them.
        by: String,
    },
    /// The conversation continues from an earlier point.
    Branched {
        /// The branch point.
        branch: Branch,
        /// Who branched.
        by: String,
    },
    /// A message was accepted and its run has started.
    RunStarted(Box<Message>),
    /// A message was accepted and is queued behind the active run.
    MessageQueued(Box<QueuedMessage>),
    /// A message was removed from the queue.
    MessageUnqueued {
        /// The message.
        message: MessageId,
        /// Who removed it.
        by: String,
    },
    /// A steering message was delivered to the active run.
    Steered(Box<Steering>),
    /// Progress information for people.
    Status {
        /// The reporting component.
        source: String,
        /// The current activity.
        phase: String,
        /// The object of the activity.
        detail: Option<String>,
    },
    /// A delta of the model's reasoning.
    ThinkingDelta {
        /// The delta.
        text: String,
    },
    /// A delta of the assistant's text.
    TextDelta {
        /// The delta.
        text: String,
    },
    /// The assistant's text is complete.
    TextDone {
        /// The id of the assistant's message.
        message: MessageId,
    },
    /// The token usage of one turn of the provider.
    TurnUsage(Box<TurnUsage>),
    /// A compaction of the older part of the conversation has started.
    CompactionStarted {
        /// Why it started.
        reason: CompactionReason,
        /// The client that asked for it; `None` if a run needs it.
        by: Option<String>,
    },
    /// A summary replaces the older part of the conversation.
    Compacted(Box<Compaction>),
    /// The compaction produced no summary; the conversation is unchanged.
    CompactionFailed {
        /// How it failed.
        failure: CompactionFailure,
        /// The reason, for people.
        message: Option<String>,
        /// Whether another attempt follows.
        will_retry: bool,
    },
    /// The provider did not answer; another attempt follows after a pause.
    RetryStarted(Box<Retry>),
    /// The retries ended, with or without an answer.
    RetryEnded {
        /// Whether the provider answered.
        succeeded: bool,
        /// The number of retries.
        attempt: u32,
        /// The last error.
        message: Option<String>,
    },
    /// The intent of a tool call is recorded; nothing has happened yet.
    CallIntended(Box<Intention>),
    /// The tool call has started. From here on it may have changed the outside world.
    CallStarted {
        /// The call.
        call: CallId,
        /// The name of the tool, for people.
        tool: String,
    },
    /// A chunk of the tool's output.
    CallOutput {
        /// The call.
        call: CallId,
        /// The stream.
        stream: OutputStream,
        /// The text.
        text: String,
    },
    /// The tool call has a result, or is known never to run.
    CallSettled(Box<CallResult>),
    /// A gate was opened; the run waits for its decision.
    GateOpened(Box<GateQuestion>),
    /// A vote was counted and the gate is still open.
    GateVoted {
        /// The gate.
        gate: GateId,
        /// Approve or deny.
        decision: Decision,
        /// Who voted.
        by: String,
    },
    /// The gate was decided and is closed.
    GateSettled(Box<GateDecision>),
    /// A warning for the user.
    Warned {
        /// A machine-readable code.
        code: String,
        /// A message for people.
        message: String,
        /// Details.
        detail: Option<String>,
    },
    /// An error of the run or of the session.
    Failed {
        /// A machine-readable code.
        code: String,
        /// A message for people.
        message: String,
        /// Whether a retry may help.
        retryable: bool,
        /// Details.
        detail: Option<String>,
    },
    /// The run is being stopped; its processes are being ended.
    RunStopping {
        /// The outcome that the run will have.
        outcome: RunOutcome,
        /// A machine-readable reason.
        reason: String,
        /// Who stopped it.
        by: String,
    },
    /// The daemon restarted and found the run unfinished.
    RunRecovered {
        /// The phase in which the run was found.
        phase: RecoveredPhase,
    },
    /// The run has ended; no event of it follows.
    RunEnded(Box<RunReport>),
    /// The events between `after` and this one are lost; this event has the last of their positions.
    EventsLost {
        /// The last position before the lost events.
        after: Seq,
        /// The cause.
        cause: LossCause,
    },
    /// An event of a kind that a later version recorded. It is kept and passed on unchanged, and changes nothing.
    Unknown(Box<UnknownEvent>),
}

/// An event of an unknown kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownEvent {
    /// The name of its kind.
    pub name: String,
    /// Its complete record: a JSON object.
    pub record: Json,
}

/// The error kind of a tool call that the daemon ended because it shut down.
pub const STOPPED_WITH_DAEMON: &str = "STOPPED";

/// The code of the warning that the text before it was interrupted: that text is discarded and generated again.
pub const TURN_INTERRUPTED: &str = "MODEL_TURN_INTERRUPTED";

/// Returns whether a warning has the code [`TURN_INTERRUPTED`], or the one that older events have in its place.
pub fn is_turn_interrupted(code: &str) -> bool {
    matches!(code, TURN_INTERRUPTED | "MODEL_TURN_CUT")
}

/// Why events are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// They were modified, or are missing although they had been on disk.
    Damage,
    /// They may have been sent to subscribers and were not on disk when the machine stopped.
    PowerLoss,
    /// Retention removed them.
    Retention,
}

/// The parameters with which a session is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opening {
    /// The client's mode, such as interactive or headless.
    pub mode: String,
    /// The provider.
    pub provider: String,
    /// The model; `None` means the provider's default.
    pub model: Option<String>,
    /// The sandbox provider.
    pub sandbox: String,
    /// The confinement of a model's commands: a JSON object.
    pub confinement: Option<Json>,
    /// The working directory of the tools; an absolute path.
    pub cwd: String,
    /// The identity of that directory; older sessions have none.
    pub workspace: Option<WorkspaceIdentity>,
    /// The client's description of the repository.
    pub repo: Option<Json>,
    /// Metadata that the client wants stored.
    pub metadata: Option<Json>,
    /// A display name.
    pub name: Option<String>,
    /// The session that this one continues.
    pub parent: Option<SessionId>,
}

/// The identity of a session's working directory, which detects that another directory has replaced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceIdentity {
    /// Its absolute path, with symbolic links resolved.
    pub path: String,
    /// The device and inode numbers, separated by a colon.
    pub file_id: String,
    /// The id of the boot for which these numbers are valid; empty where the system has none.
    pub boot: String,
}

/// Settings that differ from the opening; `None` where a setting is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adjustment {
    /// The provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The thinking level.
    pub thinking: Option<String>,
    /// Whether a conversation that becomes too long is compacted automatically.
    pub auto_compaction: Option<bool>,
    /// Whether a provider that does not answer is retried automatically.
    pub auto_retry: Option<bool>,
    /// The working directory, recorded after the session was opened.
    pub workspace: Option<WorkspaceIdentity>,
    /// Whether a client unloaded the session. Protocols with active sessions hide it until it is loaded again.
    pub unloaded: Option<bool>,
}

impl Adjustment {
    /// Applies a later adjustment. A new provider resets the model, unless the adjustment names one.
    pub fn add(&mut self, later: &Self) {
        if later.provider.is_some() {
            self.provider.clone_from(&later.provider);
            self.model = None;
        }
        if later.model.is_some() {
            self.model.clone_from(&later.model);
        }
        if later.thinking.is_some() {
            self.thinking.clone_from(&later.thinking);
        }
        self.auto_compaction = later.auto_compaction.or(self.auto_compaction);
        self.auto_retry = later.auto_retry.or(self.auto_retry);
        if later.workspace.is_some() {
            self.workspace.clone_from(&later.workspace);
        }
        self.unloaded = later.unloaded.or(self.unloaded);
    }
}

/// A branch point: an earlier position from which the conversation continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// The last event that still belongs to the conversation; zero means none.
    pub until: Seq,
    /// The first event that is part of the context verbatim, as it was at that point.
    pub from: Seq,
}

/// Why a compaction starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionReason {
    /// A client asked for it.
    Manual,
    /// The context has reached the compaction threshold.
    Threshold,
    /// The model server rejected the context as too long.
    Overflow,
}

/// How a compaction ended without a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionFailure {
    /// It failed.
    Failed,
    /// A client or the daemon aborted it.
    Aborted,
}

/// A pause before the provider is retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The number of the retry that follows, counted from one.
    pub attempt: u32,
    /// The maximum number of retries.
    pub max_attempts: u32,
    /// The length of the pause, in milliseconds.
    pub pause_millis: u64,
    /// The error, redacted.
    pub message: String,
}

/// An image attached to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its MIME type.
    pub mime: String,
    /// The image data, in base64.
    pub data: String,
}

/// A user's message, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id, which is also its idempotency key.
    pub message: MessageId,
    /// Its text, redacted.
    pub text: String,
    /// The attached images.
    pub images: Vec<Image>,
    /// Acceptance criteria to check after the run.
    pub criteria: Vec<Criterion>,
    /// The time limit of the run, in milliseconds.
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
    /// The source of the message.
    pub by: String,
}

/// The resources that a run may use before a gate asks whether it may continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Cost, in millionths of a US dollar.
    pub cost: Option<u64>,
    /// Turns of the provider.
    pub turns: Option<u64>,
    /// Tokens, input and output.
    pub tokens: Option<u64>,
}

/// The token usage of one turn of a provider, and the calls of the turn that are still pending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnUsage {
    /// The model that answered.
    pub model: String,
    /// The tokens and the cost.
    pub usage: TokenUsage,
    /// Opaque state that the provider wants back with the turn's content, unchanged.
    pub provider_state: Option<String>,
    /// All tool calls of the turn in order, if some have to wait for others; else empty.
    pub pending: Vec<PendingCall>,
}

/// Token counts and cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenUsage {
    /// Input tokens, those from the provider's cache included.
    pub input: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// How many input tokens were read from the provider's cache.
    pub cache_read: u64,
    /// How many input tokens were written to it.
    pub cache_write: u64,
    /// Cost in millionths of a US dollar, if known.
    pub cost: Option<u64>,
    /// Whether the counts are estimated because the provider reported none.
    pub estimated: bool,
}

/// A tool call that a provider has requested and that has not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCall {
    /// The tool.
    pub tool: String,
    /// Its arguments, redacted.
    pub args: Json,
}

/// A summary that replaces the older part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// The summary, redacted.
    pub summary: String,
    /// The first event that stays in the context verbatim.
    pub kept_from: Seq,
    /// The approximate number of tokens before the compaction.
    pub tokens_before: u64,
}

/// A queued message with the run that it will start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// The run that it will start.
    pub run: RunId,
    /// The message.
    pub message: Message,
}

/// A steering message: a message into the active run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// Its id, which is also its idempotency key.
    pub message: MessageId,
    /// Its text, redacted.
    pub text: String,
    /// The attached images.
    pub images: Vec<Image>,
    /// Digest of the message, which detects a reused id.
    pub fingerprint: Fingerprint,
    /// The source of the message.
    pub by: String,
}

/// An acceptance check that must pass after the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Criterion {
    /// Its name in the report.
    pub id: String,
    /// The shell command.
    pub check: String,
    /// The exit code that counts as passed.
    pub exit_code: i32,
    /// A description for people.
    pub description: Option<String>,
}

/// The intent to call a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intention {
    /// The id of the call.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// Its arguments, redacted.
    pub args: Json,
    /// The purpose of the call.
    pub purpose: Purpose,
}

/// The purpose of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A call of the provider.
    Work,
    /// The acceptance check with this index.
    Check(u32),
    /// A command of the user, outside any run.
    UserCommand {
        /// Whether the model sees the call in its context.
        in_context: bool,
    },
}

/// The output stream of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// The purpose of the call.
    pub purpose: Purpose,
    /// The duration, in milliseconds.
    pub millis: u64,
    /// The outcome.
    pub outcome: ToolOutcome,
    /// The exit code of a command that exited by itself.
    pub exit_code: Option<i32>,
    /// Its output, bounded and redacted.
    pub text: String,
    /// The error, if it failed.
    pub error: Option<ToolError>,
}

/// The outcome of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutcome {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
    /// The user skipped it.
    Skipped,
    /// It was aborted, or never started.
    Aborted,
}

/// The error of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    /// A machine-readable kind.
    pub kind: String,
    /// Whether a retry may help.
    pub retryable: bool,
    /// A message for people.
    pub message: String,
    /// Details.
    pub detail: Option<String>,
}

/// The question of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateQuestion {
    /// The gate.
    pub gate: GateId,
    /// The tool call that waits for it.
    pub call: CallId,
    /// A machine-readable kind.
    pub kind: String,
    /// A title for people.
    pub title: String,
    /// The exact question, redacted.
    pub summary: String,
    /// Details: a JSON object, redacted.
    pub details: Json,
    /// The options, if there are more than approve and deny; else empty. The first approves and the last denies.
    pub choices: Vec<String>,
    /// The number of votes that must agree.
    pub quorum: u32,
    /// When the gate expires and counts as denied.
    pub expires: Now,
    /// The rule that an approval may grant beyond this call; `None` if an approval is valid once.
    pub grant_rule: Option<String>,
    /// Digest of the exact operation, compared again when it is executed.
    pub digest: Option<String>,
    /// What a denial with a comment does.
    pub on_denial: DenialEffect,
    /// The form to fill in: a JSON object. The submitted form is the result of the call, and the tool itself never
    /// runs.
    pub form: Option<Json>,
}

/// What a denial with a comment does to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialEffect {
    /// The run ends, as it does without a comment.
    EndRun,
    /// The model is informed and the run continues.
    InformModel,
    /// The run continues without an answer, with or without a comment, and also after a timeout.
    Dismiss,
}

/// How long an approval lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApprovalScope {
    /// For this call.
    Once,
    /// Until the run ends.
    Run,
    /// Until the session ends.
    Session,
    /// In this repository, until it is revoked.
    Always,
}

/// The decision of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateDecision {
    /// The gate.
    pub gate: GateId,
    /// Approve or deny.
    pub decision: Decision,
    /// The chosen option.
    pub choice: Option<String>,
    /// The source that decided, derived from the connection.
    pub by: String,
    /// Its comment.
    pub comment: Option<String>,
    /// How long an approval lasts.
    pub scope: ApprovalScope,
    /// The submitted form, redacted.
    pub answer: Option<Json>,
}

/// Approve or deny.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Go ahead.
    Approve,
    /// Do not go ahead.
    Deny,
}

/// The phase in which a restarted daemon finds an unfinished run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveredPhase {
    /// The provider was working; it is asked for the turn again.
    Working,
    /// The run waits for a gate decision and still does.
    Waiting,
    /// A tool call had started and its result is unknown.
    Unknown,
    /// The run was being stopped.
    Stopping,
}

/// The report of an ended run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReport {
    /// The outcome.
    pub outcome: RunOutcome,
    /// A machine-readable reason, where the outcome alone does not give it.
    pub reason: Option<String>,
    /// A sentence for people.
    pub summary: String,
    /// The results of the acceptance checks that ran, in order.
    pub checks: Vec<CheckResult>,
    /// The number of requested checks.
    pub checks_requested: u32,
    /// The exit code for scripts.
    pub exit_code: u8,
}

/// The result of an acceptance check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// The id of the criterion.
    pub id: String,
    /// Whether it passed.
    pub passed: bool,
    /// The exit code, if the command exited by itself.
    pub exit_code: Option<i32>,
    /// Its output, bounded and redacted.
    pub output: String,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// The run succeeded.
    Success,
    /// The run failed.
    Failed,
    /// The run was cancelled.
    Cancelled,
    /// A gate denied a call.
    Denied,
}
