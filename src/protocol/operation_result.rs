//! The results and errors of operations as plain data, independent of any protocol.

use std::sync::Arc;

use super::operation::Thinking;
use super::reply::CircuitRow;
use crate::kernel::event::{CallResult, ToolOutcome};
use crate::kernel::id::SessionId;
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

/// The result of an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum OperationResult {
    /// There is nothing to return.
    None,
    /// The answer of a projection, which its protocol has encoded.
    Encoded(Arc<str>),
    /// The sessions that clients see.
    Sessions(Vec<SessionInfo>),
    /// A session was created or loaded.
    Created(Box<SessionInfo>),
    /// A session was unloaded.
    Unloaded,
    /// The connection is subscribed to a session.
    Subscribed(Box<SessionInfo>),
    /// The state of a session.
    Described(Box<SessionInfo>),
    /// The sessions that are stored in files.
    StoredSessions(Vec<StoredSession>),
    /// The session files of a directory.
    SessionFiles(Vec<FileRow>),
    /// The models that can be used.
    Models(Vec<ModelRow>),
    /// A model was selected.
    ModelSet(Box<ModelRow>),
    /// The next model was selected; `None` if there is no other.
    ModelCycled(Option<Box<(ModelRow, Thinking)>>),
    /// The next thinking level was selected; `None` if the model has none.
    ThinkingCycled(Option<Thinking>),
    /// The slash commands.
    SlashCommands(Vec<CommandRow>),
    /// The skills.
    Skills(Vec<CommandRow>),
    /// The tools that a model may call.
    Tools(Vec<ToolRow>),
    /// A shell command has ended.
    Shell(ShellResult),
    /// The conversation was exported to this path.
    Exported(String),
    /// The session continues with another conversation.
    ConversationSwitched,
    /// The connection continues in a child session without messages.
    ChildStarted(SessionId),
    /// The connection continues in a child session, before a message.
    Forked {
        /// The text of the message.
        text: String,
        /// The child session.
        child: SessionId,
    },
    /// The usage of the context window; `None` if its size is unknown.
    ContextUsage(Option<ContextUsage>),
    /// The health of the server.
    Health(Health),
    /// The metrics of the command service.
    Metrics(Box<ServiceMetrics>),
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationError {
    /// The session refused it.
    Refused(Refusal),
    /// The session does not exist.
    SessionNotFound {
        /// The session.
        session: SessionId,
        /// The version that the command requires.
        version: Option<u64>,
    },
    /// The session exists already.
    SessionExists(SessionId),
    /// No further session can be active.
    SessionLimit,
    /// A run is active, and the message does not say what to do then.
    RunActive,
    /// The circuit breaker of the model's provider is open.
    ProviderCircuitOpen,
    /// The circuit breaker of shell commands is open.
    ShellCircuitOpen,
    /// The provider of the model is not configured.
    UnknownModel {
        /// The provider.
        provider: String,
        /// The model.
        model: String,
    },
    /// A message exceeds its limit after the expansion.
    MessageTooLong {
        /// The limit in characters.
        limit: usize,
        /// Its length.
        found: usize,
    },
    /// The output path of an export is outside of the working directory.
    ExportPathOutside,
    /// The entry is not a message that a fork can start from.
    UnknownForkEntry,
    /// The question is settled.
    QuestionSettled(String),
    /// The question belongs to another session.
    QuestionOfOtherSession(String),
    /// The question does not exist.
    UnknownQuestion(String),
    /// The compaction was aborted.
    CompactionAborted,
    /// The compaction failed, for this reason if it is known.
    CompactionFailed(Option<String>),
    /// A session file is in no directory for session files.
    FileNotAllowed {
        /// The path as sent.
        path: String,
        /// The error of the file store.
        reason: String,
    },
    /// A session file cannot be read; the error of the file store.
    UnreadableFile(String),
    /// The daemon failed internally.
    Internal,
    /// Any other failure.
    Message(String),
}

impl OperationError {
    /// Makes an error from a text.
    pub fn message(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }
}

/// A session as clients see it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionInfo {
    /// Its id.
    pub session: SessionId,
    /// Its display name.
    pub name: Option<String>,
    /// The session file it is written to.
    pub file: Option<String>,
    /// The model that answers.
    pub model: Option<ModelRow>,
    /// The thinking level.
    pub thinking: Thinking,
    /// Whether a run is active.
    pub streaming: bool,
    /// How many messages `get_messages` has.
    pub message_count: u64,
    /// When the session was created.
    pub created_at: Now,
}

/// A session stored in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSession {
    /// The session; no run is active in it.
    pub info: SessionInfo,
    /// The working directory of its tools.
    pub cwd: String,
}

/// A model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRow {
    /// Its id at the provider.
    pub id: String,
    /// Its display name.
    pub name: String,
    /// Its provider.
    pub provider: String,
    /// The kind of its provider.
    pub provider_kind: String,
    /// The base URL of its server; empty if it has none.
    pub base_url: String,
    /// Whether it has thinking levels.
    pub reasoning: bool,
    /// Whether it accepts images.
    pub sees_images: bool,
    /// The size of its context window in tokens.
    pub context_window: u64,
    /// The maximum number of output tokens.
    pub max_tokens: u64,
    /// Its prices.
    pub cost: ModelCost,
}

/// Prices in dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ModelCost {
    /// Input tokens.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Tokens read from the cache.
    pub cache_read: f64,
    /// Tokens written to the cache.
    pub cache_write: f64,
}

/// A slash command or a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRow {
    /// Its name, without the slash.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// What it is.
    pub source: CommandSource,
    /// Where it is defined: `user` or `project`.
    pub location: String,
    /// Its file.
    pub path: String,
}

/// What a slash command stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandSource {
    /// A template of a message.
    Template,
    /// A skill.
    Skill,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRow {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
}

/// A session file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// Its path.
    pub path: String,
    /// Its file name.
    pub name: String,
    /// When it was last modified.
    pub modified_at: Option<Now>,
}

/// The result of a shell command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellResult {
    /// The exit code, if the command exited by itself.
    pub exit_code: Option<i32>,
    /// Its output.
    pub output: String,
    /// Whether it was stopped.
    pub cancelled: bool,
}

impl ShellResult {
    /// Builds the result of a shell command; without output, the error message takes its place.
    pub fn of(settlement: &CallResult) -> Self {
        let output = match &settlement.error {
            Some(error) if settlement.text.is_empty() => error.message.clone(),
            Some(_) | None => settlement.text.clone(),
        };
        let cancelled = match settlement.outcome {
            ToolOutcome::Aborted | ToolOutcome::Skipped => true,
            ToolOutcome::Succeeded | ToolOutcome::Failed => false,
        };
        Self { exit_code: settlement.exit_code, output, cancelled }
    }
}

/// The usage of a model's context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextUsage {
    /// The tokens of the conversation; unknown until the model has processed it.
    pub tokens: Option<u64>,
    /// The size of the context window in tokens.
    pub window: u64,
}

/// The health of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    /// Descriptions of the problems.
    pub issues: Vec<String>,
    /// Whether the circuit breaker of a provider is open.
    pub open_circuit: bool,
    /// Whether the circuit breaker of shell commands is open.
    pub open_shell_circuit: bool,
}

/// Metrics of the command service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceMetrics {
    /// How many sessions are active.
    pub sessions: u64,
    /// How many clients are connected.
    pub connections: u64,
    /// How many commands were executed.
    pub executed: u64,
    /// How many commands were rejected, by reason.
    pub rejected: RejectionCounts,
    /// Commands in the last minute.
    pub recent_commands: u64,
    /// The limit on commands per minute.
    pub max_recent_commands: u64,
    /// Commands in flight.
    pub in_flight: u64,
    /// The limit on commands in flight.
    pub max_in_flight: u64,
    /// Cached outcomes.
    pub outcomes: u64,
    /// The capacity of the outcome cache.
    pub max_outcomes: u64,
    /// Cached idempotency keys.
    pub idempotency_keys: u64,
    /// Lanes with a queued or running command.
    pub lanes: u64,
    /// Open questions.
    pub open_questions: u64,
    /// The limit on open questions.
    pub max_open_questions: u64,
    /// The circuit breakers of providers.
    pub circuits: Vec<CircuitRow>,
    /// The circuit breakers of shell commands.
    pub shell_circuits: ShellCircuits,
}

/// How many commands were rejected, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectionCounts {
    /// Too many sessions.
    pub session_limit: u64,
    /// The message was too large.
    pub message_size: u64,
    /// The rate limit of a session was exceeded.
    pub session_rate: u64,
    /// The rate limit of the server was exceeded.
    pub overall_rate: u64,
    /// Too many answers to questions.
    pub answer_rate: u64,
    /// Too many were in flight.
    pub in_flight: u64,
}

/// The circuit breakers of shell commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShellCircuits {
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// Sessions in which commands were run.
    pub sessions: u64,
    /// Sessions whose circuit is open.
    pub open_sessions: u64,
    /// How many commands were executed.
    pub calls: u64,
    /// How many commands timed out.
    pub timeouts: u64,
    /// How many commands were rejected.
    pub rejected: u64,
}
