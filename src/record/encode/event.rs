//! Encodes the payload of each event.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::message::{steered, user_message};
use super::participant;
use super::tool::{tool_call, tool_result};
use super::{EventHead, json};
use crate::kernel::event::{
    Adjustment, ApprovalScope, Branch, Compaction, ContextEvent, DenialEffect, EventKind, GateDecision, GateEvent,
    GateQuestion, NoticeEvent, Opening, OutputStream, PendingCall, Retry, RunEvent, RunReport, SessionEvent, ToolEvent,
    TurnUsage, UnknownEvent, WorkspaceIdentity,
};
use crate::kernel::id::{ParticipantId, RunId, Seq, SessionId};
use crate::record::gate_compat;
use crate::record::wire::event::{
    Acceptance, AcceptanceResult, ApprovalReceived, ApprovalRequired, ApprovalVote, AssistantDone, CompactionEnded,
    CompactionStarted, ContextCompacted, EventsLost, Failure, Headless, MessageUnqueued, PendingCallItem, RetryEnded,
    RetryStarted, RunComplete, RunRecovered, SessionAdjusted, SessionBranched, SessionEnded, SessionRenamed,
    SessionStarted, SessionTouched, Status, StoppingItem, Usage, Warning, WorkspaceItem,
};
use crate::record::wire::word::{DecisionWord, IdleWord};
use crate::record::wire::{Raw, Text, raw, single_line, some_text, text};

/// Appends the line of an event.
pub(super) fn write(head: &EventHead<'_>, kind: &EventKind, out: &mut Vec<u8>) {
    match kind {
        EventKind::Session(event) => write_session_event(head, event, out),
        EventKind::Run(event) => write_run_event(head, event, out),
        EventKind::Tool(event) => write_tool_event(head, event, out),
        EventKind::Gate(event) => write_gate_event(head, event, out),
        EventKind::Participant(event) => participant::write(head, event, out),
        EventKind::Context(event) => write_context_event(head, event, out),
        EventKind::Notice(event) => write_notice_event(head, event, out),
    }
}

fn write_session_event(head: &EventHead<'_>, event: &SessionEvent, out: &mut Vec<u8>) {
    match event {
        SessionEvent::Opened(opening) => head.write_payload("session_started", out, &session_started(head, opening)),
        SessionEvent::Renamed { name } => {
            head.write_payload("session_renamed", out, &SessionRenamed { name: text(name) })
        }
        SessionEvent::Ended { by } => head.write_payload("session_ended", out, &SessionEnded { by: text(by) }),
        SessionEvent::VersionBumped { change: what, by } => {
            head.write_payload("session_touched", out, &SessionTouched { what: text(what), by: text(by) });
        }
        SessionEvent::Loaded { by } => head.write_payload("session_loaded", out, &SessionEnded { by: text(by) }),
        SessionEvent::Adjusted { adjustment, by } => {
            head.write_payload("session_adjusted", out, &adjusted(adjustment, by));
        }
    }
}

fn write_run_event(head: &EventHead<'_>, event: &RunEvent, out: &mut Vec<u8>) {
    match event {
        RunEvent::TextDelta { text } => head.line("assistant_token", out, |out| token(out, text)),
        RunEvent::ThinkingDelta { text } => head.line("thinking_token", out, |out| token(out, text)),
        RunEvent::Started(message) => head.write_payload("user_message", out, &user_message(message, None)),
        RunEvent::MessageQueued(queued) => {
            head.write_payload("message_queued", out, &user_message(&queued.message, Some(&queued.run)))
        }
        RunEvent::MessageUnqueued { message, by } => {
            let gone = MessageUnqueued { message_id: text(message.as_str()), by: text(by) };
            head.write_payload("message_unqueued", out, &gone);
        }
        RunEvent::Steered(steering) => head.write_payload("user_message", out, &steered(steering)),
        RunEvent::TextDone { message } => {
            head.write_payload("assistant_done", out, &AssistantDone { message_id: text(message.as_str()) })
        }
        RunEvent::TurnUsage(turn) => head.write_payload("usage", out, &usage(turn)),
        RunEvent::Stopping { outcome, reason, by } => {
            let plain = status("orchestrator", RUN_STOPPING_PHASE, Some(reason));
            let stopping = Some(StoppingItem { outcome: (*outcome).into(), by: text(by) });
            head.write_payload("status", out, &Status { stopping, ..plain });
        }
        RunEvent::Recovered { phase: found } => {
            head.write_payload("run_recovered", out, &RunRecovered { found: (*found).into() })
        }
        RunEvent::Ended(report) => head.write_payload("run_complete", out, &run_complete(head, report)),
        RunEvent::RetryStarted(retry) => head.write_payload("retry_started", out, &retry_started(retry)),
        RunEvent::RetryEnded { succeeded, attempt, message } => {
            let (succeeded, attempt, message) = (*succeeded, *attempt, some_text(message.as_ref()));
            head.write_payload("retry_ended", out, &RetryEnded { succeeded, attempt, message });
        }
    }
}

fn write_tool_event(head: &EventHead<'_>, event: &ToolEvent, out: &mut Vec<u8>) {
    match event {
        ToolEvent::Output { call, stream, text } => {
            head.line("tool_output", out, |out| output(out, call.as_str(), *stream, text))
        }
        ToolEvent::Intended(intention) => head.write_payload("tool_call", out, &tool_call(intention)),
        ToolEvent::Started { call, tool } => {
            let plain = status("orchestrator", CALL_STARTED_PHASE, Some(tool));
            head.write_payload("status", out, &Status { call_id: Some(text(call.as_str())), ..plain });
        }
        ToolEvent::Settled(settlement) => head.write_payload("tool_result", out, &tool_result(settlement)),
    }
}

fn write_gate_event(head: &EventHead<'_>, event: &GateEvent, out: &mut Vec<u8>) {
    match event {
        GateEvent::Opened(question) => head.write_payload("approval_required", out, &approval_required(question)),
        GateEvent::Voted { gate, decision, by, participant } => {
            let (approval_id, decision, by) = (text(gate.as_str()), (*decision).into(), text(by));
            let vote = ApprovalVote { approval_id, decision, by, participant_id: participant_id(participant.as_ref()) };
            head.write_payload("approval_vote", out, &vote);
        }
        GateEvent::Settled(decision) => head.write_payload("approval_received", out, &approval_received(decision)),
    }
}

fn write_context_event(head: &EventHead<'_>, event: &ContextEvent, out: &mut Vec<u8>) {
    match event {
        ContextEvent::Branched { branch: Branch { until, from }, by } => {
            let (until_seq, from_seq) = (until.number(), from.number());
            head.write_payload("session_branched", out, &SessionBranched { until_seq, from_seq, by: text(by) });
        }
        ContextEvent::CompactionStarted { reason, by } => {
            let (reason, by) = ((*reason).into(), some_text(by.as_ref()));
            head.write_payload("compaction_started", out, &CompactionStarted { reason, by });
        }
        ContextEvent::Compacted(compaction) => head.write_payload("context_compacted", out, &compacted(compaction)),
        ContextEvent::CompactionFailed { failure: ending, message, will_retry: again } => {
            let (ending, message) = ((*ending).into(), some_text(message.as_ref()));
            head.write_payload("compaction_ended", out, &CompactionEnded { ending, message, again: *again });
        }
    }
}

fn write_notice_event(head: &EventHead<'_>, event: &NoticeEvent, out: &mut Vec<u8>) {
    match event {
        NoticeEvent::Status { source, phase, detail } => {
            head.write_payload("status", out, &status(source, phase, detail.as_deref()))
        }
        NoticeEvent::Warned { code, message, detail } => {
            let (code, message, detail) = (text(code), text(message), some_text(detail.as_ref()));
            head.write_payload("warning", out, &Warning { code, message, detail });
        }
        NoticeEvent::Failed { code, message, retryable, detail } => {
            let (code, message, detail) = (text(code), text(message), some_text(detail.as_ref()));
            head.write_payload("error", out, &Failure { code, message, retryable: *retryable, detail });
        }
        NoticeEvent::EventsLost { after, cause } => {
            let (after_seq, until_seq) = (after.number(), head.seq.number());
            head.write_payload("events_lost", out, &EventsLost { after_seq, until_seq, cause: (*cause).into() });
        }
        NoticeEvent::Unknown(unknown) => write_unknown(unknown, out),
    }
}

/// Appends the record of an unknown event as it was read.
fn write_unknown(unknown: &UnknownEvent, out: &mut Vec<u8>) {
    out.extend_from_slice(unknown.record.as_str().as_bytes());
    out.push(b'\n');
}

fn adjusted<'a>(adjustment: &'a Adjustment, by: &'a str) -> SessionAdjusted<'a> {
    SessionAdjusted {
        provider: some_text(adjustment.provider.as_ref()),
        model: some_text(adjustment.model.as_ref()),
        thinking: some_text(adjustment.thinking.as_ref()),
        auto_compaction: adjustment.auto_compaction,
        auto_retry: adjustment.auto_retry,
        workspace: adjustment.workspace.as_ref().map(workspace),
        unloaded: adjustment.unloaded,
        by: text(by),
    }
}

fn workspace(identity: &WorkspaceIdentity) -> WorkspaceItem<'_> {
    WorkspaceItem { path: text(&identity.path), file_id: text(&identity.file_id), boot: text(&identity.boot) }
}

fn retry_started(retry: &Retry) -> RetryStarted<'_> {
    RetryStarted {
        attempt: retry.attempt,
        max_attempts: retry.max_attempts,
        delay_ms: retry.pause_millis,
        message: text(&retry.message),
    }
}

/// Encodes the question of a gate.
pub(crate) fn approval_required(question: &GateQuestion) -> ApprovalRequired<'_> {
    ApprovalRequired {
        approval_id: text(question.gate.as_str()),
        kind: text(&question.kind),
        title: text(&question.title),
        summary: text(&question.summary),
        details: gate_details(question),
        options: OPTIONS,
        expires_at: question.expires.0,
        call_id: text(gate_compat::call_id(question)),
        needed: gate_compat::needed(&question.quorum),
        quorum: gate_compat::quorum_item(&question.quorum),
        eligible: gate_compat::eligible_item(question),
        subject: gate_compat::subject_word(question),
        resource: gate_compat::resource_word(question),
        remember: some_text(question.grant_rule.as_ref()),
        sha256: some_text(question.digest.as_ref()),
        on_denial: Some(question.on_denial).filter(|denial| *denial != DenialEffect::EndRun).map(Into::into),
        form: question.form().map(raw),
    }
}

/// Encodes the details of a gate, with its choices or the approval scopes as the last field.
///
/// They come last so that decoding can cut them off and restore the details verbatim.
pub(crate) fn gate_details(question: &GateQuestion) -> Raw<'_> {
    let (name, words) = match (&question.grant_rule, question.choices.is_empty()) {
        (_, false) => ("choices", question.choices.clone()),
        (Some(_), true) => ("scopes", SCOPES.map(str::to_owned).to_vec()),
        (None, true) => return raw(&question.details),
    };
    let object = question.details.as_str();
    let fields = object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or("");
    let mut merged = Vec::with_capacity(object.len() + 64);
    merged.push(b'{');
    if !fields.is_empty() {
        merged.extend_from_slice(fields.as_bytes());
        merged.push(b',');
    }
    merged.extend_from_slice(format!("\"{name}\":").as_bytes());
    json::value(&mut merged, &words);
    merged.push(b'}');
    let merged = String::from_utf8(merged).unwrap_or_default();
    match single_line(&merged) {
        Some(merged) => Cow::Owned(merged.into_owned()),
        None => Cow::Borrowed(RawValue::NULL),
    }
}

/// The activity that the start of a tool call reports.
pub(crate) const CALL_STARTED_PHASE: &str = "Executing tool...";
/// The activity that the stop of a run reports.
pub(crate) const RUN_STOPPING_PHASE: &str = "Stopping run...";

/// The scopes of an approval that can become a grant.
const SCOPES: [&str; 4] = ["once", "run", "session", "always"];

/// The two decisions of an approval.
pub(crate) const OPTIONS: [DecisionWord; 2] = [DecisionWord::Approve, DecisionWord::Deny];

impl EventHead<'_> {
    pub(super) fn write_payload<T: serde::Serialize>(&self, type_name: &str, out: &mut Vec<u8>, payload: &T) {
        self.line(type_name, out, |out| json::value(out, payload));
    }
}

fn token(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"{\"text\":");
    json::string(out, text);
    out.push(b'}');
}

fn output(out: &mut Vec<u8>, call: &str, stream: OutputStream, text: &str) {
    out.extend_from_slice(b"{\"callId\":");
    json::string(out, call);
    out.extend_from_slice(match stream {
        OutputStream::Stdout => b",\"stream\":\"stdout\",\"text\":",
        OutputStream::Stderr => b",\"stream\":\"stderr\",\"text\":",
    });
    json::string(out, text);
    out.push(b'}');
}

/// Returns the mode of a session: one opened through another protocol counts as interactive.
pub(crate) fn mode(opening: &Opening) -> &str {
    match opening.mode.as_str() {
        word @ ("interactive" | "headless") => word,
        _ => "interactive",
    }
}

fn session_started<'a>(head: &EventHead<'a>, opening: &'a Opening) -> SessionStarted<'a> {
    SessionStarted {
        session_id: text(head.session.as_str()),
        state: IdleWord::Idle,
        mode: text(mode(opening)),
        protocol: (mode(opening) != opening.mode).then(|| text(&opening.mode)),
        provider: text(&opening.provider),
        sandbox_provider: text(&opening.sandbox),
        cwd: text(&opening.cwd),
        workspace: opening.workspace.as_ref().map(workspace),
        model: some_text(opening.model.as_ref()),
        name: some_text(opening.name.as_ref()),
        repo: opening.repo.as_ref().map(raw),
        metadata: opening.metadata.as_ref().map(raw),
        sandbox: opening.confinement.as_ref().map(raw),
        parent_session_id: opening.parent.as_ref().map(SessionId::as_str).map(text),
        forked_at_seq: opening.forked_at.map(Seq::number),
    }
}

fn usage(turn: &TurnUsage) -> Usage<'_> {
    Usage {
        model: text(&turn.model),
        input_tokens: turn.usage.input,
        output_tokens: turn.usage.output,
        cache_read_tokens: turn.usage.cache_read,
        cache_write_tokens: turn.usage.cache_write,
        cost_micro_usd: turn.usage.cost,
        estimated: turn.usage.estimated,
        carry: some_text(turn.provider_state.as_ref()),
        pending: turn.pending.iter().map(pending_call).collect(),
    }
}

fn pending_call(call: &PendingCall) -> PendingCallItem<'_> {
    PendingCallItem { tool_name: text(&call.tool), args: raw(&call.args) }
}

fn compacted(compaction: &Compaction) -> ContextCompacted<'_> {
    ContextCompacted {
        summary: text(&compaction.summary),
        kept_from_seq: compaction.kept_from.number(),
        tokens_before: compaction.tokens_before,
    }
}

fn status<'a>(source: &'a str, phase: &'a str, detail: Option<&'a str>) -> Status<'a> {
    Status { source: text(source), phase: text(phase), detail: detail.map(text), call_id: None, stopping: None }
}

fn participant_id(participant: Option<&ParticipantId>) -> Option<Text<'_>> {
    participant.map(|participant| text(participant.as_str()))
}

fn approval_received(decision: &GateDecision) -> ApprovalReceived<'_> {
    ApprovalReceived {
        approval_id: text(decision.gate.as_str()),
        decision: decision.decision.into(),
        by: text(&decision.by),
        participant_id: participant_id(decision.participant.as_ref()),
        choice: some_text(decision.choice.as_ref()),
        comment: some_text(decision.comment.as_ref()),
        scope: Some(decision.scope).filter(|scope| *scope != ApprovalScope::Once).map(Into::into),
        rule: some_text(decision.rule.as_ref()),
        answer: decision.answer.as_ref().map(raw),
    }
}

fn run_complete<'a>(head: &EventHead<'a>, report: &'a RunReport) -> RunComplete<'a> {
    let has_checks = report.checks_requested > 0 || !report.checks.is_empty();
    let passed = report.checks.iter().filter(|check| check.passed).count();
    let results = report.checks.iter().map(|check| AcceptanceResult {
        id: text(&check.id),
        passed: check.passed,
        exit_code: check.exit_code,
        output: text(&check.output),
    });
    RunComplete {
        run_id: text(head.run.map_or("", RunId::as_str)),
        outcome: report.outcome.into(),
        summary: text(&report.summary),
        reason: some_text(report.reason.as_ref()),
        acceptance: has_checks.then(|| Acceptance {
            total: report.checks_requested,
            passed: u32::try_from(passed).unwrap_or(u32::MAX),
            results: results.collect(),
        }),
        headless: Headless { exit_code_hint: report.exit_code },
    }
}
