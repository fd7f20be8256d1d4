//! Forks over the Push protocol: a child session has the conversation of its parent, which does not change.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use crate::support::daemon::{Client, Daemon};

/// Returns the texts of a session's messages.
fn texts(client: &mut Client, session: &Value) -> Vec<String> {
    let page = client.get("get_session_messages", json!({"sessionId": session}));
    page["messages"].as_array().unwrap().iter().map(|message| message["text"].as_str().unwrap().to_owned()).collect()
}

/// Returns the events of a session, as a new client sees them.
fn history(daemon: &Daemon, session: &Value) -> Vec<Value> {
    let mut client = daemon.connect();
    let replay = client.attach(session.as_str().unwrap(), 0)["replay"].clone();
    let mut events = Vec::new();
    while events.last().is_none_or(|event: &Value| event["seq"] != replay["toSeq"]) {
        events.push(client.event());
    }
    events
}

#[test]
fn a_fork_has_the_conversation_up_to_its_point_and_its_parent_does_not_change() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.run(&session, "words\n\n$ echo one\n");
    let middle = client.get("get_session_snapshot", json!({"sessionId": session}))["lastSeq"].clone();
    client.run(&session, "$ echo two\n");
    let session = json!(session);
    let before = history(&daemon, &session);
    let whole = client.get("fork_session", json!({"sessionId": session}))["sessionId"].clone();
    let half = json!({"sessionId": session, "atSeq": middle, "name": "half"});
    let half = client.get("fork_session", half)["sessionId"].clone();
    let all = texts(&mut client, &session);
    assert_eq!(texts(&mut client, &whole), all);
    let inherited = texts(&mut client, &half);
    assert!(!inherited.is_empty() && inherited.len() < all.len());
    assert_eq!(inherited, all[..inherited.len()]);
    let none = client.get("fork_session", json!({"sessionId": session, "atSeq": 0}))["sessionId"].clone();
    assert_eq!(texts(&mut client, &none), [""; 0]);
    // A fork of a fork, at the same number.
    let again = json!({"sessionId": whole, "atSeq": middle});
    let again = client.get("fork_session", again)["sessionId"].clone();
    assert_eq!(texts(&mut client, &again), inherited);
    assert_eq!(history(&daemon, &session), before);
    client.run(half.as_str().unwrap(), "$ echo three\n");
    assert_eq!(texts(&mut client, &half).len(), inherited.len() + 1);
    let (live, parent) = (history(&daemon, &half), history(&daemon, &session));
    assert_eq!(parent, before, "a fork changed its parent");
    daemon.kill();
    daemon.restart();
    let mut client = daemon.connect();
    assert_eq!(history(&daemon, &half), live, "a fork is restored as it was");
    let row = client.get("list_sessions", json!({"prefix": half}))["sessions"][0].clone();
    let expected = [&session, &middle, &json!("half"), &json!("completed")];
    assert_eq!([&row["parentSessionId"], &row["forkedAtSeq"], &row["name"], &row["state"]], expected, "{row}");
    let snapshot = client.get("get_session_snapshot", json!({"sessionId": half}));
    assert_eq!((&snapshot["meta"]["parentSessionId"], &snapshot["meta"]["forkedAtSeq"]), (&session, &middle));
    // The child needs its parent no more.
    client.get("delete_session", json!({"sessionId": session}));
    assert_eq!(texts(&mut client, &half).len(), inherited.len() + 1);
    client.run(half.as_str().unwrap(), "$ echo four\n");
}

#[test]
fn a_key_starts_one_fork_also_after_a_crash() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.run(&session, "$ echo one\n");
    let payload = json!({"sessionId": session, "name": "n", "idempotencyKey": "k"});
    let first = client.get("fork_session", payload.clone());
    let again = client.get("fork_session", payload.clone());
    assert_eq!((&again["sessionId"], &again["repeated"]), (&first["sessionId"], &json!(true)));
    daemon.kill();
    daemon.restart();
    let mut client = daemon.connect();
    assert_eq!(client.get("fork_session", payload)["sessionId"], first["sessionId"]);
    let other = json!({"sessionId": session, "name": "m", "idempotencyKey": "k"});
    assert_eq!(client.refused("fork_session", other), "INVALID_REQUEST");
    assert_eq!(client.get("list_sessions", json!({}))["sessions"].as_array().unwrap().len(), 2);
}

#[test]
fn an_event_that_does_not_exist_is_refused() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let newest = client.get("get_session_snapshot", json!({"sessionId": session}))["lastSeq"].as_u64().unwrap();
    let beyond = json!({"sessionId": session, "atSeq": newest + 1});
    assert_eq!(client.refused("fork_session", beyond), "INVALID_REQUEST");
    assert_eq!(client.get("list_sessions", json!({}))["sessions"].as_array().unwrap().len(), 1);
    let mut watcher = daemon.connect();
    watcher.get("attach_session", json!({"sessionId": session, "readOnly": true}));
    assert_eq!(watcher.refused("fork_session", json!({"sessionId": session})), "ATTACH_FORBIDDEN");
}

#[test]
fn a_fork_during_a_run_has_no_run_and_no_approval() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ echo one\n\n$? touch approved\n");
    let asked = client.event_of("approval_required");
    let fork = daemon.connect().get("fork_session", json!({"sessionId": session}))["sessionId"].clone();
    let snapshot = client.get("get_session_snapshot", json!({"sessionId": fork}));
    assert_eq!((&snapshot["activeRunId"], &snapshot["pendingApproval"]), (&Value::Null, &Value::Null));
    assert_eq!(client.get("list_approvals", json!({"sessionId": fork})), json!({"approvals": []}));
    client.run(fork.as_str().unwrap(), "$ echo beside\n");
    assert!(!daemon.cwd().join("approved").exists());
    client.decide(&asked, "approve");
    while client.event_of("run_complete")["sessionId"] != json!(session) {}
    assert!(daemon.cwd().join("approved").exists());
}
