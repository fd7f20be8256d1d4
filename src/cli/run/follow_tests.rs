//! Tests of following a run, on a real socket.

use std::io::Write;

use serde_json::{Value, json};

use super::*;
use crate::cli::console::Palette;
use crate::cli::console::testing::{BrokenPipe, CapturedStream, console};
use crate::cli::input::OnTerminate;
use crate::client::testing::{Peer, ScriptedDaemon, replay, with_timeout};

#[tokio::test]
async fn a_run_is_printed_once_across_a_reconnect() {
    let daemon = ScriptedDaemon::new();
    let out = CapturedStream::default();
    let script = async {
        let mut first = daemon.handshake("0.0.1").await;
        first.run_event(1, "assistant_token", json!({"text": "one "})).await;
        first.run_event(2, "assistant_token", json!({"text": "two "})).await;
        drop(first);
        let mut second = daemon.handshake("0.0.1").await;
        let attach = second.request("attach_session").await;
        assert_eq!(attach["payload"]["lastSeenSeq"], 2);
        second.answer(&attach, json!({"replay": replay(3, 3)})).await;
        second.run_event(2, "assistant_token", json!({"text": "two "})).await;
        second.run_event(3, "assistant_token", json!({"text": "three"})).await;
        second.run_event(4, "run_complete", complete("success", 0)).await;
        second
    };
    let (exit, _err, _peer) = follow(&daemon, out.clone(), ApprovalPolicy::Ask, text(), script).await;
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
    assert_eq!(out.text(), "one two three\nsuccess: done\n");
}

#[tokio::test]
async fn with_policy_deny_an_approval_is_denied_and_reported() {
    let daemon = ScriptedDaemon::new();
    let out = CapturedStream::default();
    let script = async {
        let mut peer = daemon.handshake("0.0.1").await;
        let asked = json!({"approvalId": "a", "kind": "command", "title": "t", "summary": "rm x"});
        peer.run_event(1, "approval_required", asked).await;
        let verdict = peer.request("submit_approval").await;
        assert_eq!(verdict["payload"]["decision"], "deny");
        assert_eq!(verdict["payload"]["runId"], "r");
        peer.answer(&verdict, json!({"accepted": true})).await;
        peer.run_event(2, "approval_received", json!({"approvalId": "a", "decision": "deny", "by": "cli"})).await;
        peer.run_event(3, "run_complete", complete("denied", 3)).await;
        peer
    };
    let (exit, _err, _peer) = follow(&daemon, out.clone(), ApprovalPolicy::Deny, Output::Result, script).await;
    assert_eq!(exit.unwrap(), Exit::from_run(3));
    let result: Value = serde_json::from_str(&out.text()).unwrap();
    assert_eq!(
        result,
        json!({"sessionId": "s", "runId": "r", "outcome": "denied", "exitCode": 3, "summary": "done",
            "denials": [{"approvalId": "a", "kind": "command", "summary": "rm x", "by": "cli"}], "text": ""})
    );
}

#[tokio::test]
async fn denials_are_listed_before_the_outcome() {
    let daemon = ScriptedDaemon::new();
    let out = CapturedStream::default();
    let script = async {
        let mut peer = daemon.handshake("0.0.1").await;
        peer.run_event(1, "approval_required", json!({"approvalId": "a", "title": "t", "summary": "rm\nx"})).await;
        let received = |decision: &str, by: &str| json!({"approvalId": "a", "decision": decision, "by": by});
        peer.run_event(2, "approval_received", received("deny", "tui")).await;
        peer.run_event(3, "run_complete", complete("denied", 3)).await;
        peer
    };
    let (exit, _err, _peer) = follow(&daemon, out.clone(), ApprovalPolicy::Ask, text(), script).await;
    assert_eq!(exit.unwrap(), Exit::from_run(3));
    assert!(out.text().ends_with("not approved: rm x (a, denied by tui)\ndenied: done\n"), "{}", out.text());
}

#[tokio::test]
async fn usage_is_printed_at_the_end_and_a_compaction_prints_a_note() {
    let daemon = ScriptedDaemon::new();
    let out = CapturedStream::default();
    let script = async {
        let mut peer = daemon.handshake("0.0.1").await;
        peer.run_event(1, "usage", json!({"model": "m", "inputTokens": 1})).await;
        peer.run_event(2, "context_compacted", json!({})).await;
        peer.run_event(3, "run_complete", complete("success", 0)).await;
        peer
    };
    let (_exit, err, _peer) = follow(&daemon, out.clone(), ApprovalPolicy::Ask, text(), script).await;
    assert_eq!(out.text(), "usage: 1 in, 0 out\nsuccess: done\n");
    assert_eq!(err.text(), "the conversation was compacted to free context space\n");
}

#[tokio::test]
async fn a_replayed_approval_that_is_decided_is_ignored() {
    let daemon = ScriptedDaemon::new();
    let script = async {
        let mut peer = daemon.handshake("0.0.1").await;
        peer.run_event(1, "approval_required", json!({"approvalId": "a", "title": "t", "summary": "rm x"})).await;
        let verdict = peer.request("submit_approval").await;
        assert_eq!(verdict["payload"]["decision"], "approve");
        peer.refuse(&verdict, "APPROVAL_EXPIRED").await;
        peer.run_event(2, "run_complete", complete("success", 0)).await;
        peer
    };
    let (exit, _err, _peer) =
        follow(&daemon, CapturedStream::default(), ApprovalPolicy::All, Output::Events, script).await;
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
}

#[tokio::test]
async fn approving_everything_does_not_raise_the_budget() {
    let daemon = ScriptedDaemon::new();
    let script = async {
        let mut peer = daemon.handshake("0.0.1").await;
        for (seq, kind, decision) in [(1, "exec", "approve"), (2, "budget", "deny")] {
            let asked = json!({"approvalId": kind, "kind": kind, "title": "t", "summary": "s"});
            peer.run_event(seq, "approval_required", asked).await;
            let verdict = peer.request("submit_approval").await;
            assert_eq!(verdict["payload"]["decision"], decision, "{kind}");
            peer.answer(&verdict, json!({})).await;
        }
        peer.run_event(3, "run_complete", complete("failed", 1)).await;
        peer
    };
    let (exit, _err, _peer) =
        follow(&daemon, CapturedStream::default(), ApprovalPolicy::All, Output::Events, script).await;
    assert_eq!(exit.unwrap(), Exit::FAILURE);
}

#[tokio::test]
async fn without_a_terminal_an_approval_waits_for_another_client() {
    let daemon = ScriptedDaemon::new();
    let script = async {
        let mut peer = daemon.handshake("0.0.1").await;
        peer.run_event(1, "approval_required", json!({"approvalId": "appr_7", "title": "t"})).await;
        peer.run_event(2, "approval_received", json!({"approvalId": "appr_7", "decision": "approve", "by": "tui"}))
            .await;
        peer.run_event(3, "run_complete", complete("success", 0)).await;
        peer
    };
    let (exit, err, _peer) = follow(&daemon, CapturedStream::default(), ApprovalPolicy::Ask, text(), script).await;
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
    assert!(err.text().contains("push approve appr_7"), "{}", err.text());
}

#[tokio::test]
async fn events_are_printed_unchanged_without_those_of_other_runs() {
    let daemon = ScriptedDaemon::new();
    let out = CapturedStream::default();
    let script = async {
        let mut peer = daemon.handshake("0.0.1").await;
        peer.run_event(1, "of_tomorrow", json!({"x": 1})).await;
        peer.send(
            json!({"kind": "event", "sessionId": "s", "runId": "other", "seq": 2, "type": "status", "payload": {}}),
        )
        .await;
        peer.run_event(3, "run_complete", complete("failed", 4)).await;
        peer
    };
    let (exit, _err, _peer) = follow(&daemon, out.clone(), ApprovalPolicy::Deny, Output::Events, script).await;
    assert_eq!(exit.unwrap(), Exit::from_run(4));
    let kinds: Vec<Value> =
        out.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(kinds, ["of_tomorrow", "run_complete"]);
}

#[tokio::test]
async fn a_closed_output_is_not_reported() {
    let daemon = ScriptedDaemon::new();
    let script = async {
        let mut peer = daemon.handshake("0.0.1").await;
        peer.run_event(1, "assistant_token", json!({"text": "x"})).await;
        peer
    };
    let (exit, err, _peer) = follow(&daemon, BrokenPipe, ApprovalPolicy::Ask, text(), script).await;
    assert!(exit.unwrap_err().is_broken_pipe());
    assert_eq!(err.text(), "");
}

#[tokio::test]
async fn the_first_signal_cancels_and_the_second_exits() {
    let daemon = ScriptedDaemon::new();
    let script = async {
        let mut peer = daemon.handshake("0.0.1").await;
        let cancel = peer.request("cancel_run").await;
        assert_eq!(cancel["payload"]["runId"], "r");
        peer.answer(&cancel, json!({"accepted": true})).await;
        peer
    };
    let work = async {
        let mut follow = follower(&daemon, ApprovalPolicy::Ask, text()).await;
        let (mut console, _) = console(CapturedStream::default());
        let first = follow.handle_signal(StopRequest::Cancel, &mut console).await.unwrap();
        (first, follow.handle_signal(StopRequest::Cancel, &mut console).await.unwrap())
    };
    let ((first, second), _peer) = with_timeout(async { tokio::join!(work, script) }).await;
    assert_eq!((first, second), (None, Some(Exit::CANCELLED)));
}

#[tokio::test]
async fn a_run_that_ended_among_lost_events_is_reported_from_the_snapshot() {
    let daemon = ScriptedDaemon::new();
    let script = async {
        drop(daemon.handshake("0.0.1").await);
        let mut peer = daemon.handshake("0.0.1").await;
        let attach = peer.request("attach_session").await;
        peer.answer(&attach, json!({"replay": {"fromSeq": 1, "toSeq": 9, "completed": false, "gap": true}})).await;
        peer.send(json!({"kind": "event", "sessionId": "s", "seq": 10, "type": "session_snapshot", "payload":
            {"state": "cancelled", "activeRunId": null, "pendingApproval": null,
                "lastRun": {"runId": "r", "outcome": "cancelled", "exitCode": 2}}}))
            .await;
        peer
    };
    let (exit, _err, _peer) = follow(&daemon, CapturedStream::default(), ApprovalPolicy::Ask, text(), script).await;
    assert_eq!(exit.unwrap(), Exit::CANCELLED);
}

async fn follow(
    daemon: &ScriptedDaemon,
    out: impl Write + Send + 'static,
    policy: ApprovalPolicy,
    output: Output,
    script: impl Future<Output = Peer>,
) -> (Result<Exit, CliError>, CapturedStream, Peer) {
    let (mut console, err) = console(out);
    let work = async {
        let mut follow = follower(daemon, policy, output).await;
        follow.follow_to_end(&mut console).await
    };
    let (exit, peer) = with_timeout(async { tokio::join!(work, script) }).await;
    (exit, err, peer)
}

async fn follower(daemon: &ScriptedDaemon, policy: ApprovalPolicy, output: Output) -> RunFollower {
    let policies = ApprovalPolicies { work: policy, budget: ApprovalPolicy::Deny };
    let mut client = Client::open(daemon.config()).await.unwrap();
    client.track("s", 0);
    let interrupts = Interrupts::listen(OnTerminate::Detach).unwrap();
    RunFollower::new(client, interrupts, Report::new("s", "r"), policies, (output, "/project".to_owned()))
}

fn text() -> Output {
    Output::Text(View::new(Palette::Plain, Echo::Nothing, Reasoning::Hidden))
}

fn complete(outcome: &str, code: u8) -> Value {
    json!({"runId": "r", "outcome": outcome, "summary": "done", "headless": {"exitCodeHint": code}})
}
