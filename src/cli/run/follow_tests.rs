//! Tests of following a run, on a real socket.

use std::io::Write;

use serde_json::json;

use super::*;
use crate::cli::console::Palette;
use crate::cli::console::testing::{Closed, Written, console};
use crate::cli::input::OnTerminate;
use crate::client::testing::{Daemon, Peer, replay, within};

#[tokio::test]
async fn a_run_is_shown_once_though_the_connection_breaks_in_the_middle() {
    let daemon = Daemon::new();
    let out = Written::default();
    let script = async {
        let mut first = daemon.greet("0.0.1").await;
        first.run_event(1, "assistant_token", json!({"text": "one "})).await;
        first.run_event(2, "assistant_token", json!({"text": "two "})).await;
        drop(first);
        let mut second = daemon.greet("0.0.1").await;
        let attach = second.request("attach_session").await;
        assert_eq!(attach["payload"]["lastSeenSeq"], 2);
        second.answer(&attach, json!({"replay": replay(3, 3)})).await;
        second.run_event(2, "assistant_token", json!({"text": "two "})).await;
        second.run_event(3, "assistant_token", json!({"text": "three"})).await;
        second.run_event(4, "run_complete", complete("success", 0)).await;
        second
    };
    let (exit, _err, _peer) = follow(&daemon, out.clone(), Policy::Ask, text(), script).await;
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
    assert_eq!(out.text(), "one two three\nsuccess: done\n");
}

#[tokio::test]
async fn without_anybody_to_ask_an_approval_is_denied_and_reported() {
    let daemon = Daemon::new();
    let out = Written::default();
    let script = async {
        let mut peer = daemon.greet("0.0.1").await;
        let asked = json!({"approvalId": "a", "kind": "command", "title": "t", "summary": "rm x"});
        peer.run_event(1, "approval_required", asked).await;
        let verdict = peer.request("submit_approval").await;
        assert_eq!(verdict["payload"]["decision"], "deny");
        assert_eq!(verdict["payload"]["runId"], "r");
        peer.answer(&verdict, json!({"accepted": true})).await;
        peer.run_event(2, "approval_received", json!({"approvalId": "a", "decision": "deny", "by": "cli"}))
            .await;
        peer.run_event(3, "run_complete", complete("denied", 3)).await;
        peer
    };
    let (exit, _err, _peer) = follow(&daemon, out.clone(), Policy::Deny, Output::Result, script).await;
    assert_eq!(exit.unwrap(), Exit::of_run(Some(3)));
    let result: Value = serde_json::from_str(&out.text()).unwrap();
    assert_eq!(
        result,
        json!({"sessionId": "s", "runId": "r", "outcome": "denied", "exitCode": 3, "summary": "done",
            "denials": [{"approvalId": "a", "kind": "command", "summary": "rm x", "by": "cli"}], "text": ""})
    );
}

#[tokio::test]
async fn what_was_denied_is_listed_before_the_outcome() {
    let daemon = Daemon::new();
    let out = Written::default();
    let script = async {
        let mut peer = daemon.greet("0.0.1").await;
        peer.run_event(1, "approval_required", json!({"approvalId": "a", "title": "t", "summary": "rm\nx"}))
            .await;
        let received = |decision: &str, by: &str| json!({"approvalId": "a", "decision": decision, "by": by});
        peer.run_event(2, "approval_received", received("deny", "tui")).await;
        peer.run_event(3, "run_complete", complete("denied", 3)).await;
        peer
    };
    let (exit, _err, _peer) = follow(&daemon, out.clone(), Policy::Ask, text(), script).await;
    assert_eq!(exit.unwrap(), Exit::of_run(Some(3)));
    assert!(out.text().ends_with("not approved: rm x (a, denied by tui)\ndenied: done\n"), "{}", out.text());
}

#[tokio::test]
async fn usage_is_quiet_and_a_summarised_history_is_a_note() {
    let daemon = Daemon::new();
    let out = Written::default();
    let script = async {
        let mut peer = daemon.greet("0.0.1").await;
        peer.run_event(1, "usage", json!({"model": "m", "inputTokens": 1})).await;
        peer.run_event(2, "context_compacted", json!({})).await;
        peer.run_event(3, "run_complete", complete("success", 0)).await;
        peer
    };
    let (_exit, err, _peer) = follow(&daemon, out.clone(), Policy::Ask, text(), script).await;
    assert_eq!(out.text(), "success: done\n");
    assert_eq!(err.text(), "the conversation was compacted to free context space\n");
}

#[tokio::test]
async fn an_approval_that_is_history_does_not_disturb() {
    let daemon = Daemon::new();
    let script = async {
        let mut peer = daemon.greet("0.0.1").await;
        peer.run_event(1, "approval_required", json!({"approvalId": "a", "title": "t", "summary": "rm x"}))
            .await;
        let verdict = peer.request("submit_approval").await;
        assert_eq!(verdict["payload"]["decision"], "approve");
        peer.refuse(&verdict, "APPROVAL_EXPIRED").await;
        peer.run_event(2, "run_complete", complete("success", 0)).await;
        peer
    };
    let (exit, _err, _peer) = follow(&daemon, Written::default(), Policy::All, Output::Events, script).await;
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
}

#[tokio::test]
async fn a_yes_to_everything_raises_no_budget() {
    let daemon = Daemon::new();
    let script = async {
        let mut peer = daemon.greet("0.0.1").await;
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
    let (exit, _err, _peer) = follow(&daemon, Written::default(), Policy::All, Output::Events, script).await;
    assert_eq!(exit.unwrap(), Exit::FAILURE);
}

#[tokio::test]
async fn without_a_terminal_an_approval_waits_for_another_one() {
    let daemon = Daemon::new();
    let script = async {
        let mut peer = daemon.greet("0.0.1").await;
        peer.run_event(1, "approval_required", json!({"approvalId": "appr_7", "title": "t"})).await;
        peer.run_event(
            2,
            "approval_received",
            json!({"approvalId": "appr_7", "decision": "approve", "by": "tui"}),
        )
        .await;
        peer.run_event(3, "run_complete", complete("success", 0)).await;
        peer
    };
    let (exit, err, _peer) = follow(&daemon, Written::default(), Policy::Ask, text(), script).await;
    assert_eq!(exit.unwrap(), Exit::SUCCESS);
    assert!(err.text().contains("push approve appr_7"), "{}", err.text());
}

#[tokio::test]
async fn events_are_passed_on_as_they_came_and_other_runs_are_not() {
    let daemon = Daemon::new();
    let out = Written::default();
    let script = async {
        let mut peer = daemon.greet("0.0.1").await;
        peer.run_event(1, "of_tomorrow", json!({"x": 1})).await;
        peer.say(json!({"kind": "event", "sessionId": "s", "runId": "other", "seq": 2, "type": "status", "payload": {}})).await;
        peer.run_event(3, "run_complete", complete("failed", 4)).await;
        peer
    };
    let (exit, _err, _peer) = follow(&daemon, out.clone(), Policy::Deny, Output::Events, script).await;
    assert_eq!(exit.unwrap(), Exit::of_run(Some(4)));
    let kinds: Vec<Value> =
        out.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone()).collect();
    assert_eq!(kinds, ["of_tomorrow", "run_complete"]);
}

#[tokio::test]
async fn a_reader_who_left_is_not_an_error_to_speak_of() {
    let daemon = Daemon::new();
    let script = async {
        let mut peer = daemon.greet("0.0.1").await;
        peer.run_event(1, "assistant_token", json!({"text": "x"})).await;
        peer
    };
    let (exit, err, _peer) = follow(&daemon, Closed, Policy::Ask, text(), script).await;
    assert!(exit.unwrap_err().is_quiet());
    assert_eq!(err.text(), "");
}

#[tokio::test]
async fn the_first_wish_to_stop_cancels_and_the_second_leaves() {
    let daemon = Daemon::new();
    let script = async {
        let mut peer = daemon.greet("0.0.1").await;
        let cancel = peer.request("cancel_run").await;
        assert_eq!(cancel["payload"]["runId"], "r");
        peer.answer(&cancel, json!({"accepted": true})).await;
        peer
    };
    let work = async {
        let mut follow = follower(&daemon, Policy::Ask, text()).await;
        let (mut console, _) = console(Written::default());
        let first = follow.interrupted(StopRequest::Cancel, &mut console).await.unwrap();
        (first, follow.interrupted(StopRequest::Cancel, &mut console).await.unwrap())
    };
    let ((first, second), _peer) = within(async { tokio::join!(work, script) }).await;
    assert_eq!((first, second), (None, Some(Exit::CANCELLED)));
}

#[tokio::test]
async fn a_run_that_ended_among_lost_events_is_reported_from_the_snapshot() {
    let daemon = Daemon::new();
    let script = async {
        drop(daemon.greet("0.0.1").await);
        let mut peer = daemon.greet("0.0.1").await;
        let attach = peer.request("attach_session").await;
        peer.answer(&attach, json!({"replay": {"fromSeq": 1, "toSeq": 9, "completed": false, "gap": true}}))
            .await;
        peer.say(json!({"kind": "event", "sessionId": "s", "seq": 10, "type": "session_snapshot", "payload":
            {"state": "cancelled", "activeRunId": null, "pendingApproval": null,
                "lastRun": {"runId": "r", "outcome": "cancelled", "exitCode": 2}}}))
            .await;
        peer
    };
    let (exit, _err, _peer) = follow(&daemon, Written::default(), Policy::Ask, text(), script).await;
    assert_eq!(exit.unwrap(), Exit::CANCELLED);
}

async fn follow(
    daemon: &Daemon,
    out: impl Write + Send + 'static,
    policy: Policy,
    output: Output,
    script: impl Future<Output = Peer>,
) -> (Result<Exit, CliError>, Written, Peer) {
    let (mut console, err) = console(out);
    let work = async {
        let mut follow = follower(daemon, policy, output).await;
        follow.until_over(&mut console).await
    };
    let (exit, peer) = within(async { tokio::join!(work, script) }).await;
    (exit, err, peer)
}

async fn follower(daemon: &Daemon, policy: Policy, output: Output) -> Follow {
    let policies = Policies { work: policy, budget: Policy::Deny };
    let mut client = Client::open(daemon.settings()).await.unwrap();
    client.expect("s", 0);
    let interrupts = Interrupts::listen(OnTerminate::Detach).unwrap();
    Follow::new(client, interrupts, Report::new("s", "r"), policies, output)
}

fn text() -> Output {
    Output::Text(View::new(Palette::Plain, Echo::Nothing, Thoughts::Hidden))
}

fn complete(outcome: &str, code: u8) -> Value {
    json!({"runId": "r", "outcome": outcome, "summary": "done", "headless": {"exitCodeHint": code}})
}
