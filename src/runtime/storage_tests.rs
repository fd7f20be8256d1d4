//! A sync that fails while more is decided: everybody who waits hears how it ended.

use serde_json::{Value, json};
use tokio::time::timeout;

use super::test_daemon::{PATIENCE, TestDaemon};
use crate::config::limits::Limits;
use crate::kernel::command::Phase;
use crate::kernel::id::SessionId;

#[tokio::test]
async fn a_run_that_ends_while_its_cancel_is_synced_in_vain_is_reported_as_complete() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.prompt(&session, "wait, then speak").await;
    daemon.provider.asked(1).await;
    disk.hold();
    client.send("cancel_run", json!({"sessionId": session})).await;
    disk.is_held().await;
    // The run has ended in memory, behind a batch whose sync is still to fail.
    reaches(&daemon, &session, Phase::Cancelled).await;
    disk.fail();
    assert_eq!(client.answer().await["error"]["code"], "STORAGE_FAILED");
    let events = client.until("run_complete").await;
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "cancelled");
}

#[tokio::test]
async fn a_success_that_cannot_be_kept_is_reported_as_failed() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.prompt(&session, "hold, then speak").await;
    daemon.provider.asked(1).await;
    disk.hold();
    daemon.provider.go_on();
    disk.is_held().await;
    reaches(&daemon, &session, Phase::Completed).await;
    disk.fail();
    let mut events = client.until("run_complete").await;
    let complete = events.last().unwrap()["payload"].clone();
    assert_eq!((&complete["outcome"], &complete["reason"]), (&json!("failed"), &json!("storage_failed")));
    events.extend(client.until("error").await);
    assert_rising(&events);
}

#[tokio::test]
async fn a_run_that_would_go_on_after_a_denial_ends_when_nothing_can_be_kept() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.prompt(&session, "ask, then speak").await;
    let asked = client.until("approval_required").await.pop().unwrap();
    disk.fail();
    client.send("rename_session", json!({"sessionId": session, "name": "unkept"})).await;
    assert_eq!(client.answer().await["error"]["code"], "STORAGE_FAILED");
    let vote = json!({"sessionId": session, "runId": asked["runId"], "approvalId": asked["payload"]["approvalId"],
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
        daemon.provider.asked(1).await;
        // Each name is one event: the cancel has every place in a block of reserved numbers once.
        let mut events = client.until("user_message").await;
        while events.last().unwrap()["seq"].as_u64().unwrap() < last {
            client.get("rename_session", json!({"sessionId": session, "name": "numbered"})).await;
            events.extend(client.until("session_renamed").await);
        }
        disk.fail();
        client.send("cancel_run", json!({"sessionId": session})).await;
        assert_eq!(client.answer().await["error"]["code"], "STORAGE_FAILED", "after {last}");
        let ended = timeout(PATIENCE, client.until("run_complete")).await;
        let ended = ended.unwrap_or_else(|_| panic!("no run_complete after the event {last}"));
        assert_eq!(ended.last().unwrap()["payload"]["outcome"], "cancelled");
        events.extend(ended);
        assert_rising(&events);
        let on_disk = if last < BLOCK * 3 / 4 { BLOCK } else { 2 * BLOCK };
        assert!(events.last().unwrap()["seq"].as_u64() <= Some(on_disk), "a number that may be issued again");
    }
}

/// Waits until a session has decided that it is in `phase`, whether or not that is kept.
pub(super) async fn reaches(daemon: &TestDaemon, session: &str, phase: Phase) {
    let hub = daemon.server.hub();
    let lane = hub.lane(&SessionId::from(session.to_owned())).await.unwrap().unwrap();
    let reached = async {
        loop {
            let settled = hub.world().settled.notified();
            if lane.phase() == phase {
                return;
            }
            settled.await;
        }
    };
    timeout(PATIENCE, reached).await.unwrap();
}

fn assert_rising(events: &[Value]) {
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}
