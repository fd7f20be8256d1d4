//! The compatibility encoding of tools and messages, and that decoding reverses it.

use super::*;
use crate::kernel::audience::Audience;
use crate::kernel::event::{
    CallResult, EventKind, Intention, OutputStream, Purpose, RunEvent, Steering, ToolError, ToolEvent, ToolOutcome,
};
use crate::kernel::id::{CallId, Fingerprint, Json, MessageId};
use crate::record::decode_event;

#[test]
fn errors_of_tools_have_a_type_that_existing_clients_know() {
    for (tool, code, known) in [
        ("sandbox_read_file", "NOT_FOUND", "FILE_NOT_FOUND"),
        ("sandbox_exec", "TIME_LIMIT", "EXEC_TIMEOUT"),
        ("sandbox_exec", "EXIT_CODE", "EXEC_NON_ZERO_EXIT"),
        ("sandbox_exec", "SIGNAL", "EXEC_NON_ZERO_EXIT"),
        ("sandbox_exec", "EXEC_FAILED", "SANDBOX_UNREACHABLE"),
        ("sandbox_edit_file", "NO_MATCH", "EDIT_CONTENT_NOT_FOUND"),
        ("sandbox_edit_file", "PROTECTED_PATH", "EDIT_GUARD_BLOCKED"),
        ("sandbox_read_file", "PROTECTED_PATH", "UNKNOWN"),
        ("sandbox_write_file", "IO_FAILED", "WRITE_FAILED"),
        ("sandbox_write_file", "APPROVAL_STALE", "STALE_FILE"),
        ("sandbox_exec", "DENIED", "UNKNOWN"),
    ] {
        for detail in [None, Some("more".to_owned())] {
            let error = ToolError { kind: code.into(), retryable: false, message: "m".into(), detail };
            let settlement = call_result(tool, ToolOutcome::Failed, "", Some(error));
            let line = line(EventKind::Tool(ToolEvent::Settled(Box::new(settlement.clone()))));
            assert!(line.contains(&format!(r#""structuredError":{{"type":"{known}""#)), "{line}");
            assert!(line.contains(&format!(r#""detail":"{code}"#)), "{line}");
            let read = decode_event(line.as_bytes()).unwrap().kind;
            assert_eq!(read, EventKind::Tool(ToolEvent::Settled(Box::new(settlement))));
        }
    }
}

#[test]
fn a_failed_result_always_has_a_text() {
    let fault =
        |message: &str| ToolError { kind: "EXIT_CODE".into(), retryable: false, message: message.into(), detail: None };
    for (ending, fault, text) in [
        (ToolOutcome::Failed, Some(fault("exit code 3")), "exit code 3"),
        (ToolOutcome::Failed, Some(fault("")), "the tool failed"),
        (ToolOutcome::Aborted, None, "the tool was stopped before it finished"),
    ] {
        let settlement = call_result("sandbox_exec", ending, "", fault);
        let line = line(EventKind::Tool(ToolEvent::Settled(Box::new(settlement.clone()))));
        assert!(line.contains(&format!(r#""text":"{text}","noOutput":true"#)), "{line}");
        let read = decode_event(line.as_bytes()).unwrap().kind;
        assert_eq!(read, EventKind::Tool(ToolEvent::Settled(Box::new(settlement))));
    }
    let done = line(EventKind::Tool(ToolEvent::Settled(Box::new(call_result(
        "sandbox_exec",
        ToolOutcome::Succeeded,
        "",
        None,
    )))));
    assert!(done.contains(r#""text":"","structuredError""#), "{done}");
}

#[test]
fn every_event_of_a_users_own_command_names_one_run() {
    let (call, tool) = (CallId::from("call_01ABC"), "bash".to_owned());
    let purpose = Purpose::UserCommand { in_context: true };
    let intention = Intention { call: call.clone(), tool: tool.clone(), args: Json::new("{}"), purpose };
    let settled = CallResult { call: call.clone(), purpose, ..call_result("bash", ToolOutcome::Succeeded, "a", None) };
    for kind in [
        EventKind::Tool(ToolEvent::Intended(Box::new(intention))),
        EventKind::Tool(ToolEvent::Started { call: call.clone(), tool }),
        EventKind::Tool(ToolEvent::Output { call, stream: OutputStream::Stdout, text: "a".into() }),
        EventKind::Tool(ToolEvent::Settled(Box::new(settled))),
    ] {
        let event = Event {
            seq: Seq::new(1),
            at: Now(2),
            run: None,
            version: None,
            origin: None,
            audience: Audience::All,
            kind,
        };
        let mut line = Vec::new();
        event_line(&"s".into(), &event, &mut line);
        let text = String::from_utf8(line.clone()).unwrap();
        assert!(text.contains(r#""runId":"run_01ABC_user""#), "{text}");
        assert_eq!(decode_event(&line).unwrap(), event, "the session knows of no run beside the active one");
    }
}

#[test]
fn lines_of_older_journals_are_read_as_before() {
    let head =
        r#"{"v":"push.runtime.v1","kind":"event","sessionId":"s","seq":1,"ts":2,"type":"tool_result","payload":"#;
    let read = |payload: &str| {
        let kind = decode_event(format!("{head}{payload}}}").as_bytes()).unwrap().kind;
        let EventKind::Tool(ToolEvent::Settled(settlement)) = kind else { panic!("{kind:?}") };
        *settlement
    };
    let check = read(
        r#"{"source":"acceptance","toolName":"shell","durationMs":5,"isError":true,"text":"","structuredError":{"type":"TIMEOUT","retryable":true,"message":"m","detail":"d"},"callId":"c","status":"cut","check":2}"#,
    );
    assert_eq!((check.purpose, check.text.as_str()), (Purpose::Check(2), ""));
    let fault = check.error.unwrap();
    assert_eq!((fault.kind.as_str(), fault.detail.as_deref()), ("TIMEOUT", Some("d")));
    let own = read(
        r#"{"source":"user","toolName":"bash","durationMs":5,"isError":false,"text":"a","structuredError":null,"callId":"c","status":"done","excludeFromContext":true}"#,
    );
    assert_eq!(own.purpose, Purpose::UserCommand { in_context: false });
}

#[test]
fn a_message_has_its_length_and_a_preview() {
    let text = "ä".repeat(281);
    let (message, fingerprint, by) = (MessageId::from("m"), Fingerprint(1), "cli".to_owned());
    let steering = Steering { message, text: text.clone(), images: Vec::new(), by, fingerprint };
    let line = line(EventKind::Run(RunEvent::Steered(Box::new(steering))));
    let preview = "ä".repeat(280);
    assert!(line.contains(&format!(r#""text":"{text}","chars":281,"preview":"{preview}","by""#)), "{line}");
}

fn call_result(tool: &str, ending: ToolOutcome, text: &str, fault: Option<ToolError>) -> CallResult {
    CallResult {
        call: "c".into(),
        tool: tool.into(),
        purpose: Purpose::Work,
        millis: 5,
        outcome: ending,
        exit_code: None,
        text: text.into(),
        error: fault,
        diff: None,
    }
}

fn line(kind: EventKind) -> String {
    let run = Some(RunId::from("r"));
    let mut line = Vec::new();
    event_line(
        &"s".into(),
        &Event { seq: Seq::new(1), at: Now(2), run, version: None, origin: None, audience: Audience::All, kind },
        &mut line,
    );
    String::from_utf8(line).unwrap()
}
