//! Requests of one connection: what overtakes what, and what counts as a repetition.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::storage_tests::reaches;
use super::test_daemon::{Client, FILE_SLOTS, TestDaemon};
use crate::kernel::command::Phase;

#[tokio::test]
async fn a_cancel_overtakes_a_query_that_waits() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let (mut client, mut neighbour) = (daemon.client().await, daemon.client().await);
    let (session, other) = (client.start().await, neighbour.start().await);
    client.prompt(&session, "wait, then speak").await;
    neighbour.prompt(&other, "ask, then speak").await;
    neighbour.until("approval_required").await;
    // A session answers what it is asked for when what it decided before is on disk.
    disk.hold();
    neighbour.send("rename_session", json!({"sessionId": other, "name": "busy"})).await;
    disk.is_held().await;
    client.send("list_approvals", json!({})).await;
    client.send("cancel_run", json!({"sessionId": session})).await;
    reaches(&daemon, &session, Phase::Cancelled).await;
    disk.recover();
    let (first, second) = (client.answer().await, client.answer().await);
    let types = [&first["type"], &second["type"]];
    assert!(types.contains(&&json!("list_approvals")) && types.contains(&&json!("cancel_run")), "{types:?}");
    assert_eq!((&first["ok"], &second["ok"]), (&json!(true), &json!(true)));
    daemon.close().await;
}

#[tokio::test]
async fn a_token_that_is_void_attaches_to_nothing() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let started = client.get("start_session", json!({"cwd": "/"})).await;
    let (id, token) =
        (started["sessionId"].as_str().unwrap().into(), started["attachToken"].as_str().unwrap());
    let lane = daemon.server.hub().lane(&id).await.unwrap().unwrap();
    assert!(daemon.server.check_token(&lane, token).is_ok());
    assert!(daemon.server.void_token(&id).await.is_ok());
    assert!(daemon.server.check_token(&lane, token).is_err());
    daemon.close().await;
}

#[tokio::test]
async fn what_commands_see_of_the_home_is_looked_at_on_the_threads_for_files() {
    let daemon = TestDaemon::new();
    let server = &daemon.server;
    assert!(server.walls().await.is_ok());
    let mut held = Vec::new();
    for _ in 0..FILE_SLOTS {
        let files = server.hub().world().files.clone();
        let (release, waits) = mpsc::channel::<()>();
        let (begun, begins) = oneshot::channel();
        tokio::spawn(async move {
            let hang = move || (begun.send(()), waits.recv());
            files.run(hang).await
        });
        begins.await.unwrap();
        held.push(release);
    }
    // With every thread taken nothing is looked at, however long that is.
    assert!(timeout(Duration::from_millis(300), server.walls()).await.is_err());
    drop(held);
    assert!(server.walls().await.is_ok());
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
        refused(&mut client, "send_user_message", message(other)).await;
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
    refused(&mut client, "start_session", start("large")).await;
    daemon.close().await;
}

async fn refused(client: &mut Client, kind: &str, payload: Value) {
    client.send(kind, payload.clone()).await;
    let answer = client.answer().await;
    assert_eq!(answer["error"]["code"], "INVALID_REQUEST", "{payload}: {answer}");
}
