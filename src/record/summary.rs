//! The listing item of a session: what the journal stores beside its events, so that a list reads no events.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::encode::mode;
use super::json;
use super::wire::word::StateWord;
use super::wire::{Raw, raw};
use crate::kernel::command::{Phase, SessionStatus, Snapshot};
use crate::kernel::id::{GateId, Json, RunId, Seq, SessionId};
use crate::kernel::time::Now;

/// A session in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub session: SessionId,
    /// Its phase.
    pub phase: Phase,
    /// When its last event occurred.
    pub updated_at: Now,
    /// The client's description of the repository.
    pub repo: Option<Json>,
    /// The working directory of its tools.
    pub cwd: String,
    /// The provider.
    pub provider: String,
    /// The model of the provider.
    pub model: Option<String>,
    /// Its display name.
    pub name: Option<String>,
    /// The end of the last user message.
    pub last_message: Option<String>,
    /// The active run.
    pub run: Option<RunId>,
    /// The oldest open gate.
    pub gate: Option<GateId>,
    /// The other protocol that opened it, if any.
    pub protocol: Option<String>,
    /// The thinking level, if the session sets one.
    pub thinking: Option<String>,
    /// When it was opened.
    pub opened_at: Now,
    /// Whether it accepts more messages.
    pub open: SessionStatus,
    /// Whether a client of another protocol has unloaded it.
    pub unloaded: bool,
    /// The session that it is a fork of.
    pub parent: Option<SessionId>,
    /// The last event of the parent that it starts from.
    pub forked_at: Option<Seq>,
}

impl SessionRow {
    /// Builds the row from a snapshot.
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
            parent: opening.parent.clone(),
            forked_at: opening.forked_at,
        }
    }
}

/// The fields of a listing item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionItem<'a> {
    session_id: &'a str,
    state: StateWord,
    updated_at: u64,
    repo: Raw<'a>,
    cwd: &'a str,
    provider: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_user_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    active_run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_approval_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a str>,
    opened_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unloaded: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_at_seq: Option<u64>,
}

/// Encodes the listing item of a session.
pub fn session_item(row: &SessionRow) -> Json {
    let repo = repo_at(row.repo.as_ref(), &row.cwd);
    let mut out = Vec::new();
    let item = SessionItem {
        session_id: row.session.as_str(),
        state: row.phase.into(),
        updated_at: row.updated_at.0,
        repo: raw(&repo),
        cwd: &row.cwd,
        provider: &row.provider,
        model: row.model.as_deref(),
        name: row.name.as_deref(),
        last_user_message: row.last_message.as_deref(),
        active_run_id: row.run.as_ref().map(RunId::as_str),
        pending_approval_id: row.gate.as_ref().map(GateId::as_str),
        protocol: row.protocol.as_deref(),
        thinking: row.thinking.as_deref(),
        opened_at: row.opened_at.0,
        ended: (row.open == SessionStatus::Ended).then_some(true),
        unloaded: row.unloaded.then_some(true),
        parent_session_id: row.parent.as_ref().map(SessionId::as_str),
        forked_at_seq: row.forked_at.map(Seq::number),
    };
    json::value(&mut out, &item);
    // serde_json writes only UTF-8.
    Json::new(String::from_utf8(out).unwrap_or_default())
}

/// Returns whether an item written by [`session_item`] is of an ended session.
pub fn is_ended(item: &str) -> bool {
    #[derive(Deserialize)]
    struct Item {
        #[serde(default)]
        ended: bool,
    }
    serde_json::from_str(item).is_ok_and(|item: Item| item.ended)
}

/// Returns the client's description of the repository, with the session's directory as its root.
fn repo_at(repo: Option<&Json>, cwd: &str) -> Json {
    let mut fields: serde_json::Map<String, Value> =
        repo.and_then(|repo| serde_json::from_str(repo.as_str()).ok()).unwrap_or_default();
    if !cwd.is_empty() {
        fields.insert("rootPath".to_owned(), Value::from(cwd));
    }
    Json::new(Value::from(fields).to_string())
}

/// The listing item of a session.
///
/// What earlier versions wrote lacks some of it: such a session belongs to no other protocol and is neither ended nor unloaded.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedSession {
    /// The working directory of its tools.
    pub cwd: String,
    /// The provider.
    pub provider: String,
    /// The model of the provider.
    pub model: Option<String>,
    /// Its display name.
    pub name: Option<String>,
    /// The other protocol that opened it, if any.
    pub protocol: Option<String>,
    /// The thinking level, if the session sets one.
    pub thinking: Option<String>,
    /// When it was opened, in milliseconds.
    opened_at: Option<u64>,
    /// Whether it accepts no more messages.
    #[serde(default)]
    pub ended: bool,
    /// Whether a client of another protocol has unloaded it.
    #[serde(default)]
    pub unloaded: bool,
}

impl ListedSession {
    /// Parses a listing item; `None` if only the id of the session is known.
    pub fn parse(summary: &str) -> Option<Self> {
        serde_json::from_str(summary).ok()
    }

    /// Returns when it was opened, if recorded.
    pub fn opened_at(&self) -> Option<Now> {
        self.opened_at.map(Now)
    }
}

/// Returns the stored name of a session phase.
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "idle",
        Phase::Running => "running",
        Phase::Waiting => "awaiting_approval",
        Phase::Completed => "completed",
        Phase::Failed => "failed",
        Phase::Cancelled => "cancelled",
    }
}
