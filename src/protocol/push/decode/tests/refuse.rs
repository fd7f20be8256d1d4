//! Requests that are refused, and their error responses.

use super::*;
use crate::protocol::error::Code;

#[test]
fn a_bad_field_is_refused_by_its_name() {
    let cwd = format!("{:?}", working_dir());
    let start = |rest: &str| format!(r#"{{"cwd":{cwd},{rest}}}"#);
    for (kind, payload, message) in [
        ("attach_session", r#"{"sessionId":"s","lastSeenSeq":-1}"#.into(), "payload.lastSeenSeq: must be a whole"),
        ("attach_session", r#"{"sessionId":"s","lastSeenSeq":1.0}"#.into(), "payload.lastSeenSeq: must be a whole"),
        ("attach_session", r#"{"sessionId":"s","lastSeenSeq":"1"}"#.into(), "payload.lastSeenSeq: must be a whole"),
        ("attach_session", r#"{"sessionId":"s","readOnly":1}"#.into(), "payload.readOnly: must be true or false"),
        ("attach_session", r#"{"lastSeenSeq":1}"#.into(), "payload.sessionId: is missing"),
        ("attach_session", r#"{"sessionId":7}"#.into(), "payload.sessionId: must be a string"),
        ("attach_session", r#"{"sessionId":""}"#.into(), "payload.sessionId: must not be empty"),
        ("attach_session", "[]".into(), "payload: must be an object"),
        ("send_user_message", r#"{"sessionId":"s"}"#.into(), "payload.text: is missing"),
        ("send_user_message", r#"{"sessionId":"s","text":""}"#.into(), "payload.text: must not be empty"),
        ("send_user_message", r#"{"sessionId":"s","text":7}"#.into(), "payload.text: must be a string"),
        ("send_user_message", r#"{"sessionId":"s","text":"\ud800"}"#.into(), "payload.text: must be well-formed"),
        ("send_user_message", message("clientMessageId", "[]"), "payload.clientMessageId: must be a string"),
        ("send_user_message", message("clientMessageId", r#""""#), "payload.clientMessageId: must not be empty"),
        ("send_user_message", message("timeoutMs", "0"), "payload.timeoutMs: must be a whole number above zero"),
        (
            "send_user_message",
            message("budget", r#"{"maxCostUsd":0}"#),
            "payload.budget.maxCostUsd: must be an amount above zero",
        ),
        (
            "send_user_message",
            message("budget", r#"{"maxCostUsd":1e99}"#),
            "payload.budget.maxCostUsd: must be an amount above zero",
        ),
        (
            "send_user_message",
            message("budget", r#"{"maxTurns":1.5}"#),
            "payload.budget.maxTurns: must be a whole number above zero",
        ),
        ("send_user_message", message("acceptanceCriteria", "{}"), "payload.acceptanceCriteria: must be a list"),
        ("send_user_message", message("acceptanceCriteria", "[1]"), "payload.acceptanceCriteria[0]: must be an"),
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
        ("send_user_message", message("environment", r#"{"A":1}"#), "payload.environment: must be an object whose"),
        ("send_user_message", message("environment", r#"{"A=B":""}"#), "payload.environment: has a name"),
        ("send_user_message", message("environment", r#"{"":""}"#), "payload.environment: has a name"),
        ("send_user_message", message("environment", r#"{"A":"\u0000"}"#), "payload.environment: must not contain"),
        ("submit_approval", r#"{"sessionId":"s","approvalId":"a"}"#.into(), "payload.decision: is missing"),
        ("submit_approval", approval(r#""decision":"yes""#), r#"payload.decision: must be "approve" or "deny""#),
        (
            "submit_approval",
            approval(r#""decision":"deny","scope":"ever""#),
            r#"payload.scope: must be "once", "run", "session" or "always""#,
        ),
        ("submit_approval", r#"{"sessionId":"s","decision":"deny"}"#.into(), "payload.approvalId: is missing"),
        ("remove_queued", r#"{"sessionId":"s"}"#.into(), "payload.messageId: is missing"),
        ("rename_session", r#"{"sessionId":"s","name":""}"#.into(), "payload.name: must not be empty"),
        ("list_sessions", r#"{"limit":0}"#.into(), "payload.limit: must be a whole number above zero"),
        ("drain", r#"{"graceMs":-1}"#.into(), "payload.graceMs: must be a whole"),
        ("hello", r#"{"capabilities":"all"}"#.into(), "payload.capabilities: must be a list of strings"),
        (
            "start_session",
            r#"{"cwd":"/","mode":"batch"}"#.into(),
            r#"payload.mode: must be "interactive" or "headless""#,
        ),
        ("start_session", "{}".into(), "payload: needs cwd or repo.rootPath"),
        ("start_session", r#"{"repo":{}}"#.into(), "payload: needs cwd or repo.rootPath"),
        ("start_session", r#"{"cwd":"here"}"#.into(), "payload.cwd: must be an absolute path"),
        ("start_session", r#"{"cwd":"/a\u0000"}"#.into(), "payload.cwd: must not contain a NUL"),
        ("start_session", r#"{"repo":{"rootPath":"x"}}"#.into(), "payload.repo.rootPath: must be an absolute path"),
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
        assert_eq!(malformed.clone().into_refusal().tag.kind_name, kind);
    }
}

#[test]
fn a_bad_envelope_is_answered_with_its_readable_fields() {
    let v = r#""v":"push.runtime.v1""#;
    let version = Code::UnsupportedProtocolVersion;
    for (line, code, id, kind, session) in [
        (format!("[{{{v}}}]"), Code::InvalidRequest, None, "unknown", None),
        ("{}".to_owned(), version, None, "unknown", None),
        (r#"{"v":"push.runtime.v2","requestId":"q","type":"ping"}"#.to_owned(), version, Some("q"), "ping", None),
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
        (format!(r#"{{{v},"kind":"request","requestId":"q"}}"#), Code::InvalidRequest, Some("q"), "unknown", None),
        (
            format!(r#"{{{v},"kind":"request","requestId":"q","type":["ping"]}}"#),
            Code::InvalidRequest,
            Some("q"),
            "unknown",
            None,
        ),
        (format!(r#"{{{v},"kind":"request","requestId":7,"type":"ping"}}"#), Code::InvalidRequest, None, "ping", None),
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
        assert_eq!(malformed.clone().into_refusal().tag.kind_name, kind, "{line}");
        assert_eq!(malformed.session.as_deref(), session, "{line}");
    }
}

#[test]
fn two_different_sessions_are_refused() {
    let line = request(r#""sessionId":"a","#, "cancel_run", r#"{"sessionId":"b"}"#);
    let malformed = read(&line).unwrap_err();
    assert_eq!(*malformed.problem, RequestError::SessionMismatch);
    assert_eq!(malformed.error().code, Code::InvalidRequest);
}

#[test]
fn every_length_has_its_limit() {
    let limits = DecodeLimits {
        text: 4,
        name: 3,
        id: 20,
        comment: 2,
        answer: 6,
        images: 1,
        image_bytes: 8,
        path: 5,
        object: 8,
        criteria: 1,
        rules: 1,
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
    let environment = |object: &str| fits("resume_session", &format!(r#"{{"sessionId":"s","environment":{object}}}"#));
    assert!(environment(r#"{"A":"1","B":"23"}"#));
    assert!(!environment(r#"{"A":"1","B":"23456"}"#));
    assert!(!environment(r#"{"A":"","B":"","C":""}"#));
    let pictures = |list: &str| fits("queue_message", &message("images", list));
    assert!(pictures(r#"[{"mimeType":"image/png","data":"12345678"}]"#));
    assert!(!pictures(r#"[{"mimeType":"image/png","data":"123456789012"}]"#));
    assert!(!pictures(r#"[{"mimeType":"image/png","data":"1234"},{"mimeType":"image/png","data":"1234"}]"#));
    let answer = |json: &str| {
        let vote = format!(r#"{{"sessionId":"s","approvalId":"a","decision":"approve","answer":{json}}}"#);
        let limits = DecodeLimits { name: 9, ..limits };
        decode(request("", "submit_approval", &vote).as_bytes(), &limits).is_ok()
    };
    assert!(answer(r#""1234""#) && answer("[1,2]"));
    assert!(!answer(r#""12345""#));
    let criteria = |list: &str| message("acceptanceCriteria", list);
    assert!(fits("queue_message", &criteria(r#"[{"check":"abc"}]"#)));
    assert!(!fits("queue_message", &criteria(r#"[{"check":"abcd"}]"#)));
    assert!(!fits("queue_message", &criteria(r#"[{"check":"a"},{"check":"b"}]"#)));
    assert!(!fits("start_session", r#"{"cwd":"/","metadata":{"a":"bcde"}}"#));
    assert!(!fits("start_session", r#"{"cwd":"/12345"}"#));
}
