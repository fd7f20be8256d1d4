//! A panic in one session is isolated: other sessions continue, the session is restored from the journal, its
//! subscribers continue, and waiting requests are answered.
//!
//! The panics come from the two places where foreign code runs inside a lane: a provider that is asked for a turn,
//! and the callback of a reply guard.

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::lane::{LaneError, ReplyGuard};
use super::test_daemon::{TIMEOUT, TestDaemon, lane_request};
use crate::kernel::command::Command;
use crate::kernel::id::SessionId;

#[tokio::test]
async fn a_provider_panic_interrupts_its_session_and_no_other() {
    let daemon = TestDaemon::new();
    let (mut owner, mut watcher, mut other_client) =
        (daemon.client().await, daemon.client().await, daemon.client().await);
    let session = owner.start().await;
    let other = other_client.start().await;
    watcher.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0})).await;
    let run = owner.prompt(&session, "panic once, then speak").await;
    // The other session is served while this one is restored, and afterwards.
    assert_eq!(other_client.run(&other, "speak").await["payload"]["outcome"], "success");
    for listener in [&mut owner, &mut watcher] {
        let events = listener.until("run_complete").await;
        assert_rising(&events);
        let recovered = events.iter().find(|event| event["type"] == "run_recovered").unwrap();
        assert_eq!((&recovered["runId"], &recovered["payload"]["found"]), (&json!(run), &json!("working")));
        let complete = events.last().unwrap();
        assert_eq!((&complete["runId"], &complete["payload"]["outcome"]), (&json!(run), &json!("success")));
    }
    assert_eq!(owner.run(&session, "speak").await["payload"]["outcome"], "success");
    assert_eq!(other_client.run(&other, "speak").await["payload"]["outcome"], "success");
    daemon.close().await;
}

#[tokio::test]
async fn requests_waiting_for_a_panicked_lane_are_answered_and_no_committed_event_is_lost() {
    let daemon = TestDaemon::new();
    let (mut owner, mut other_client) = (daemon.client().await, daemon.client().await);
    let session = owner.start().await;
    let other = other_client.start().await;
    owner.run(&session, "speak").await;
    let run = owner.prompt(&session, "wait, then speak").await;
    daemon.provider.wait_for_turns(2).await;
    // All requests are in the inbox before the lane runs; the first reply panics.
    let lane = daemon.server.hub().lane(&SessionId::from(session.clone())).await.unwrap().unwrap();
    let poison = ReplyGuard::new(|_| panic!("this reply callback panics"));
    assert!(lane.send_request(lane_request(Command::Describe, poison)).is_ok());
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let (sender, reply) = oneshot::channel();
            let respond = ReplyGuard::new(move |reply| drop(sender.send(reply)));
            assert!(lane.send_request(lane_request(Command::Describe, respond)).is_ok());
            reply
        })
        .collect();
    for reply in waiting {
        let reply = timeout(TIMEOUT, reply).await.unwrap().expect("an answer");
        assert_eq!(reply.unwrap_err(), LaneError::Interrupted);
    }
    assert_eq!(other_client.run(&other, "speak").await["payload"]["outcome"], "success");
    // The subscriber continues at its position; the run is resumed from its finished steps.
    let events = owner.until("run_complete").await;
    assert_rising(&events);
    assert_eq!(events.last().unwrap()["runId"], json!(run));
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success");
    let mut late = daemon.client().await;
    late.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0})).await;
    let mut history = late.until("run_complete").await;
    history.extend(late.until("run_complete").await);
    assert_rising(&history);
    assert_eq!(history.iter().filter(|event| event["type"] == "run_recovered").count(), 1);
    daemon.close().await;
}

#[tokio::test]
async fn a_turn_that_panics_fails_its_run_and_nothing_else() {
    let daemon = TestDaemon::new();
    let mut owner = daemon.client().await;
    let session = owner.start().await;
    let complete = owner.run(&session, "break").await;
    assert_eq!(complete["payload"]["outcome"], "failed", "{complete}");
    assert_eq!(owner.run(&session, "speak").await["payload"]["outcome"], "success");
    daemon.close().await;
}

fn assert_rising(events: &[Value]) {
    let numbers: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}
