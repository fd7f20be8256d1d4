//! The request decoder: every canonical line is decoded or answered, with its own id where that is readable.
//!
//! An input is a raw line.

use pushd::kernel::environment::Environment;
use pushd::kernel::event::{ApprovalScope, Decision, Image};
use pushd::protocol::intent::{Attach, Intent, Prompt, SearchKind, SessionIntent, SnapshotMode, StartSession};
use pushd::protocol::push::client::Request as Outgoing;
use pushd::protocol::push::decode::{self, DecodeLimits, MalformedRequest};
use pushd::protocol::push::encode;
use pushd::transport::canonical_json::{Limits, canonicalize};
use serde_json::{Value, json};

use super::json::Json;

/// Checks one input.
pub(crate) fn check(input: &[u8]) {
    let limits = DecodeLimits::default();
    let Ok(line) = canonicalize(input, Limits::default()) else {
        // Refused lines never reach the decoder, and would do no harm there.
        let _ = decode::decode(input, &limits);
        return;
    };
    let parsed = Json::parse(&line).expect("what passes the door is JSON");
    match decode::decode(&line, &limits) {
        Ok(request) => {
            assert_eq!(request.tag.request_id.as_deref(), echoed(&parsed, &limits), "the request id");
            assert_eq!(Some(request.tag.kind_name.as_str()), parsed.text("type"), "the type");
            if let Some(again) = client_request(&request.intent) {
                let line = again.line("req_again");
                let reread = decode::decode(line.as_bytes(), &limits);
                assert_eq!(reread.map(|reread| reread.intent), Ok(request.intent), "asked again as {line}");
            }
        }
        Err(malformed) => check_answer(&malformed, &parsed, &limits),
    }
}

/// The id that an answer must repeat, as the client sent it.
fn echoed<'a>(parsed: &'a Json, limits: &DecodeLimits) -> Option<&'a str> {
    parsed.text("requestId").filter(|id| !id.is_empty() && id.chars().count() <= limits.id)
}

/// Encodes the answer to a malformed request and decodes it as a client would.
fn check_answer(malformed: &MalformedRequest, parsed: &Json, limits: &DecodeLimits) {
    assert_eq!(malformed.request_id.as_deref(), echoed(parsed, limits), "the request id");
    let id = malformed.request_id.as_deref().unwrap_or("req_fresh");
    let refusal = malformed.clone().into_refusal();
    let (error, session) = (refusal.error, refusal.tag.session.as_ref().map(|id| id.as_str()));
    let mut line = Vec::new();
    encode::response_error(id, &refusal.tag.kind_name, session, &error, &mut line);
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "one line");
    assert!(line.len() < 16 * 1024, "an answer of {} bytes", line.len());
    let read = Json::parse(&line).expect("an answer is JSON");
    assert_eq!(read.text("requestId"), Some(id));
    assert_eq!(read.field("ok"), Some(&Json::Bool(false)));
    let error_field = read.field("error").expect("an error");
    assert_eq!(error_field.text("code"), Some(error.code.as_str()));
    assert_eq!(error_field.text("message"), Some(error.message.as_str()));
}

/// The request of our own client with the same meaning; `None` where it cannot express it.
fn client_request(ask: &Intent) -> Option<Outgoing> {
    Some(match ask {
        Intent::Hello { client_name, client_version, capabilities } => Outgoing::hello("")
            .with("clientName", client_name.as_deref())
            .with("clientVersion", client_version.as_deref())
            .with("capabilities", capabilities.clone())
            .reading(),
        Intent::StartSession(start) => start_session(start)?,
        Intent::ListSessions(list) => Outgoing::list_sessions(list.limit.into())
            .with("cursor", list.cursor.as_deref())
            .with("prefix", list.prefix.as_deref())
            .with("includeEnded", list.include_ended)
            .reading(),
        Intent::ListApprovals { session, known } => Outgoing::list_approvals(session.as_ref().map(|id| id.as_str()))
            .with_some("knownRevision", *known)
            .reading(),
        Intent::Search(search) => {
            let kind = |kind: &SearchKind| match kind {
                SearchKind::Message => "message",
                SearchKind::Tool => "tool",
                SearchKind::Name => "name",
            };
            Outgoing::search(&search.text)
                .with("kinds", search.kinds.iter().map(kind).collect::<Vec<_>>())
                .with("since", search.since)
                .with("directory", search.directory.as_deref())
                .with("limit", search.limit)
                .reading()
        }
        Intent::Stats(query) => {
            Outgoing::stats().with("since", query.since).with("directory", query.directory.as_deref()).reading()
        }
        Intent::ListGrants => Outgoing::list_grants().reading(),
        Intent::RevokeGrant { id } => Outgoing::revoke_grant(id),
        Intent::Metrics { sandbox } => Outgoing::metrics().with("sandbox", *sandbox).reading(),
        Intent::CheckJournal { full } => Outgoing::check_journal(*full).reading(),
        Intent::SwitchProtocol(speak) => {
            let request = Outgoing::switch_protocol(&speak.protocol, speak.cwd.as_deref());
            with_environment(request, speak.environment.as_ref())
        }
        Intent::Drain { grace_ms } => Outgoing::drain(*grace_ms),
        Intent::Reload => Outgoing::reload().reading(),
        // No request of this protocol is one.
        Intent::Command(_) => return None,
        Intent::Session { id, body: ask } => session_request(id.as_str(), ask)?,
        Intent::Ping | Intent::ListProviders => return None,
    })
}

const fn scope(lasting: ApprovalScope) -> &'static str {
    match lasting {
        ApprovalScope::Once => "once",
        ApprovalScope::Run => "run",
        ApprovalScope::Session => "session",
        ApprovalScope::Always => "always",
    }
}

fn start_session(start: &StartSession) -> Option<Outgoing> {
    // Our client builds these two values itself and cannot reproduce the exact text of others.
    if start.repo.is_some() || start.metadata.is_some() {
        return None;
    }
    let request = Outgoing::start_session(start.idempotency_key.as_deref()?)
        .with("mode", start.mode.as_str())
        .with("provider", start.provider.as_deref())
        .with("sandboxProvider", start.sandbox_provider.as_deref())
        .with("cwd", start.cwd.as_str())
        .with("model", start.model.as_deref())
        .with("name", start.name.as_deref());
    Some(with_environment(request.reading(), start.environment.as_ref()))
}

fn session_request(id: &str, ask: &SessionIntent) -> Option<Outgoing> {
    Some(match ask {
        // Our client never requests a compaction.
        SessionIntent::Attach(attach) if attach.snapshot == SnapshotMode::Always => return None,
        SessionIntent::Attach(attach) => attach_session(id, attach),
        SessionIntent::Prompt(prompt) => {
            let request = Outgoing::send_user_message(id, prompt.message.as_ref()?.as_str(), &prompt.text);
            with_prompt(request.reading(), prompt)
        }
        SessionIntent::Queue(prompt) => {
            let request = Outgoing::queue_message(id, prompt.message.as_ref()?.as_str(), &prompt.text);
            with_prompt(request.reading(), prompt)
        }
        SessionIntent::Steer { message, text, images } => {
            Outgoing::steer(id, message.as_ref()?.as_str(), text).with("images", image_values(images)).reading()
        }
        SessionIntent::ListQueue => Outgoing::list_queue(id).reading(),
        SessionIntent::Unqueue { message } => Outgoing::remove_queued(id, message.as_str()),
        SessionIntent::Decide(decide) => {
            let word = match decide.decision {
                Decision::Approve => "approve",
                Decision::Deny => "deny",
            };
            // Our client builds this value itself and cannot reproduce the exact text of others.
            if decide.answer.is_some() {
                return None;
            }
            let request = Outgoing::submit_approval(id, decide.gate.as_str(), word)
                .with("runId", decide.run.as_ref().map(|run| run.as_str()))
                .with("choice", decide.choice.as_deref())
                .with("scope", scope(decide.scope))
                .with("rule", decide.rule.as_deref())
                .with("comment", decide.comment.as_deref());
            with_environment(request, decide.environment.as_ref())
        }
        SessionIntent::Cancel { run, reason } => {
            Outgoing::cancel_run(id, run.as_ref().map(|run| run.as_str())).with("reason", reason.as_str())
        }
        SessionIntent::Snapshot => Outgoing::session_snapshot(id).reading(),
        SessionIntent::Rename { name } => Outgoing::rename_session(id, name),
        SessionIntent::End => Outgoing::end_session(id),
        SessionIntent::Compact { instructions, environment } => {
            let request = Outgoing::compact_session(id, instructions.as_deref());
            with_environment(request.reading(), environment.as_ref())
        }
        SessionIntent::UserCommand(request) => {
            let outgoing = Outgoing::run_user_command(id, &request.command);
            let outgoing = outgoing.with("excludeFromContext", !request.in_context);
            with_environment(outgoing.reading(), request.environment.as_ref())
        }
        SessionIntent::StopUserCommand { call } => {
            Outgoing::stop_user_command(id, call.as_ref().map(|call| call.as_str()))
        }
        SessionIntent::Fork(fork) => {
            let request = Outgoing::fork_session(id, fork.idempotency_key.as_deref()?);
            request.with("atSeq", fork.at.map(|at| at.number())).with("name", fork.name.as_deref()).reading()
        }
        SessionIntent::Delete { dry_run, with_imported_files } => {
            Outgoing::delete_session(id, *with_imported_files).with("dryRun", *dry_run).reading()
        }
        SessionIntent::Detach | SessionIntent::Messages { .. } | SessionIntent::Participant(_) => return None,
    })
}

fn attach_session(id: &str, attach: &Attach) -> Outgoing {
    let request = Outgoing::attach_session(id, attach.seen.number())
        .with("attachToken", attach.token.as_ref().map(|token| token.reveal()))
        .with("readOnly", attach.read_only);
    with_environment(request.reading(), attach.environment.as_ref())
}

fn with_prompt(request: Outgoing, prompt: &Prompt) -> Outgoing {
    let criteria: Vec<Value> = prompt
        .criteria
        .iter()
        .map(|criterion| {
            json!({"id": criterion.id, "check": criterion.check, "exitCode": criterion.exit_code,
                "description": criterion.description})
        })
        .collect();
    let request = request
        .with("acceptanceCriteria", criteria)
        .with("images", image_values(&prompt.images))
        .with("timeoutMs", prompt.time_limit)
        .with("rules", prompt.rules.clone());
    with_environment(request, prompt.environment.as_ref())
}

fn image_values(images: &[Image]) -> Vec<Value> {
    images.iter().map(|image| json!({"mimeType": image.mime, "data": image.data})).collect()
}

fn with_environment(request: Outgoing, environment: Option<&Environment>) -> Outgoing {
    request.with_environment(environment.map(Environment::variables))
}
