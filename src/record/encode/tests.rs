//! The exact encoding of lines that clients may depend on.

use super::*;
use crate::kernel::audience::Audience;
use crate::kernel::event::{
    CallResult, CheckResult, DenialEffect, EventKind, GateEvent, GateQuestion, NoticeEvent, Opening, OutputStream,
    Purpose, RunEvent, RunOutcome, RunReport, SessionEvent, ToolError, ToolEvent, ToolOutcome, is_turn_interrupted,
};
use crate::kernel::gate::GateSubject;
use crate::kernel::id::Json;
use crate::kernel::quorum::Quorum;
use crate::record::decode_event;

#[test]
fn token_events_are_encoded_like_other_events() {
    assert_eq!(
        line(EventKind::Run(RunEvent::TextDelta { text: "a\"\n\u{2028}".into() })),
        "{\"v\":\"push.runtime.v1\",\"kind\":\"event\",\"sessionId\":\"s\",\"runId\":\"r\",\"seq\":42,\
         \"ts\":1760000000000,\"type\":\"assistant_token\",\"payload\":{\"text\":\"a\\\"\\n\u{2028}\"}}\n"
    );
    assert_eq!(payload(EventKind::Run(RunEvent::ThinkingDelta { text: String::new() })), r#"{"text":""}"#);
    let output =
        EventKind::Tool(ToolEvent::Output { call: "c".into(), stream: OutputStream::Stderr, text: "\u{1b}[0m".into() });
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
        if let EventKind::Notice(NoticeEvent::Warned { code, .. }) = &event.kind {
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
        audience: Audience::All,
        kind: EventKind::Session(SessionEvent::Opened(Box::new(Opening {
            mode: "interactive".into(),
            provider: "playbook".into(),
            sandbox: "local".into(),
            cwd: "/".into(),
            repo: Some(Json::new(r#"{"z":1,"a":2}"#)),
            ..Opening::default()
        }))),
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
fn an_event_of_an_unknown_kind_survives_a_round_trip_unchanged() {
    let line = r#"{"v":"push.runtime.v1","kind":"event","sessionId":"s","runId":"r","seq":7,"ts":8,"audience":["a"],"type":"merge_proposed","payload":{"b":1.50,"a":[{"x":"\u00e9"}]}}"#;
    let event = decode_event(line.as_bytes()).unwrap();
    assert_eq!((event.seq, event.at, event.run.as_ref()), (Seq::new(7), Now(8), Some(&"r".into())));
    let EventKind::Notice(NoticeEvent::Unknown(unknown)) = &event.kind else { panic!("{event:?}") };
    assert_eq!(unknown.name, "merge_proposed");
    let mut out = Vec::new();
    event_line(&"s".into(), &event, &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), format!("{line}\n"));
    let broken = line.replace(",\"payload\"", ",\n\"payload\"");
    assert!(decode_event(broken.as_bytes()).is_err(), "a line feed would end the record");
}

#[test]
fn three_kinds_of_status_are_distinguished() {
    assert_eq!(
        payload(EventKind::Tool(ToolEvent::Started { call: "c".into(), tool: "shell".into() })),
        r#"{"source":"orchestrator","phase":"Executing tool...","detail":"shell","callId":"c"}"#
    );
    let stopping =
        EventKind::Run(RunEvent::Stopping { outcome: RunOutcome::Cancelled, reason: "user".into(), by: "cli".into() });
    assert_eq!(
        payload(stopping),
        r#"{"source":"orchestrator","phase":"Stopping run...","detail":"user","stopping":{"outcome":"cancelled","by":"cli"}}"#
    );
    let plain = EventKind::Notice(NoticeEvent::Status { source: "x".into(), phase: "y".into(), detail: None });
    assert_eq!(payload(plain), r#"{"source":"x","phase":"y"}"#);
}

#[test]
fn results_carry_their_error() {
    let settled = |ending, error| {
        payload(EventKind::Tool(ToolEvent::Settled(Box::new(CallResult {
            call: "c".into(),
            tool: "shell".into(),
            purpose: Purpose::Check(0),
            millis: 5,
            outcome: ending,
            exit_code: Some(-1),
            text: "t".into(),
            error,
            diff: None,
        }))))
    };
    assert_eq!(
        settled(ToolOutcome::Succeeded, None),
        r#"{"source":"sandbox","toolName":"shell","durationMs":5,"isError":false,"text":"t","structuredError":null,"callId":"c","status":"done","exitCode":-1,"purpose":"acceptance","check":0}"#
    );
    let error = ToolError { kind: "TIMEOUT".into(), retryable: true, message: "m".into(), detail: None };
    assert_eq!(
        settled(ToolOutcome::Aborted, Some(error)),
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
        let line = line(EventKind::Gate(GateEvent::Opened(Box::new(question.clone()))));
        assert!(line.contains(&format!("\"details\":{spelled},\"options\":[\"approve\",\"deny\"]")), "{line}");
        assert_eq!(decode_event(line.as_bytes()).unwrap().kind, EventKind::Gate(GateEvent::Opened(Box::new(question))));
    }
}

#[test]
fn invalid_json_cannot_break_a_line() {
    let mut question = question();
    question.details = Json::new("{\"open\":");
    assert!(payload(EventKind::Gate(GateEvent::Opened(Box::new(question.clone())))).contains(r#""details":null"#));
    question.choices = vec!["go".into()];
    question.details = Json::new("no object");
    assert!(
        payload(EventKind::Gate(GateEvent::Opened(Box::new(question)))).contains(r#""details":{"choices":["go"]}"#)
    );
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
        payload(EventKind::Run(RunEvent::Ended(Box::new(report.clone())))),
        r#"{"runId":"r","outcome":"failed","summary":"s","reason":"acceptance","acceptance":{"total":2,"passed":0,"results":[{"id":"build","passed":false,"exitCode":null,"output":""}]},"headless":{"exitCodeHint":4}}"#
    );
    report.checks.clear();
    report.checks_requested = 0;
    report.reason = None;
    assert_eq!(
        payload(EventKind::Run(RunEvent::Ended(Box::new(report)))),
        r#"{"runId":"r","outcome":"failed","summary":"s","headless":{"exitCodeHint":4}}"#
    );
}

#[test]
fn a_grantable_approval_lists_its_scopes() {
    let question = GateQuestion {
        grant_rule: Some("exec(make)".into()),
        digest: Some("ab".into()),
        on_denial: DenialEffect::InformModel,
        ..question()
    };
    let event = payload(EventKind::Gate(GateEvent::Opened(Box::new(question))));
    assert!(event.contains(r#""details":{"scopes":["once","run","session","always"]}"#), "{event}");
    assert!(event.ends_with(r#""remember":"exec(make)","sha256":"ab","onDenial":"continue"}"#), "{event}");
}

fn question() -> GateQuestion {
    GateQuestion {
        gate: "g".into(),
        subject: GateSubject::ToolCall { call: "c".into() },
        kind: "command".into(),
        title: "t".into(),
        summary: "s".into(),
        details: Json::new("{}"),
        choices: vec![],
        quorum: Quorum::Any(1),
        eligible: None,
        expires: Now(9),
        grant_rule: None,
        digest: None,
        on_denial: DenialEffect::EndRun,
    }
}

fn line(kind: EventKind) -> String {
    let event = Event {
        seq: Seq::new(42),
        at: Now(1_760_000_000_000),
        run: Some("r".into()),
        version: None,
        origin: None,
        audience: Audience::All,
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
