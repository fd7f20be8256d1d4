//! What lists and pages are made of: plain data that the daemon fills in.

use super::event::mode;
use crate::kernel::command::{Openness, Phase, Snapshot};
use crate::kernel::event::Question;
use crate::kernel::id::{GateId, Json, MessageId, RunId, Seq, SessionId};
use crate::kernel::time::Now;

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A user.
    User,
    /// The assistant.
    Assistant,
}

/// A message that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// Where it became whole.
    pub seq: Seq,
    /// When it became whole.
    pub at: Now,
    /// Who said it.
    pub role: Role,
    /// Its id.
    pub message: MessageId,
    /// In which run.
    pub run: Option<RunId>,
    /// What was said.
    pub text: String,
}

/// Some messages of a session, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<MessageRow>,
    /// Where the next page begins.
    pub next_after: Seq,
    /// Whether there is no next page.
    pub done: bool,
}

/// A session among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub session: SessionId,
    /// What it is doing.
    pub phase: Phase,
    /// When something last happened.
    pub updated_at: Now,
    /// What its client said of the repository.
    pub repo: Option<Json>,
    /// The directory of its tools.
    pub cwd: String,
    /// Who answers.
    pub provider: String,
    /// Which model of the provider.
    pub model: Option<String>,
    /// Its name for people.
    pub name: Option<String>,
    /// The end of the last user message.
    pub last_message: Option<String>,
    /// The active run.
    pub run: Option<RunId>,
    /// The oldest open gate.
    pub gate: Option<GateId>,
    /// Through which other protocol it was opened.
    pub protocol: Option<String>,
    /// How much its model is to think, where that was said in it.
    pub thinking: Option<String>,
    /// When it was opened.
    pub opened_at: Now,
    /// Whether it takes more messages.
    pub open: Openness,
    /// Whether a client of another protocol has unloaded it.
    pub unloaded: bool,
}

impl SessionRow {
    /// Takes from a snapshot what a list shows.
    pub fn of(session: &SessionId, snapshot: &Snapshot) -> Self {
        let opening = &snapshot.opening;
        Self {
            session: session.clone(),
            phase: snapshot.phase,
            updated_at: snapshot.updated_at,
            repo: opening.repo.clone(),
            cwd: opening.cwd.clone(),
            provider: snapshot.provider().to_owned(),
            model: snapshot.model().cloned(),
            name: snapshot.name.clone(),
            last_message: Some(snapshot.last_message.clone()).filter(|text| !text.is_empty()),
            run: snapshot.run.clone(),
            gate: snapshot.question.as_ref().map(|question| question.gate.clone()),
            protocol: (mode(opening) != opening.mode).then(|| opening.mode.clone()),
            thinking: snapshot.adjusted.thinking.clone(),
            opened_at: snapshot.opened_at,
            open: snapshot.open,
            unloaded: snapshot.adjusted.unloaded.unwrap_or(false),
        }
    }
}

/// An approval that somebody is to settle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingApproval {
    /// In which session.
    pub session: SessionId,
    /// In which run.
    pub run: RunId,
    /// What is asked.
    pub question: Question,
}

/// A rule that holds in a repository until it is revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// Its name.
    pub id: String,
    /// In which repository.
    pub repository: String,
    /// What may go ahead unasked.
    pub rule: String,
    /// Who granted it.
    pub by: String,
    /// When.
    pub at: Now,
}

/// Somebody who answers messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderRow {
    /// Its name, as `start_session` takes it.
    pub name: String,
    /// Its models.
    pub models: Vec<String>,
    /// Whether it can be asked with what the daemon has; the environment of a client may bring what is missing.
    pub configured: bool,
    /// Whether it is the one that is used when none is named.
    pub default: bool,
}

/// What is known of the journal as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalCheck {
    /// The schema of the database.
    pub schema: i64,
    /// How many sessions are stored.
    pub sessions: u64,
    /// How many bytes of the database hold something.
    pub used_bytes: u64,
    /// What the database takes.
    pub database_bytes: u64,
    /// What its log takes.
    pub log_bytes: u64,
    /// What the marks outside of it take.
    pub marks_bytes: u64,
    /// How many files were set aside because they could not be read.
    pub set_aside_files: u64,
    /// What those take.
    pub set_aside_bytes: u64,
    /// How many blocks were taken out of histories because they could not be proven.
    pub set_aside_blocks: u64,
    /// Whether the life before ended in good order.
    pub left_in_order: bool,
    /// Whether marks are kept outside the database.
    pub marks_kept: bool,
    /// Whether the disk is full.
    pub disk_full: bool,
    /// Whether a sync has failed, so that nothing is taken any more.
    pub sync_failed: bool,
    /// How many losses are written down.
    pub losses_total: u64,
    /// The newest of them, newest first.
    pub losses: Vec<LossRow>,
    /// What came of looking at every event, if that was asked for.
    pub proof: Option<Proof>,
}

/// Events that are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossRow {
    /// When that was found.
    pub at: Now,
    /// Of which session, where that is known.
    pub session: Option<SessionId>,
    /// The last position before them.
    pub after: Seq,
    /// The last position that may be lost.
    pub until: Seq,
    /// A word for what happened.
    pub cause: String,
    /// The particulars, where there are any.
    pub detail: Option<String>,
}

/// What came of looking at every event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proof {
    /// How many sessions were looked at.
    pub sessions: u64,
    /// How many bytes of events.
    pub bytes: u64,
    /// What was found to be gone, newest first.
    pub found: Vec<LossRow>,
    /// How many sessions could not be looked at, or not mended.
    pub problems_total: u64,
    /// The first of them.
    pub problems: Vec<ProblemRow>,
}

/// A session that could not be looked at, or not mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemRow {
    /// Which one.
    pub session: SessionId,
    /// What is wrong, for people.
    pub what: String,
}

/// A Pi session file of a session that is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiFileRow {
    /// Where it lies.
    pub path: String,
    /// How large it is, or was.
    pub bytes: u64,
    /// Whether the daemon created it; it was imported otherwise.
    pub created: bool,
    /// Whether it was removed.
    pub removed: bool,
    /// Why it could not be.
    pub problem: Option<String>,
}

/// How the daemon is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metrics {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// For how long it has run.
    pub uptime_seconds: u64,
    /// Where it listens.
    pub socket: String,
    /// Where Pi is spoken; none where it is not.
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
    /// How large its journal is.
    pub journal_bytes: u64,
    /// How much memory it uses.
    pub memory_bytes: u64,
    /// Whether it takes no new runs.
    pub draining: bool,
    /// How long active runs may go on after a `drain` that names no grace, in milliseconds.
    pub grace_ms: u64,
    /// The circuit breakers of the models' servers that were asked.
    pub circuits: Vec<CircuitRow>,
    /// What holds a model's commands back, where that was asked: a JSON object.
    pub sandbox: Option<Json>,
}

/// What is known of a server's circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitRow {
    /// The provider.
    pub provider: String,
    /// Where its server is.
    pub base_url: String,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// How often the server has failed since it last answered.
    pub failures_in_a_row: u32,
    /// How often the circuit was opened.
    pub opened: u64,
    /// How many questions were not asked while it was open.
    pub refused: u64,
}
