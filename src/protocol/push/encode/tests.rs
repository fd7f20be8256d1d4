//! The exact encoding of lines that clients may depend on.

use super::*;
use crate::kernel::command::{Openness, Phase, Repetition, Replay};
use crate::kernel::event::{
    Adjustment, CallResult, CheckResult, DenialEffect, EventKind, GateQuestion, Opening, OutputStream, Purpose,
    RunOutcome, RunReport, ToolError, ToolOutcome, is_turn_interrupted,
};
use crate::kernel::id::Json;
use crate::kernel::refusal::Refusal;
use crate::protocol::push::error::{Code, ErrorBody, from_refusal};
use crate::protocol::push::record::decode_event;

#[test]
fn token_events_are_encoded_like_other_events() {
    assert_eq!(
        line(EventKind::TextDelta { text: "a\"\n\u{2028}".into() }),
        "{\"v\":\"push.runtime.v1\",\"kind\":\"event\",\"sessionId\":\"s\",\"runId\":\"r\",\"seq\":42,\
         \"ts\":1760000000000,\"type\":\"assistant_token\",\"payload\":{\"text\":\"a\\\"\\n\u{2028}\"}}\n"
    );
    assert_eq!(payload(EventKind::ThinkingDelta { text: String::new() }), r#"{"text":""}"#);
    let output = EventKind::CallOutput { call: "c".into(), stream: OutputStream::Stderr, text: "\u{1b}[0m".into() };
    assert_eq!(payload(output), r#"{"callId":"c","stream":"stderr","text":"\u001b[0m"}"#);
}

#[test]
fn stored_events_keep_the_codes_of_earlier_versions() {
    for (kind, payload) in [
        ("error", r#"{"code":"PROVIDER_CUT","message":"m","retryable":true}"#),
        ("error", r#"{"code":"PROVIDER_SILENT","message":"m","retryable":true}"#),
        ("error", r#"{"code":"PROVIDER_GARBAGE","message":"m","retryable":false}"#),
        ("error", r#"{"code":"PROVIDER_CIRCUIT_OPEN","message":"m","retryable":true}"#),
        ("error", r#"{"code":"SECRET_NOT_KEPT","message":"m","retryable":false}"#),
        ("warning", r#"{"code":"MODEL_TURN_CUT","message":"m"}"#),
        ("warning", r#"{"code":"PROCESS_LEFT","message":"m"}"#),
    ] {
        let stored = format!(
            "{{\"v\":\"push.runtime.v1\",\"kind\":\"event\",\"sessionId\":\"s\",\"runId\":\"r\",\"seq\":42,\
             \"ts\":1760000000000,\"type\":\"{kind}\",\"payload\":{payload}}}"
        );
        let event = decode_event(stored.as_bytes()).unwrap();
        if let EventKind::Warned { code, .. } = &event.kind {
            assert_eq!(is_turn_interrupted(code), code == "MODEL_TURN_CUT");
        }
        let mut again = Vec::new();
        event_line(&"s".into(), &event, &mut again);
        assert_eq!(String::from_utf8(again).unwrap().trim_end(), stored);
    }
}

#[test]
fn an_event_outside_a_run_has_no_run_id() {
    let event = Event {
        seq: Seq::new(1),
        at: Now(2),
        run: None,
        version: None,
        origin: None,
        kind: EventKind::SessionOpened(Box::new(Opening {
            mode: "interactive".into(),
            provider: "playbook".into(),
            sandbox: "local".into(),
            cwd: "/".into(),
            repo: Some(Json::new(r#"{"z":1,"a":2}"#)),
            ..Opening::default()
        })),
    };
    let mut out = Vec::new();
    event_line(&"s".into(), &event, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"v\":\"push.runtime.v1\",\"kind\":\"event\",\"sessionId\":\"s\",\"seq\":1,\"ts\":2,\
         \"type\":\"session_started\",\"payload\":{\"sessionId\":\"s\",\"state\":\"idle\",\"mode\":\"interactive\",\
         \"provider\":\"playbook\",\"sandboxProvider\":\"local\",\"cwd\":\"/\",\"repo\":{\"z\":1,\"a\":2}}}\n"
    );
}

#[test]
fn three_kinds_of_status_are_distinguished() {
    assert_eq!(
        payload(EventKind::CallStarted { call: "c".into(), tool: "shell".into() }),
        r#"{"source":"orchestrator","phase":"Executing tool...","detail":"shell","callId":"c"}"#
    );
    let stopping = EventKind::RunStopping { outcome: RunOutcome::Cancelled, reason: "user".into(), by: "cli".into() };
    assert_eq!(
        payload(stopping),
        r#"{"source":"orchestrator","phase":"Stopping run...","detail":"user","stopping":{"outcome":"cancelled","by":"cli"}}"#
    );
    let plain = EventKind::Status { source: "x".into(), phase: "y".into(), detail: None };
    assert_eq!(payload(plain), r#"{"source":"x","phase":"y"}"#);
}

#[test]
fn results_carry_their_error() {
    let settled = |ending, fault| {
        payload(EventKind::CallSettled(Box::new(CallResult {
            call: "c".into(),
            tool: "shell".into(),
            purpose: Purpose::Check(0),
            millis: 5,
            outcome: ending,
            exit_code: Some(-1),
            text: "t".into(),
            error: fault,
        })))
    };
    assert_eq!(
        settled(ToolOutcome::Succeeded, None),
        r#"{"source":"sandbox","toolName":"shell","durationMs":5,"isError":false,"text":"t","structuredError":null,"callId":"c","status":"done","exitCode":-1,"purpose":"acceptance","check":0}"#
    );
    let fault = ToolError { kind: "TIMEOUT".into(), retryable: true, message: "m".into(), detail: None };
    assert_eq!(
        settled(ToolOutcome::Aborted, Some(fault)),
        r#"{"source":"sandbox","toolName":"shell","durationMs":5,"isError":true,"text":"t","structuredError":{"type":"UNKNOWN","retryable":true,"message":"m","detail":"TIMEOUT","code":"TIMEOUT"},"callId":"c","status":"cut","exitCode":-1,"purpose":"acceptance","check":0}"#
    );
}

#[test]
fn choices_are_the_last_field_of_the_details() {
    for (details, choices, spelled) in [
        (r#"{"z":1,"a":{"choices":["no"]}}"#, vec![], r#"{"z":1,"a":{"choices":["no"]}}"#),
        (r#"{"z":1,"a":2}"#, vec!["go", "\"}]"], r#"{"z":1,"a":2,"choices":["go","\"}]"]}"#),
        ("{}", vec!["go"], r#"{"choices":["go"]}"#),
        (r#"{"choices":7}"#, vec![], r#"{"choices":7}"#),
        (r#"{"choices":["own"],"a":1}"#, vec![], r#"{"choices":["own"],"a":1}"#),
    ] {
        let mut question = question();
        question.details = Json::new(details);
        question.choices = choices.into_iter().map(str::to_owned).collect();
        let line = line(EventKind::GateOpened(Box::new(question.clone())));
        assert!(line.contains(&format!("\"details\":{spelled},\"options\":[\"approve\",\"deny\"]")), "{line}");
        assert_eq!(decode_event(line.as_bytes()).unwrap().kind, EventKind::GateOpened(Box::new(question)));
    }
}

#[test]
fn invalid_json_cannot_break_a_line() {
    let mut question = question();
    question.details = Json::new("{\"open\":");
    assert!(payload(EventKind::GateOpened(Box::new(question.clone()))).contains(r#""details":null"#));
    question.choices = vec!["go".into()];
    question.details = Json::new("no object");
    assert!(payload(EventKind::GateOpened(Box::new(question))).contains(r#""details":{"choices":["go"]}"#));
}

#[test]
fn acceptance_is_reported_when_it_was_requested() {
    let mut report = RunReport {
        outcome: RunOutcome::Failed,
        reason: Some("acceptance".into()),
        summary: "s".into(),
        checks: vec![CheckResult { id: "build".into(), passed: false, exit_code: None, output: String::new() }],
        checks_requested: 2,
        exit_code: 4,
    };
    assert_eq!(
        payload(EventKind::RunEnded(Box::new(report.clone()))),
        r#"{"runId":"r","outcome":"failed","summary":"s","reason":"acceptance","acceptance":{"total":2,"passed":0,"results":[{"id":"build","passed":false,"exitCode":null,"output":""}]},"headless":{"exitCodeHint":4}}"#
    );
    report.checks.clear();
    report.checks_requested = 0;
    report.reason = None;
    assert_eq!(
        payload(EventKind::RunEnded(Box::new(report))),
        r#"{"runId":"r","outcome":"failed","summary":"s","headless":{"exitCodeHint":4}}"#
    );
}

#[test]
fn a_gap_warning_names_its_positions() {
    let mut out = Vec::new();
    gap_line(&"s".into(), Seq::new(9), Now(1), Seq::new(120), Gap::Lost { earliest: Seq::new(140) }, &mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "{\"v\":\"push.runtime.v1\",\"kind\":\"event\",\"sessionId\":\"s\",\"seq\":9,\"ts\":1,\"type\":\"warning\",\
         \"payload\":{\"code\":\"EVENT_GAP\",\"message\":\"Replay gap detected; snapshot sent.\",\
         \"detail\":\"Requested lastSeenSeq=120 but earliest retained seq is 140\"}}\n"
    );
}

#[test]
fn a_snapshot_holds_the_session_state() {
    let snapshot = Snapshot {
        phase: Phase::Waiting,
        opening: Opening {
            mode: "m".into(),
            provider: "p".into(),
            sandbox: "l".into(),
            cwd: "/".into(),
            ..Opening::default()
        },
        name: Some("n".into()),
        run: Some("r".into()),
        question: None,
        open_gates: 0,
        last_text: "end".into(),
        last_message: String::new(),
        last_seq: Seq::new(5),
        opened_at: Now(1),
        updated_at: Now(2),
        last_run: Some(("r0".into(), RunOutcome::Denied, 3)),
        queued: 1,
        open: Openness::Ended,
        version: 7,
        adjusted: Adjustment { model: Some("x".into()), ..Adjustment::default() },
    };
    let expected = r#"{"state":"awaiting_approval","activeRunId":"r","lastAssistantText":"end","pendingApproval":null,"meta":{"provider":"p","sandboxProvider":"l","model":"x","cwd":"/","name":"n","mode":"interactive"},"lastSeq":5,"queued":1,"ended":true,"lastRun":{"runId":"r0","outcome":"denied","exitCode":3},"openedAt":1,"updatedAt":2,"sessionVersion":7}"#;
    assert_eq!(snapshot_payload(&snapshot).as_str(), expected);
    let private = PrivateEvent::Snapshot { seq: Seq::new(6), at: Now(3), snapshot: Box::new(snapshot) };
    let mut out = Vec::new();
    private_line(&"s".into(), &private, &mut out);
    let envelope =
        r#"{"v":"push.runtime.v1","kind":"event","sessionId":"s","seq":6,"ts":3,"type":"session_snapshot","payload":"#;
    assert_eq!(String::from_utf8(out).unwrap(), format!("{envelope}{expected}}}\n"));
}

#[test]
fn responses_name_a_session_only_where_there_is_one() {
    let ok = response_ok("q\"", "ping", None, &pong(Now(7)));
    assert_eq!(
        String::from_utf8(ok).unwrap(),
        "{\"v\":\"push.runtime.v1\",\"kind\":\"response\",\"requestId\":\"q\\\"\",\"type\":\"ping\",\"ok\":true,\
         \"payload\":{\"pong\":true,\"ts\":7},\"error\":null}\n"
    );
    let error = response_error("q", "cancel_run", Some("s"), &from_refusal(Refusal::NoActiveRun).with_detail("d"));
    assert_eq!(
        String::from_utf8(error).unwrap(),
        "{\"v\":\"push.runtime.v1\",\"kind\":\"response\",\"requestId\":\"q\",\"type\":\"cancel_run\",\
         \"sessionId\":\"s\",\"ok\":false,\"payload\":{},\"error\":{\"code\":\"NO_ACTIVE_RUN\",\
         \"message\":\"no such run is active in this session\",\"retryable\":false,\"detail\":\"d\"}}\n"
    );
    assert_eq!(ErrorBody::transient(Code::InternalError, "x").detail, None);
}

#[test]
fn repetitions_and_replays_are_marked() {
    assert_eq!(prompted(&"r".into(), Repetition::First).as_str(), r#"{"runId":"r","accepted":true}"#);
    assert_eq!(
        prompted(&"r".into(), Repetition::Repeated).as_str(),
        r#"{"runId":"r","accepted":true,"repeated":true}"#
    );
    let replay = |gap| Replay { from: Seq::new(136), to: Seq::new(149), gap };
    assert_eq!(
        attached(&"s".into(), Phase::Running, replay(Gap::None)).as_str(),
        r#"{"sessionId":"s","state":"running","replay":{"fromSeq":136,"toSeq":149,"completed":true,"gap":false}}"#
    );
    assert_eq!(
        attached(&"s".into(), Phase::Idle, replay(Gap::Foreign)).as_str(),
        r#"{"sessionId":"s","state":"idle","replay":{"fromSeq":136,"toSeq":149,"completed":false,"gap":true}}"#
    );
}

#[test]
fn a_pending_approval_is_its_event_with_session_and_run() {
    let mut question = question();
    question.quorum = 2;
    let event = payload(EventKind::GateOpened(Box::new(question.clone())));
    let listed = approvals(&[PendingApproval { session: "s".into(), run: "r".into(), question }]);
    let place = r#"{"sessionId":"s","runId":"r","#;
    assert_eq!(listed.as_str(), format!("{{\"approvals\":[{place}{}]}}", &event[1..]));
    assert!(event.ends_with(r#""needed":2}"#), "{event}");
}

#[test]
fn a_grantable_approval_lists_its_scopes() {
    let question = GateQuestion {
        grant_rule: Some("exec(make)".into()),
        digest: Some("ab".into()),
        on_denial: DenialEffect::InformModel,
        ..question()
    };
    let event = payload(EventKind::GateOpened(Box::new(question)));
    assert!(event.contains(r#""details":{"scopes":["once","run","session","always"]}"#), "{event}");
    assert!(event.ends_with(r#""remember":"exec(make)","sha256":"ab","onDenial":"continue"}"#), "{event}");
}

fn question() -> GateQuestion {
    GateQuestion {
        gate: "g".into(),
        call: "c".into(),
        kind: "command".into(),
        title: "t".into(),
        summary: "s".into(),
        details: Json::new("{}"),
        choices: vec![],
        quorum: 1,
        expires: Now(9),
        grant_rule: None,
        digest: None,
        on_denial: DenialEffect::EndRun,
        form: None,
    }
}

fn line(kind: EventKind) -> String {
    let event = Event {
        seq: Seq::new(42),
        at: Now(1_760_000_000_000),
        run: Some("r".into()),
        version: None,
        origin: None,
        kind,
    };
    let mut out = Vec::new();
    event_line(&"s".into(), &event, &mut out);
    String::from_utf8(out).unwrap()
}

fn payload(kind: EventKind) -> String {
    let line = line(kind);
    let (_, payload) = line.split_once("\"payload\":").unwrap();
    payload.strip_suffix("}\n").unwrap().to_owned()
}
