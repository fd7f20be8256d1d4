//! A sync that fails while further events are decided: every client learns how its run ended.

use serde_json::{Value, json};
use tokio::time::timeout;

use super::test_daemon::{Client, TIMEOUT, TestDaemon};
use crate::config::limits::Limits;
use crate::kernel::command::Phase;
use crate::kernel::id::SessionId;

#[tokio::test]
async fn a_run_that_ends_while_the_sync_of_its_cancel_fails_is_reported_as_complete() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.prompt(&session, "wait, then speak").await;
    daemon.provider.wait_for_turns(1).await;
    disk.hold();
    client.send("cancel_run", json!({"sessionId": session})).await;
    disk.wait_until_held().await;
    // The run has ended in memory, behind a batch whose sync is about to fail.
    wait_for_phase(&daemon, &session, Phase::Cancelled).await;
    disk.fail();
    assert_eq!(client.answer().await["error"]["code"], "STORAGE_FAILED");
    let events = client.until("run_complete").await;
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "cancelled");
}

#[tokio::test]
async fn a_pi_abort_stops_a_run_and_a_dismissal_settles_a_question_while_a_sync_is_held() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    client.get("speak", json!({"protocol": "pi", "cwd": "/"})).await;
    for (session, message) in [("running", "wait, then speak"), ("asking", "ask, then speak")] {
        pi_command(&mut client, json!({"id": session, "type": "create_session", "sessionId": session})).await;
        let prompt = json!({"id": message, "type": "prompt", "sessionId": session, "message": message});
        pi_command(&mut client, prompt).await;
    }
    let request = loop {
        let line = client.line().await;
        if line["event"]["type"] == "extension_ui_request" {
            break line["event"]["requestId"].clone();
        }
    };
    let mut other_client = daemon.client().await;
    let other = other_client.start().await;
    disk.hold();
    other_client.send("rename_session", json!({"sessionId": other, "name": "busy"})).await;
    disk.wait_until_held().await;
    let dismissal = json!({"id": "dismiss", "type": "extension_ui_response", "sessionId": "asking",
        "requestId": request, "response": {"method": "cancelled"}});
    client.send_line(&json!({"id": "abort", "type": "abort", "sessionId": "running"})).await;
    client.send_line(&dismissal).await;
    wait_for_phase(&daemon, "running", Phase::Cancelled).await;
    // The run continues without the step as soon as the denial is kept.
    let asking = daemon.server.hub().lane(&SessionId::from("asking")).await.unwrap().unwrap();
    let settled = async {
        while asking.phase() == Phase::Waiting {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, settled).await.unwrap();
    disk.recover();
    let (first, second) = (pi_response(&mut client).await, pi_response(&mut client).await);
    assert!([first, second].iter().all(|response| response["success"] == true));
    daemon.close().await;
}

/// Sends a command of the Pi protocol, which must succeed, and returns its result.
pub(super) async fn pi_command(client: &mut Client, command: Value) -> Value {
    client.send_line(&command).await;
    let response = pi_response(client).await;
    assert_eq!((&response["id"], &response["success"]), (&command["id"], &json!(true)), "{response}");
    response["data"].clone()
}

/// Returns the next response of the Pi protocol.
pub(super) async fn pi_response(client: &mut Client) -> Value {
    loop {
        let line = client.line().await;
        if line["type"] == "response" {
            return line;
        }
    }
}

#[tokio::test]
async fn a_success_that_cannot_be_stored_is_reported_as_failed() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.prompt(&session, "hold, then speak").await;
    daemon.provider.wait_for_turns(1).await;
    disk.hold();
    daemon.provider.release();
    disk.wait_until_held().await;
    wait_for_phase(&daemon, &session, Phase::Completed).await;
    disk.fail();
    let mut events = client.until("run_complete").await;
    let complete = events.last().unwrap()["payload"].clone();
    assert_eq!((&complete["outcome"], &complete["reason"]), (&json!("failed"), &json!("storage_failed")));
    events.extend(client.until("error").await);
    assert_rising(&events);
}

#[tokio::test]
async fn a_run_that_would_continue_after_a_denial_ends_when_storage_has_failed() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.prompt(&session, "ask, then speak").await;
    let approval = client.until("approval_required").await.pop().unwrap();
    disk.fail();
    client.send("rename_session", json!({"sessionId": session, "name": "unkept"})).await;
    assert_eq!(client.answer().await["error"]["code"], "STORAGE_FAILED");
    let vote = json!({"sessionId": session, "runId": approval["runId"], "approvalId": approval["payload"]["approvalId"],
        "decision": "deny", "comment": "try something else"});
    client.get("submit_approval", vote).await;
    let events = client.until("run_complete").await;
    assert_eq!(events.last().unwrap()["payload"]["reason"], "storage_failed");
}

#[tokio::test]
async fn run_complete_arrives_whichever_sync_fails_also_one_that_reserves_sequence_numbers() {
    const BLOCK: u64 = 32;
    for last in BLOCK / 2..=BLOCK {
        let mut limits = Limits::default();
        limits.session.reserve = BLOCK;
        let (daemon, disk) = TestDaemon::on_test_disk_with(limits);
        let mut client = daemon.client().await;
        let session = client.start().await;
        client.prompt(&session, "wait, then speak").await;
        daemon.provider.wait_for_turns(1).await;
        // Each rename is one event: the loop places the cancel at every position of a reserved block.
        let mut events = client.until("user_message").await;
        while events.last().unwrap()["seq"].as_u64().unwrap() < last {
            client.get("rename_session", json!({"sessionId": session, "name": "numbered"})).await;
            events.extend(client.until("session_renamed").await);
        }
        disk.fail();
        client.send("cancel_run", json!({"sessionId": session})).await;
        assert_eq!(client.answer().await["error"]["code"], "STORAGE_FAILED", "after {last}");
        let ended = timeout(TIMEOUT, client.until("run_complete")).await;
        let ended = ended.unwrap_or_else(|_| panic!("no run_complete after the event {last}"));
        assert_eq!(ended.last().unwrap()["payload"]["outcome"], "cancelled");
        events.extend(ended);
        assert_rising(&events);
        let on_disk = if last < BLOCK * 3 / 4 { BLOCK } else { 2 * BLOCK };
        assert!(events.last().unwrap()["seq"].as_u64() <= Some(on_disk), "a sequence number that may be issued again");
    }
}

/// Waits until a session has decided to enter `phase`, committed or not.
pub(super) async fn wait_for_phase(daemon: &TestDaemon, session: &str, phase: Phase) {
    let hub = daemon.server.hub();
    let lane = hub.lane(&SessionId::from(session.to_owned())).await.unwrap().unwrap();
    let reached = async {
        loop {
            let settled = hub.services().phase_changed.notified();
            if lane.phase() == phase {
                return;
            }
            settled.await;
        }
    };
    timeout(TIMEOUT, reached).await.unwrap();
}

fn assert_rising(events: &[Value]) {
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}
