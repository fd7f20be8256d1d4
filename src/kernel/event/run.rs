//! Events of runs.

use crate::kernel::id::{Fingerprint, Json, MessageId, RunId};

/// An event of a run: its messages, its text, its turns and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    /// A message was accepted and its run has started.
    Started(Box<Message>),
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
    /// The run is being stopped; its processes are being ended.
    Stopping {
        /// The outcome that the run will have.
        outcome: RunOutcome,
        /// A machine-readable reason.
        reason: String,
        /// Who stopped it.
        by: String,
    },
    /// The daemon restarted and found the run unfinished.
    Recovered {
        /// The phase in which the run was found.
        phase: RecoveredPhase,
    },
    /// The run has ended; no event of it follows.
    Ended(Box<RunReport>),
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
