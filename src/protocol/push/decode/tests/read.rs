//! Requests that are decoded.

use super::*;
use crate::kernel::environment::Environment;
use crate::kernel::event::{ApprovalScope, Budget, Criterion, Decision};
use crate::kernel::id::{GateId, Json, MessageId, RunId, Seq};

#[test]
fn hello_needs_no_fields() {
    assert_eq!(
        decode_body("hello", r#"{"clientName":"push","clientVersion":"0.1.0","capabilities":["approvals"]}"#),
        Intent::Hello {
            client_name: Some("push".into()),
            client_version: Some("0.1.0".into()),
            capabilities: vec!["approvals".into()],
        }
    );
    let bare = Intent::Hello { client_name: None, client_version: None, capabilities: vec![] };
    assert_eq!(decode_body("hello", "{}"), bare);
}

#[test]
fn an_empty_payload_may_be_omitted() {
    let request = read(r#"{"v":"push.runtime.v1","kind":"request","requestId":"r","type":"ping"}"#).unwrap();
    assert_eq!(request.intent, Intent::Ping);
    let null = r#"{"v":"push.runtime.v1","kind":"request","requestId":"r","type":"ping","payload":null}"#;
    assert_eq!(read(null).unwrap().intent, Intent::Ping);
}

#[test]
fn a_request_without_an_id_is_decoded() {
    for id in ["", r#""requestId":null,"#, r#""requestId":"","#] {
        let line = format!(r#"{{"v":"push.runtime.v1","kind":"request",{id}"type":"ping","payload":{{}}}}"#);
        assert_eq!(read(&line).unwrap().tag.request_id, None, "{line}");
    }
}

#[test]
fn start_session_is_read_in_full() {
    let cwd = working_dir();
    let payload = format!(
        r#"{{"mode":"headless","provider":"ollama","sandboxProvider":"modal","cwd":{cwd:?},"model":"m","name":"n",
"repo":{{"rootPath":"elsewhere","z":1,"a":1e400}},"metadata":{{"source":"cli"}},"environment":{{"PATH":"/bin"}},
"idempotencyKey":"k"}}"#
    )
    .replace('\n', "");
    let Intent::StartSession(start) = decode_body("start_session", &payload) else { panic!("another ask") };
    assert_eq!((start.mode.as_str(), start.provider.as_deref()), ("headless", Some("ollama")));
    assert_eq!((start.sandbox_provider.as_deref(), start.cwd.as_str()), (Some("modal"), cwd));
    assert_eq!((start.model.as_deref(), start.name.as_deref()), (Some("m"), Some("n")));
    assert_eq!(start.repo, Some(Json::new(r#"{"rootPath":"elsewhere","z":1,"a":1e400}"#)), "to the letter");
    assert_eq!(start.metadata, Some(Json::new(r#"{"source":"cli"}"#)));
    assert_eq!(start.environment.unwrap().variables().get("PATH").map(String::as_str), Some("/bin"));
    assert_eq!(start.idempotency_key.as_deref(), Some("k"));
}

#[test]
fn a_session_takes_its_directory_from_the_repository_by_default() {
    let payload = format!(r#"{{"repo":{{"rootPath":{:?}}}}}"#, working_dir());
    let Intent::StartSession(start) = decode_body("start_session", &payload) else { panic!("another ask") };
    assert_eq!(start.cwd, working_dir());
    assert_eq!((start.mode.as_str(), start.provider.as_deref()), ("interactive", None));
    assert_eq!(start.sandbox_provider, None);
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
        assert_eq!(request.tag.session, Some("s".into()));
        assert_eq!(request.intent, Intent::Session { id: "s".into(), body: SessionIntent::End });
    }
}

#[test]
fn resume_asks_for_an_attach_with_a_summary() {
    for (kind, summary) in [("attach_session", SnapshotMode::AfterGap), ("resume_session", SnapshotMode::Always)] {
        let SessionIntent::Attach(attach) = decode_session_body(kind, r#","lastSeenSeq":135,"attachToken":"att_x""#)
        else {
            panic!("another ask")
        };
        assert_eq!((attach.seen, attach.read_only, attach.snapshot), (Seq::new(135), false, summary));
        assert_eq!(attach.token.map(|token| token.reveal().to_owned()).as_deref(), Some("att_x"));
        let SessionIntent::Attach(attach) = decode_session_body(kind, r#","lastSeenSeq":null,"readOnly":true"#) else {
            panic!("another ask")
        };
        assert_eq!((attach.seen, attach.read_only, attach.token), (Seq::ZERO, true, None));
    }
}

#[test]
fn messages_carry_their_criteria() {
    let fields = r#","clientMessageId":"m","text":"a\u00e4\n","timeoutMs":5,"budget":{"maxCostUsd":1.5,"maxTurns":7,"maxTokens":900},"rules":["deny: network"],"acceptanceCriteria":[
{"id":"build","check":"make","exitCode":-1,"description":"builds"},{"check":"true"}]"#
        .replace('\n', "");
    let expected = Prompt {
        message: Some(MessageId::from("m")),
        text: "aä\n".into(),
        images: Vec::new(),
        criteria: vec![
            Criterion { id: "build".into(), check: "make".into(), exit_code: -1, description: Some("builds".into()) },
            Criterion { id: "check-2".into(), check: "true".into(), exit_code: 0, description: None },
        ],
        time_limit: Some(5),
        budget: Budget { cost: Some(1_500_000), turns: Some(7), tokens: Some(900) },
        rules: vec!["deny: network".into()],
        environment: None,
    };
    assert_eq!(decode_session_body("send_user_message", &fields), SessionIntent::Prompt(Box::new(expected.clone())));
    assert_eq!(decode_session_body("queue_message", &fields), SessionIntent::Queue(Box::new(expected)));
}

#[test]
fn the_other_requests_of_a_session_are_read() {
    let message = Some(MessageId::from("m"));
    for (kind, fields, expected) in [
        ("detach_session", "", SessionIntent::Detach),
        ("steer", r#","text":"left""#, SessionIntent::Steer { message: None, text: "left".into(), images: Vec::new() }),
        (
            "steer",
            r#","text":"l","clientMessageId":"m""#,
            SessionIntent::Steer { message, text: "l".into(), images: Vec::new() },
        ),
        ("list_queue", "", SessionIntent::ListQueue),
        ("list_participants", "", SessionIntent::Participant(ParticipantIntent::List)),
        ("remove_queued", r#","messageId":"m""#, SessionIntent::Unqueue { message: "m".into() }),
        ("cancel_run", "", SessionIntent::Cancel { run: None, reason: "user_cancelled".into() }),
        (
            "cancel_run",
            r#","runId":"r","reason":"bored""#,
            SessionIntent::Cancel { run: Some("r".into()), reason: "bored".into() },
        ),
        (
            "run_user_command",
            r#","command":"make""#,
            SessionIntent::UserCommand(Box::new(UserCommand {
                command: "make".into(),
                in_context: true,
                environment: None,
            })),
        ),
        (
            "run_user_command",
            r#","command":"make","excludeFromContext":true,"environment":{"A":"1"}"#,
            SessionIntent::UserCommand(Box::new(UserCommand {
                command: "make".into(),
                in_context: false,
                environment: Some(Environment::new([("A".to_owned(), "1".to_owned())].into())),
            })),
        ),
        ("stop_user_command", "", SessionIntent::StopUserCommand { call: None }),
        ("stop_user_command", r#","callId":"c""#, SessionIntent::StopUserCommand { call: Some("c".into()) }),
        ("get_session_snapshot", "", SessionIntent::Snapshot),
        ("get_session_messages", "", SessionIntent::Messages { after: Seq::ZERO, limit: 100 }),
        (
            "get_session_messages",
            r#","afterSeq":7,"limit":1000000"#,
            SessionIntent::Messages { after: Seq::new(7), limit: 1000 },
        ),
        ("rename_session", r#","name":"n""#, SessionIntent::Rename { name: "n".into() }),
        (
            "fork_session",
            r#","atSeq":9,"name":"n","idempotencyKey":"k""#,
            SessionIntent::Fork(Box::new(Fork {
                at: Some(Seq::new(9)),
                name: Some("n".into()),
                idempotency_key: Some("k".into()),
            })),
        ),
        ("compact_session", "", SessionIntent::Compact { instructions: None, environment: None }),
        ("end_session", r#","unknown":[1]"#, SessionIntent::End),
    ] {
        assert_eq!(decode_session_body(kind, fields), expected, "{kind}");
    }
    let fields = r#","runId":"r","approvalId":"a","decision":"deny","choice":"stop","scope":"once","comment":"c""#;
    let expected = ApprovalDecision {
        gate: GateId::from("a"),
        run: Some(RunId::from("r")),
        decision: Decision::Deny,
        choice: Some("stop".into()),
        comment: Some("c".into()),
        scope: ApprovalScope::Once,
        rule: None,
        answer: None,
        environment: None,
    };
    assert_eq!(decode_session_body("submit_approval", fields), SessionIntent::Decide(Box::new(expected)));
}

#[test]
fn requests_of_the_daemon_are_read() {
    for (kind, payload, expected) in [
        (
            "list_sessions",
            "{}",
            Intent::ListSessions(ListSessions { limit: 20, cursor: None, prefix: None, include_ended: false }),
        ),
        (
            "list_sessions",
            r#"{"limit":5,"cursor":"c","prefix":"sess_0","includeEnded":true}"#,
            Intent::ListSessions(ListSessions {
                limit: 5,
                cursor: Some("c".into()),
                prefix: Some("sess_0".into()),
                include_ended: true,
            }),
        ),
        ("list_approvals", "{}", Intent::ListApprovals { session: None, known: None }),
        ("list_approvals", r#"{"knownRevision":7}"#, Intent::ListApprovals { session: None, known: Some(7) }),
        ("list_approvals", r#"{"sessionId":"s"}"#, Intent::ListApprovals { session: Some("s".into()), known: None }),
        ("list_providers", "{}", Intent::ListProviders),
        ("list_grants", "{}", Intent::ListGrants),
        ("revoke_grant", r#"{"grantId":"g"}"#, Intent::RevokeGrant { id: "g".into() }),
        ("get_metrics", "{}", Intent::Metrics { sandbox: false }),
        (
            "speak",
            r#"{"protocol":"pi"}"#,
            Intent::SwitchProtocol(Box::new(SwitchProtocol { protocol: "pi".into(), cwd: None, environment: None })),
        ),
        (
            "speak",
            r#"{"protocol":"pi","cwd":"/w","environment":{"A":"1"}}"#,
            Intent::SwitchProtocol(Box::new(SwitchProtocol {
                protocol: "pi".into(),
                cwd: Some("/w".into()),
                environment: Some(Environment::new([("A".to_owned(), "1".to_owned())].into())),
            })),
        ),
        ("reload", "{}", Intent::Reload),
        ("drain", "{}", Intent::Drain { grace_ms: None }),
        ("drain", r#"{"graceMs":0}"#, Intent::Drain { grace_ms: Some(0) }),
    ] {
        assert_eq!(decode_body(kind, payload), expected, "{kind}");
    }
}

#[test]
fn secrets_do_not_show_in_a_log() {
    let line =
        request("", "attach_session", r#"{"sessionId":"s","attachToken":"att_hidden","environment":{"KEY":"hidden"}}"#);
    let shown = format!("{:?}", read(&line).unwrap());
    assert!(!shown.contains("hidden") && !shown.contains("KEY"), "{shown}");
}
