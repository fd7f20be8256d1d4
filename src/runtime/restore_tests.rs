//! Sessions that are restored from a journal in which something cannot be read, or not yet.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::lane::{DeleteReply, DeletionCause, LaneHandle, LaneRequest, ReplyGuard};
use super::outbox::{EventForm, Outbox};
use super::test_daemon::{Client, TIMEOUT, TestDaemon, lane_request};
use crate::journal::{Batch, Block, Checkpoint, Journal};
use crate::kernel::command::{Command, GateProposal, GateVote, Rights};
use crate::kernel::event::{ApprovalScope, Decision};
use crate::kernel::id::{ConnectionId, GateId, Json, Seq, SessionId};
use crate::kernel::quorum::Quorum;
use crate::kernel::time::Now;

#[tokio::test]
async fn an_undecodable_checkpoint_is_harmless_while_the_history_is_complete() {
    let (daemon, session) = start_with_session().await;
    let daemon = daemon.restart(async |journal| corrupt_checkpoint(journal, &session).await).await;
    let mut client = daemon.client().await;
    let snapshot = client.get("get_session_snapshot", json!({"sessionId": session})).await;
    assert_eq!((&snapshot["meta"]["name"], &snapshot["lastAssistantText"]), (&json!("kept"), &json!("said")));
    client.get("attach_session", json!({"sessionId": session, "lastSeenSeq": 0})).await;
    client.until("run_complete").await;
    assert_eq!(client.run(&session, "speak").await["payload"]["outcome"], "success");
    // The next checkpoint is complete, too.
    let daemon = daemon.restart(async |_| ()).await;
    let mut client = daemon.client().await;
    let snapshot = client.get("get_session_snapshot", json!({"sessionId": session})).await;
    assert_eq!(snapshot["meta"]["name"], "kept");
    let reply = client.get("get_session_messages", json!({"sessionId": session})).await;
    assert_eq!(reply["messages"].as_array().map(Vec::len), Some(4), "{reply}");
    daemon.close().await;
}

#[tokio::test]
async fn a_session_without_its_checkpoint_and_its_beginning_is_read_only_and_unchanged() {
    let (daemon, session) = start_with_session().await;
    let id = SessionId::from(session.clone());
    let daemon = daemon
        .restart(async |journal| {
            let newest = stored_checkpoint(journal, &session).await.seq;
            let floor = journal.retain_after(id.clone(), newest, Now(1)).await.unwrap().unwrap();
            assert!(floor > Seq::ZERO, "nothing was removed");
        })
        .await;
    let mut client = daemon.client().await;
    assert_eq!(client.run(&session, "speak").await["payload"]["outcome"], "success");
    let daemon = daemon.restart(async |journal| corrupt_checkpoint(journal, &session).await).await;

    let mut client = daemon.client().await;
    let listed = client.get("list_sessions", json!({})).await;
    assert_eq!(listed["sessions"][0]["name"], "kept", "{listed}");
    let snapshot = client.get("get_session_snapshot", json!({"sessionId": session})).await;
    assert_eq!((&snapshot["meta"]["name"], &snapshot["meta"]["cwd"]), (&json!("kept"), &json!("/")));
    assert_eq!(snapshot["lastAssistantText"], "said");
    client.send("send_user_message", json!({"sessionId": session, "text": "speak"})).await;
    let refused = client.answer().await;
    assert_eq!(refused["error"]["code"], "STORAGE_FAILED", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("is damaged"), "{refused}");
    let reply = client.get("get_session_messages", json!({"sessionId": session})).await;
    assert_eq!(reply["messages"].as_array().map(Vec::len), Some(2), "{reply}");

    let daemon = daemon
        .restart(async |journal| {
            assert_eq!(
                stored_checkpoint(journal, &session).await.bytes,
                INVALID_CHECKPOINT,
                "the checkpoint was overwritten"
            );
        })
        .await;
    let mut client = daemon.client().await;
    let listed = client.get("list_sessions", json!({})).await;
    assert_eq!(listed["sessions"][0]["name"], "kept", "{listed}");
    // Its owner can delete it.
    client.get("delete_session", json!({"sessionId": session})).await;
    daemon.close().await;
}

#[tokio::test]
async fn an_event_that_cannot_be_decoded_never_empties_its_session() {
    let (daemon, session) = start_with_session().await;
    let before = Arc::new(std::sync::Mutex::new(Bytes::new()));
    let kept = Arc::clone(&before);
    let daemon = daemon
        .restart(async |journal| {
            let checkpoint = stored_checkpoint(journal, &session).await;
            let next = checkpoint.seq.next();
            let mut batch = Batch::new(SessionId::from(session.clone()));
            batch.reserved_seq = Some(next);
            let line = format!("{{\"seq\":{next},\"type\":\"nonsense\"}}\n");
            batch.block = Some(Block { first: next, last: next, count: 1, bytes: line.into() });
            journal.commit(batch).await.unwrap().unwrap();
            *kept.lock().unwrap() = checkpoint.bytes;
        })
        .await;
    let mut client = daemon.client().await;
    client.send("attach_session", json!({"sessionId": session, "lastSeenSeq": 0})).await;
    let refused = client.answer().await;
    assert_eq!(refused["ok"], false, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains(&session), "{refused}");
    let listed = client.get("list_sessions", json!({})).await;
    assert_eq!(listed["sessions"][0]["name"], "kept", "{listed}");
    let daemon = daemon
        .restart(async |journal| {
            assert_eq!(stored_checkpoint(journal, &session).await.bytes, *before.lock().unwrap());
        })
        .await;
    daemon.close().await;
}

#[tokio::test]
async fn the_first_list_of_approvals_after_a_restart_is_complete() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.prompt(&session, "ask, then speak").await;
    let approval = client.until("approval_required").await.pop().unwrap();
    let daemon = daemon.restart(async |_| ()).await;
    let mut client = daemon.client().await;
    let listed = client.get("list_approvals", json!({})).await;
    assert_eq!(listed["approvals"][0]["approvalId"], approval["payload"]["approvalId"], "{listed}");
    daemon.close().await;
}

#[tokio::test]
async fn an_approval_of_no_run_is_listed_and_expires_after_a_restart() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    let id = SessionId::from(session.clone());
    let (sender, opened) = oneshot::channel();
    let proposal = Command::OpenGate(Box::new(GateProposal {
        gate: GateId::new("appr_standing"),
        kind: "merge".to_owned(),
        title: "Merge?".to_owned(),
        summary: String::new(),
        details: Json::new("{}"),
        choices: Vec::new(),
        quorum: Quorum::Any(2),
        eligible: None,
        timeout_millis: Some(3_600_000),
    }));
    let lane = daemon.server.hub().lane(&id).await.unwrap().unwrap();
    assert!(lane.send_request(lane_request(proposal, ReplyGuard::new(|reply| drop(sender.send(reply))))).is_ok());
    assert!(timeout(TIMEOUT, opened).await.unwrap().unwrap().unwrap().result.is_ok());
    assert_eq!(approvals(&mut client).await, json!(["appr_standing"]));
    drop((lane, client));
    let daemon = daemon.restart(async |_| ()).await;
    assert_eq!(approvals(&mut daemon.client().await).await, json!(["appr_standing"]), "it is restored");
    let daemon = daemon.restart_later(Duration::from_secs(7_200)).await;
    // No client asks for the session: the start of the daemon loads it.
    daemon.server.hub().recover().await.unwrap();
    assert!(daemon.server.hub().is_loaded(&id));
    let mut client = daemon.client().await;
    assert_eq!(approvals(&mut client).await, json!([]));
    client.get("attach_session", json!({"sessionId": session})).await;
    let settled = client.until("approval_received").await.pop().unwrap();
    assert_eq!((&settled["payload"]["by"], &settled["payload"]["decision"]), (&json!("timeout"), &json!("deny")));
    let daemon = daemon.restart(async |_| ()).await;
    daemon.server.hub().recover().await.unwrap();
    assert!(!daemon.server.hub().is_loaded(&id), "nothing of it is unfinished");
    daemon.close().await;
}

/// Returns the ids of the pending approvals of all sessions.
async fn approvals(client: &mut Client) -> Value {
    let listed = client.get("list_approvals", json!({})).await;
    listed["approvals"].as_array().unwrap().iter().map(|approval| approval["approvalId"].clone()).collect()
}

#[tokio::test]
async fn a_start_under_one_key_does_not_wait_for_one_under_another() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let (mut client, mut other) = (daemon.client().await, daemon.client().await);
    client.get("start_session", json!({"cwd": "/", "idempotencyKey": "first"})).await;
    disk.hold();
    client.send("start_session", json!({"cwd": "/", "idempotencyKey": "second"})).await;
    disk.wait_until_held().await;
    // Its key is in use with other parameters, which is found out without the disk.
    other.send("start_session", json!({"cwd": "/", "idempotencyKey": "first", "mode": "headless"})).await;
    assert_eq!(other.answer().await["error"]["code"], "INVALID_REQUEST");
    disk.recover();
    assert_eq!(client.answer().await["ok"], true);
    daemon.close().await;
}

#[tokio::test]
async fn a_session_comes_back_with_the_batch_that_its_panicked_lane_left_behind() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let (mut client, mut other_client) = (daemon.client().await, daemon.client().await);
    let (session, other) = (client.start().await, other_client.start().await);
    let lane = waiting_lane(&daemon, &mut client, &session).await;
    let gate = client.until("approval_required").await.pop().unwrap();
    // The journal is busy with another session when the rename is submitted, and the lane panics before the commit.
    disk.hold();
    other_client.send("rename_session", json!({"sessionId": other, "name": "busy"})).await;
    disk.wait_until_held().await;
    let name = "kept".to_owned();
    assert!(lane.send_request(lane_request(Command::Rename { name }, ReplyGuard::new(drop))).is_ok());
    run_ready_tasks().await;
    assert!(lane.send_request(panicking_vote(&gate)).is_ok());
    run_ready_tasks().await;
    assert!(!lane.is_open(), "the lane did not panic");
    let hub = Arc::clone(daemon.server.hub());
    let id = SessionId::from(session.clone());
    let loading = async move { hub.lane(&id).await.unwrap().unwrap() };
    tokio::pin!(loading);
    let early = timeout(Duration::from_millis(300), &mut loading).await;
    assert!(early.is_err(), "the session was read before its last batch was committed");
    let unknown = SessionId::from("nobody");
    let found = timeout(TIMEOUT, daemon.server.hub().lane(&unknown))
        .await
        .expect("a load waits for the load of another session");
    assert!(found.unwrap().is_none());
    disk.recover();
    timeout(TIMEOUT, loading).await.unwrap();
    let snapshot = client.get("get_session_snapshot", json!({"sessionId": session})).await;
    assert_eq!(snapshot["meta"]["name"], "kept", "{snapshot}");
    daemon.close().await;
}

#[tokio::test]
async fn events_published_by_a_panicked_lane_are_committed() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    let lane = waiting_lane(&daemon, &mut client, &session).await;
    let gate = client.until("approval_required").await.pop().unwrap();
    let listener = Outbox::new(ConnectionId(u64::MAX), EventForm::Record);
    let (sender, reply) = oneshot::channel();
    let command = Command::Attach { seen: Seq::new(gate["seq"].as_u64().unwrap()), rights: Rights::ALL };
    let attach = LaneRequest {
        outbox: Arc::clone(&listener),
        ..*lane_request(command, ReplyGuard::new(|reply| drop(sender.send(reply))))
    };
    assert!(lane.send_request(Box::new(attach)).is_ok());
    timeout(TIMEOUT, reply).await.unwrap().unwrap().unwrap();
    run_ready_tasks().await;
    listener.take();
    let shown = async {
        // The subscriber is woken by the published events, and makes the lane panic before it submits them.
        listener.wait().await;
        listener.wait().await;
        assert!(lane.send_request(panicking_vote(&gate)).is_ok());
    };
    daemon.provider.emit_warning();
    timeout(TIMEOUT, shown).await.unwrap();
    let hub = daemon.server.hub();
    run_ready_tasks().await;
    let id = SessionId::from(session.clone());
    assert!(timeout(TIMEOUT, hub.lane(&id)).await.unwrap().unwrap().is_some());
    let page = hub.services().journal.page(id, Seq::ZERO, usize::MAX).await.unwrap();
    let history: Vec<u8> = page.blocks.iter().flat_map(|block| block.bytes.to_vec()).collect();
    assert!(String::from_utf8(history).unwrap().contains("a word"), "published events are lost");
    daemon.close().await;
}

#[tokio::test]
async fn a_closed_connection_is_removed_from_a_restarted_session() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.prompt(&session, "panic once, then speak").await;
    client.until("run_complete").await;
    drop(client);
    let id = SessionId::from(session);
    let hub = daemon.server.hub();
    // A subscriber would keep retention from removing the session.
    let gone = async {
        loop {
            let Some(lane) = hub.lane(&id).await.unwrap() else { return };
            if matches!(lane.delete(DeletionCause::Retention).await, Some(DeleteReply::Accepted(_))) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, gone).await.expect("the session still has a subscriber");
}

/// Starts a daemon with a session that has a name and a run.
async fn start_with_session() -> (TestDaemon, String) {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.run(&session, "speak").await;
    client.get("rename_session", json!({"sessionId": session, "name": "kept"})).await;
    (daemon, session)
}

const INVALID_CHECKPOINT: &[u8] = b"{\"version\":99}";

async fn corrupt_checkpoint(journal: &Journal, session: &str) {
    let seq = stored_checkpoint(journal, session).await.seq;
    let mut batch = Batch::new(SessionId::from(session.to_owned()));
    batch.checkpoint = Some(Checkpoint { seq, bytes: Bytes::from_static(INVALID_CHECKPOINT) });
    journal.commit(batch).await.unwrap().unwrap();
}

async fn stored_checkpoint(journal: &Journal, session: &str) -> Checkpoint {
    let stored = journal.load(SessionId::from(session.to_owned())).await.unwrap().unwrap();
    stored.checkpoint.expect("a checkpoint")
}

/// Starts a run that waits for a form, and returns its lane.
async fn waiting_lane(daemon: &TestDaemon, client: &mut Client, session: &str) -> LaneHandle {
    client.prompt(session, "form, then speak").await;
    daemon.server.hub().lane(&SessionId::from(session.to_owned())).await.unwrap().unwrap()
}

/// A vote whose reply is immediate and panics.
fn panicking_vote(gate: &Value) -> Box<LaneRequest> {
    let vote = GateVote {
        gate: GateId::from(gate["payload"]["approvalId"].as_str().unwrap().to_owned()),
        run: None,
        decision: Decision::Approve,
        choice: None,
        comment: None,
        scope: ApprovalScope::Once,
        rule: None,
        answer: Some(Json::new("\"no boolean\"")),
    };
    lane_request(Command::Decide(Box::new(vote)), ReplyGuard::new(|_| panic!("this reply callback panics")))
}

/// Lets every ready task run: the runtime has one thread.
async fn run_ready_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
