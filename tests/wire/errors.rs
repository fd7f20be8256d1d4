//! One test for each error code of the Push protocol, over a real socket to a real daemon.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::daemon::{self, Client, Daemon, types, wait_until};
use rusqlite::Connection;
use serde_json::{Value, json};

#[test]
fn another_version_is_unsupported() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    for line in [
        json!({"v": "push.runtime.v2", "kind": "request", "requestId": "r", "type": "ping", "payload": {}}),
        json!({"kind": "request", "requestId": "r", "type": "ping", "payload": {}}),
        json!({"v": 1, "kind": "request", "requestId": "r", "type": "ping", "payload": {}}),
    ] {
        let answer = ask_line(&mut client, &line, "r");
        assert_eq!(answer["error"]["code"], "UNSUPPORTED_PROTOCOL_VERSION", "{answer}");
        assert_eq!(answer["error"]["retryable"], false);
        assert_eq!(answer["type"], "ping");
    }
    client.ping();
}

#[test]
fn an_unknown_request_is_unsupported() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    for name in ["sing", "PING", "session_started", "ping "] {
        let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r", "type": name});
        let answer = ask_line(&mut client, &line, "r");
        assert_eq!(answer["error"]["code"], "UNSUPPORTED_REQUEST_TYPE", "{answer}");
        assert_eq!(answer["type"], name);
    }
    client.ping();
}

#[test]
fn a_wrong_field_is_invalid_and_named() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let payload = json!({"sessionId": session, "lastSeenSeq": "many"});
    let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r", "type": "attach_session",
        "payload": payload});
    let answer = ask_line(&mut client, &line, "r");
    assert_eq!(answer["error"]["code"], "INVALID_REQUEST");
    assert!(answer["error"]["message"].as_str().unwrap().starts_with("payload.lastSeenSeq: "), "{answer}");
    assert_eq!(answer["sessionId"], *session);
}

#[test]
fn an_unknown_session_is_not_found() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let nobody = "sess_01NOBODY";
    let rest = json!({"text": "$ true\n", "approvalId": "appr_1", "decision": "approve", "name": "n",
        "messageId": "msg_1"});
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
        "get_session_snapshot",
        "get_session_messages",
        "rename_session",
        "fork_session",
        "end_session",
        "list_approvals",
    ] {
        let mut payload = rest.clone();
        payload["sessionId"] = json!(nobody);
        assert_eq!(client.refused(kind, payload), "SESSION_NOT_FOUND", "{kind}");
    }
    client.ping();
}

#[test]
fn a_wrong_token_is_forbidden() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let started = client.get("start_session", json!({"cwd": daemon.cwd()}));
    let (session, token) = (&started["sessionId"], started["attachToken"].as_str().unwrap());
    let mut other = daemon.connect();
    for wrong in ["att_wrong", &token[..token.len() - 1], &format!("{token}x"), &token.to_uppercase()] {
        let payload = json!({"sessionId": session, "attachToken": wrong});
        assert_eq!(other.refused("attach_session", payload), "ATTACH_FORBIDDEN", "{wrong}");
    }
    other.get("attach_session", json!({"sessionId": session, "attachToken": token}));
    // The owner of the socket needs no token.
    daemon.connect().get("attach_session", json!({"sessionId": session}));
}

#[test]
fn a_watcher_may_only_watch() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let mut watcher = daemon.connect();
    watcher.get("attach_session", json!({"sessionId": session, "readOnly": true}));
    let message = json!({"sessionId": session, "text": "$ true\n"});
    for kind in ["send_user_message", "queue_message"] {
        assert_eq!(watcher.refused(kind, message.clone()), "ATTACH_FORBIDDEN", "{kind}");
    }
    let run = client.prompt(&session, "$? true\n");
    let approval = watcher.event_of("approval_required");
    assert_eq!(watcher.decide(&approval, "approve")["error"]["code"], "ATTACH_FORBIDDEN");
    let of_run = json!({"sessionId": session, "runId": run, "text": "$ true\n", "name": "mine",
        "messageId": "msg_1"});
    for kind in ["cancel_run", "steer", "rename_session", "end_session", "remove_queued"] {
        assert_eq!(watcher.refused(kind, of_run.clone()), "ATTACH_FORBIDDEN", "{kind}");
    }
    assert_eq!(client.decide(&approval, "approve")["ok"], true);
    assert_eq!(watcher.event_of("run_complete")["payload"]["outcome"], "success");
    // A client that attaches again without that restriction may do everything.
    watcher.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0}));
    watcher.prompt(&session, "$ true\n");
}

#[test]
fn a_second_run_is_refused_while_one_is_active() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$? true\n");
    let approval = client.event_of("approval_required");
    let answer = client.ask("send_user_message", json!({"sessionId": session, "text": "$ true\n"}));
    assert_eq!(answer["error"]["code"], "RUN_IN_PROGRESS");
    assert_eq!(answer["error"]["retryable"], true);
    assert_eq!(client.refused("end_session", json!({"sessionId": session})), "RUN_IN_PROGRESS");
    client.decide(&approval, "approve");
    client.event_of("run_complete");
    assert_eq!(client.run(&session, "$ true\n")["outcome"], "success");
}

#[test]
fn cancel_and_steer_need_an_active_run() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let plain = json!({"sessionId": session, "text": "$ true\n"});
    assert_eq!(client.refused("cancel_run", plain.clone()), "NO_ACTIVE_RUN");
    assert_eq!(client.refused("steer", plain), "NO_ACTIVE_RUN");
    let run = client.prompt(&session, "$? true\n");
    let other = json!({"sessionId": session, "runId": "run_other"});
    assert_eq!(client.refused("cancel_run", other), "NO_ACTIVE_RUN");
    client.get("cancel_run", json!({"sessionId": session, "runId": run}));
    client.event_of("run_complete");
    let again = json!({"sessionId": session, "runId": run});
    assert_eq!(client.refused("cancel_run", again), "NO_ACTIVE_RUN");
}

#[test]
fn an_unknown_approval_is_not_found_and_a_decided_one_has_expired() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let nothing = json!({"sessionId": session, "payload": {"approvalId": "appr_none"}});
    assert_eq!(client.decide(&nothing, "deny")["error"]["code"], "APPROVAL_NOT_FOUND");
    let run = client.prompt(&session, "$? true\n");
    let approval = client.event_of("approval_required");
    assert_eq!(client.decide(&nothing, "approve")["error"]["code"], "APPROVAL_NOT_FOUND");
    let (mut second, other_session) = daemon.session();
    let elsewhere = json!({"sessionId": other_session, "payload": approval["payload"]});
    assert_eq!(second.decide(&elsewhere, "approve")["error"]["code"], "APPROVAL_NOT_FOUND");
    assert_eq!(client.decide(&approval, "approve")["ok"], true);
    for decision in ["approve", "deny"] {
        let late = client.decide(&approval, decision);
        assert_eq!(late["error"]["code"], "APPROVAL_EXPIRED", "{late}");
        assert_eq!(late["error"]["retryable"], false);
    }
    let complete = client.event_of("run_complete");
    assert_eq!((&complete["runId"], &complete["payload"]["outcome"]), (&json!(run), &json!("success")));
}

#[test]
fn an_unknown_provider_is_not_configured() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let payload = json!({"cwd": daemon.cwd(), "provider": "oracle"});
    assert_eq!(client.refused("start_session", payload), "PROVIDER_NOT_CONFIGURED");
    let listed = client.get("list_sessions", json!({}));
    assert_eq!(listed["sessions"], json!([]), "a refused start leaves nothing");
}

#[test]
fn a_message_without_steps_fails_without_a_model() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "What is the meaning of this?");
    let events = client.events_until("run_complete");
    let error = events.iter().find(|event| event["type"] == "error").unwrap();
    assert_eq!(error["payload"]["code"], "PROVIDER_NOT_CONFIGURED");
    let complete = &events.last().unwrap()["payload"];
    assert_eq!((&complete["outcome"], &complete["headless"]["exitCodeHint"]), (&json!("failed"), &json!(1)));
}

#[test]
fn a_directory_where_nothing_can_run_is_unavailable() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    for payload in [
        json!({"cwd": daemon.cwd(), "sandboxProvider": "modal"}),
        json!({"cwd": daemon.cwd().join("missing")}),
        json!({"repo": {"rootPath": daemon.cwd().join("missing")}}),
    ] {
        assert_eq!(client.refused("start_session", payload), "SANDBOX_UNAVAILABLE");
    }
    let gone = daemon.cwd().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let session = client.start(&gone);
    std::fs::remove_dir(&gone).unwrap();
    client.prompt(&session, "$ true\n");
    let result = client.event_of("tool_result");
    assert_eq!(result["payload"]["structuredError"]["code"], "SANDBOX_UNAVAILABLE", "{result}");
    assert_eq!(client.event_of("run_complete")["payload"]["headless"]["exitCodeHint"], 1);
}

#[test]
fn a_locked_journal_is_a_temporary_internal_error() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let mut watcher = daemon.connect();
    watcher.attach(&session, 0);
    client.prompt(&session, "$ echo before\n");
    let mut events = client.events_until("run_complete");
    let lock = lock_journal(&daemon);
    let message = json!({"sessionId": session, "clientMessageId": "m1", "text": "$ echo x >> made\n"});
    let answer = client.ask("send_user_message", message.clone());
    assert_eq!(answer["error"]["code"], "INTERNAL_ERROR", "{answer}");
    assert_eq!(answer["error"]["retryable"], true);
    assert_eq!(client.refused("start_session", json!({"cwd": daemon.cwd()})), "INTERNAL_ERROR");
    client.ping();
    lock.execute_batch("ROLLBACK").unwrap();
    assert!(!daemon.cwd().join("made").exists(), "what was not kept was done");
    client.get("send_user_message", message);
    events.extend(client.events_until("run_complete"));
    assert_eq!(std::fs::read_to_string(daemon.cwd().join("made")).unwrap(), "x\n");
    assert_eq!(all_events(&daemon, &session, "run_complete", 2), events);
    let mut watched = watcher.events_until("run_complete");
    watched.extend(watcher.events_until("run_complete"));
    assert_eq!(watched, events, "somebody who only listened lost something");
}

#[test]
fn a_run_whose_journal_failed_is_restored_for_attached_clients() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ echo x >> count; echo begun; until [ -e go ]; do sleep 0.01; done\n");
    let mut events = client.events_until("tool_output");
    // The reply comes after everything that is on its way to the journal.
    client.get("get_session_snapshot", json!({"sessionId": session}));
    let lock = lock_journal(&daemon);
    std::fs::write(daemon.cwd().join("go"), "").unwrap();
    // The end of the step cannot be stored, so the session fails and is restored.
    wait_until("the daemon gives up on the journal", || daemon.log().contains("the journal refused a batch"));
    lock.execute_batch("ROLLBACK").unwrap();
    events.extend(client.events_until("approval_required"));
    let back: Vec<_> = types(&events).into_iter().filter(|kind| kind == "run_recovered").collect();
    assert_eq!(back.len(), 1, "{events:?}");
    let request = events.last().unwrap().clone();
    assert_eq!(request["payload"]["details"]["choices"], json!(["run_again", "skip", "stop"]));
    assert_eq!(std::fs::read_to_string(daemon.cwd().join("count")).unwrap(), "x\n", "it was run again");
    let skip = json!({"sessionId": session, "approvalId": request["payload"]["approvalId"],
        "decision": "approve", "choice": "skip"});
    client.get("submit_approval", skip);
    events.extend(client.events_until("run_complete"));
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success");
    assert_eq!(all_events(&daemon, &session, "run_complete", 1), events);
}

/// Keeps the journal locked for longer than the daemon waits.
fn lock_journal(daemon: &Daemon) -> Connection {
    let lock = Connection::open(daemon.database()).unwrap();
    lock.busy_timeout(daemon::TIMEOUT).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    lock
}

/// The events a new client receives, up to the given number of events of a type.
fn all_events(daemon: &Daemon, session: &str, kind: &str, count: usize) -> Vec<Value> {
    let mut client = daemon.connect();
    client.attach(session, 0);
    (0..count).flat_map(|_| client.events_until(kind)).collect()
}

fn ask_line(client: &mut Client, line: &Value, request: &str) -> Value {
    client.send_raw(format!("{line}\n").as_bytes());
    let answer = client.answer(request);
    assert_eq!(answer["ok"], false, "{answer}");
    assert_eq!(answer["payload"], json!({}));
    answer
}
