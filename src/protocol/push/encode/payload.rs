//! Encodes the payload of each response, from kernel answers and daemon state.

use serde::Serialize;

use super::search;

use crate::kernel::command::{Gap, Phase, QueueEntry, Repetition, Replay, SessionStatus, Snapshot};
use crate::kernel::event::DenialEffect;
use crate::kernel::id::{CallId, Json, MessageId, RunId, Seq, SessionId};
use crate::kernel::participant::{Authentication, Participant, Presence};
use crate::kernel::time::Now;
use crate::protocol::push::wire::response as wire;
use crate::protocol::push::{CAPABILITIES, PROTOCOL};
use crate::protocol::reply::{
    CircuitRow, Completion, GrantRow, JournalCheck, LossRow, MessagePage, Metrics, PendingApproval, ProblemRow,
    ProviderRow, Reply, Role, SessionFileRow,
};
use crate::record::encode::{OPTIONS, approval_required, gate_details, mode};
use crate::record::gate_compat;
use crate::record::json;
use crate::record::user_command_run_id;
use crate::record::wire::word::AuthenticationWord;
use crate::record::wire::{raw, some_text, text};

/// The payload of a response: one compact JSON object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload(String);

impl Payload {
    /// Returns the text of the object.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn of<T: Serialize>(value: &T) -> Self {
        let mut out = Vec::new();
        json::value(&mut out, value);
        // serde_json writes only UTF-8.
        Self(String::from_utf8(out).unwrap_or_default())
    }

    fn flag(name: &str) -> Self {
        Self(format!("{{\"{name}\":true}}"))
    }
}

/// Encodes the payload of a reply.
pub fn payload(reply: &Reply) -> Payload {
    match reply {
        Reply::Hello { version, home } => hello(version, home.as_deref()),
        Reply::Pong(now) => pong(*now),
        Reply::Started { session, phase, token, repetition } => started(session, *phase, token, *repetition),
        Reply::Attached { session, phase, replay } => attached(session, *phase, *replay),
        Reply::Prompted { run, repetition } => prompted(run, *repetition),
        Reply::Steered(run) => prompted(run, Repetition::First),
        Reply::Queued { message, run, position } => queued(message, run, *position),
        Reply::Queue(waiting) => queue(waiting),
        Reply::Snapshot(snapshot) => snapshot_payload(snapshot),
        Reply::UserCommandStarted(call) => user_command_started(call),
        Reply::Compacting(began) => compacting(*began),
        Reply::Done(completion) => Payload::flag(match completion {
            Completion::Detached => "detached",
            Completion::Unqueued => "removed",
            Completion::Accepted => "accepted",
            Completion::Renamed => "renamed",
            Completion::Ended => "ended",
            Completion::Revoked => "revoked",
            Completion::Draining => "draining",
            Completion::ProtocolSwitched => "speaking",
        }),
        Reply::Deleted { deleted: done, bytes, files } => deleted(*done, *bytes, files),
        Reply::Reloaded { variables, warning } => reloaded(*variables, warning.as_deref()),
        Reply::Participants(known) => participants(known),
        Reply::Joined(participant) => Payload::of(&wire::Created { id: participant.as_str() }),
        Reply::GateOpened(gate) => Payload::of(&wire::Created { id: gate.as_str() }),
        Reply::Messages(page) => messages(page),
        Reply::Sessions { items, next_cursor } => sessions(items, next_cursor.as_deref()),
        Reply::Approvals { pending, revision } => approvals(pending, *revision),
        Reply::SearchResults(results) => search::results(results),
        Reply::Stats(report) => search::stats(report),
        Reply::Grants(rows) => grants(rows),
        Reply::Providers(rows) => providers(rows),
        Reply::Metrics(row) => metrics(row),
        Reply::JournalCheck(check) => journal_check(check),
    }
}

/// Answers `hello`.
fn hello(runtime_version: &str, home_directory: Option<&str>) -> Payload {
    Payload::of(&wire::HelloReply {
        runtime_name: "pushd",
        runtime_version,
        protocol_version: PROTOCOL,
        capabilities: &CAPABILITIES,
        home_directory,
    })
}

/// Answers `ping`.
fn pong(now: Now) -> Payload {
    Payload::of(&wire::PongReply { pong: true, ts: now.0 })
}

/// Answers `start_session` and `fork_session`.
fn started(session: &SessionId, phase: Phase, attach_token: &str, repetition: Repetition) -> Payload {
    Payload::of(&wire::StartReply {
        session_id: session.as_str(),
        state: phase.into(),
        attach_token,
        repeated: repeated(repetition),
    })
}

/// Answers `attach_session` and `resume_session`.
fn attached(session: &SessionId, phase: Phase, replay: Replay) -> Payload {
    let gap = match replay.gap {
        Gap::None => false,
        Gap::Lost { .. } | Gap::Foreign => true,
    };
    Payload::of(&wire::AttachReply {
        session_id: session.as_str(),
        state: phase.into(),
        replay: wire::ReplayItem { from_seq: replay.from.number(), to_seq: replay.to.number(), completed: !gap, gap },
    })
}

/// Answers `send_user_message`.
fn prompted(run: &RunId, repetition: Repetition) -> Payload {
    Payload::of(&wire::RunReply { run_id: run.as_str(), accepted: true, repeated: repeated(repetition) })
}

/// Answers `queue_message`.
fn queued(message: &MessageId, run: &RunId, position: usize) -> Payload {
    Payload::of(&wire::QueuedReply { message_id: message.as_str(), run_id: run.as_str(), position })
}

/// Answers `list_queue`.
fn queue(waiting: &[QueueEntry]) -> Payload {
    let messages = waiting.iter().map(|one| wire::QueueItem {
        message_id: one.message.as_str(),
        run_id: one.run.as_str(),
        text: &one.text,
    });
    Payload::of(&wire::QueueReply { messages: messages.collect() })
}

/// Answers `list_participants`.
fn participants(known: &[(Participant, Presence)]) -> Payload {
    let item = |(known, presence)| {
        let known: &Participant = known;
        let (authentication, token) = match &known.authentication {
            Authentication::LocalUser => (AuthenticationWord::LocalUser, None),
            Authentication::Token { name } => (AuthenticationWord::Token, Some(name.as_str())),
        };
        wire::ParticipantItem {
            participant_id: known.id.as_str(),
            participant_kind: known.kind.into(),
            name: &known.name,
            roles: known.roles.iter().map(|role| (*role).into()).collect(),
            capabilities: known.capabilities.iter().map(Into::into).collect(),
            authentication,
            token,
            approval_granted: known.approval_granted.then_some(true),
            online: presence == Presence::Online,
        }
    };
    let participants = known.iter().map(|(known, presence)| item((known, *presence))).collect();
    Payload::of(&wire::Participants { participants })
}

/// Answers `run_user_command` with the ids that its events have.
fn user_command_started(call: &CallId) -> Payload {
    let run = user_command_run_id(call);
    Payload::of(&wire::UserCommandReply { call_id: call.as_str(), run_id: run.as_str() })
}

/// Answers `compact_session` with the position of the start event.
fn compacting(began: Seq) -> Payload {
    Payload::of(&wire::CompactReply { compacting: true, seq: began.number() })
}

/// Answers `delete_session`; for a dry run, with what would be deleted.
fn deleted(deleted: bool, bytes: u64, pi_files: &[SessionFileRow]) -> Payload {
    Payload::of(&wire::DeleteReply { deleted, bytes, pi_files: pi_files.iter().map(pi_file).collect() })
}

fn pi_file(row: &SessionFileRow) -> wire::PiFileItem<'_> {
    let SessionFileRow { path, bytes, created, removed, problem } = row;
    let (bytes, created, removed) = (*bytes, *created, *removed);
    wire::PiFileItem { path, bytes, created, removed, problem: problem.as_deref() }
}

/// Answers `reload` with the number of variables of the login shell, or a warning why the daemon's environment is used.
fn reloaded(variables: usize, warning: Option<&str>) -> Payload {
    Payload::of(&wire::ReloadReply { reloaded: true, variables, warning })
}

/// Answers `get_session_snapshot`; also the payload of `session_snapshot`.
pub fn snapshot_payload(snapshot: &Snapshot) -> Payload {
    let opening = &snapshot.opening;
    Payload::of(&wire::SnapshotItem {
        state: snapshot.phase.into(),
        active_run_id: snapshot.run.as_ref().map(|run| text(run.as_str())),
        last_assistant_text: &snapshot.last_text,
        pending_approval: snapshot.question.as_ref().map(approval_required),
        meta: wire::Meta {
            provider: snapshot.provider(),
            sandbox_provider: &opening.sandbox,
            model: some_text(snapshot.model()),
            cwd: &opening.cwd,
            repo: opening.repo.as_ref().map(raw),
            name: some_text(snapshot.name.as_ref()),
            mode: mode(opening),
            parent_session_id: opening.parent.as_ref().map(SessionId::as_str),
            forked_at_seq: opening.forked_at.map(Seq::number),
        },
        last_seq: snapshot.last_seq.number(),
        last_user_message: non_empty(&snapshot.last_message),
        queued: snapshot.queued,
        ended: match snapshot.open {
            SessionStatus::Open => false,
            SessionStatus::Ended => true,
        },
        last_run: snapshot.last_run.as_ref().map(|(run, outcome, exit_code)| wire::LastRun {
            run_id: run.as_str(),
            outcome: (*outcome).into(),
            exit_code: *exit_code,
        }),
        opened_at: snapshot.opened_at.0,
        updated_at: snapshot.updated_at.0,
        session_version: snapshot.version,
    })
}

/// Answers `get_session_messages`.
fn messages(page: &MessagePage) -> Payload {
    let messages = page.messages.iter().map(|row| wire::MessageItem {
        seq: row.seq.number(),
        ts: row.at.0,
        role: match row.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        },
        message_id: row.message.as_str(),
        run_id: row.run.as_ref().map(RunId::as_str),
        text: &row.text,
    });
    Payload::of(&wire::MessagesReply {
        messages: messages.collect(),
        next_after_seq: page.next_after.number(),
        done: page.done,
    })
}

/// Answers `list_sessions` with items written by [`session_item`](crate::record::summary::session_item).
fn sessions(items: &[Json], next_cursor: Option<&str>) -> Payload {
    Payload::of(&wire::SessionsReply { sessions: items.iter().map(raw).collect(), next_cursor })
}

/// Answers `list_approvals`.
fn approvals(pending: &[PendingApproval], revision: Option<u64>) -> Payload {
    let approvals = pending.iter().map(|one| wire::ApprovalItem {
        session_id: one.session.as_str(),
        run_id: one.run.as_ref().map(RunId::as_str),
        approval_id: one.question.gate.as_str(),
        kind: &one.question.kind,
        title: &one.question.title,
        summary: &one.question.summary,
        details: gate_details(&one.question),
        options: OPTIONS,
        expires_at: one.question.expires.0,
        call_id: gate_compat::call_id(&one.question),
        needed: Some(gate_compat::needed(&one.question.quorum)).filter(|needed| *needed != 1),
        quorum: gate_compat::quorum_item(&one.question.quorum),
        eligible: gate_compat::eligible_item(&one.question),
        subject: gate_compat::subject_word(&one.question),
        resource: gate_compat::resource_word(&one.question),
        remember: one.question.grant_rule.as_deref(),
        sha256: one.question.digest.as_deref(),
        on_denial: Some(one.question.on_denial).filter(|denial| *denial != DenialEffect::EndRun).map(Into::into),
        form: one.question.form().map(raw),
    });
    Payload::of(&wire::ApprovalsReply { approvals: approvals.collect(), revision })
}

/// Answers `list_grants`.
fn grants(rows: &[GrantRow]) -> Payload {
    let grants = rows.iter().map(|row| wire::GrantItem {
        grant_id: &row.id,
        repository: &row.repository,
        rule: &row.rule,
        by: &row.by,
        granted_at: row.at.0,
    });
    Payload::of(&wire::GrantsReply { grants: grants.collect() })
}

/// Answers `list_providers`.
fn providers(rows: &[ProviderRow]) -> Payload {
    let providers = rows.iter().map(|row| wire::ProviderItem {
        name: &row.name,
        models: &row.models,
        configured: row.configured,
        default: row.default,
    });
    Payload::of(&wire::ProvidersReply { providers: providers.collect() })
}

/// Answers `get_metrics`.
fn metrics(metrics: &Metrics) -> Payload {
    Payload::of(&wire::MetricsItem {
        pid: metrics.pid,
        version: &metrics.version,
        uptime_seconds: metrics.uptime_seconds,
        socket: &metrics.socket,
        http: metrics.http.as_deref(),
        pi: metrics.pi.as_deref(),
        pvp: None,
        sessions: metrics.sessions,
        resident_sessions: metrics.resident_sessions,
        active_runs: metrics.active_runs,
        connections: metrics.connections,
        events: metrics.events,
        journal_bytes: metrics.journal_bytes,
        memory_bytes: metrics.memory_bytes,
        draining: metrics.draining,
        grace_ms: metrics.grace_ms,
        circuits: metrics.circuits.iter().map(circuit).collect(),
        search_index_error: metrics.search_index_error.as_deref(),
        sandbox: metrics.sandbox.as_ref().map(raw),
    })
}

fn circuit(row: &CircuitRow) -> wire::CircuitItem<'_> {
    wire::CircuitItem {
        provider: &row.provider,
        base_url: &row.base_url,
        state: &row.state,
        failures_in_a_row: row.failures_in_a_row,
        opened: row.opened,
        refused: row.refused,
    }
}

/// Answers `check_journal`.
fn journal_check(check: &JournalCheck) -> Payload {
    Payload::of(&wire::JournalCheckItem {
        schema: check.schema,
        sessions: check.sessions,
        used_bytes: check.used_bytes,
        database_bytes: check.database_bytes,
        log_bytes: check.log_bytes,
        marks_bytes: check.marks_bytes,
        set_aside_files: check.set_aside_files,
        set_aside_bytes: check.set_aside_bytes,
        set_aside_blocks: check.set_aside_blocks,
        left_in_order: check.clean_shutdown,
        marks_kept: check.marks_enabled,
        disk_full: check.disk_full,
        sync_failed: check.sync_failed,
        losses_total: check.losses_total,
        losses: check.losses.iter().map(loss).collect(),
        proof: check.integrity.as_ref().map(|proof| wire::IntegrityItem {
            sessions: proof.sessions,
            bytes: proof.bytes,
            found: proof.found.iter().map(loss).collect(),
            problems_total: proof.problems_total,
            problems: proof.problems.iter().map(problem).collect(),
        }),
    })
}

fn loss(loss: &LossRow) -> wire::LossItem<'_> {
    wire::LossItem {
        found_at: loss.at.0,
        session_id: loss.session.as_ref().map(SessionId::as_str),
        after_seq: loss.after.number(),
        until_seq: loss.until.number(),
        cause: &loss.cause,
        detail: loss.detail.as_deref(),
    }
}

fn problem(problem: &ProblemRow) -> wire::ProblemItem<'_> {
    wire::ProblemItem { session_id: problem.session.as_str(), what: &problem.what }
}

fn repeated(repetition: Repetition) -> Option<bool> {
    match repetition {
        Repetition::First => None,
        Repetition::Repeated => Some(true),
    }
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
