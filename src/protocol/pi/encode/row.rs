//! What results are made of: plain data that the daemon fills in.

use crate::kernel::event::{Ending, Settlement};
use crate::kernel::id::SessionId;
use crate::kernel::time::Now;
use crate::protocol::pi::ask::Thinking;

/// A session, as everybody sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionInfo {
    /// Its id.
    pub session: SessionId,
    /// Its name for people.
    pub name: Option<String>,
    /// The file that it is written to.
    pub file: Option<String>,
    /// Who answers.
    pub model: Option<ModelRow>,
    /// How much the model is to think.
    pub thinking: Thinking,
    /// Whether a run is active.
    pub streaming: bool,
    /// How many messages `get_messages` has.
    pub message_count: u64,
    /// When it began.
    pub created_at: Now,
}

/// A session in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSession {
    /// Its id.
    pub session: SessionId,
    /// Its name for people.
    pub name: Option<String>,
    /// The file.
    pub file: String,
    /// Where its tools worked.
    pub cwd: String,
    /// When it began.
    pub created_at: Now,
    /// Whether the file is there.
    pub file_exists: bool,
    /// How many messages it has.
    pub message_count: u64,
    /// Who answered, where the file says it.
    pub model: Option<ModelRow>,
    /// How much the model was to think.
    pub thinking: Thinking,
}

/// A model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRow {
    /// Its name at its provider.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Whose it is.
    pub provider: String,
    /// What its server is spoken to in.
    pub api: String,
    /// Where its server is; empty where there is none.
    pub base_url: String,
    /// Whether it can be told how much to think.
    pub reasoning: bool,
    /// Whether it looks at images.
    pub sees_images: bool,
    /// How many tokens it can be told.
    pub context_window: u64,
    /// How many it writes at most.
    pub max_tokens: u64,
    /// What a million tokens cost, in dollars.
    pub cost: ModelCost,
}

/// What a million tokens cost, in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ModelCost {
    /// Read.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Read from the cache.
    pub cache_read: f64,
    /// Put into it.
    pub cache_write: f64,
}

/// A slash command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRow {
    /// What follows the slash.
    pub name: String,
    /// What it does, for people.
    pub description: Option<String>,
    /// What kind it is, such as `template` or `skill`.
    pub source: String,
    /// Whose it is: `user` or `project`.
    pub location: Option<String>,
    /// Its file.
    pub path: Option<String>,
}

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRow {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its file.
    pub file: String,
    /// Whose it is: `user` or `project`.
    pub source: String,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRow {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
}

/// A session file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRow {
    /// Where it is.
    pub path: String,
    /// Its last part.
    pub name: String,
    /// When it was last written.
    pub modified_at: Option<Now>,
}

/// What came of a shell command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BashResult {
    /// The exit code of one that ended by itself.
    pub exit_code: Option<i32>,
    /// What it printed.
    pub output: String,
    /// Whether it was ended before its end.
    pub cancelled: bool,
}

impl BashResult {
    /// Takes what came of a shell command; one that did not run has what was wrong in the place of its output.
    pub fn of(settlement: &Settlement) -> Self {
        let output = match &settlement.fault {
            Some(fault) if settlement.text.is_empty() => fault.message.clone(),
            Some(_) | None => settlement.text.clone(),
        };
        let cancelled = match settlement.ending {
            Ending::Cut | Ending::Skipped => true,
            Ending::Done | Ending::Failed => false,
        };
        Self { exit_code: settlement.exit_code, output, cancelled }
    }
}

/// A session in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stats {
    /// Messages of users.
    pub user_messages: u64,
    /// Messages of the model.
    pub assistant_messages: u64,
    /// Uses of tools that the model wanted.
    pub tool_calls: u64,
    /// What came of them.
    pub tool_results: u64,
    /// All messages.
    pub total_messages: u64,
    /// Tokens read, without those of the cache.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens put into it.
    pub cache_write: u64,
    /// Money, in millionths of a US dollar, as far as it is known.
    pub cost: u64,
}

/// How full a model's window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextUsage {
    /// How many tokens the conversation has; not known until the model was told it.
    pub tokens: Option<u64>,
    /// How many it may have.
    pub window: u64,
}

/// Whether the server is well.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    /// What is wrong, for people.
    pub issues: Vec<String>,
    /// Whether a provider is not asked because it fails.
    pub open_circuit: bool,
    /// Whether no shell command is run because they take too long.
    pub open_bash_circuit: bool,
}

/// How the server is, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// How many sessions are active.
    pub session_count: u64,
    /// How many clients are connected.
    pub connection_count: u64,
    /// How many are about to be.
    pub pending_connection_count: u64,
    /// How many commands were run.
    pub total_commands_executed: u64,
    /// How many were turned away, by reason.
    pub rejected: Rejected,
    /// Sessions found that nobody owned.
    pub zombies_detected: u64,
    /// How many of them were let go of.
    pub zombies_cleaned: u64,
    /// Sessions that were let go of twice.
    pub double_unregister_errors: u64,
    /// Commands in the last minute.
    pub global_count: u64,
    /// How many there may be.
    pub global_limit: u64,
    /// What is held in memory.
    pub stores: Stores,
    /// The circuit breakers of providers.
    pub circuits: Vec<Circuit>,
    /// The circuit breaker of shell commands.
    pub bash_circuit: BashCircuit,
}

/// How many commands were turned away, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rejected {
    /// Too many sessions.
    pub session_limit: u64,
    /// Too long.
    pub message_size: u64,
    /// Too many for a session.
    pub rate_limit: u64,
    /// Too many for the server.
    pub global_rate_limit: u64,
    /// Too many connections.
    pub connection_limit: u64,
    /// Too many answers to questions.
    pub extension_ui_response_rate_limit: u64,
}

/// What is held in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stores {
    /// Commands under way.
    pub in_flight_count: u64,
    /// Outcomes that are remembered.
    pub outcome_count: u64,
    /// Keys that are remembered.
    pub idempotency_cache_size: u64,
    /// How many commands may be under way.
    pub max_in_flight_commands: u64,
    /// How many outcomes are remembered at most.
    pub max_command_outcomes: u64,
    /// How many commands were turned away because too many were under way.
    pub in_flight_rejections: u64,
    /// Sessions with a version.
    pub versioned_sessions: u64,
    /// Lanes in which something waits or runs.
    pub lane_count: u64,
    /// Locks that are held.
    pub active_locks: u64,
    /// Locks that were waited for in vain.
    pub lock_timeouts: u64,
    /// Who waits for a lock.
    pub lock_waiting: u64,
    /// Questions that wait for an answer.
    pub pending_requests: u64,
    /// How many may.
    pub max_pending_requests: u64,
    /// How many were not asked because too many waited.
    pub rejected_requests: u64,
    /// How often what is known of session files was begun anew.
    pub metadata_resets: u64,
}

/// The circuit breaker of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circuit {
    /// The provider.
    pub provider: String,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// How often its server has failed since it last answered.
    pub failures: u64,
    /// How often the circuit was opened.
    pub opened: u64,
    /// How many questions were not asked while it was open.
    pub rejected: u64,
}

/// The circuit breaker of shell commands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BashCircuit {
    /// Whether there is one.
    pub enabled: bool,
    /// `closed`, `open` or `half_open`.
    pub global_state: String,
    /// In how many sessions commands were run.
    pub session_count: u64,
    /// In how many of them none is run.
    pub open_session_count: u64,
    /// How many commands were run.
    pub total_calls: u64,
    /// How many took too long.
    pub total_timeouts: u64,
    /// How many were turned away.
    pub total_rejected: u64,
}
