//! Replies to requests, as far as the client reads them.
//!
//! Unknown fields are ignored, and a missing field has its default: the daemon may be older or newer than the client.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::kernel::command::Phase;
use crate::kernel::event::{GateQuestion, RunOutcome};
use crate::record::gate_question;
use crate::record::summary::phase_name;
use crate::record::wire::event::ApprovalRequired;
use crate::record::wire::word::OutcomeWord;

/// A reply whose content the client does not read.
pub type AckReply = serde::de::IgnoredAny;

macro_rules! replies {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }
    )*};
}

replies! {
    /// `hello`
    struct HelloReply {
        /// The version of the daemon.
        runtime_version: Option<String>,
        /// The home directory of the daemon's user.
        home_directory: Option<String>,
    }

    /// `start_session` and `fork_session`
    struct StartReply {
        /// The session.
        session_id: String,
    }

    /// `attach_session`
    struct AttachReply {
        /// The replay that follows.
        replay: Replay,
    }

    /// The range of replayed events.
    struct Replay {
        /// The first seq of the replay.
        from_seq: u64,
        /// The last seq of the session.
        to_seq: u64,
        /// Whether earlier events are lost and a snapshot is sent in their place.
        gap: bool,
    }

    /// `send_user_message` and `steer`
    struct RunReply {
        /// The run that the message belongs to.
        run_id: String,
        /// Whether the message was sent before.
        repeated: bool,
    }

    /// `queue_message`
    struct QueuedReply {
        /// The message.
        message_id: String,
        /// Its position in the queue; zero if it started a run at once.
        position: u64,
    }

    /// `list_queue`
    struct QueueReply {
        /// The queued messages.
        messages: Vec<QueuedMessage>,
    }

    /// A queued message.
    struct QueuedMessage {
        /// Its id.
        message_id: String,
        /// Its text.
        text: String,
    }

    /// A session in a listing.
    struct SessionItem {
        /// Its id.
        session_id: String,
        /// Its state.
        state: SessionState,
        /// Whether it accepts no more messages.
        ended: bool,
        /// When its last event occurred.
        updated_at: Option<u64>,
        /// When it was opened.
        opened_at: u64,
        /// The description of its repository.
        #[serde(deserialize_with = "lenient")]
        repo: RepositoryInfo,
        /// The working directory of its tools.
        cwd: String,
        /// The provider.
        provider: String,
        /// The model of the provider.
        model: Option<String>,
        /// Its display name.
        name: Option<String>,
        /// The end of the last user message.
        last_user_message: Option<String>,
        /// The oldest pending approval.
        pending_approval_id: Option<String>,
    }

    /// The description of a repository, as the client that opened the session gave it.
    struct RepositoryInfo {
        /// Its root directory.
        #[serde(deserialize_with = "lenient")]
        root_path: Option<String>,
        /// The branch that was checked out.
        #[serde(deserialize_with = "lenient")]
        current_branch: Option<String>,
    }

    /// `get_session_snapshot`, and the event that replaces missing ones.
    struct SessionSnapshot {
        /// The state of the session.
        state: SessionState,
        /// The active run.
        active_run_id: Option<String>,
        /// The last message of the assistant.
        last_assistant_text: String,
        /// The oldest pending approval.
        #[serde(deserialize_with = "approval")]
        pending_approval: Option<GateQuestion>,
        /// The settings.
        meta: SessionMeta,
        /// The seq of the last event.
        last_seq: u64,
        /// The end of the last user message.
        last_user_message: Option<String>,
        /// How many messages are queued.
        queued: u64,
        /// Whether it accepts no more messages.
        ended: bool,
        /// How the last run ended.
        last_run: Option<LastRun>,
        /// When it was opened.
        opened_at: Option<u64>,
        /// When its last event occurred.
        updated_at: Option<u64>,
    }

    /// The settings of a session.
    struct SessionMeta {
        /// The provider.
        provider: String,
        /// The model of the provider.
        model: Option<String>,
        /// The working directory of its tools.
        cwd: String,
        /// The description of its repository.
        #[serde(deserialize_with = "lenient")]
        repo: RepositoryInfo,
        /// Its display name.
        name: Option<String>,
        /// The session that it is a fork of.
        parent_session_id: Option<String>,
        /// The last event of the parent that it starts from.
        forked_at_seq: Option<u64>,
    }

    /// `list_approvals`
    struct ApprovalsReply {
        /// The pending approvals.
        approvals: Vec<ListedApproval>,
        /// The revision of the list, if the request has named one.
        revision: Option<u64>,
    }

    /// `search`
    struct SearchReply {
        /// The hits.
        hits: Vec<SearchHit>,
        /// Whether every session was searched.
        complete: bool,
        /// The number of sessions that are not indexed yet.
        missing_sessions: u64,
    }

    /// A text that matches a search.
    struct SearchHit {
        /// Its session.
        session_id: String,
        /// The name of the session.
        name: Option<String>,
        /// The working directory of the session.
        cwd: String,
        /// `message`, `tool` or `name`.
        kind: String,
        /// The seq of its first event.
        seq: u64,
        /// When it began.
        ts: u64,
        /// The text around the first match.
        excerpt: Vec<ExcerptSegment>,
    }

    /// A piece of an excerpt.
    struct ExcerptSegment {
        /// The text.
        text: String,
        /// Whether it matches.
        #[serde(rename = "match")]
        is_match: bool,
    }

    /// `get_stats`
    struct StatsReply {
        /// The figures by day, directory and model.
        rows: Vec<StatsRow>,
        /// The tools, most calls first.
        tools: Vec<ToolStats>,
        /// The sessions with a known cost, if they were asked for.
        sessions: Vec<SessionCost>,
        /// Whether every session is included.
        complete: bool,
        /// The number of sessions that are not.
        missing_sessions: u64,
    }

    /// The figures of one day, directory and model.
    struct StatsRow {
        /// The local day of the daemon.
        day: String,
        /// The working directory of the sessions.
        directory: String,
        /// The model.
        model: String,
        /// Runs that succeeded.
        succeeded: u64,
        /// Runs that failed.
        failed: u64,
        /// Runs that were cancelled.
        cancelled: u64,
        /// Runs that were denied.
        denied: u64,
        /// Turns of the model.
        turns: u64,
        /// Input tokens.
        input_tokens: u64,
        /// Output tokens.
        output_tokens: u64,
        /// Cost in millionths of a US dollar, as far as it is known.
        cost_micro_usd: u64,
        /// Turns without a known cost.
        unpriced_turns: u64,
        /// Tool calls that have ended.
        tool_calls: u64,
        /// Those that failed.
        tool_failures: u64,
        /// Approvals that were requested.
        approvals: u64,
        /// Those that were granted.
        approved: u64,
        /// Those that were denied.
        refused: u64,
    }

    /// The cost of one session.
    struct SessionCost {
        /// The session.
        session_id: String,
        /// Its cost in millionths of a US dollar, as far as it is known.
        cost_micro_usd: u64,
    }

    /// The calls of one tool.
    struct ToolStats {
        /// Its name.
        tool: String,
        /// Calls that have ended.
        calls: u64,
        /// Those that failed.
        failures: u64,
    }

    /// `list_grants`
    struct GrantsReply {
        /// The grants of all repositories.
        grants: Vec<Grant>,
    }

    /// A grant: a rule that applies in a repository until it is revoked.
    struct Grant {
        /// Its id.
        grant_id: String,
        /// Its repository.
        repository: String,
        /// Which calls need no approval.
        rule: String,
        /// Who granted it.
        by: String,
        /// When it was granted.
        granted_at: u64,
    }

    /// `reload`
    struct ReloadReply {
        /// The number of variables of the login shell.
        variables: u64,
        /// Why the environment of the daemon is used in place of the login shell's.
        warning: Option<String>,
    }

    /// `run_user_command`
    struct UserCommandReply {
        /// The call of the command, which its events name.
        call_id: String,
        /// The run id of its events. No `run_complete` has it.
        run_id: String,
    }

    /// `compact_session`
    struct CompactReply {
        /// The seq of the event that started the compaction.
        seq: u64,
    }

    /// `delete_session`
    struct DeleteReply {
        /// The size of the session.
        bytes: u64,
        /// Its Pi session files.
        pi_files: Vec<PiFile>,
    }

    /// `check_journal`
    struct JournalReply {
        /// The schema of the database.
        schema: u64,
        /// How many sessions are stored.
        sessions: u64,
        /// Bytes in use in the database.
        used_bytes: u64,
        /// Size of the database file.
        database_bytes: u64,
        /// Size of its write-ahead log.
        log_bytes: u64,
        /// Size of the external mark files.
        marks_bytes: u64,
        /// Number of blocks that were set aside because their checksum did not match.
        set_aside_blocks: u64,
        /// Whether the previous shutdown was clean.
        left_in_order: bool,
        /// Whether marks are written outside the database.
        marks_kept: bool,
        /// Whether the disk is full.
        disk_full: bool,
        /// Whether a sync has failed, so that the journal accepts no more writes.
        sync_failed: bool,
        /// Number of recorded losses.
        losses_total: u64,
        /// The most recent losses, newest first.
        losses: Vec<Loss>,
        /// The result of a full verification.
        proof: Option<IntegrityReply>,
    }

    /// A range of lost events.
    struct Loss {
        /// When the loss was detected.
        found_at: u64,
        /// Its session, if known.
        session_id: Option<String>,
        /// The last position before the range.
        after_seq: u64,
        /// The last position that may be lost.
        until_seq: u64,
        /// The cause.
        cause: String,
        /// Details.
        detail: Option<String>,
    }

    /// The result of a full verification.
    struct IntegrityReply {
        /// Number of verified sessions.
        sessions: u64,
        /// Bytes of verified events.
        bytes: u64,
        /// The losses it found.
        found: Vec<Loss>,
        /// Number of sessions that could not be verified or repaired.
        problems_total: u64,
        /// The first of them.
        problems: Vec<SessionProblem>,
    }

    /// A session that could not be verified or repaired.
    struct SessionProblem {
        /// The session.
        session_id: String,
        /// The problem, for people.
        what: String,
    }

    /// `get_metrics`; an older daemon may not report all of them.
    struct MetricsReply {
        /// The process id.
        pid: Option<u32>,
        /// The version.
        version: Option<String>,
        /// The uptime in seconds.
        uptime_seconds: Option<u64>,
        /// The path of the socket.
        socket: Option<String>,
        /// The address of the HTTP listener.
        http: Option<String>,
        /// The address of the Pi endpoint.
        pi: Option<String>,
        /// The address of the PVP endpoint.
        pvp: Option<String>,
        /// How many sessions are stored.
        sessions: Option<u64>,
        /// How many sessions are in memory.
        resident_sessions: Option<u64>,
        /// How many runs are active.
        active_runs: Option<u64>,
        /// How many clients are connected.
        connections: Option<u64>,
        /// How many events it has recorded.
        events: Option<u64>,
        /// The size of the journal.
        journal_bytes: Option<u64>,
        /// The memory usage.
        memory_bytes: Option<u64>,
        /// Whether it is draining and accepts no new runs.
        draining: bool,
        /// The default grace period of `drain` in milliseconds.
        grace_ms: Option<u64>,
        /// Why the search index cannot be extended.
        search_index_error: Option<String>,
        /// The available confinement, if requested.
        sandbox: Option<SandboxReply>,
    }

    /// The available confinement of commands of models.
    struct SandboxReply {
        /// The provider.
        provider: String,
        /// The configured mechanism.
        mechanism: Option<String>,
        /// `full`, `partial` or `missing`.
        strength: String,
        /// The active layers.
        layers: Vec<String>,
        /// Why it is not stronger.
        why: Option<String>,
        /// The hidden directories of the home.
        hidden: Vec<String>,
        /// The readable parts of those.
        readable: Vec<String>,
        /// The caches with a private copy.
        caches: Vec<String>,
    }
}

/// `list_sessions`: one page of the listing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPage<T = SessionItem> {
    /// The sessions, newest first.
    #[serde(default = "Vec::new")]
    pub sessions: Vec<T>,
    /// Where the next page starts, if there is one.
    pub next_cursor: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastRun {
    /// The run.
    pub run_id: String,
    /// Its outcome.
    #[serde(deserialize_with = "outcome")]
    pub outcome: RunOutcome,
    /// Its exit code, for scripts.
    pub exit_code: u8,
}

/// A Pi session file of a session that is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PiFile {
    /// Its path.
    pub path: String,
    /// Its size before deletion.
    pub bytes: u64,
    /// Whether the daemon created it; otherwise it was imported.
    pub created: bool,
    /// Whether it was deleted.
    pub removed: bool,
    /// Why it could not be deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum SessionState {
    /// A state that this version knows.
    Known(Phase),
    /// The word of a newer daemon.
    Unknown(String),
}

impl SessionState {
    /// Returns the protocol's name of the state.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(phase) => phase_name(*phase),
            Self::Unknown(word) => word,
        }
    }
}

impl Default for SessionState {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

impl From<String> for SessionState {
    fn from(word: String) -> Self {
        let phases = [Phase::Idle, Phase::Running, Phase::Waiting, Phase::Completed, Phase::Failed, Phase::Cancelled];
        phases.into_iter().find(|phase| phase_name(*phase) == word).map_or(Self::Unknown(word), Self::Known)
    }
}

/// A pending approval with its session and its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedApproval {
    /// Its session.
    pub session: String,
    /// Its run.
    pub run: Option<String>,
    /// What it asks for.
    pub question: GateQuestion,
}

impl<'de> Deserialize<'de> for ListedApproval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Head {
            session_id: String,
            run_id: Option<String>,
        }
        // The fields of the approval stand beside those of its session, so the object is read twice.
        let item = Box::<RawValue>::deserialize(deserializer)?;
        let head: Head = serde_json::from_str(item.get()).map_err(Error::custom)?;
        let approval: ApprovalRequired<'_> = serde_json::from_str(item.get()).map_err(Error::custom)?;
        Ok(Self { session: head.session_id, run: head.run_id, question: gate_question(approval) })
    }
}

fn approval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<GateQuestion>, D::Error> {
    Ok(Option::<ApprovalRequired<'_>>::deserialize(deserializer)?.map(gate_question))
}

fn outcome<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunOutcome, D::Error> {
    OutcomeWord::deserialize(deserializer).map(Into::into)
}

/// Reads what another client or a model wrote: a value of another type counts as missing.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kernel::command::{Gap, QueueEntry, Repetition, Replay as KernelReplay, SessionStatus, Snapshot};
    use crate::kernel::event::{Adjustment, DenialEffect, Opening};
    use crate::kernel::gate::GateSubject;
    use crate::kernel::id::{Json, RunId, Seq, SessionId};
    use crate::kernel::quorum::Quorum;
    use crate::kernel::time::Now;
    use crate::protocol::push::encode;
    use crate::protocol::reply::{
        GrantRow, IntegrityReport, JournalCheck, LossRow, Metrics, PendingApproval, Reply, SessionFileRow,
    };
    use crate::record::summary::{SessionRow, session_item};

    #[test]
    fn every_reply_is_read_as_the_daemon_writes_it() {
        let (session, run) = (SessionId::new("sess_1"), RunId::new("run_1"));
        let hello: HelloReply = read(&Reply::Hello { version: "1.2", home: Some("/home/me".into()) });
        assert_eq!(hello.runtime_version.as_deref(), Some("1.2"));
        assert_eq!(hello.home_directory.as_deref(), Some("/home/me"));
        let (phase, token, repetition) = (Phase::Idle, "token".to_owned(), Repetition::First);
        let started: StartReply = read(&Reply::Started { session: session.clone(), phase, token, repetition });
        assert_eq!(started.session_id, "sess_1");
        let replay = KernelReplay { from: Seq::new(3), to: Seq::new(9), gap: Gap::Foreign };
        let attached: AttachReply = read(&Reply::Attached { session, phase, replay });
        assert_eq!(attached.replay, Replay { from_seq: 3, to_seq: 9, gap: true });
        let prompted: RunReply = read(&Reply::Prompted { run: run.clone(), repetition: Repetition::Repeated });
        assert_eq!(prompted, RunReply { run_id: "run_1".into(), repeated: true });
        let queued: QueuedReply = read(&Reply::Queued { message: "msg_1".into(), run: run.clone(), position: 2 });
        assert_eq!(queued, QueuedReply { message_id: "msg_1".into(), position: 2 });
        let entry = QueueEntry { message: "msg_1".into(), run, text: "then".into() };
        let queue: QueueReply = read(&Reply::Queue(vec![entry]));
        assert_eq!(queue.messages, [QueuedMessage { message_id: "msg_1".into(), text: "then".into() }]);
        let started: UserCommandReply = read(&Reply::UserCommandStarted("call_1".into()));
        assert_eq!(started, UserCommandReply { call_id: "call_1".into(), run_id: "run_1_user".into() });
        let compacting: CompactReply = read(&Reply::Compacting(Seq::new(7)));
        assert_eq!(compacting.seq, 7);
        let reloaded: ReloadReply = read(&Reply::Reloaded { variables: 12, warning: Some("why".into()) });
        assert_eq!(reloaded, ReloadReply { variables: 12, warning: Some("why".into()) });
        let file =
            SessionFileRow { path: "/p".into(), bytes: 5, created: true, removed: false, problem: Some("x".into()) };
        let deleted = Reply::Deleted { deleted: true, bytes: 9, files: vec![file] };
        let reply: DeleteReply = read(&deleted);
        assert_eq!((reply.bytes, reply.pi_files[0].created), (9, true));
        assert_eq!(json!({"deleted": true, "bytes": 9, "piFiles": reply.pi_files}), read::<Value>(&deleted));
        let grant = GrantRow {
            id: "grant_1".into(),
            repository: "/r".into(),
            rule: "allow: exec(make)".into(),
            by: "cli".into(),
            at: Now(4),
        };
        let grants: GrantsReply = read(&Reply::Grants(vec![grant]));
        let Grant { grant_id, repository, rule, by, granted_at } = &grants.grants[0];
        assert_eq!((grant_id.as_str(), repository.as_str(), by.as_str(), *granted_at), ("grant_1", "/r", "cli", 4));
        assert_eq!(rule, "allow: exec(make)");
    }

    #[test]
    fn the_state_of_the_daemon_and_of_its_journal_is_read_as_it_writes_it() {
        let metrics: MetricsReply = read(&Reply::Metrics(Box::new(Metrics {
            pid: 7,
            version: "1.2".into(),
            active_runs: 2,
            grace_ms: 10,
            draining: true,
            sandbox: Some(Json::new(r#"{"strength":"full","layers":["seccomp"],"why":null,"provider":"local"}"#)),
            ..Metrics::default()
        })));
        assert_eq!((metrics.pid, metrics.active_runs, metrics.grace_ms), (Some(7), Some(2), Some(10)));
        assert!(metrics.draining && metrics.http.is_none());
        let sandbox = metrics.sandbox.unwrap();
        assert_eq!((sandbox.strength.as_str(), sandbox.layers), ("full", vec!["seccomp".to_owned()]));
        let loss = LossRow {
            at: Now(1),
            session: Some(SessionId::new("sess_1")),
            after: Seq::new(2),
            until: Seq::new(3),
            cause: "power".into(),
            detail: None,
        };
        let check: JournalReply = read(&Reply::JournalCheck(Box::new(JournalCheck {
            schema: 1001,
            clean_shutdown: true,
            marks_enabled: true,
            losses_total: 1,
            losses: vec![loss],
            integrity: Some(IntegrityReport { sessions: 4, ..Default::default() }),
            ..JournalCheck::default()
        })));
        assert!(check.left_in_order && check.marks_kept && !check.disk_full);
        assert_eq!((check.schema, check.losses_total, check.losses[0].until_seq), (1001, 1, 3));
        assert_eq!(check.losses[0].session_id.as_deref(), Some("sess_1"));
        assert_eq!(check.proof.unwrap().sessions, 4);
    }

    #[test]
    fn sessions_and_their_approvals_are_read_as_the_daemon_writes_them() {
        let question = GateQuestion {
            gate: "appr_1".into(),
            subject: GateSubject::ToolCall { call: "call_1".into() },
            kind: "exec".into(),
            title: "Run a command".into(),
            summary: "make".into(),
            details: Json::new(r#"{"command":"make"}"#),
            choices: vec!["again".into(), "stop".into()],
            quorum: Quorum::Any(2),
            eligible: None,
            expires: Now(99),
            grant_rule: Some("allow: exec(make)".into()),
            digest: None,
            on_denial: DenialEffect::InformModel,
        };
        let (session, run) = (SessionId::new("sess_1"), RunId::new("run_1"));
        let pending = PendingApproval { session: session.clone(), run: Some(run.clone()), question: question.clone() };
        let approvals: ApprovalsReply = read(&Reply::Approvals { pending: vec![pending], revision: Some(7) });
        let listed = ListedApproval { session: "sess_1".into(), run: Some("run_1".into()), question: question.clone() };
        assert_eq!(approvals.approvals, [listed]);
        let snapshot = snapshot(question.clone());
        let reply: SessionSnapshot = read(&Reply::Snapshot(Box::new(snapshot.clone())));
        assert_eq!((reply.state.clone(), reply.active_run_id.as_deref()), {
            (SessionState::Known(Phase::Waiting), Some("run_1"))
        });
        assert_eq!((reply.pending_approval, reply.last_seq, reply.queued), (Some(question), 9, 3));
        let last = LastRun { run_id: "run_0".into(), outcome: RunOutcome::Denied, exit_code: 3 };
        assert_eq!((reply.last_run, reply.meta.cwd.as_str()), (Some(last), "/r/sub"));
        assert_eq!(reply.meta.repo.current_branch.as_deref(), Some("main"));
        let item = session_item(&SessionRow::of(&session, &snapshot));
        let page: SessionPage = read(&Reply::Sessions { items: vec![item], next_cursor: Some("next".into()) });
        assert_eq!((page.sessions[0].session_id.as_str(), page.next_cursor.as_deref()), ("sess_1", Some("next")));
        assert_eq!((page.sessions[0].opened_at, page.sessions[0].updated_at), (5, Some(6)));
        assert_eq!(page.sessions[0].repo.root_path.as_deref(), Some("/r/sub"));
    }

    #[test]
    fn missing_fields_have_defaults_and_unknown_ones_are_ignored() {
        assert_eq!(read_text::<SessionSnapshot>("{}"), SessionSnapshot::default());
        assert_eq!(read_text::<JournalReply>(r#"{"more":[1]}"#), JournalReply::default());
        assert_eq!(read_text::<MetricsReply>(r#"{"sandbox":{}}"#).sandbox, Some(SandboxReply::default()));
        // Another client described the repository, and a newer daemon has a state that this version does not know.
        let text = r#"{"sessions":[{"state":"paused","repo":{"rootPath":7,"currentBranch":"main"}},{"repo":"x"}]}"#;
        let page: SessionPage = read_text(text);
        assert_eq!(page.sessions[0].state.as_str(), "paused");
        assert_eq!(page.sessions[0].repo, RepositoryInfo { root_path: None, current_branch: Some("main".into()) });
        assert_eq!(page.sessions[1], SessionItem::default());
    }

    fn snapshot(question: GateQuestion) -> Snapshot {
        let opening = Opening {
            cwd: "/r/sub".into(),
            repo: Some(Json::new(r#"{"rootPath":"/r","currentBranch":"main"}"#)),
            ..Opening::default()
        };
        Snapshot {
            phase: Phase::Waiting,
            opening,
            name: None,
            run: Some(RunId::new("run_1")),
            question: Some(question),
            open_gates: 1,
            last_text: "said".into(),
            last_message: "asked".into(),
            last_seq: Seq::new(9),
            opened_at: Now(5),
            updated_at: Now(6),
            last_run: Some((RunId::new("run_0"), RunOutcome::Denied, 3)),
            queued: 3,
            open: SessionStatus::Open,
            version: 0,
            adjusted: Adjustment::default(),
        }
    }

    fn read<T: DeserializeOwned>(reply: &Reply) -> T {
        read_text(encode::payload(reply).as_str())
    }

    fn read_text<T: DeserializeOwned>(text: &str) -> T {
        serde_json::from_str(text).unwrap()
    }
}
