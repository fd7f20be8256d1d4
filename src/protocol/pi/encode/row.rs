//! The rows of results: plain data that the daemon fills in.

use crate::kernel::event::{CallResult, ToolOutcome};
use crate::kernel::id::SessionId;
use crate::kernel::time::Now;
use crate::protocol::pi::request::Thinking;

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
    /// Its id.
    pub session: SessionId,
    /// Its display name.
    pub name: Option<String>,
    /// The file.
    pub file: String,
    /// The working directory of its tools.
    pub cwd: String,
    /// When the session was created.
    pub created_at: Now,
    /// Whether the file exists.
    pub file_exists: bool,
    /// How many messages it has.
    pub message_count: u64,
    /// The model that answered, if the file names it.
    pub model: Option<ModelRow>,
    /// The thinking level.
    pub thinking: Thinking,
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
    /// The API of its server.
    pub api: String,
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

/// A slash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRow {
    /// Its name, without the slash.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Its kind, such as `template` or `skill`.
    pub source: String,
    /// Where it is defined: `user` or `project`.
    pub location: Option<String>,
    /// Its file.
    pub path: Option<String>,
}

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRow {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its file.
    pub file: String,
    /// Where it is defined: `user` or `project`.
    pub source: String,
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
pub struct BashResult {
    /// The exit code, if the command exited by itself.
    pub exit_code: Option<i32>,
    /// Its output.
    pub output: String,
    /// Whether it was stopped.
    pub cancelled: bool,
}

impl BashResult {
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

/// Statistics of a session.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stats {
    /// User messages.
    pub user_messages: u64,
    /// Assistant messages.
    pub assistant_messages: u64,
    /// Tool calls that the model requested.
    pub tool_calls: u64,
    /// Results of these calls.
    pub tool_results: u64,
    /// All messages.
    pub total_messages: u64,
    /// Input tokens, without cached ones.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_write: u64,
    /// Cost in millionths of a US dollar, as far as it is known.
    pub cost: u64,
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
    pub open_bash_circuit: bool,
}

/// Metrics of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// How many sessions are active.
    pub session_count: u64,
    /// How many clients are connected.
    pub connection_count: u64,
    /// How many are connecting.
    pub pending_connection_count: u64,
    /// How many commands were executed.
    pub total_commands_executed: u64,
    /// How many commands were rejected, by reason.
    pub rejected: RejectionCounts,
    /// Orphaned sessions that were found.
    pub zombies_detected: u64,
    /// How many of them were unloaded.
    pub zombies_cleaned: u64,
    /// Sessions that were unloaded twice.
    pub double_unregister_errors: u64,
    /// Commands in the last minute.
    pub global_count: u64,
    /// The limit on commands per minute.
    pub global_limit: u64,
    /// Sizes of the in-memory stores.
    pub stores: StoreMetrics,
    /// The circuit breakers of providers.
    pub circuits: Vec<Circuit>,
    /// The circuit breaker of shell commands.
    pub bash_circuit: BashCircuit,
}

/// How many commands were rejected, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RejectionCounts {
    /// Too many sessions.
    pub session_limit: u64,
    /// The message was too large.
    pub message_size: u64,
    /// The rate limit of a session was exceeded.
    pub rate_limit: u64,
    /// The rate limit of the server was exceeded.
    pub global_rate_limit: u64,
    /// Too many connections.
    pub connection_limit: u64,
    /// Too many responses to UI requests.
    pub extension_ui_response_rate_limit: u64,
}

/// Sizes of the in-memory stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreMetrics {
    /// Commands in flight.
    pub in_flight_count: u64,
    /// Cached outcomes.
    pub outcome_count: u64,
    /// Cached idempotency keys.
    pub idempotency_cache_size: u64,
    /// The limit on commands in flight.
    pub max_in_flight_commands: u64,
    /// The capacity of the outcome cache.
    pub max_command_outcomes: u64,
    /// Commands rejected because too many were in flight.
    pub in_flight_rejections: u64,
    /// Sessions with a version.
    pub versioned_sessions: u64,
    /// Lanes with a queued or running command.
    pub lane_count: u64,
    /// Locks that are held.
    pub active_locks: u64,
    /// Lock acquisitions that timed out.
    pub lock_timeouts: u64,
    /// Waiters for a lock.
    pub lock_waiting: u64,
    /// Pending UI requests.
    pub pending_requests: u64,
    /// The limit on pending UI requests.
    pub max_pending_requests: u64,
    /// UI requests rejected because too many were pending.
    pub rejected_requests: u64,
    /// How often the session file index was rebuilt.
    pub metadata_resets: u64,
}

/// The circuit breaker of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circuit {
    /// The provider.
    pub provider: String,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// Consecutive failures of its server.
    pub failures: u64,
    /// How often the circuit was opened.
    pub opened: u64,
    /// Requests rejected while it was open.
    pub rejected: u64,
}

/// The circuit breaker of shell commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BashCircuit {
    /// Whether it is enabled.
    pub enabled: bool,
    /// `closed`, `open` or `half_open`.
    pub global_state: String,
    /// Sessions in which commands were run.
    pub session_count: u64,
    /// Sessions whose circuit is open.
    pub open_session_count: u64,
    /// How many commands were executed.
    pub total_calls: u64,
    /// How many commands timed out.
    pub total_timeouts: u64,
    /// How many commands were rejected.
    pub total_rejected: u64,
}
