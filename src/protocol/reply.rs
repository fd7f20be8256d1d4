//! The replies to requests as plain data, independent of any protocol.

use crate::kernel::command::{Phase, QueueEntry, Repetition, Replay, Snapshot};
use crate::kernel::event::GateQuestion;
use crate::kernel::id::{CallId, GateId, Json, MessageId, ParticipantId, RunId, Seq, SessionId};
use crate::kernel::participant::{Participant, Presence};
use crate::kernel::time::Now;
use crate::protocol::intent::SearchKind;

/// The successful reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The daemon introduces itself.
    Hello {
        /// The version of the daemon.
        version: &'static str,
        /// The home directory of the daemon's user, if it is UTF-8.
        home: Option<String>,
    },
    /// The connection works; the daemon's time.
    Pong(Now),
    /// A session was started, or found under its idempotency key.
    Started {
        /// The session.
        session: SessionId,
        /// Its phase.
        phase: Phase,
        /// The token that attaches to it.
        token: String,
        /// Whether it was started before.
        repetition: Repetition,
    },
    /// The connection is subscribed.
    Attached {
        /// The session.
        session: SessionId,
        /// Its phase.
        phase: Phase,
        /// The events that are replayed.
        replay: Replay,
    },
    /// A run was started.
    Prompted {
        /// The run.
        run: RunId,
        /// Whether it was started before.
        repetition: Repetition,
    },
    /// A message was added to a run.
    Steered(RunId),
    /// A message waits behind the active run.
    Queued {
        /// The message.
        message: MessageId,
        /// Its run.
        run: RunId,
        /// Its position in the queue.
        position: usize,
    },
    /// The queued messages.
    Queue(Vec<QueueEntry>),
    /// The state of a session.
    Snapshot(Box<Snapshot>),
    /// A command of the user has started.
    UserCommandStarted(CallId),
    /// A compaction has started with this event.
    Compacting(Seq),
    /// The request was carried out or accepted, and there is nothing to return.
    Done(Completion),
    /// A session was deleted, or would be.
    Deleted {
        /// Whether it was deleted; `false` for a dry run.
        deleted: bool,
        /// The size of its data.
        bytes: u64,
        /// Its session files.
        files: Vec<SessionFileRow>,
    },
    /// The environment of the login shell was captured again.
    Reloaded {
        /// The number of its variables.
        variables: usize,
        /// Why the daemon's environment is used instead.
        warning: Option<String>,
    },
    /// The participants of a session and their presence, ordered by id.
    Participants(Vec<(Participant, Presence)>),
    /// The connection takes part as this participant.
    Joined(ParticipantId),
    /// An approval that belongs to no run is open.
    GateOpened(GateId),
    /// Some messages of a session.
    Messages(MessagePage),
    /// Some sessions.
    Sessions {
        /// The listing items, as stored.
        items: Vec<Json>,
        /// Where the next page starts.
        next_cursor: Option<String>,
    },
    /// The pending approvals.
    Approvals {
        /// The approvals.
        pending: Vec<PendingApproval>,
        /// The revision of the list, for a client that waits for the next one.
        revision: Option<u64>,
    },
    /// What a search has found.
    SearchResults(SearchResults),
    /// The figures of sessions.
    Stats(Box<StatsReport>),
    /// The granted rules.
    Grants(Vec<GrantRow>),
    /// The model providers.
    Providers(Vec<ProviderRow>),
    /// The metrics of the daemon.
    Metrics(Box<Metrics>),
    /// The state of the journal.
    JournalCheck(Box<JournalCheck>),
}

/// What was done, for a request that returns nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The connection is unsubscribed.
    Detached,
    /// A queued message was removed.
    Unqueued,
    /// A decision, a cancel or another change of a session was accepted.
    Accepted,
    /// The session was renamed.
    Renamed,
    /// The session has ended.
    Ended,
    /// A grant was revoked.
    Revoked,
    /// The daemon stops when its runs have ended.
    Draining,
    /// The connection continues in another protocol.
    ProtocolSwitched,
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A user.
    User,
    /// The assistant.
    Assistant,
}

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// The position of the event that completed it.
    pub seq: Seq,
    /// When it was completed.
    pub at: Now,
    /// Its author.
    pub role: Role,
    /// Its id.
    pub message: MessageId,
    /// Its run.
    pub run: Option<RunId>,
    /// Its text.
    pub text: String,
}

/// Some messages of a session, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<MessageRow>,
    /// The position after which the next page starts.
    pub next_after: Seq,
    /// Whether there is no next page.
    pub done: bool,
}

/// A pending approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingApproval {
    /// Its session.
    pub session: SessionId,
    /// Its run, unless it belongs to none.
    pub run: Option<RunId>,
    /// The question.
    pub question: GateQuestion,
}

/// What a search has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchResults {
    /// The hits.
    pub hits: Vec<SearchHit>,
    /// How much of the journal was searched.
    pub coverage: IndexCoverage,
}

/// How much of the journal is indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexCoverage {
    /// Whether every session is indexed.
    pub complete: bool,
    /// The number of sessions that are not.
    pub missing: u64,
}

/// A text that matches a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    /// Its session.
    pub session: SessionId,
    /// The name of the session, if it has one.
    pub name: Option<String>,
    /// The working directory of the session.
    pub cwd: String,
    /// What it is.
    pub kind: SearchKind,
    /// The position of its first event; zero for a name.
    pub seq: Seq,
    /// When it began; for a name, when the session last changed.
    pub at: Now,
    /// The text around the first match.
    pub excerpt: Vec<ExcerptSegment>,
}

/// A piece of an excerpt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcerptSegment {
    /// The text.
    pub text: String,
    /// Whether it matches.
    pub is_match: bool,
}

/// The figures of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsReport {
    /// The figures by day, directory and model, in this order.
    pub rows: Vec<StatsRow>,
    /// The tools, most calls first.
    pub tools: Vec<ToolRow>,
    /// The known cost of each session in millionths of a US dollar, if it was asked for; those without one are left out.
    pub sessions: Option<Vec<(SessionId, u64)>>,
    /// How much of the journal they cover.
    pub coverage: IndexCoverage,
}

/// The figures of one day, directory and model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatsRow {
    /// The local day, as `2026-01-31`.
    pub day: String,
    /// The working directory of the sessions.
    pub directory: String,
    /// The model, or the provider if no model is known.
    pub model: String,
    /// Runs that succeeded.
    pub succeeded: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs that were cancelled.
    pub cancelled: u64,
    /// Runs that were denied.
    pub denied: u64,
    /// Turns of the provider.
    pub turns: u64,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Cost in millionths of a US dollar, as far as it is known.
    pub cost_micro_usd: u64,
    /// Turns without a known cost.
    pub unpriced_turns: u64,
    /// Tool calls that have ended.
    pub tool_calls: u64,
    /// Those that failed.
    pub tool_failures: u64,
    /// Approvals that were requested.
    pub approvals: u64,
    /// Those that were granted.
    pub approved: u64,
    /// Those that were denied.
    pub refused: u64,
}

/// The calls of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRow {
    /// Its name.
    pub tool: String,
    /// Calls that have ended.
    pub calls: u64,
    /// Those that failed.
    pub failures: u64,
}

/// A grant: a rule that applies in a repository until it is revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// Its id.
    pub id: String,
    /// Its repository.
    pub repository: String,
    /// The rule: which calls need no approval.
    pub rule: String,
    /// Who granted it.
    pub by: String,
    /// When it was granted.
    pub at: Now,
}

/// A model provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderRow {
    /// Its name, as `start_session` expects it.
    pub name: String,
    /// Its models.
    pub models: Vec<String>,
    /// Whether the daemon has everything it needs; a client's environment may provide what is missing.
    pub configured: bool,
    /// Whether it is the default provider.
    pub default: bool,
}

/// The state of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalCheck {
    /// The schema of the database.
    pub schema: i64,
    /// How many sessions are stored.
    pub sessions: u64,
    /// Bytes in use in the database.
    pub used_bytes: u64,
    /// Size of the database file.
    pub database_bytes: u64,
    /// Size of its write-ahead log.
    pub log_bytes: u64,
    /// Size of the external mark files.
    pub marks_bytes: u64,
    /// Number of unreadable files that were set aside.
    pub set_aside_files: u64,
    /// Size of those files.
    pub set_aside_bytes: u64,
    /// Number of blocks that were set aside because their checksum did not match.
    pub set_aside_blocks: u64,
    /// Whether the previous shutdown was clean.
    pub clean_shutdown: bool,
    /// Whether marks are written outside the database.
    pub marks_enabled: bool,
    /// Whether the disk is full.
    pub disk_full: bool,
    /// Whether a sync has failed, so that the journal accepts no more writes.
    pub sync_failed: bool,
    /// Number of recorded losses.
    pub losses_total: u64,
    /// The most recent losses, newest first.
    pub losses: Vec<LossRow>,
    /// The result of a full verification, if requested.
    pub integrity: Option<IntegrityReport>,
}

/// A range of lost events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossRow {
    /// When the loss was detected.
    pub at: Now,
    /// Its session, if known.
    pub session: Option<SessionId>,
    /// The last position before the range.
    pub after: Seq,
    /// The last position that may be lost.
    pub until: Seq,
    /// The cause.
    pub cause: String,
    /// Details, if any.
    pub detail: Option<String>,
}

/// The result of a full verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IntegrityReport {
    /// Number of verified sessions.
    pub sessions: u64,
    /// Bytes of verified events.
    pub bytes: u64,
    /// The losses it found, newest first.
    pub found: Vec<LossRow>,
    /// Number of sessions that could not be verified or repaired.
    pub problems_total: u64,
    /// The first of them.
    pub problems: Vec<ProblemRow>,
}

/// A session that could not be verified or repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemRow {
    /// The session.
    pub session: SessionId,
    /// The problem, for people.
    pub what: String,
}

/// A session file of a session that is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFileRow {
    /// Its path.
    pub path: String,
    /// Its size before deletion.
    pub bytes: u64,
    /// Whether the daemon created it; otherwise it was imported.
    pub created: bool,
    /// Whether it was deleted.
    pub removed: bool,
    /// Why it could not be deleted.
    pub problem: Option<String>,
}

/// Metrics of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Its process id.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Its uptime in seconds.
    pub uptime_seconds: u64,
    /// The path of its socket.
    pub socket: String,
    /// The address of the port for all protocols, if enabled.
    pub http: Option<String>,
    /// The address of the Pi endpoint, if enabled.
    pub pi: Option<String>,
    /// How many sessions are stored.
    pub sessions: u64,
    /// How many sessions are in memory.
    pub resident_sessions: u64,
    /// How many runs are active.
    pub active_runs: u64,
    /// How many clients are connected.
    pub connections: u64,
    /// How many events it has recorded.
    pub events: u64,
    /// The size of its journal.
    pub journal_bytes: u64,
    /// Its memory usage.
    pub memory_bytes: u64,
    /// Whether it is draining and accepts no new runs.
    pub draining: bool,
    /// The default grace period of `drain` in milliseconds.
    pub grace_ms: u64,
    /// The circuit breakers of the provider servers used so far.
    pub circuits: Vec<CircuitRow>,
    /// Why the search index cannot be extended; `None` while it can.
    pub search_index_error: Option<String>,
    /// The available confinement, if requested: a JSON object.
    pub sandbox: Option<Json>,
}

/// The circuit breaker of a provider server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitRow {
    /// The provider.
    pub provider: String,
    /// The base URL of its server.
    pub base_url: String,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// Consecutive failures of the server.
    pub failures_in_a_row: u32,
    /// How often the circuit was opened.
    pub opened: u64,
    /// Requests rejected while it was open.
    pub refused: u64,
}
