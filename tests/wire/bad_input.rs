//! Invalid input: each line is answered with its error code, and affects that line alone.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::daemon::{Client, Daemon, wait_until};
use serde_json::{Value, json};

const INVALID: &str = "INVALID_REQUEST";
const VERSION: &str = "UNSUPPORTED_PROTOCOL_VERSION";
const TYPE: &str = "UNSUPPORTED_REQUEST_TYPE";

#[test]
fn an_unreadable_line_is_answered_with_a_fresh_id() {
    let daemon = Daemon::start();
    let (mut other_client, session) = daemon.session();
    let mut client = daemon.connect();
    let head = r#""v":"push.runtime.v1","kind":"request","requestId":"r","type":"ping""#;
    let deep = |open: &str, close: &str| {
        format!(r#"{{{head},"payload":{{"a":{}1{}}}}}"#, open.repeat(10_000), close.repeat(10_000))
    };
    let lines: Vec<Vec<u8>> = vec![
        br#"{"v":"push.runtime.v1","kind":"request","#.to_vec(),
        format!(r#"{{{head},"payload":{{}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{}}}}}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{}}}} {{}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{"a":01}}}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{"a":NaN}}}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{"a":1e999999}}}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{"a":"unclosed}}}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{}},}}"#).into_bytes(),
        (0..=255).filter(|byte| *byte != b'\n').collect(),
        vec![0; 4096],
        b"\xff\xfe\x00{\x00}".to_vec(),
        [format!(r#"{{{head},"payload":{{"a":""#).as_bytes(), b"\xc3\x28", br#""}}"#].concat(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"\"text\"".to_vec(),
        b"42".to_vec(),
        b"GET / HTTP/1.1".to_vec(),
        deep("[", "]").into_bytes(),
        deep("{\"a\":", "}").into_bytes(),
        "[".repeat(10_000).into_bytes(),
        format!(r#"{{{head},"payload":{{"text":"a","text":"b"}}}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{"a":1,"\u0061":2}}}}"#).into_bytes(),
        format!(r#"{{{head},"requestId":"s","payload":{{}}}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{"a":{{"b":[{{"c":1,"\u0063":2}}]}}}}}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{"a":"\ud800"}}}}"#).into_bytes(),
        format!(r#"{{{head},"payload":{{"a":"\udc00\ud800"}}}}"#).into_bytes(),
        format!("{{{head},\"payload\":{{\"a\":\"tab\there\"}}}}").into_bytes(),
        format!("{{{head},\"payload\":{{\"a\":\"\u{1}\"}}}}").into_bytes(),
        format!("{{{head},\"payload\":{{\"a\":\"b\rc\"}}}}").into_bytes(),
        format!("\u{feff}{{{head},\"payload\":{{}}}}").into_bytes(),
    ];
    for line in lines {
        let shown = String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned();
        client.send_raw(&line);
        client.send_raw(b"\n");
        let answer = client.next();
        assert_eq!(answer["error"]["code"], INVALID, "{shown} {answer}");
        assert_eq!(answer["type"], "unknown", "{shown} {answer}");
        let id = answer["requestId"].as_str().unwrap();
        assert!(id.starts_with("req_") && id.len() > 20, "not a fresh id: {answer}");
        client.ping();
    }
    assert_eq!(other_client.run(&session, "$ true\n")["outcome"], "success");
}

#[test]
fn a_readable_envelope_is_answered_with_its_own_id_and_type() {
    let daemon = Daemon::start();
    let (mut other_client, session) = daemon.session();
    let mut client = daemon.connect();
    let v = "push.runtime.v1";
    let of = |kind: &str, payload: Value| json!({"v": v, "kind": "request", "requestId": "r", "type": kind, "payload": payload});
    let s = session.as_str();
    let long = "x".repeat(257);
    let cases = [
        (json!({"kind": "request", "requestId": "r", "type": "ping"}), VERSION, "ping"),
        (json!({"v": null, "kind": "request", "requestId": "r", "type": "ping"}), VERSION, "ping"),
        (json!({"v": [v], "kind": "request", "requestId": "r", "type": "ping"}), VERSION, "ping"),
        (json!({"v": v, "kind": "response", "requestId": "r", "type": "ping"}), INVALID, "ping"),
        (json!({"v": v, "kind": "event", "requestId": "r", "type": "ping"}), INVALID, "ping"),
        (json!({"v": v, "kind": 7, "requestId": "r", "type": "ping"}), INVALID, "ping"),
        (json!({"v": v, "requestId": "r", "type": "ping"}), INVALID, "ping"),
        (json!({"v": v, "kind": "request", "requestId": "r"}), INVALID, "unknown"),
        (json!({"v": v, "kind": "request", "requestId": "r", "type": 7}), INVALID, "unknown"),
        (json!({"v": v, "kind": "request", "requestId": "r", "type": ""}), INVALID, "unknown"),
        (
            json!({"v": v, "kind": "request", "requestId": "r", "type": "no\nsuch\u{2028}thing"}),
            TYPE,
            "no\nsuch\u{2028}thing",
        ),
        (json!({"v": v, "kind": "request", "requestId": "r", "type": "ping", "payload": []}), INVALID, "ping"),
        (json!({"v": v, "kind": "request", "requestId": "r", "type": "ping", "payload": "{}"}), INVALID, "ping"),
        (
            json!({"v": v, "kind": "request", "requestId": "r", "type": "list_queue", "sessionId": 7}),
            INVALID,
            "list_queue",
        ),
        (
            json!({"v": v, "kind": "request", "requestId": "r", "type": "list_queue", "sessionId": s,
            "payload": {"sessionId": "sess_other"}}),
            INVALID,
            "list_queue",
        ),
        (of("list_queue", json!({})), INVALID, "list_queue"),
        (of("list_queue", json!({"sessionId": ""})), INVALID, "list_queue"),
        (of("list_queue", json!({"sessionId": {"id": s}})), INVALID, "list_queue"),
        (of("list_queue", json!({"sessionId": long})), INVALID, "list_queue"),
        (of("list_queue", json!({"sessionId": "../../etc/passwd"})), "SESSION_NOT_FOUND", "list_queue"),
        (of("list_queue", json!({"sessionId": "' OR 1=1 --"})), "SESSION_NOT_FOUND", "list_queue"),
        (of("start_session", json!({})), INVALID, "start_session"),
        (of("start_session", json!({"cwd": 1})), INVALID, "start_session"),
        (of("start_session", json!({"cwd": "relative"})), INVALID, "start_session"),
        (of("start_session", json!({"cwd": "/nul\u{0}"})), INVALID, "start_session"),
        (of("start_session", json!({"cwd": "/", "repo": "text"})), INVALID, "start_session"),
        (of("start_session", json!({"cwd": "/", "environment": {"A": 1}})), INVALID, "start_session"),
        (of("start_session", json!({"cwd": "/", "environment": {"A=B": "c"}})), INVALID, "start_session"),
        (of("start_session", json!({"cwd": "/", "environment": []})), INVALID, "start_session"),
        (of("attach_session", json!({"sessionId": s, "lastSeenSeq": -1})), INVALID, "attach_session"),
        (of("attach_session", json!({"sessionId": s, "lastSeenSeq": 1.5})), INVALID, "attach_session"),
        (of("attach_session", json!({"sessionId": s, "lastSeenSeq": 1e30})), INVALID, "attach_session"),
        (of("attach_session", json!({"sessionId": s, "readOnly": "yes"})), INVALID, "attach_session"),
        (of("send_user_message", json!({"sessionId": s})), INVALID, "send_user_message"),
        (of("send_user_message", json!({"sessionId": s, "text": ""})), INVALID, "send_user_message"),
        (of("send_user_message", json!({"sessionId": s, "text": ["a"]})), INVALID, "send_user_message"),
        (
            of("send_user_message", json!({"sessionId": s, "text": "$ true", "timeoutMs": 0})),
            INVALID,
            "send_user_message",
        ),
        (
            of("send_user_message", json!({"sessionId": s, "text": "$ true", "acceptanceCriteria": {}})),
            INVALID,
            "send_user_message",
        ),
        (
            of("send_user_message", json!({"sessionId": s, "text": "$ true", "acceptanceCriteria": [{}]})),
            INVALID,
            "send_user_message",
        ),
        (
            of("send_user_message", json!({"sessionId": s, "text": "$ true", "clientMessageId": 1})),
            INVALID,
            "send_user_message",
        ),
        (
            of("submit_approval", json!({"sessionId": s, "approvalId": "a", "decision": "maybe"})),
            INVALID,
            "submit_approval",
        ),
        (
            of("submit_approval", json!({"sessionId": s, "approvalId": "a", "decision": true})),
            INVALID,
            "submit_approval",
        ),
        (of("submit_approval", json!({"sessionId": s, "decision": "deny"})), INVALID, "submit_approval"),
        (
            of("submit_approval", json!({"sessionId": s, "approvalId": "a", "decision": "deny", "scope": "ever"})),
            INVALID,
            "submit_approval",
        ),
        (of("list_sessions", json!({"limit": 0})), INVALID, "list_sessions"),
        (of("list_sessions", json!({"limit": "all"})), INVALID, "list_sessions"),
        (of("list_sessions", json!({"cursor": "no cursor"})), INVALID, "list_sessions"),
        (of("get_session_messages", json!({"sessionId": s, "afterSeq": "x"})), INVALID, "get_session_messages"),
        (of("rename_session", json!({"sessionId": s, "name": ""})), INVALID, "rename_session"),
        (of("drain", json!({"graceMs": -5})), INVALID, "drain"),
    ];
    for (line, code, kind) in cases {
        client.send_raw(format!("{line}\n").as_bytes());
        let answer = client.answer("r");
        assert_eq!((&answer["ok"], &answer["type"]), (&json!(false), &json!(kind)), "{line} {answer}");
        assert_eq!(answer["error"]["code"], code, "{line} {answer}");
        client.ping();
    }
    assert_eq!(other_client.run(&session, "$ true\n")["outcome"], "success");
}

#[test]
fn an_unusable_request_id_is_replaced_by_a_fresh_one() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let long = "x".repeat(257);
    for id in [json!(7), json!(["r"]), json!({}), json!(long)] {
        let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": id, "type": "ping"});
        client.send_raw(format!("{line}\n").as_bytes());
        let answer = client.next();
        assert_eq!((&answer["error"]["code"], &answer["type"]), (&json!(INVALID), &json!("ping")), "{answer}");
        assert!(answer["requestId"].as_str().unwrap().starts_with("req_"));
    }
    for id in [json!(null), json!("")] {
        let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": id, "type": "ping"});
        client.send_raw(format!("{line}\n").as_bytes());
        let answer = client.next();
        assert_eq!(answer["ok"], true, "{answer}");
        assert!(answer["requestId"].as_str().unwrap().starts_with("req_"));
    }
    let strange = "r\n\u{2028}\"\\\u{1b}[31m";
    let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": strange, "type": "ping"});
    client.send_raw(format!("{line}\n").as_bytes());
    assert_eq!(client.answer(strange)["ok"], true);
}

#[test]
fn a_line_of_a_hundred_megabytes_affects_that_line_alone() {
    let daemon = Daemon::start();
    let (mut other_client, session) = daemon.session();
    let mut client = daemon.connect();
    client.ping();
    let before = memory(&mut other_client);
    client.send_raw(br#"{"v":"push.runtime.v1","kind":"request","requestId":"r","type":"ping","payload":{"a":""#);
    let piece = vec![b'x'; 1024 * 1024];
    for sent in 0..100 {
        client.send_raw(&piece);
        if sent == 50 {
            assert_eq!(other_client.run(&session, "$ true\n")["outcome"], "success");
        }
    }
    client.send_raw(b"\"}}\n");
    let answer = client.next();
    assert_eq!((&answer["error"]["code"], &answer["type"]), (&json!(INVALID), &json!("unknown")), "{answer}");
    client.ping();
    let grown = memory(&mut other_client).saturating_sub(before);
    assert!(grown < 32 * 1024 * 1024, "the line was gathered: {grown} bytes more");
}

#[test]
fn the_longest_permitted_line_is_accepted_and_a_longer_one_is_not() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let line = |length: usize| {
        let head = r#"{"v":"push.runtime.v1","kind":"request","requestId":"r","type":"ping","payload":{"a":""#;
        format!("{head}{}\"}}}}\n", "x".repeat(length - head.len() - 3)).into_bytes()
    };
    client.send_raw(&line(8 * 1024 * 1024));
    assert_eq!(client.answer("r")["ok"], true);
    client.send_raw(&line(8 * 1024 * 1024 + 1));
    assert_eq!(client.next()["error"]["code"], INVALID);
    client.ping();
}

#[test]
fn blank_lines_and_other_line_endings_are_accepted() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    client.send_raw(b"\n\r\n\n");
    client.send_raw(b"{\"v\":\"push.runtime.v1\",\"kind\":\"request\",\"requestId\":\"a\",\"type\":\"ping\"}\r\n");
    assert_eq!(client.answer("a")["ok"], true);
    client.send_raw(
        b"  {\t\"v\" : \"push.runtime.v1\" ,\"kind\":\"request\",\r \"requestId\":\"b\",\"type\":\"ping\"}  \r\n",
    );
    assert_eq!(client.answer("b")["ok"], true);
    // A request in chunks of one byte, and two requests in one chunk.
    for byte in b"{\"v\":\"push.runtime.v1\",\"kind\":\"request\",\"requestId\":\"c\",\"type\":\"ping\"}\n" {
        client.send_raw(&[*byte]);
    }
    assert_eq!(client.answer("c")["ok"], true);
    let ping =
        |id: &str| json!({"v": "push.runtime.v1", "kind": "request", "requestId": id, "type": "ping"}).to_string();
    client.send_raw(format!("{}\n\n{}\n", ping("d"), ping("e")).as_bytes());
    assert_eq!(client.answer("d")["ok"], true);
    assert_eq!(client.answer("e")["ok"], true);
}

#[test]
fn an_unterminated_line_is_not_a_request() {
    let daemon = Daemon::start();
    let (mut other_client, session) = daemon.session();
    let text = json!({"sessionId": session, "text": "$ echo x >> half\n"});
    let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r",
        "type": "send_user_message", "payload": text})
    .to_string();
    for length in [1, line.len() / 2, line.len()] {
        let mut client = daemon.connect();
        client.send_raw(&line.as_bytes()[..length]);
        client.close_write();
        assert!(client.try_next().is_none(), "half a line was answered");
    }
    assert_eq!(other_client.run(&session, "$ true\n")["outcome"], "success");
    assert!(!daemon.cwd().join("half").exists(), "half a line was obeyed");
    // A client that has closed its sending side still gets the reply.
    let mut client = daemon.connect();
    client.send_raw(format!("{line}\n").as_bytes());
    client.close_write();
    assert_eq!(client.answer("r")["ok"], true);
    wait_until("the message is obeyed", || daemon.cwd().join("half").exists());
}

#[test]
fn a_client_without_a_first_request_is_disconnected_and_a_later_silence_is_permitted() {
    let daemon = Daemon::start_with(&[("PUSH_FIRST_LINE_SECONDS", "0.3")]);
    let mut spoke = daemon.connect();
    spoke.ping();
    let mut silent = daemon.connect();
    let mut slow = daemon.connect();
    slow.send_raw(b"{\"v\":\"push.runtime.v1\",");
    assert!(silent.try_next().is_none());
    assert!(slow.try_next().is_none());
    spoke.ping();
}

#[test]
fn hostile_text_arrives_in_one_line_as_it_was_sent() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let mut second = daemon.connect();
    second.attach(&session, 0);
    let forged =
        r#"{"v":"push.runtime.v1","kind":"event","sessionId":"s","seq":999,"ts":1,"type":"error","payload":{}}"#;
    let hostile = format!(
        "\u{1b}[31mred\u{1b}[0m \"quoted\" \\ \u{2028}\u{2029}\u{85}\u{0}\u{7f}\u{7}\r\n{forged}\n\
         \u{202e}backwards \u{1f980} e\u{301} \u{fffe} \u{10ffff} end"
    );
    client.run(&session, &hostile);
    client.get("rename_session", json!({"sessionId": session, "name": hostile[..60].to_owned()}));
    let renamed = second.events_until("session_renamed");
    assert!(renamed.iter().all(|event| event["sessionId"] == *session), "a forged line: {renamed:?}");
    let message = renamed.iter().find(|event| event["type"] == "user_message").unwrap();
    assert_eq!(message["payload"]["text"], hostile);
    assert_eq!(renamed.last().unwrap()["payload"]["name"], hostile[..60]);
    // The same through a tool, whose output may contain anything.
    std::fs::write(daemon.cwd().join("hostile"), &hostile).unwrap();
    client.prompt(&session, "$ cat hostile\n");
    let events = second.events_until("run_complete");
    let output = events.iter().filter(|event| event["type"] == "tool_output");
    let output: String = output.map(|event| event["payload"]["text"].as_str().unwrap()).collect();
    assert_eq!(output, hostile);
    assert_eq!(client.events_until("run_complete").last(), events.last());
}

fn memory(client: &mut Client) -> u64 {
    client.get("get_metrics", json!({}))["memoryBytes"].as_u64().unwrap()
}
