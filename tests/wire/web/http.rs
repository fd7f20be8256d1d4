//! The port for all protocols.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::Message;

use crate::support::daemon::Daemon;
use crate::web::client::{PiDaemon, Socket, configure, status};

/// A daemon with a port for all protocols.
pub(crate) fn http_daemon() -> PiDaemon {
    let daemon = Daemon::start_in(TempDir::new().unwrap(), &[], &["--http=127.0.0.1:0"]);
    let metrics = daemon.connect().get("get_metrics", json!({}));
    assert_eq!(metrics["pi"], Value::Null);
    let address = metrics["http"].as_str().expect("an address").parse().expect("an address");
    PiDaemon { daemon, address }
}

pub(crate) fn request(socket: &mut Socket, kind: &str, payload: &Value) -> Value {
    let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r", "type": kind, "payload": payload});
    socket.0.send(Message::text(line.to_string())).expect("the daemon reads");
    loop {
        let line = socket.json();
        if line["kind"] == "response" {
            return line;
        }
    }
}

#[test]
fn each_protocol_has_its_path_and_both_see_one_session() {
    let server = http_daemon();
    server.socket("/pi", &[]).assert_ready();
    for path in ["/", "/pvp", "/push/x"] {
        assert_eq!(status(&server.upgrade_response(path, &[])), "404", "{path}");
    }
    let mut web = server.socket("/push", &[]);
    let start = json!({"cwd": server.daemon.cwd(), "environment": {"SECRET_OF_THE_CLIENT": "x"}});
    let started = request(&mut web, "start_session", &start);
    let session = started["payload"]["sessionId"].as_str().expect("a session").to_owned();
    let attached = request(&mut web, "attach_session", &json!({"sessionId": session}));
    assert_eq!(attached["ok"], true, "who has started it needs no token: {attached}");
    let message = json!({"sessionId": session, "text": "$ echo \"<${SECRET_OF_THE_CLIENT-login}>\""});
    assert_eq!(request(&mut web, "send_user_message", &message)["ok"], true);
    let mut output = String::new();
    loop {
        let event = web.json();
        output += event["payload"]["text"].as_str().filter(|_| event["type"] == "tool_output").unwrap_or_default();
        if event["type"] == "run_complete" {
            break;
        }
    }
    assert_eq!(output, "<login>\n", "a client on the network has the environment of the login shell");
    let mut local = server.daemon.connect();
    local.attach(&session, 0);
    assert!(local.events_until("run_complete").iter().any(|event| event["payload"]["text"] == output));
}

#[test]
fn no_request_of_a_client_on_the_network_sets_the_environment_of_runs() {
    let server = http_daemon();
    let mut web = server.socket("/push", &[]);
    let evil = json!({"EVIL": "net", "PATH": "/nowhere"});
    let start =
        |environment: &Value| json!({"cwd": server.daemon.cwd(), "idempotencyKey": "k", "environment": environment});
    let started = request(&mut web, "start_session", &start(&json!({})));
    let session = started["payload"]["sessionId"].as_str().expect("a session").to_owned();
    assert_eq!(request(&mut web, "start_session", &start(&evil))["payload"]["sessionId"], json!(session));
    let audit = json!({"sessionId": session, "asOwner": true, "environment": evil});
    assert_eq!(request(&mut web, "attach_session", &audit)["ok"], true);
    let mut worker = server.socket("/push", &[]);
    let again = request(&mut web, "start_session", &start(&json!({})));
    let attach = json!({"sessionId": session, "environment": evil, "attachToken": again["payload"]["attachToken"]});
    assert_eq!(request(&mut worker, "attach_session", &attach)["ok"], true);
    let message = json!({"sessionId": session, "text": "$ echo \"<${EVIL-login}>\""});
    assert_eq!(request(&mut worker, "send_user_message", &message)["ok"], true);
    let output = loop {
        let event = worker.json();
        assert_ne!(event["type"], "run_complete", "{event}");
        if event["type"] == "tool_output" {
            break event["payload"]["text"].clone();
        }
    };
    assert_eq!(output, "<login>\n");
}

#[test]
fn a_client_on_the_network_uses_a_session_only_after_presenting_its_attach_token() {
    let server = http_daemon();
    let mut local = server.daemon.connect();
    let started = local.get("start_session", json!({"cwd": server.daemon.cwd()}));
    let (session, token) = (started["sessionId"].clone(), started["attachToken"].clone());
    let mut web = server.socket("/push", &[]);
    let rest = json!({"sessionId": session, "text": "$ touch broken-in", "approvalId": "a", "decision": "approve",
        "name": "n", "messageId": "m", "command": "touch broken-in"});
    for kind in [
        "attach_session",
        "resume_session",
        "detach_session",
        "send_user_message",
        "queue_message",
        "list_queue",
        "list_participants",
        "remove_queued",
        "steer",
        "submit_approval",
        "cancel_run",
        "run_user_command",
        "stop_user_command",
        "get_session_snapshot",
        "get_session_messages",
        "rename_session",
        "end_session",
        "compact_session",
        "delete_session",
        "list_approvals",
    ] {
        assert_eq!(request(&mut web, kind, &rest)["error"]["code"], "ATTACH_FORBIDDEN", "{kind}");
    }
    for wrong in ["", "att_wrong"] {
        let attach = json!({"sessionId": session, "asOwner": true, "attachToken": wrong});
        assert_eq!(request(&mut web, "attach_session", &attach)["error"]["code"], "ATTACH_FORBIDDEN", "{wrong}");
        assert_eq!(request(&mut web, "get_session_snapshot", &rest)["error"]["code"], "ATTACH_FORBIDDEN");
    }
    let attach = json!({"sessionId": session, "attachToken": token});
    assert_eq!(request(&mut web, "attach_session", &attach)["ok"], true);
    let message = json!({"sessionId": session, "text": "?$ true"});
    assert_eq!(request(&mut web, "send_user_message", &message)["ok"], true);
    let asked = until(&mut web, "approval_required");
    let approve = json!({"sessionId": session, "approvalId": asked["payload"]["approvalId"], "decision": "approve"});
    assert_eq!(request(&mut web, "submit_approval", &approve)["ok"], true);
    local.attach(session.as_str().unwrap(), 0);
    let decided = local.events_until("approval_received");
    assert_eq!(decided.last().unwrap()["payload"]["by"], "app");
    // Another connection starts without access.
    let mut other = server.socket("/push", &[]);
    assert_eq!(request(&mut other, "cancel_run", &rest)["error"]["code"], "ATTACH_FORBIDDEN");
    assert!(!server.daemon.cwd().join("broken-in").exists());
}

#[test]
fn a_token_has_the_rights_of_its_role_and_nothing_else() {
    let server = http_daemon();
    let mut local = server.daemon.connect();
    let started = local.get("start_session", json!({"cwd": server.daemon.cwd(), "mode": "interactive"}));
    let session = started["sessionId"].as_str().unwrap().to_owned();
    let attach = json!({"sessionId": session, "attachToken": started["attachToken"]});
    let roles = ["observer", "prompter", "approver", "owner"];
    let headers: BTreeMap<&str, String> = roles.iter().map(|role| (*role, bearer(&server, role))).collect();
    let allowed = |role: &str, kind: &str, payload: &Value| {
        let mut web = server.socket("/push", &[("authorization", &headers[role])]);
        assert_eq!(request(&mut web, "attach_session", &attach)["ok"], true, "{role}");
        let answer = request(&mut web, kind, payload);
        if answer["ok"] != true {
            assert_eq!(answer["error"]["code"], "ATTACH_FORBIDDEN", "{role} {kind}: {answer}");
        }
        answer["ok"] == true
    };
    let of_session = json!({"sessionId": session});
    let audit = json!({"sessionId": session, "asOwner": true});
    let command = json!({"sessionId": session, "command": "true"});
    let delete = json!({"sessionId": session, "dryRun": true});
    let start = json!({"cwd": server.daemon.cwd()});
    let rename = json!({"sessionId": session, "name": "n"});
    for (kind, payload, roles) in [
        ("get_session_snapshot", &of_session, &roles[..]),
        ("get_session_messages", &of_session, &roles),
        ("start_session", &start, &roles[1..]),
        ("attach_session", &audit, &["owner"]),
        ("rename_session", &rename, &["owner"]),
        ("delete_session", &delete, &["owner"]),
        ("list_grants", &json!({}), &["owner"]),
        ("run_user_command", &command, &["owner"]),
    ] {
        for role in ["observer", "prompter", "approver", "owner"] {
            assert_eq!(allowed(role, kind, payload), roles.contains(&role), "{role}: {kind}");
        }
    }
    let known = local.get("list_participants", json!({"sessionId": session}));
    let roles: Vec<_> = known["participants"].as_array().unwrap().iter().map(|one| &one["roles"]).collect();
    assert!(roles.contains(&&json!(["driver", "approver"])) && roles.contains(&&json!(["observer"])), "{known}");
    assert!(known["participants"][0]["participantId"].as_str().unwrap().starts_with("tok_"), "{known}");
}

#[test]
fn a_token_votes_as_a_participant_of_its_own_and_lists_only_its_sessions() {
    let server = http_daemon();
    let mut local = server.daemon.connect();
    let started = local.get("start_session", json!({"cwd": server.daemon.cwd()}));
    let session = started["sessionId"].as_str().unwrap().to_owned();
    let hidden = local.get("start_session", json!({"cwd": server.daemon.cwd()}))["sessionId"].clone();
    local.prompt(&session, "?$ true");
    local.events_until("approval_required");
    let pending = local.get("list_approvals", json!({}))["approvals"][0].clone();
    let mut web = server.socket("/push", &[("authorization", &bearer(&server, "approver"))]);
    assert_eq!(request(&mut web, "list_sessions", &json!({}))["payload"]["sessions"], json!([]));
    assert_eq!(request(&mut web, "list_approvals", &json!({}))["payload"]["approvals"], json!([]));
    let token = local.get("start_session", json!({"cwd": server.daemon.cwd(), "idempotencyKey": "k"}));
    // A key of another client starts another session.
    let same = json!({"cwd": server.daemon.cwd(), "idempotencyKey": "k"});
    assert_ne!(request(&mut web, "start_session", &same)["payload"]["sessionId"], token["sessionId"]);
    let listed = request(&mut web, "list_sessions", &json!({}))["payload"]["sessions"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert!(!listed.to_string().contains(hidden.as_str().unwrap()));
    let attach = json!({"sessionId": session, "attachToken": started["attachToken"]});
    assert_eq!(request(&mut web, "attach_session", &attach)["ok"], true);
    let always = json!({"sessionId": session, "approvalId": pending["approvalId"], "decision": "approve",
        "scope": "always", "rule": "allow: exec(*)"});
    assert_eq!(request(&mut web, "submit_approval", &always)["ok"], false);
    let approve = json!({"sessionId": session, "approvalId": pending["approvalId"], "decision": "approve"});
    assert_eq!(request(&mut web, "submit_approval", &approve)["ok"], true);
    let decided = local.events_until("approval_received").pop().unwrap();
    assert_eq!(decided["payload"]["by"], "app");
    assert!(decided["payload"]["participantId"].as_str().unwrap().starts_with("tok_"), "{decided}");
}

#[test]
fn the_holder_of_a_token_finds_and_counts_only_sessions_that_it_may_list() {
    let server = http_daemon();
    let mut local = server.daemon.connect();
    let start = json!({"cwd": server.daemon.cwd(), "name": "wallaby-name"});
    let started = local.get("start_session", start);
    let session = started["sessionId"].as_str().unwrap().to_owned();
    local.run(&session, "$ echo wallaby-$((1 + 1))");
    let search = json!({"text": "wallaby"});
    let found = local.get("search", search.clone())["hits"].as_array().unwrap().len();
    assert!(found >= 3, "the message, the output and the name: {found}");
    for role in ["observer", "approver"] {
        let mut web = server.socket("/push", &[("authorization", &bearer(&server, role))]);
        let searched = |web: &mut Socket| {
            let hits = request(web, "search", &search)["payload"]["hits"].as_array().expect("hits").len();
            let stats = request(web, "get_stats", &json!({}))["payload"].clone();
            (hits, stats["rows"].as_array().expect("rows").len(), stats["tools"].as_array().expect("tools").len())
        };
        assert_eq!(searched(&mut web), (0, 0, 0), "{role}");
        let attach = json!({"sessionId": session, "attachToken": started["attachToken"]});
        assert_eq!(request(&mut web, "attach_session", &attach)["ok"], true);
        assert_eq!(searched(&mut web), (found, 1, 1), "{role}");
    }
}

/// The header of a new token with a role.
pub(crate) fn bearer(server: &PiDaemon, role: &str) -> String {
    let made = server.push(&["token", "new", "--name", role, "--role", role]);
    assert!(made.status.success(), "{made:?}");
    format!("Bearer {}", String::from_utf8(made.stdout).unwrap().trim())
}

/// Reads up to an event of a type.
fn until(socket: &mut Socket, kind: &str) -> Value {
    loop {
        let line = socket.json();
        if line["type"] == kind && line["kind"] == "event" {
            return line;
        }
    }
}

#[test]
fn a_client_on_the_network_does_not_stop_the_daemon() {
    let server = http_daemon();
    let mut web = server.socket("/push", &[]);
    for kind in ["drain", "reload"] {
        assert_eq!(request(&mut web, kind, &json!({}))["error"]["code"], "ATTACH_FORBIDDEN", "{kind}");
    }
    server.daemon.connect().ping();
}

#[test]
fn a_websocket_stays_in_the_protocol_of_its_path() {
    let server = http_daemon();
    let mut web = server.socket("/push", &[]);
    let refused = request(&mut web, "speak", &json!({"protocol": "pi"}));
    assert_eq!(refused["ok"], false, "{refused}");
    assert_eq!(request(&mut web, "ping", &json!({}))["ok"], true);
}

#[test]
fn the_same_access_rules_hold_at_every_path() {
    let server = http_daemon();
    for path in ["/push", "/pi"] {
        for (header, value, code) in [("Origin", "https://evil.example", "403"), ("Host", "evil.example", "421")] {
            assert_eq!(status(&server.upgrade_response(path, &[(header, value)])), code, "{path} {header}");
        }
    }
}

#[test]
fn an_address_in_the_configuration_opens_the_port() {
    let home = TempDir::new().unwrap();
    configure(&home, "[http]\nlisten = '127.0.0.1:0'\norigins = ['https://app.example']\n");
    let daemon = Daemon::start_in(home, &[], &[]);
    let address = daemon.connect().get("get_metrics", json!({}))["http"].as_str().expect("an address").to_owned();
    let server = PiDaemon { daemon, address: address.parse().unwrap() };
    server.socket("/push", &[("origin", "https://app.example")]);
    let shown = String::from_utf8(server.push(&["daemon", "status"]).stdout).unwrap();
    assert!(shown.contains(&format!("http         {address}\n")), "{shown}");
}
