//! Effects that the driver carries out in order, and the reports that come back.

use super::audience::Audience;
use super::command::{PrivateEvent, Reply};
use super::event::{
    Adjustment, Budget, CallResult, Compaction, CompactionReason, Criterion, DenialEffect, Event, Intention,
    OutputStream, Retry, RunOutcome, Steering, ToolError, TurnUsage,
};
use super::gate::BudgetResource;
use super::id::{CallId, ConnectionId, MessageId, RunId, Seq};
use super::quorum::Quorum;
use super::state::RunUsage;

/// Correlates a command with its reply. The driver chooses the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One action for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Persist a reservation: no sequence number up to this one is ever issued again.
    Reserve(Seq),
    /// Persist the event.
    Persist(Event),
    /// Send the persisted event to all subscribers; its `Persist` came before.
    Emit(Seq),
    /// Send an event to one subscriber.
    EmitTo(ConnectionId, PrivateEvent),
    /// Send a message that is never stored to every attached connection of its audience.
    Tell {
        /// Who receives it.
        audience: Audience,
        /// The message.
        event: PrivateEvent,
    },
    /// Start to send a subscriber the events after a position.
    Subscribe {
        /// The subscriber.
        connection: ConnectionId,
        /// The last position that is not sent.
        after: Seq,
    },
    /// Stop sending events to a subscriber.
    Unsubscribe(ConnectionId),
    /// Reply to a command, with the session's version after it.
    Reply(Ticket, Reply, u64),
    /// Request the provider's next turn.
    RequestTurn(Box<TurnRequest>),
    /// Build the tool call of an acceptance check and report it like a call of the provider.
    RunCheck {
        /// The run.
        run: RunId,
        /// The index of the check.
        index: u32,
        /// The criterion to check.
        criterion: Box<Criterion>,
    },
    /// Execute the tool call; its start is on disk.
    Execute {
        /// The run.
        run: RunId,
        /// The tool call.
        intention: Box<Intention>,
        /// Digest of the approved operation; `None` if no gate asked.
        approved_digest: Option<String>,
    },
    /// Store a rule for the repository: matching calls no longer ask.
    StoreGrant {
        /// The rule.
        rule: String,
        /// Who granted it.
        by: String,
    },
    /// Stop every process of the run at once, and report when they are gone.
    StopRun(RunId),
    /// Execute a tool call for the user; its start is on disk.
    ExecuteUserCommand(Box<Intention>),
    /// Stop every process of a user command at once, and report it as aborted.
    StopUserCommand(CallId),
    /// Request a summary from the provider, outside any run.
    Compact(Box<CompactionRequest>),
    /// Abort the compaction of a run, or the one outside any run.
    StopCompaction(Option<RunId>),
    /// Stop retrying the provider that the run waits for.
    StopRetry(RunId),
    /// Write a checkpoint of the state after everything before this effect.
    Checkpoint(Seq),
}

/// A compaction that a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionRequest {
    /// The sequence number of its first event, which identifies it.
    pub start_seq: Seq,
    /// Instructions for the summary.
    pub instructions: Option<String>,
    /// The first event that is part of the context verbatim.
    pub context_from: Seq,
    /// The newest event of the session.
    pub last_seq: Seq,
    /// The provider, the model and its settings.
    pub model_choice: ModelChoice,
}

/// The provider, the model and its settings: those of the opening, with later adjustments applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelChoice {
    /// The provider.
    pub provider: String,
    /// The model; `None` means the provider's default.
    pub model: Option<String>,
    /// The thinking level.
    pub thinking: Option<String>,
    /// Whether a conversation that becomes too long is compacted automatically.
    pub auto_compaction: bool,
    /// Whether a provider that does not answer is retried automatically.
    pub auto_retry: bool,
}

impl ModelChoice {
    /// Builds the choice from a provider, its model and the adjustments.
    pub fn new(provider: String, model: Option<String>, adjusted: &Adjustment) -> Self {
        Self {
            provider,
            model,
            thinking: adjusted.thinking.clone(),
            auto_compaction: adjusted.auto_compaction.unwrap_or(true),
            auto_retry: adjusted.auto_retry.unwrap_or(true),
        }
    }
}

/// A request for the provider's next turn. It holds journaled facts only, so that a restart makes the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRequest {
    /// The run.
    pub run: RunId,
    /// The message that started it, redacted.
    pub text: String,
    /// The message's id.
    pub message: MessageId,
    /// Steering messages, each with the number of steps that had started before it.
    pub steers: Vec<(u32, Steering)>,
    /// The number of finished steps: completed texts and settled calls.
    pub steps_done: u32,
    /// The result of the last call.
    pub last_call: Option<CallResult>,
    /// Whether acceptance checks have started: the provider had finished before a restart discarded that.
    pub checks_started: bool,
    /// The budget of the run.
    pub budget: Budget,
    /// The usage of the run so far.
    pub spent: RunUsage,
    /// Whether the provider comes from the sender's environment. If that environment is missing, no other provider
    /// may be used.
    pub needs_environment: bool,
    /// The first event that is part of the context verbatim.
    pub context_from: Seq,
    /// The newest event of the session.
    pub last_seq: Seq,
    /// The provider, the model and its settings.
    pub model_choice: ModelChoice,
    /// The policy rules given with the run.
    pub rules: Vec<String>,
    /// The rules granted in this session and this run.
    pub granted: Vec<String>,
}

/// A report from the provider or from a tool of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Progress information.
    Status {
        /// The reporting component.
        source: String,
        /// The current activity.
        phase: String,
        /// The object of the activity.
        detail: Option<String>,
    },
    /// A delta of the model's reasoning.
    ThinkingDelta(String),
    /// A delta of the assistant's text.
    TextDelta(String),
    /// The assistant's text is complete.
    TextDone(MessageId),
    /// The token usage of a turn, and the calls that are still pending.
    TurnUsage(Box<TurnUsage>),
    /// A compaction has started.
    CompactionStarted(CompactionReason),
    /// The summary that replaces the older part of the conversation.
    Compacted(Box<Compaction>),
    /// The compaction failed.
    CompactionFailed {
        /// The error, redacted.
        message: String,
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
        /// The last error, redacted.
        message: Option<String>,
    },
    /// The provider's turn has ended; the next one starts when all calls of the turn are settled.
    TurnDone,
    /// A warning for the user.
    Warned {
        /// A machine-readable code.
        code: String,
        /// A message for people.
        message: String,
        /// Details.
        detail: Option<String>,
    },
    /// The provider requests a tool call.
    CallRequested(Box<CallRequest>),
    /// A chunk of a tool's output.
    CallOutput {
        /// The call.
        call: CallId,
        /// The stream.
        stream: OutputStream,
        /// The text.
        text: String,
    },
    /// A tool call has settled.
    CallSettled(Box<CallResult>),
    /// The provider has finished its work.
    Finished(Box<FinishReport>),
    /// All processes of the run are gone.
    Stopped {
        /// The processes that could not be stopped, as text.
        survivors: Option<String>,
    },
}

/// A report from a user command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserCommandReport {
    /// A chunk of its output.
    Output {
        /// The stream.
        stream: OutputStream,
        /// The text.
        text: String,
    },
    /// A warning for the user.
    Warned {
        /// A machine-readable code.
        code: String,
        /// A message for people.
        message: String,
        /// Details.
        detail: Option<String>,
    },
    /// The call has settled.
    Settled(Box<CallResult>),
}

/// A report from a compaction that a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionReport {
    /// The token usage of the request.
    Usage(Box<TurnUsage>),
    /// The summary.
    Done(Box<Compaction>),
    /// The compaction failed.
    Failed {
        /// The error, redacted.
        message: String,
    },
}

/// A tool call that a provider requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// The call.
    pub intention: Intention,
    /// What has to happen before the call starts.
    pub precondition: Precondition,
}

/// What has to happen before a tool call starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    Nothing,
    /// A gate has to approve it.
    Ask(Box<GateRequest>),
    /// It is refused without asking, because it could not succeed.
    Refuse(Box<ToolError>),
}

/// The gate that a tool call opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRequest {
    /// The id of the gate, minted by the driver.
    pub gate: super::id::GateId,
    /// What it asks about.
    pub subject: RequestSubject,
    /// A title for people.
    pub title: String,
    /// The exact question, redacted.
    pub summary: String,
    /// Details: a JSON object, redacted.
    pub details: super::id::Json,
    /// The options, if there are more than approve and deny; else empty.
    pub choices: Vec<String>,
    /// The rule by which votes settle it.
    pub quorum: Quorum,
    /// The rule that an approval may grant beyond this call.
    pub grant_rule: Option<String>,
    /// Digest of the exact operation.
    pub digest: Option<String>,
    /// What a denial with a comment does.
    pub on_denial: DenialEffect,
    /// The timeout in milliseconds; `None` means the default of the limits.
    pub timeout_millis: Option<u64>,
    /// The comment for a denial by the run's policy: why the gate would have asked and how to allow the call.
    /// Redacted.
    pub policy_comment: Option<String>,
}

/// What a requested gate asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestSubject {
    /// Whether the call may start.
    ToolCall {
        /// A machine-readable kind of call.
        kind: String,
    },
    /// Whether the run may exceed its budget.
    Budget(BudgetResource),
    /// A question, whose answer is the result of the call.
    Form {
        /// A machine-readable kind of question.
        kind: String,
        /// The form to fill in: a JSON object, redacted.
        form: super::id::Json,
    },
}

/// How the provider finished its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishReport {
    /// Success or failure, before the acceptance checks.
    pub outcome: RunOutcome,
    /// A machine-readable reason for a failure.
    pub reason: Option<String>,
    /// A sentence for people.
    pub summary: String,
    /// The error that the run reports.
    pub error: Option<ToolError>,
}

impl FinishReport {
    /// Returns a failure that a retry cannot fix.
    pub fn permanent_failure(kind: &str, message: impl Into<String>) -> Self {
        Self::failed(ToolError { kind: kind.to_owned(), retryable: false, message: message.into(), detail: None })
    }

    /// Returns a failure with the given error.
    pub fn failed(error: ToolError) -> Self {
        Self {
            outcome: RunOutcome::Failed,
            reason: Some(error.kind.to_lowercase()),
            summary: error.message.clone(),
            error: Some(error),
        }
    }
}
