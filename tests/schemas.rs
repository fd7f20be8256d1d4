//! The schemas hold for everything that is sent, refuse what is not the protocol, and an event survives its line.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/events.rs"]
mod events;
#[path = "support/schemas.rs"]
mod schemas;

use events::{Events, KINDS, Shape};
use pushd::adapter::push::decode::{DecodeLimits, decode};
use pushd::adapter::push::encode::{
    self, MessagePage, MessageRow, Metrics, Payload, PendingApproval, ProviderRow, Role, SessionRow,
};
use pushd::adapter::push::error::{Code, ErrorBody, refusal};
use pushd::adapter::push::record::{RecordError, Transcript, decode_event};
use pushd::kernel::command::{Gap, Openness, Phase, Private, Repetition, Replay, Snapshot, Waiting};
use pushd::kernel::event::{Event, EventKind, Outcome};
use pushd::kernel::id::{Seq, SessionId};
use pushd::kernel::refusal::Refusal;
use pushd::kernel::time::Now;
use schemas::{FILES, check_line, judge_line};

const SEEDS: u64 = 400;

#[test]
fn every_event_survives_its_line() {
    for seed in 0..SEEDS {
        let mut events = Events::new(seed, Shape::Anything);
        let session = SessionId::from(events.text());
        for kind in 0..KINDS {
            let event = events.event(kind);
            let line = line_of(&session, &event);
            let read = decode_event(line.as_bytes());
            assert_eq!(read.expect(&line), event, "seed {seed}: {line}");
            let read = decode_event(line.trim_end_matches('\n').as_bytes());
            assert_eq!(read.expect(&line), event, "seed {seed}: the newline is not part of the event");
            assert_eq!(line.matches(['\n', '\r']).count(), 1, "seed {seed}: {line:?}");
        }
    }
}

#[test]
fn every_event_that_is_shown_is_valid() {
    for seed in 0..SEEDS / 4 {
        let mut events = Events::new(seed, Shape::Shown);
        let session = SessionId::from(events.name());
        for kind in 0..KINDS {
            check_line(&line_of(&session, &events.event(kind)));
        }
    }
}

#[test]
fn every_private_line_is_valid() {
    for seed in 0..SEEDS / 4 {
        let mut events = Events::new(seed, Shape::Shown);
        let snapshot = snapshot(&mut events);
        let session = SessionId::from("s");
        let mut out = Vec::new();
        for gap in [Gap::None, Gap::Foreign, Gap::Lost { earliest: Seq::new(140) }] {
            encode::gap_line(&session, Seq::new(7), Now(8), Seq::new(120), gap, &mut out);
        }
        let private = Private::Snapshot { seq: Seq::new(9), at: Now(10), snapshot: Box::new(snapshot) };
        encode::private_line(&session, &private, &mut out);
        let lines = String::from_utf8(out).unwrap();
        assert_eq!(lines.lines().count(), 4);
        lines.lines().for_each(check_line);
    }
}

#[test]
fn every_response_is_valid() {
    for seed in 0..SEEDS / 4 {
        for (kind, payload) in payloads(&mut Events::new(seed, Shape::Shown)) {
            for session in [None, Some("sess_1")] {
                let line = encode::response_ok("req_1", kind, session, &payload);
                check_line(std::str::from_utf8(&line).unwrap());
            }
        }
    }
    for code in Code::ALL {
        let error = ErrorBody::passing(code, "no").with_detail("because");
        let line = encode::response_error("req_1", "whatever", None, &error);
        check_line(std::str::from_utf8(&line).unwrap());
    }
    let line = encode::response_error("req_1", "cancel_run", Some("s"), &refusal(Refusal::NoActiveRun));
    check_line(std::str::from_utf8(&line).unwrap());
}

#[test]
fn every_kind_of_response_is_among_those_checked() {
    let (_, text) = FILES[2];
    let schema: serde_json::Value = serde_json::from_str(text).unwrap();
    let listed: Vec<&String> = schema["$defs"].as_object().unwrap().keys().collect();
    let mut checked: Vec<&str> =
        payloads(&mut Events::new(0, Shape::Shown)).into_iter().map(|(kind, _)| kind).collect();
    checked.sort_unstable();
    assert_eq!(listed, checked);
}

#[test]
fn requests_of_the_specification_are_valid_and_understood() {
    let limits = DecodeLimits::default();
    for &(kind, payload) in REQUESTS {
        for (envelope, payload) in [
            (r#""sessionId":"sess_01HXYZ","#, payload.to_owned()),
            (r#""sessionId":null,"#, with_session(payload)),
            ("", with_session(payload)),
        ] {
            let line = format!(
                r#"{{"v":"push.runtime.v1","kind":"request","requestId":"req_01HXYZ","type":"{kind}",{envelope}"payload":{payload}}}"#
            );
            check_line(&line);
            let request =
                decode(line.as_bytes(), &limits).unwrap_or_else(|problem| panic!("{line}: {problem:?}"));
            assert_eq!(request.kind_name, kind);
        }
    }
}

#[test]
fn responses_and_events_as_the_specification_shows_them_are_valid() {
    SPECIFIED.iter().for_each(|line| check_line(line));
}

#[test]
fn broken_lines_are_not_valid() {
    assert!(BROKEN.len() >= 40);
    for (good, from, to) in BROKEN {
        let line = SPECIFIED
            .iter()
            .find(|line| line.contains(&format!(r#""type":"{good}""#)))
            .unwrap_or_else(|| panic!("no line of type {good}"));
        assert!(line.contains(from), "{good} has no {from}: {line}");
        let broken = line.replacen(from, to, 1);
        assert!(judge_line(&broken).is_err(), "{good} with {to:?} for {from:?} is still valid: {broken}");
    }
    for line in
        ["", "[]", "{}", "null", r#"{"v":"push.runtime.v1"}"#, r#"{"v":"push.runtime.v1","kind":"other"}"#]
    {
        assert!(judge_line(line).is_err(), "{line}");
    }
}

#[test]
fn broken_requests_are_not_valid_and_not_understood() {
    for (kind, payload) in BROKEN_REQUESTS {
        let line = format!(
            r#"{{"v":"push.runtime.v1","kind":"request","requestId":"q","type":"{kind}","payload":{payload}}}"#
        );
        assert!(judge_line(&line).is_err(), "{line}");
        assert!(decode(line.as_bytes(), &DecodeLimits::default()).is_err(), "{line}");
    }
}

#[test]
fn a_schema_names_no_host_and_is_called_as_its_file() {
    for (name, text) in FILES {
        let schema: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(schema["$id"], name);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(text.matches("://").count(), 1, "{name}");
    }
}

#[test]
fn a_record_that_is_not_one_is_refused() {
    let head = r#"{"v":"push.runtime.v1","kind":"event","sessionId":"s","seq":1,"ts":2,"#;
    for (rest, refused) in [
        ("", "envelope"),
        (r#""type":"usage","payload":{}}"#, "type"),
        (r#""type":"assistant_token","payload":{}}"#, "payload"),
        (
            r#""type":"message_queued","payload":{"messageId":"m","text":"","by":"b","fingerprint":"0"}}"#,
            "field",
        ),
        (
            r#""type":"user_message","payload":{"messageId":"m","text":"","by":"b","fingerprint":"xyz"}}"#,
            "field",
        ),
        (
            r#""type":"tool_call","payload":{"source":"acceptance","toolName":"t","args":{},"callId":"c"}}"#,
            "field",
        ),
        (r#""type":"status","payload":{"source":"s","phase":"p","callId":"c"}}"#, "field"),
    ] {
        let line = format!("{head}{rest}");
        let found = match decode_event(line.as_bytes()).expect_err(&line) {
            RecordError::Envelope(_) => "envelope",
            RecordError::Payload { .. } => "payload",
            RecordError::UnknownType { .. } => "type",
            RecordError::Field { .. } => "field",
        };
        assert_eq!(found, refused, "{line}");
    }
}

#[test]
fn a_transcript_has_whole_messages_alone() {
    let mut transcript = Transcript::default();
    let mut events = Events::new(1, Shape::Shown);
    let mut rows = Vec::new();
    for (seq, kind) in [
        events.event(3).kind,
        EventKind::Said { text: "Hel".into() },
        EventKind::Thought { text: "hm".into() },
        EventKind::Said { text: "lo".into() },
        EventKind::SayingDone { message: "asst_1".into() },
        EventKind::Said { text: "cut of".into() },
        events.event(22).kind,
        EventKind::Said { text: "Again".into() },
        EventKind::SayingDone { message: "asst_2".into() },
    ]
    .into_iter()
    .enumerate()
    {
        let seq = Seq::new(1 + seq as u64);
        rows.extend(transcript.take(&Event { seq, at: Now(5), run: Some("r".into()), kind }));
    }
    let told: Vec<_> = rows.iter().map(|row| (row.seq.number(), row.role, row.text.as_str())).collect();
    assert_eq!(told[0].0, 1);
    assert_eq!(told[0].1, Role::User);
    assert_eq!(told[1..], [(5, Role::Assistant, "Hello"), (9, Role::Assistant, "Again")]);
}

fn line_of(session: &SessionId, event: &Event) -> String {
    let mut out = Vec::new();
    encode::event_line(session, event, &mut out);
    String::from_utf8(out).unwrap()
}

fn snapshot(events: &mut Events) -> Snapshot {
    let phases =
        [Phase::Idle, Phase::Running, Phase::Waiting, Phase::Completed, Phase::Failed, Phase::Cancelled];
    Snapshot {
        phase: phases[events.below(6) as usize],
        opening: events.opening(),
        name: events.maybe(Events::name),
        run: events.maybe(Events::name).map(Into::into),
        question: events.maybe(Events::question),
        open_gates: 1,
        last_text: events.text(),
        last_message: events.text(),
        last_seq: Seq::new(events.below(9)),
        opened_at: Now(1),
        updated_at: Now(2),
        last_run: events.maybe(Events::name).map(|run| (run.into(), Outcome::Failed, 4)),
        queued: events.below(3) as usize,
        open: if events.below(2) == 0 { Openness::Open } else { Openness::Ended },
    }
}

fn payloads(events: &mut Events) -> Vec<(&'static str, Payload)> {
    let session = SessionId::from(events.name());
    let (run, message) = (events.name().into(), events.name().into());
    let snapshot = snapshot(events);
    let row = SessionRow::of(&session, &snapshot);
    let replay = Replay { from: Seq::new(1), to: Seq::ZERO, gap: Gap::None };
    let said = |role| MessageRow {
        seq: Seq::new(1),
        at: Now(2),
        role,
        message: "m".into(),
        run: Some("r".into()).filter(|_| role == Role::User),
        text: String::new(),
    };
    let page = MessagePage {
        messages: vec![said(Role::User), said(Role::Assistant)],
        next_after: Seq::new(1),
        done: events.below(2) == 0,
    };
    let question = events.question();
    let pending = PendingApproval { session: session.clone(), run: "r".into(), question };
    let provider =
        ProviderRow { name: "playbook".into(), models: vec!["m".into()], configured: true, default: false };
    let waiting = Waiting { message: "m".into(), run: "r".into(), text: events.text() };
    let metrics = Metrics { pid: 1, version: "0.1.0".into(), socket: "/s".into(), ..Metrics::default() };
    let gone = Replay { gap: Gap::Foreign, ..replay };
    vec![
        ("hello", encode::hello("0.1.0")),
        ("ping", encode::pong(Now(1))),
        ("start_session", encode::started(&session, Phase::Idle, "att_1", Repetition::Again)),
        ("list_sessions", encode::sessions(&[row], events.maybe(|_| "next"))),
        ("attach_session", encode::attached(&session, Phase::Running, replay)),
        ("resume_session", encode::attached(&session, Phase::Failed, gone)),
        ("detach_session", encode::detached()),
        ("send_user_message", encode::prompted(&run, Repetition::Again)),
        ("queue_message", encode::queued(&message, &run, 0)),
        ("list_queue", encode::queue(&[waiting])),
        ("remove_queued", encode::unqueued()),
        ("steer", encode::steered(&run)),
        ("submit_approval", encode::accepted()),
        ("cancel_run", encode::accepted()),
        ("get_session_snapshot", encode::snapshot_payload(&snapshot)),
        ("get_session_messages", encode::messages(&page)),
        ("rename_session", encode::renamed()),
        ("end_session", encode::ended()),
        ("list_approvals", encode::approvals(&[pending])),
        ("list_providers", encode::providers(&[provider])),
        ("get_metrics", encode::metrics(&metrics)),
        ("drain", encode::draining()),
    ]
}

fn with_session(payload: &str) -> String {
    if payload.contains(r#""sessionId""#) {
        return payload.to_owned();
    }
    let rest = payload.strip_prefix('{').unwrap();
    let comma = if rest == "}" { "" } else { "," };
    format!(r#"{{"sessionId":"sess_01HXYZ"{comma}{rest}"#)
}

/// Requests as the specification and the page of the protocol show them.
const REQUESTS: &[(&str, &str)] = &[
    (
        "hello",
        r#"{"clientName":"push","clientVersion":"0.1.0","capabilities":["stream_tokens","approvals","replay_attach"]}"#,
    ),
    ("hello", r#"{"capabilities":["approvals"]}"#),
    (
        "start_session",
        r#"{"mode":"interactive","provider":"ollama","sandboxProvider":"local","repo":{"rootPath":"/home/user/projects/Push","remoteUrl":"git@github.com:owner/repo.git","currentBranch":"main","defaultBranch":"main"},"metadata":{"source":"cli"}}"#,
    ),
    (
        "start_session",
        r#"{"cwd":"/","model":"m","name":"n","environment":{"PATH":"/bin","EMPTY":""},"idempotencyKey":"k"}"#,
    ),
    ("list_sessions", r#"{"limit":20}"#),
    ("list_sessions", r#"{"cursor":"c","prefix":"sess_0"}"#),
    ("attach_session", r#"{"sessionId":"sess_01HXYZ","lastSeenSeq":135,"attachToken":"att_x"}"#),
    ("attach_session", r#"{"lastSeenSeq":null,"readOnly":true}"#),
    ("resume_session", r#"{"sessionId":"sess_01HXYZ","lastSeenSeq":0}"#),
    ("detach_session", "{}"),
    (
        "send_user_message",
        r#"{"sessionId":"sess_01HXYZ","clientMessageId":"msg_01HXYZ","text":"Review the latest commit and suggest fixes.","acceptanceCriteria":[{"id":"build","check":"npm -C app run build","exitCode":0,"description":"App builds"}]}"#,
    ),
    (
        "send_user_message",
        r#"{"text":"t","acceptanceCriteria":[{"check":"true"}],"timeoutMs":1000,"environment":{"A":"1"},"future":[]}"#,
    ),
    (
        "submit_approval",
        r#"{"sessionId":"sess_01HXYZ","runId":"run_01HXYZ","approvalId":"appr_01HXYZ","decision":"approve","comment":"Looks good"}"#,
    ),
    ("submit_approval", r#"{"approvalId":"a","decision":"deny","choice":"stop","scope":"once"}"#),
    ("cancel_run", r#"{"sessionId":"sess_01HXYZ","runId":"run_01HXYZ","reason":"user_cancelled"}"#),
    ("cancel_run", "{}"),
    ("ping", "{}"),
    ("get_session_snapshot", "{}"),
    ("get_session_messages", r#"{"afterSeq":3,"limit":10}"#),
    ("steer", r#"{"text":"left","clientMessageId":"m"}"#),
    ("queue_message", r#"{"text":"next","acceptanceCriteria":null}"#),
    ("list_queue", "{}"),
    ("remove_queued", r#"{"messageId":"m"}"#),
    ("rename_session", r#"{"name":"n"}"#),
    ("end_session", "{}"),
    ("list_approvals", "{}"),
    ("list_providers", "{}"),
    ("get_metrics", "{}"),
    ("drain", r#"{"graceMs":5000}"#),
];

macro_rules! ok {
    ($kind:literal, $payload:literal) => {
        concat!(
            r#"{"v":"push.runtime.v1","kind":"response","requestId":"req_1","type":""#,
            $kind,
            r#"","sessionId":"sess_1","ok":true,"payload":"#,
            $payload,
            r#","error":null}"#
        )
    };
}

macro_rules! event {
    ($kind:literal, $payload:literal) => {
        concat!(
            r#"{"v":"push.runtime.v1","kind":"event","sessionId":"sess_1","runId":"run_1","seq":42,"#,
            r#""ts":1760000000000,"type":""#,
            $kind,
            r#"","payload":"#,
            $payload,
            "}"
        )
    };
}

macro_rules! session_event {
    ($kind:literal, $payload:literal) => {
        concat!(
            r#"{"v":"push.runtime.v1","kind":"event","sessionId":"sess_1","seq":42,"ts":1760000000000,"type":""#,
            $kind, r#"","payload":"#, $payload, "}"
        )
    };
}

/// Responses and events as the specification shows them, with what is always said beyond it.
const SPECIFIED: &[&str] = &[
    ok!(
        "hello",
        r#"{"runtimeName":"pushd","runtimeVersion":"0.1.0","protocolVersion":"push.runtime.v1","capabilities":["stream_tokens","approvals","replay_attach","headless"]}"#
    ),
    ok!("start_session", r#"{"sessionId":"sess_1","state":"idle","attachToken":"att_x"}"#),
    ok!(
        "list_sessions",
        r#"{"sessions":[{"sessionId":"sess_1","state":"idle","updatedAt":1760000000000,"repo":{"rootPath":"/home/user/projects/Push","currentBranch":"main"},"cwd":"/home/user/projects/Push","provider":"ollama"}]}"#
    ),
    ok!(
        "attach_session",
        r#"{"sessionId":"sess_1","state":"running","replay":{"fromSeq":136,"toSeq":149,"completed":true,"gap":false}}"#
    ),
    ok!("send_user_message", r#"{"runId":"run_1","accepted":true}"#),
    ok!("submit_approval", r#"{"accepted":true}"#),
    ok!("ping", r#"{"pong":true,"ts":1760000000000}"#),
    r#"{"v":"push.runtime.v1","kind":"response","requestId":"req_1","type":"cancel_run","ok":false,"payload":{},"error":{"code":"NO_ACTIVE_RUN","message":"no such run","retryable":false}}"#,
    session_event!(
        "session_started",
        r#"{"sessionId":"sess_1","state":"idle","mode":"interactive","provider":"ollama","sandboxProvider":"local","cwd":"/home/user/projects/Push"}"#
    ),
    session_event!(
        "session_snapshot",
        r#"{"state":"running","activeRunId":"run_1","lastAssistantText":"...","pendingApproval":null,"meta":{"provider":"ollama","sandboxProvider":"local","cwd":"/","mode":"interactive"},"lastSeq":41,"queued":0,"ended":false,"openedAt":1,"updatedAt":2}"#
    ),
    event!(
        "status",
        r#"{"source":"orchestrator","phase":"Executing tool...","detail":"sandbox_read_file","callId":"call_1"}"#
    ),
    event!("thinking_token", r#"{"text":"Need to inspect recent commit..."}"#),
    event!("assistant_token", r#"{"text":"I reviewed the commit and found..."}"#),
    event!("assistant_done", r#"{"messageId":"asst_1"}"#),
    event!(
        "tool_call",
        r#"{"source":"sandbox","toolName":"sandbox_read_file","args":{"path":"app/src/hooks/useChat.ts"},"callId":"call_1"}"#
    ),
    event!("tool_output", r#"{"callId":"call_1","stream":"stdout","text":"..."}"#),
    event!(
        "tool_result",
        r#"{"source":"sandbox","toolName":"sandbox_read_file","durationMs":124,"isError":false,"text":"...","structuredError":null,"callId":"call_1","status":"done"}"#
    ),
    event!(
        "approval_required",
        r#"{"approvalId":"appr_1","kind":"commit","title":"Approve commit","summary":"feat: improve tool-call parsing","details":{"filesChanged":4,"insertions":120,"deletions":40},"options":["approve","deny"],"expiresAt":1760000300000,"callId":"call_1"}"#
    ),
    event!("approval_received", r#"{"approvalId":"appr_1","decision":"approve","by":"cli"}"#),
    session_event!(
        "warning",
        r#"{"code":"EVENT_GAP","message":"Replay gap detected; snapshot sent.","detail":"Requested lastSeenSeq=120 but earliest retained seq is 140"}"#
    ),
    event!(
        "error",
        r#"{"code":"SANDBOX_UNAVAILABLE","message":"Sandbox provider failed to start workspace.","retryable":true,"detail":"modal endpoint timeout"}"#
    ),
    event!(
        "run_complete",
        r#"{"runId":"run_1","outcome":"success","summary":"Implemented fix and verified build passes.","acceptance":{"total":1,"passed":1,"results":[{"id":"build","passed":true,"exitCode":0,"output":""}]},"headless":{"exitCodeHint":0}}"#
    ),
    event!(
        "user_message",
        r#"{"messageId":"msg_1","text":"hi","by":"cli","fingerprint":"00000000000000000000000000000001"}"#
    ),
    event!("run_recovered", r#"{"found":"unknown"}"#),
    session_event!(
        "message_queued",
        r#"{"messageId":"msg_1","text":"hi","by":"cli","fingerprint":"00000000000000000000000000000001","queuedRunId":"run_2"}"#
    ),
    session_event!("session_ended", r#"{"by":"cli"}"#),
];

/// A line of [`SPECIFIED`] by its type, a piece of it, and what breaks it in the place of that piece.
const BROKEN: &[(&str, &str, &str)] = &[
    ("assistant_token", r#""v":"push.runtime.v1","#, ""),
    ("assistant_token", "push.runtime.v1", "push.runtime.v2"),
    ("assistant_token", r#""kind":"event""#, r#""kind":"Event""#),
    ("assistant_token", r#""seq":42,"#, ""),
    ("assistant_token", r#""seq":42"#, r#""seq":"42""#),
    ("assistant_token", r#""seq":42"#, r#""seq":0"#),
    ("assistant_token", r#""seq":42"#, r#""seq":4.5"#),
    ("assistant_token", r#""ts":1760000000000,"#, ""),
    ("assistant_token", r#""sessionId":"sess_1""#, r#""sessionId":null"#),
    ("assistant_token", r#""sessionId":"sess_1""#, r#""sessionId":"""#),
    ("assistant_token", r#""sessionId":"sess_1","#, ""),
    ("assistant_token", r#""runId":"run_1","#, ""),
    ("assistant_token", r#""runId":"run_1""#, r#""runId":null"#),
    ("assistant_token", r#""text":"#, r#""token":"#),
    ("assistant_token", r#"{"text""#, r#"{"extra":1,"text""#),
    ("assistant_token", r#""type":"assistant_token""#, r#""type":"unknown_event""#),
    ("assistant_token", r#""kind":"event""#, r#""kind":"event","requestId":"q""#),
    ("assistant_done", r#"{"messageId":"asst_1"}"#, "{}"),
    ("session_started", r#""seq":42"#, r#""runId":"run_1","seq":42"#),
    ("session_started", r#""state":"idle""#, r#""state":"running""#),
    ("session_started", r#","cwd":"/home/user/projects/Push""#, ""),
    ("session_snapshot", r#""activeRunId":"run_1","#, ""),
    ("session_snapshot", r#""pendingApproval":null"#, r#""pendingApproval":{}"#),
    ("session_snapshot", r#""state":"running""#, r#""state":"busy""#),
    ("status", r#""phase":"Executing tool...""#, r#""phase":"Else""#),
    ("status", r#""callId":"call_1""#, r#""callId":"call_1","stopping":{"outcome":"failed","by":"cli"}"#),
    ("tool_call", r#""source":"sandbox""#, r#""source":"acceptance""#),
    ("tool_call", r#""source":"sandbox""#, r#""source":"elsewhere""#),
    ("tool_call", r#""args":{"path":"app/src/hooks/useChat.ts"}"#, r#""args":[]"#),
    ("tool_call", r#","callId":"call_1""#, ""),
    ("tool_output", "stdout", "stdin"),
    ("tool_result", r#""isError":false"#, r#""isError":true"#),
    ("tool_result", r#""isError":false"#, r#""isError":0"#),
    ("tool_result", r#""structuredError":null,"#, ""),
    ("tool_result", r#""structuredError":null"#, r#""structuredError":{"type":"X"}"#),
    ("tool_result", r#""durationMs":124"#, r#""durationMs":-1"#),
    ("tool_result", r#""status":"done""#, r#""status":"done","exitCode":null"#),
    ("approval_required", r#"["approve","deny"]"#, r#"["approve"]"#),
    ("approval_required", r#""filesChanged":4"#, r#""choices":[]"#),
    ("approval_required", r#""callId":"call_1""#, r#""callId":"call_1","needed":1"#),
    ("approval_required", r#""callId":"call_1""#, r#""callId":"call_1","choices":["a"]"#),
    ("approval_received", r#""decision":"approve""#, r#""decision":"approved""#),
    ("approval_received", r#","by":"cli""#, ""),
    ("warning", r#""code":"EVENT_GAP","#, ""),
    ("error", r#""retryable":true"#, r#""retryable":"yes""#),
    ("run_complete", r#""exitCodeHint":0"#, r#""exitCodeHint":1"#),
    ("run_complete", r#""exitCodeHint":0"#, r#""exitCodeHint":7"#),
    ("run_complete", r#""outcome":"success""#, r#""outcome":"completed""#),
    ("run_complete", r#","headless":{"exitCodeHint":0}"#, ""),
    ("run_complete", r#""exitCode":0,"#, ""),
    ("user_message", "00000000000000000000000000000001", "1"),
    ("user_message", r#""by":"cli""#, r#""by":"cli","delivery":"steer","timeoutMs":5"#),
    ("user_message", r#""by":"cli""#, r#""by":"cli","queuedRunId":"run_2""#),
    ("user_message", r#""by":"cli""#, r#""by":"cli","acceptanceCriteria":[]"#),
    ("message_queued", r#","queuedRunId":"run_2""#, ""),
    ("run_recovered", "unknown", "lost"),
    ("session_ended", r#"{"by":"cli"}"#, r#"{"by":""}"#),
    ("hello", r#""runtimeName":"pushd""#, r#""runtimeName":"other""#),
    ("hello", r#""protocolVersion":"push.runtime.v1""#, r#""protocolVersion":"v1""#),
    ("hello", r#""runtimeVersion":"0.1.0""#, r#""runtimeVersion":"0.1.0","buildStamp":"x""#),
    ("ping", r#""requestId":"req_1","#, ""),
    ("ping", r#""requestId":"req_1""#, r#""requestId":7"#),
    ("ping", r#""sessionId":"sess_1""#, r#""sessionId":null"#),
    ("ping", r#""pong":true"#, r#""pong":false"#),
    ("ping", r#","error":null"#, ""),
    ("ping", r#""ok":true"#, r#""ok":false"#),
    ("ping", r#""ok":true,"#, ""),
    ("ping", r#""error":null"#, r#""error":{"code":"INTERNAL_ERROR","message":"m","retryable":true}"#),
    ("ping", r#""type":"ping""#, r#""type":"pong""#),
    ("start_session", r#","attachToken":"att_x""#, ""),
    ("start_session", r#""attachToken":"att_x""#, r#""attachToken":"att_x","repeated":false"#),
    ("attach_session", r#""fromSeq":136,"#, ""),
    ("attach_session", r#""gap":false"#, r#""gap":null"#),
    ("list_sessions", r#""state":"idle""#, r#""state":"ended""#),
    ("list_sessions", r#""provider":"ollama""#, r#""provider":"ollama","model":null"#),
    ("send_user_message", r#""accepted":true"#, r#""accepted":false"#),
    ("cancel_run", "NO_ACTIVE_RUN", "NO_RUN"),
    ("cancel_run", r#""payload":{}"#, r#""payload":{"accepted":false}"#),
    ("cancel_run", r#","retryable":false"#, ""),
    ("cancel_run", r#""retryable":false"#, r#""retryable":false,"detail":null"#),
];

/// Payloads of requests that name no session in their envelope.
const BROKEN_REQUESTS: &[(&str, &str)] = &[
    ("fly", "{}"),
    ("hello", r#"{"capabilities":"all"}"#),
    ("start_session", "{}"),
    ("start_session", r#"{"repo":{"currentBranch":"main"}}"#),
    ("start_session", r#"{"cwd":"/","provider":1}"#),
    ("start_session", r#"{"cwd":"/","environment":{"A=B":"1"}}"#),
    ("start_session", r#"{"cwd":"/","environment":{"A":"\u0000"}}"#),
    ("start_session", r#"{"cwd":"/","environment":{"A":1}}"#),
    ("list_sessions", r#"{"limit":0}"#),
    ("attach_session", r#"{"lastSeenSeq":1}"#),
    ("attach_session", r#"{"sessionId":"s","lastSeenSeq":-1}"#),
    ("attach_session", r#"{"sessionId":"s","lastSeenSeq":1.5}"#),
    ("send_user_message", r#"{"sessionId":"s","text":""}"#),
    ("send_user_message", r#"{"sessionId":"s","text":"t","acceptanceCriteria":[{"id":"a"}]}"#),
    ("submit_approval", r#"{"sessionId":"s","approvalId":"a","decision":"maybe"}"#),
    ("submit_approval", r#"{"sessionId":"s","approvalId":"a","decision":"deny","scope":"always"}"#),
    ("remove_queued", r#"{"sessionId":"s"}"#),
    ("rename_session", r#"{"sessionId":"s","name":""}"#),
    ("steer", r#"{"sessionId":"s"}"#),
    ("drain", r#"{"graceMs":"soon"}"#),
];
