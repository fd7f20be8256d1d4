//! Every request as clients send it, and every way to get one wrong.

use super::*;
use crate::adapter::push::error::Code;
use crate::kernel::event::{Criterion, Decision};
use crate::kernel::id::{GateId, Json, MessageId, RunId, Seq};

#[test]
fn hello_needs_nothing_but_itself() {
    assert_eq!(
        ask("hello", r#"{"clientName":"push","clientVersion":"0.1.0","capabilities":["approvals"]}"#),
        Ask::Hello {
            client_name: Some("push".into()),
            client_version: Some("0.1.0".into()),
            capabilities: vec!["approvals".into()],
        }
    );
    let bare = Ask::Hello { client_name: None, client_version: None, capabilities: vec![] };
    assert_eq!(ask("hello", "{}"), bare);
}

#[test]
fn a_payload_may_be_left_out_where_it_says_nothing() {
    let request = read(r#"{"v":"push.runtime.v1","kind":"request","requestId":"r","type":"ping"}"#).unwrap();
    assert_eq!(request.ask, Ask::Ping);
    let null = r#"{"v":"push.runtime.v1","kind":"request","requestId":"r","type":"ping","payload":null}"#;
    assert_eq!(read(null).unwrap().ask, Ask::Ping);
}

#[test]
fn a_request_without_an_id_is_understood() {
    for id in ["", r#""requestId":null,"#, r#""requestId":"","#] {
        let line = format!(r#"{{"v":"push.runtime.v1","kind":"request",{id}"type":"ping","payload":{{}}}}"#);
        assert_eq!(read(&line).unwrap().request_id, None, "{line}");
    }
}

#[test]
fn start_session_is_read_in_full() {
    let cwd = here();
    let payload = format!(
        r#"{{"mode":"headless","provider":"ollama","sandboxProvider":"modal","cwd":{cwd:?},"model":"m","name":"n",
"repo":{{"rootPath":"elsewhere","z":1,"a":1e400}},"metadata":{{"source":"cli"}},"environment":{{"PATH":"/bin"}},
"idempotencyKey":"k"}}"#
    )
    .replace('\n', "");
    let Ask::StartSession(start) = ask("start_session", &payload) else { panic!("another ask") };
    assert_eq!((start.mode.as_str(), start.provider.as_str()), ("headless", "ollama"));
    assert_eq!((start.sandbox_provider.as_str(), start.cwd.as_str()), ("modal", cwd));
    assert_eq!((start.model.as_deref(), start.name.as_deref()), (Some("m"), Some("n")));
    assert_eq!(start.repo, Some(Json::new(r#"{"rootPath":"elsewhere","z":1,"a":1e400}"#)), "to the letter");
    assert_eq!(start.metadata, Some(Json::new(r#"{"source":"cli"}"#)));
    assert_eq!(start.environment.unwrap().variables().get("PATH").map(String::as_str), Some("/bin"));
    assert_eq!(start.idempotency_key.as_deref(), Some("k"));
}

#[test]
fn a_session_takes_its_directory_from_the_repository_when_none_is_said() {
    let payload = format!(r#"{{"repo":{{"rootPath":{:?}}}}}"#, here());
    let Ask::StartSession(start) = ask("start_session", &payload) else { panic!("another ask") };
    assert_eq!(start.cwd, here());
    assert_eq!((start.mode.as_str(), start.provider.as_str()), ("interactive", "playbook"));
    assert_eq!(start.sandbox_provider, "local");
}

#[test]
fn a_session_is_named_in_the_envelope_in_the_payload_or_in_both() {
    for (envelope, payload) in [
        (r#""sessionId":"s","#, "{}"),
        (r#""sessionId":null,"#, r#"{"sessionId":"s"}"#),
        ("", r#"{"sessionId":"s"}"#),
        (r#""sessionId":"s","#, r#"{"sessionId":"s"}"#),
        (r#""sessionId":"s","#, r#"{"sessionId":null}"#),
    ] {
        let request = read(&request(envelope, "end_session", payload)).unwrap();
        assert_eq!(request.session, Some("s".into()));
        assert_eq!(request.ask, Ask::Session { id: "s".into(), ask: SessionAsk::End });
    }
}

#[test]
fn attach_and_resume_ask_for_the_same() {
    for kind in ["attach_session", "resume_session"] {
        let SessionAsk::Attach(attach) = of_session(kind, r#","lastSeenSeq":135,"attachToken":"att_x""#)
        else {
            panic!("another ask")
        };
        assert_eq!((attach.seen, attach.read_only), (Seq::new(135), false));
        assert_eq!(attach.token.map(|token| token.reveal().to_owned()).as_deref(), Some("att_x"));
        let SessionAsk::Attach(attach) = of_session(kind, r#","lastSeenSeq":null,"readOnly":true"#) else {
            panic!("another ask")
        };
        assert_eq!((attach.seen, attach.read_only, attach.token), (Seq::ZERO, true, None));
    }
}

#[test]
fn messages_carry_their_criteria() {
    let fields = r#","clientMessageId":"m","text":"a\u00e4\n","timeoutMs":5,"acceptanceCriteria":[
{"id":"build","check":"make","exitCode":-1,"description":"builds"},{"check":"true"}]"#
        .replace('\n', "");
    let expected = Prompt {
        message: Some(MessageId::from("m")),
        text: "aä\n".into(),
        criteria: vec![
            Criterion {
                id: "build".into(),
                check: "make".into(),
                exit_code: -1,
                description: Some("builds".into()),
            },
            Criterion { id: "check-2".into(), check: "true".into(), exit_code: 0, description: None },
        ],
        time_limit: Some(5),
        environment: None,
    };
    assert_eq!(of_session("send_user_message", &fields), SessionAsk::Prompt(Box::new(expected.clone())));
    assert_eq!(of_session("queue_message", &fields), SessionAsk::Queue(Box::new(expected)));
}

#[test]
fn the_other_requests_of_a_session_are_read() {
    let message = Some(MessageId::from("m"));
    for (kind, fields, expected) in [
        ("detach_session", "", SessionAsk::Detach),
        ("steer", r#","text":"left""#, SessionAsk::Steer { message: None, text: "left".into() }),
        ("steer", r#","text":"l","clientMessageId":"m""#, SessionAsk::Steer { message, text: "l".into() }),
        ("list_queue", "", SessionAsk::ListQueue),
        ("remove_queued", r#","messageId":"m""#, SessionAsk::Unqueue { message: "m".into() }),
        ("cancel_run", "", SessionAsk::Cancel { run: None, reason: "user_cancelled".into() }),
        (
            "cancel_run",
            r#","runId":"r","reason":"bored""#,
            SessionAsk::Cancel { run: Some("r".into()), reason: "bored".into() },
        ),
        ("get_session_snapshot", "", SessionAsk::Snapshot),
        ("get_session_messages", "", SessionAsk::Messages { after: Seq::ZERO, limit: 100 }),
        (
            "get_session_messages",
            r#","afterSeq":7,"limit":1000000"#,
            SessionAsk::Messages { after: Seq::new(7), limit: 1000 },
        ),
        ("rename_session", r#","name":"n""#, SessionAsk::Rename { name: "n".into() }),
        ("end_session", r#","unknown":[1]"#, SessionAsk::End),
    ] {
        assert_eq!(of_session(kind, fields), expected, "{kind}");
    }
    let fields =
        r#","runId":"r","approvalId":"a","decision":"deny","choice":"stop","scope":"once","comment":"c""#;
    let expected = Decide {
        gate: GateId::from("a"),
        run: Some(RunId::from("r")),
        decision: Decision::Deny,
        choice: Some("stop".into()),
        comment: Some("c".into()),
        environment: None,
    };
    assert_eq!(of_session("submit_approval", fields), SessionAsk::Decide(Box::new(expected)));
}

#[test]
fn requests_of_the_daemon_are_read() {
    for (kind, payload, expected) in [
        ("list_sessions", "{}", Ask::ListSessions { limit: 20, cursor: None, prefix: None }),
        (
            "list_sessions",
            r#"{"limit":5,"cursor":"c","prefix":"sess_0"}"#,
            Ask::ListSessions { limit: 5, cursor: Some("c".into()), prefix: Some("sess_0".into()) },
        ),
        ("list_approvals", "{}", Ask::ListApprovals { session: None }),
        ("list_approvals", r#"{"sessionId":"s"}"#, Ask::ListApprovals { session: Some("s".into()) }),
        ("list_providers", "{}", Ask::ListProviders),
        ("get_metrics", "{}", Ask::Metrics),
        ("drain", "{}", Ask::Drain { grace_ms: None }),
        ("drain", r#"{"graceMs":0}"#, Ask::Drain { grace_ms: Some(0) }),
    ] {
        assert_eq!(ask(kind, payload), expected, "{kind}");
    }
}

#[test]
fn a_bad_field_is_refused_by_its_name() {
    let cwd = format!("{:?}", here());
    let start = |rest: &str| format!(r#"{{"cwd":{cwd},{rest}}}"#);
    for (kind, payload, message) in [
        (
            "attach_session",
            r#"{"sessionId":"s","lastSeenSeq":-1}"#.into(),
            "payload.lastSeenSeq: must be a whole",
        ),
        (
            "attach_session",
            r#"{"sessionId":"s","lastSeenSeq":1.0}"#.into(),
            "payload.lastSeenSeq: must be a whole",
        ),
        (
            "attach_session",
            r#"{"sessionId":"s","lastSeenSeq":"1"}"#.into(),
            "payload.lastSeenSeq: must be a whole",
        ),
        (
            "attach_session",
            r#"{"sessionId":"s","readOnly":1}"#.into(),
            "payload.readOnly: must be true or false",
        ),
        ("attach_session", r#"{"lastSeenSeq":1}"#.into(), "payload.sessionId: is missing"),
        ("attach_session", r#"{"sessionId":7}"#.into(), "payload.sessionId: must be a string"),
        ("attach_session", r#"{"sessionId":""}"#.into(), "payload.sessionId: must not be empty"),
        ("attach_session", "[]".into(), "payload: must be an object"),
        ("send_user_message", r#"{"sessionId":"s"}"#.into(), "payload.text: is missing"),
        ("send_user_message", r#"{"sessionId":"s","text":""}"#.into(), "payload.text: must not be empty"),
        ("send_user_message", r#"{"sessionId":"s","text":7}"#.into(), "payload.text: must be a string"),
        (
            "send_user_message",
            r#"{"sessionId":"s","text":"\ud800"}"#.into(),
            "payload.text: must be well-formed",
        ),
        ("send_user_message", message("clientMessageId", "[]"), "payload.clientMessageId: must be a string"),
        (
            "send_user_message",
            message("clientMessageId", r#""""#),
            "payload.clientMessageId: must not be empty",
        ),
        (
            "send_user_message",
            message("timeoutMs", "0"),
            "payload.timeoutMs: must be a whole number above zero",
        ),
        (
            "send_user_message",
            message("acceptanceCriteria", "{}"),
            "payload.acceptanceCriteria: must be a list",
        ),
        (
            "send_user_message",
            message("acceptanceCriteria", "[1]"),
            "payload.acceptanceCriteria[0]: must be an",
        ),
        (
            "send_user_message",
            message("acceptanceCriteria", r#"[{"check":"x"},{"id":"y"}]"#),
            "payload.acceptanceCriteria[1].check: is missing",
        ),
        (
            "send_user_message",
            message("acceptanceCriteria", r#"[{"check":"x","exitCode":3000000000}]"#),
            "payload.acceptanceCriteria[0].exitCode: must be an exit code",
        ),
        (
            "send_user_message",
            message("environment", r#"{"A":1}"#),
            "payload.environment: must be an object whose",
        ),
        ("send_user_message", message("environment", r#"{"A=B":""}"#), "payload.environment: has a name"),
        ("send_user_message", message("environment", r#"{"":""}"#), "payload.environment: has a name"),
        (
            "send_user_message",
            message("environment", r#"{"A":"\u0000"}"#),
            "payload.environment: must not contain",
        ),
        ("submit_approval", r#"{"sessionId":"s","approvalId":"a"}"#.into(), "payload.decision: is missing"),
        (
            "submit_approval",
            approval(r#""decision":"yes""#),
            r#"payload.decision: must be "approve" or "deny""#,
        ),
        (
            "submit_approval",
            approval(r#""decision":"deny","scope":"always""#),
            r#"payload.scope: must be "once""#,
        ),
        (
            "submit_approval",
            r#"{"sessionId":"s","decision":"deny"}"#.into(),
            "payload.approvalId: is missing",
        ),
        ("remove_queued", r#"{"sessionId":"s"}"#.into(), "payload.messageId: is missing"),
        ("rename_session", r#"{"sessionId":"s","name":""}"#.into(), "payload.name: must not be empty"),
        ("list_sessions", r#"{"limit":0}"#.into(), "payload.limit: must be a whole number above zero"),
        ("drain", r#"{"graceMs":-1}"#.into(), "payload.graceMs: must be a whole"),
        ("hello", r#"{"capabilities":"all"}"#.into(), "payload.capabilities: must be a list of strings"),
        ("start_session", "{}".into(), "payload: needs cwd or repo.rootPath"),
        ("start_session", r#"{"repo":{}}"#.into(), "payload: needs cwd or repo.rootPath"),
        ("start_session", r#"{"cwd":"here"}"#.into(), "payload.cwd: must be an absolute path"),
        ("start_session", r#"{"cwd":"/a\u0000"}"#.into(), "payload.cwd: must not contain a NUL"),
        (
            "start_session",
            r#"{"repo":{"rootPath":"x"}}"#.into(),
            "payload.repo.rootPath: must be an absolute path",
        ),
        ("start_session", start(r#""repo":[]"#), "payload.repo: must be an object"),
        ("start_session", start(r#""metadata":"m""#), "payload.metadata: must be an object"),
        ("start_session", start(r#""provider":false"#), "payload.provider: must be a string"),
        ("start_session", start(r#""idempotencyKey":"""#), "payload.idempotencyKey: must not be empty"),
    ] {
        let malformed = read(&request("", kind, &payload)).unwrap_err();
        let error = malformed.error();
        assert_eq!(error.code, Code::InvalidRequest, "{kind} {payload}");
        assert!(error.message.starts_with(message), "{kind} {payload}: {}", error.message);
        assert_eq!(malformed.request_id.as_deref(), Some("q"), "{kind}");
        assert_eq!(malformed.answered_type(), kind);
    }
}

#[test]
fn what_can_be_read_of_a_bad_envelope_is_answered_under() {
    let v = r#""v":"push.runtime.v1""#;
    let version = Code::UnsupportedProtocolVersion;
    for (line, code, id, kind, session) in [
        (format!("[{{{v}}}]"), Code::InvalidRequest, None, "unknown", None),
        ("{}".to_owned(), version, None, "unknown", None),
        (
            r#"{"v":"push.runtime.v2","requestId":"q","type":"ping"}"#.to_owned(),
            version,
            Some("q"),
            "ping",
            None,
        ),
        (r#"{"v":1,"requestId":"q","type":"ping"}"#.to_owned(), version, Some("q"), "ping", None),
        (format!(r#"{{{v},"requestId":"q","type":"ping"}}"#), Code::InvalidRequest, Some("q"), "ping", None),
        (
            format!(r#"{{{v},"kind":"event","requestId":"q","type":"ping","sessionId":"s"}}"#),
            Code::InvalidRequest,
            Some("q"),
            "ping",
            Some("s"),
        ),
        (
            format!(r#"{{{v},"kind":"request","requestId":"q","type":"fly","payload":{{"sessionId":"s"}}}}"#),
            Code::UnsupportedRequestType,
            Some("q"),
            "fly",
            Some("s"),
        ),
        (
            format!(r#"{{{v},"kind":"request","requestId":"q"}}"#),
            Code::InvalidRequest,
            Some("q"),
            "unknown",
            None,
        ),
        (
            format!(r#"{{{v},"kind":"request","requestId":"q","type":["ping"]}}"#),
            Code::InvalidRequest,
            Some("q"),
            "unknown",
            None,
        ),
        (
            format!(r#"{{{v},"kind":"request","requestId":7,"type":"ping"}}"#),
            Code::InvalidRequest,
            None,
            "ping",
            None,
        ),
        (
            format!(r#"{{{v},"kind":"request","requestId":"q","type":"ping","sessionId":7}}"#),
            Code::InvalidRequest,
            Some("q"),
            "ping",
            None,
        ),
        (
            format!(r#"{{{v},"kind":"request","requestId":"q","type":"ping","payload":"p"}}"#),
            Code::InvalidRequest,
            Some("q"),
            "ping",
            None,
        ),
    ] {
        let malformed = read(&line).unwrap_err();
        assert_eq!(malformed.error().code, code, "{line}: {malformed:?}");
        assert_eq!(malformed.request_id.as_deref(), id, "{line}");
        assert_eq!(malformed.answered_type(), kind, "{line}");
        assert_eq!(malformed.session.as_deref(), session, "{line}");
    }
}

#[test]
fn two_different_sessions_are_refused() {
    let line = request(r#""sessionId":"a","#, "cancel_run", r#"{"sessionId":"b"}"#);
    let malformed = read(&line).unwrap_err();
    assert_eq!(*malformed.problem, Problem::TwoSessions);
    assert_eq!(malformed.error().code, Code::InvalidRequest);
}

#[test]
fn every_length_has_its_limit() {
    let limits = DecodeLimits {
        text: 4,
        name: 3,
        id: 20,
        comment: 2,
        path: 5,
        object: 8,
        criteria: 1,
        check: 3,
        capabilities: 1,
        variables: 2,
        environment: 6,
        page: 2,
    };
    let fits = |kind: &str, payload: &str| decode(request("", kind, payload).as_bytes(), &limits).is_ok();
    assert!(fits("send_user_message", r#"{"sessionId":"s","text":"1234"}"#));
    assert!(!fits("send_user_message", r#"{"sessionId":"s","text":"12345"}"#));
    assert!(fits("rename_session", r#"{"sessionId":"s","name":"äöü"}"#), "a name is counted in characters");
    assert!(!fits("rename_session", r#"{"sessionId":"s","name":"äöüß"}"#));
    assert!(fits("end_session", r#"{"sessionId":"12345678901234567890"}"#));
    assert!(!fits("end_session", r#"{"sessionId":"123456789012345678901"}"#));
    assert!(!fits("hello", r#"{"capabilities":["a","b"]}"#));
    let environment =
        |object: &str| fits("resume_session", &format!(r#"{{"sessionId":"s","environment":{object}}}"#));
    assert!(environment(r#"{"A":"1","B":"23"}"#));
    assert!(!environment(r#"{"A":"1","B":"23456"}"#));
    assert!(!environment(r#"{"A":"","B":"","C":""}"#));
    let criteria = |list: &str| message("acceptanceCriteria", list);
    assert!(fits("queue_message", &criteria(r#"[{"check":"abc"}]"#)));
    assert!(!fits("queue_message", &criteria(r#"[{"check":"abcd"}]"#)));
    assert!(!fits("queue_message", &criteria(r#"[{"check":"a"},{"check":"b"}]"#)));
    assert!(!fits("start_session", r#"{"cwd":"/","metadata":{"a":"bcde"}}"#));
    assert!(!fits("start_session", r#"{"cwd":"/12345"}"#));
}

#[test]
fn secrets_do_not_show_in_a_log() {
    let line = request(
        "",
        "attach_session",
        r#"{"sessionId":"s","attachToken":"att_hidden","environment":{"KEY":"hidden"}}"#,
    );
    let shown = format!("{:?}", read(&line).unwrap());
    assert!(!shown.contains("hidden") && !shown.contains("KEY"), "{shown}");
}

fn read(line: &str) -> Result<Request, Malformed> {
    decode(line.as_bytes(), &DecodeLimits::default())
}

fn ask(kind: &str, payload: &str) -> Ask {
    read(&request("", kind, payload)).unwrap().ask
}

fn of_session(kind: &str, fields: &str) -> SessionAsk {
    let ask = ask(kind, &format!(r#"{{"sessionId":"s"{fields}}}"#));
    let Ask::Session { id, ask } = ask else { panic!("asks the daemon: {ask:?}") };
    assert_eq!(id.as_str(), "s");
    ask
}

fn request(envelope: &str, kind: &str, payload: &str) -> String {
    format!(
        r#"{{"v":"push.runtime.v1","kind":"request","requestId":"q","type":"{kind}",{envelope}"payload":{payload}}}"#
    )
}

fn message(field: &str, value: &str) -> String {
    format!(r#"{{"sessionId":"s","text":"t","{field}":{value}}}"#)
}

fn approval(fields: &str) -> String {
    format!(r#"{{"sessionId":"s","approvalId":"a",{fields}}}"#)
}

const fn here() -> &'static str {
    if cfg!(windows) { "C:\\work" } else { "/srv/project" }
}
