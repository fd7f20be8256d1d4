//! Requests of one connection: their order, and what counts as a repetition.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::storage_tests::wait_for_phase;
use super::test_daemon::{Client, FILE_SLOTS, TestDaemon, TestDisk};
use crate::config::limits::Limits;
use crate::kernel::command::Phase;

#[tokio::test]
async fn a_cancel_overtakes_a_query_that_waits() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let (mut client, mut other_client) = (daemon.client().await, daemon.client().await);
    let (session, other) = (client.start().await, other_client.start().await);
    client.prompt(&session, "wait, then speak").await;
    other_client.prompt(&other, "ask, then speak").await;
    other_client.until("approval_required").await;
    // A session replies to a request after its earlier decisions are on disk.
    disk.hold();
    other_client.send("rename_session", json!({"sessionId": other, "name": "busy"})).await;
    disk.wait_until_held().await;
    client.send("list_approvals", json!({})).await;
    client.send("cancel_run", json!({"sessionId": session})).await;
    wait_for_phase(&daemon, &session, Phase::Cancelled).await;
    disk.recover();
    let (first, second) = (client.answer().await, client.answer().await);
    let types = [&first["type"], &second["type"]];
    assert!(types.contains(&&json!("list_approvals")) && types.contains(&&json!("cancel_run")), "{types:?}");
    assert_eq!((&first["ok"], &second["ok"]), (&json!(true), &json!(true)));
    daemon.close().await;
}

#[tokio::test]
async fn neither_a_command_nor_the_cancel_behind_it_waits_for_a_query() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let (mut client, session, other) = client_with_held_query(&daemon, &disk).await;
    client.send("get_session_messages", json!({"sessionId": other})).await;
    client.send("attach_session", json!({"sessionId": session, "lastSeenSeq": 0})).await;
    client.send("steer", json!({"sessionId": session, "text": "more"})).await;
    client.send("rename_session", json!({"sessionId": session, "name": "busy"})).await;
    client.send("cancel_run", json!({"sessionId": session})).await;
    wait_for_phase(&daemon, &session, Phase::Cancelled).await;
    disk.recover();
    let mut answered = Vec::new();
    for _ in 0..6 {
        let answer = client.answer().await;
        assert_eq!(answer["ok"], true, "{answer}");
        answered.push(answer["type"].as_str().unwrap().to_owned());
    }
    answered.retain(|kind| ["attach_session", "rename_session"].contains(&kind.as_str()));
    assert_eq!(answered, ["attach_session", "rename_session"]);
    daemon.close().await;
}

#[tokio::test]
async fn a_cancel_is_read_behind_more_queries_than_may_be_unanswered() {
    let (daemon, disk) = TestDaemon::on_test_disk_with(Limits { pending_requests: 2, ..Limits::default() });
    let (mut client, session, _) = client_with_held_query(&daemon, &disk).await;
    // With the waiting query these are three more than the eight that may be unanswered.
    for _ in 0..10 {
        client.send("list_sessions", json!({})).await;
    }
    client.send("cancel_run", json!({"sessionId": session})).await;
    wait_for_phase(&daemon, &session, Phase::Cancelled).await;
    disk.recover();
    assert_eq!(count_outcomes(&mut client, 12).await, (9, 3));
    daemon.close().await;
}

#[tokio::test]
async fn a_cancel_is_read_behind_more_commands_than_may_be_unanswered() {
    let (daemon, disk) = TestDaemon::on_test_disk_with(Limits { pending_requests: 2, ..Limits::default() });
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.prompt(&session, "wait, then speak").await;
    disk.hold();
    for _ in 0..5 {
        client.send("rename_session", json!({"sessionId": session, "name": "busy"})).await;
    }
    client.send("cancel_run", json!({"sessionId": session})).await;
    wait_for_phase(&daemon, &session, Phase::Cancelled).await;
    disk.recover();
    assert_eq!(count_outcomes(&mut client, 6).await, (3, 3));
    daemon.close().await;
}

#[tokio::test]
async fn a_cancel_applies_to_the_message_that_its_connection_sent_before_it() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    let session = client.start().await;
    // Nothing is stored meanwhile: neither waits for the disk.
    disk.hold();
    client.send("send_user_message", json!({"sessionId": session, "text": "wait, then speak"})).await;
    client.send("cancel_run", json!({"sessionId": session})).await;
    wait_for_phase(&daemon, &session, Phase::Cancelled).await;
    disk.recover();
    for kind in ["send_user_message", "cancel_run"] {
        let answer = client.answer().await;
        assert_eq!((&answer["type"], &answer["ok"]), (&json!(kind), &json!(true)), "{answer}");
    }
    assert_eq!(client.until("run_complete").await.pop().unwrap()["payload"]["outcome"], "cancelled");
    daemon.close().await;
}

#[tokio::test]
async fn a_cancel_applies_to_no_message_that_its_connection_sends_after_it() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.send("cancel_run", json!({"sessionId": session})).await;
    client.send("send_user_message", json!({"sessionId": session, "text": "speak"})).await;
    let (cancelled, prompted) = (client.answer().await, client.answer().await);
    assert_eq!(cancelled["error"]["code"], "NO_ACTIVE_RUN", "{cancelled}");
    assert_eq!((&prompted["type"], &prompted["ok"]), (&json!("send_user_message"), &json!(true)), "{prompted}");
    assert_eq!(client.until("run_complete").await.pop().unwrap()["payload"]["outcome"], "success");
    daemon.close().await;
}

#[tokio::test]
async fn a_query_reads_what_earlier_commands_of_its_connection_changed() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    let session = client.start().await;
    disk.hold();
    client.send("rename_session", json!({"sessionId": session, "name": "changed"})).await;
    client.send("list_sessions", json!({})).await;
    disk.wait_until_held().await;
    disk.recover();
    let (renamed, listed) = (client.answer().await, client.answer().await);
    assert_eq!((&renamed["type"], &renamed["ok"]), (&json!("rename_session"), &json!(true)));
    assert_eq!(listed["payload"]["sessions"][0]["name"], "changed", "{listed}");
    daemon.close().await;
}

/// Returns a client with a query that waits for a held sync, the session of its run, and the session that holds the
/// sync.
async fn client_with_held_query(daemon: &TestDaemon, disk: &TestDisk) -> (Client, String, String) {
    let (mut client, mut other_client) = (daemon.client().await, daemon.client().await);
    let (session, other) = (client.start().await, other_client.start().await);
    client.prompt(&session, "wait, then speak").await;
    other_client.prompt(&other, "ask, then speak").await;
    other_client.until("approval_required").await;
    disk.hold();
    other_client.send("rename_session", json!({"sessionId": other, "name": "busy"})).await;
    disk.wait_until_held().await;
    client.send("list_approvals", json!({})).await;
    (client, session, other)
}

/// Reads responses; returns how many succeed, and how many are refused because too many requests are unanswered.
async fn count_outcomes(client: &mut Client, answers: usize) -> (usize, usize) {
    let (mut granted, mut refused) = (0, 0);
    for _ in 0..answers {
        let answer = client.answer().await;
        if answer["ok"] == true {
            granted += 1;
        } else {
            assert_eq!(answer["error"]["code"], "INVALID_REQUEST", "{answer}");
            assert_eq!(answer["error"]["retryable"], true, "{answer}");
            refused += 1;
        }
    }
    (granted, refused)
}

#[tokio::test]
async fn a_revoked_token_is_refused() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let started = client.get("start_session", json!({"cwd": "/"})).await;
    let (id, token) = (started["sessionId"].as_str().unwrap().into(), started["attachToken"].as_str().unwrap());
    let lane = daemon.server.hub().lane(&id).await.unwrap().unwrap();
    assert!(daemon.server.check_token(&lane, token).is_ok());
    assert!(daemon.server.revoke_token(&id).await.is_ok());
    assert!(daemon.server.check_token(&lane, token).is_err());
    daemon.close().await;
}

#[tokio::test]
async fn home_access_is_inspected_on_the_file_threads() {
    let daemon = TestDaemon::new();
    let server = &daemon.server;
    assert!(server.describe_confinement().await.is_ok());
    let mut held = Vec::new();
    for _ in 0..FILE_SLOTS {
        let files = server.hub().services().files.clone();
        let (release, waits) = mpsc::channel::<()>();
        let (begun, begins) = oneshot::channel();
        tokio::spawn(async move {
            let hang = move || (begun.send(()), waits.recv());
            files.run(hang).await
        });
        begins.await.unwrap();
        held.push(release);
    }
    // While all threads are taken, nothing is inspected.
    assert!(timeout(Duration::from_millis(300), server.describe_confinement()).await.is_err());
    drop(held);
    assert!(server.describe_confinement().await.is_ok());
    daemon.close().await;
}

#[tokio::test]
async fn a_message_counts_as_a_repetition_only_with_the_same_limits_and_rules() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    let message = |more: Value| {
        let mut message = json!({"sessionId": session, "clientMessageId": "m1", "text": "speak",
            "timeoutMs": 60_000, "budget": {"maxTurns": 5}, "rules": ["allow:exec"]});
        for (name, value) in more.as_object().unwrap() {
            message[name] = value.clone();
        }
        message
    };
    let run = client.get("send_user_message", message(json!({}))).await["runId"].clone();
    client.until("run_complete").await;
    let again = client.get("send_user_message", message(json!({}))).await;
    assert_eq!(again["runId"], run, "{again}");
    for other in [
        json!({"timeoutMs": 70_000}),
        json!({"budget": {"maxTurns": 6}}),
        json!({"budget": {"maxTokens": 5}}),
        json!({"rules": ["allow:read"]}),
        json!({"rules": []}),
    ] {
        assert_refused(&mut client, "send_user_message", message(other)).await;
    }
    daemon.close().await;
}

#[tokio::test]
async fn a_start_counts_as_a_repetition_only_with_the_same_model() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let start = |model: &str| json!({"cwd": "/", "idempotencyKey": "k1", "model": model});
    let session = client.get("start_session", start("small")).await["sessionId"].clone();
    assert_eq!(client.get("start_session", start("small")).await["sessionId"], session);
    assert_refused(&mut client, "start_session", start("large")).await;
    daemon.close().await;
}

async fn assert_refused(client: &mut Client, kind: &str, payload: Value) {
    client.send(kind, payload.clone()).await;
    let answer = client.answer().await;
    assert_eq!(answer["error"]["code"], "INVALID_REQUEST", "{payload}: {answer}");
}
