//! Approvals: who decides one, when it expires, and what survives a crash.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Barrier;
use std::thread;

use crate::support::daemon::{Client, Daemon, types};
use serde_json::{Value, json};

#[test]
fn of_a_hundred_concurrent_decisions_exactly_one_counts() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let mut deciders: Vec<_> = (0..100).map(|_| daemon.connect()).collect();
    for round in 0..10 {
        client.prompt(&session, &format!("$? echo {round} >> rounds\n"));
        let approval = client.event_of("approval_required");
        let barrier = Barrier::new(deciders.len());
        let answers: Vec<Value> = thread::scope(|scope| {
            let deciding: Vec<_> = deciders
                .iter_mut()
                .enumerate()
                .map(|(index, decider)| {
                    let (approval, barrier) = (&approval, &barrier);
                    let decision = if index % 2 == 0 { "approve" } else { "deny" };
                    scope.spawn(move || {
                        barrier.wait();
                        decider.decide(approval, decision)
                    })
                })
                .collect();
            deciding.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let accepted: Vec<_> = answers.iter().map(|answer| answer["ok"] == true).collect();
        assert_eq!(accepted.iter().filter(|accepted| **accepted).count(), 1, "round {round}");
        for late in answers.iter().filter(|answer| answer["ok"] == false) {
            assert_eq!(late["error"]["code"], "APPROVAL_EXPIRED", "{late}");
        }
        let approved = accepted.iter().position(|accepted| *accepted).unwrap() % 2 == 0;
        let events = client.events_until("run_complete");
        let received: Vec<_> = events.iter().filter(|event| event["type"] == "approval_received").collect();
        assert_eq!(received.len(), 1, "{received:?}");
        assert_eq!(received[0]["payload"]["decision"], if approved { "approve" } else { "deny" });
        let outcome = if approved { "success" } else { "denied" };
        assert_eq!(events.last().unwrap()["payload"]["outcome"], outcome);
        let done = fs::read_to_string(daemon.cwd().join("rounds")).unwrap_or_default();
        assert_eq!(done.lines().filter(|line| *line == round.to_string()).count(), usize::from(approved));
    }
}

#[test]
fn the_decider_is_taken_from_the_connection_and_not_from_the_request() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    for claimed in ["timeout", "cancel", "somebody else", ""] {
        let mut other = daemon.connect();
        other.get("hello", json!({"client": {"name": claimed, "version": "1"}, "capabilities": [], "by": claimed}));
        client.prompt(&session, "$? true\n");
        let approval = client.event_of("approval_required");
        let payload = json!({"sessionId": session, "approvalId": approval["payload"]["approvalId"], "decision": "approve",
            "by": claimed, "source": claimed, "actor": {"id": claimed}, "participantId": claimed, "role": "owner"});
        other.get("submit_approval", payload);
        let received = client.event_of("approval_received");
        assert_eq!((&received["payload"]["by"], &received["payload"]["decision"]), (&json!("cli"), &json!("approve")));
        expect_outcome(&mut client, "success", 0);
    }
}

#[test]
fn a_denied_step_does_not_run_and_denies_its_run() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$? touch denied\n$ touch after\n");
    let approval = client.event_of("approval_required");
    assert_eq!(approval["payload"]["options"], json!(["approve", "deny"]));
    let comment = json!({"sessionId": session, "approvalId": approval["payload"]["approvalId"],
        "decision": "deny", "comment": "not on a Friday"});
    client.get("submit_approval", comment);
    let received = client.event_of("approval_received");
    assert_eq!(received["payload"]["comment"], "not on a Friday");
    expect_outcome(&mut client, "denied", 3);
    assert!(!daemon.cwd().join("denied").exists() && !daemon.cwd().join("after").exists());
    let snapshot = client.get("get_session_snapshot", json!({"sessionId": session}));
    assert_eq!((&snapshot["state"], &snapshot["pendingApproval"]), (&json!("failed"), &json!(null)));
}

#[test]
fn an_approval_that_nobody_decides_in_time_is_denied() {
    let daemon = Daemon::start_with(&[("PUSH_APPROVAL_SECONDS", "0.2")]);
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$? touch late\n");
    let approval = client.event_of("approval_required");
    let received = client.event_of("approval_received");
    assert_eq!(received["payload"]["by"], "timeout");
    assert_eq!(received["payload"]["decision"], "deny");
    assert!(received["ts"].as_u64() >= approval["payload"]["expiresAt"].as_u64(), "too early");
    assert_eq!(client.decide(&approval, "approve")["error"]["code"], "APPROVAL_EXPIRED");
    expect_outcome(&mut client, "denied", 3);
    assert!(!daemon.cwd().join("late").exists());
}

#[test]
fn an_approval_whose_time_passed_while_the_daemon_was_down_is_denied() {
    let mut daemon = Daemon::start_with(&[("PUSH_APPROVAL_SECONDS", "0.3")]);
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$? touch late\n");
    client.event_of("approval_required");
    daemon.kill();
    daemon.restart();
    let mut client = daemon.connect();
    client.attach(&session, 0);
    assert_eq!(client.event_of("approval_received")["payload"]["by"], "timeout");
    expect_outcome(&mut client, "denied", 3);
    assert!(!daemon.cwd().join("late").exists());
}

#[test]
fn a_cancelled_run_settles_its_approvals() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let run = client.prompt(&session, "$? touch cancelled\n");
    let approval = client.event_of("approval_required");
    client.get("cancel_run", json!({"sessionId": session, "runId": run, "reason": "second thoughts"}));
    let received = client.event_of("approval_received");
    assert_eq!((&received["payload"]["by"], &received["payload"]["decision"]), (&json!("cancel"), &json!("deny")));
    let complete = expect_outcome(&mut client, "cancelled", 2);
    assert_eq!(complete["reason"], "second thoughts");
    assert_eq!(client.decide(&approval, "approve")["error"]["code"], "APPROVAL_EXPIRED");
    assert!(!daemon.cwd().join("cancelled").exists());
}

#[test]
fn a_decision_for_another_run_or_of_another_kind_is_refused() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let run = client.prompt(&session, "$? true\n");
    let approval_event = client.event_of("approval_required");
    let approval = &approval_event["payload"]["approvalId"];
    let decide = |extra: Value| {
        let mut payload = json!({"sessionId": session, "approvalId": approval, "decision": "approve"});
        payload.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        payload
    };
    let mut refused = |extra: Value| client.refused("submit_approval", decide(extra));
    assert_eq!(refused(json!({"runId": "run_other"})), "APPROVAL_NOT_FOUND");
    assert_eq!(refused(json!({"choice": "run_again"})), "INVALID_REQUEST");
    assert_eq!(refused(json!({"sessionId": "sess_other"})), "SESSION_NOT_FOUND");
    client.get("submit_approval", decide(json!({"runId": run, "scope": "once"})));
    expect_outcome(&mut client, "success", 0);
}

#[test]
fn pending_approvals_are_listed_until_they_are_settled() {
    let daemon = Daemon::start();
    let (mut first, one) = daemon.session();
    let (mut second, two) = daemon.session();
    assert_eq!(first.get("list_approvals", json!({})), json!({"approvals": []}));
    let run = first.prompt(&one, "$? echo one\n");
    let asked_one = first.event_of("approval_required");
    second.prompt(&two, "$? echo two\n");
    let asked_two = second.event_of("approval_required");
    let mut client = daemon.connect();
    let all = client.get("list_approvals", json!({}))["approvals"].clone();
    let ids: Vec<_> = all.as_array().unwrap().iter().map(|item| &item["approvalId"]).collect();
    assert_eq!(ids, [&asked_one["payload"]["approvalId"], &asked_two["payload"]["approvalId"]]);
    let listed = client.get("list_approvals", json!({"sessionId": one}))["approvals"].clone();
    let mut whole = asked_one["payload"].clone();
    whole["sessionId"] = json!(one);
    whole["runId"] = json!(run);
    assert_eq!(listed, json!([whole]));
    let row = client.get("list_sessions", json!({"prefix": one}))["sessions"][0].clone();
    assert_eq!(row["state"], "awaiting_approval");
    assert_eq!(row["pendingApprovalId"], asked_one["payload"]["approvalId"]);
    let snapshot = client.get("get_session_snapshot", json!({"sessionId": one}));
    assert_eq!(snapshot["pendingApproval"], asked_one["payload"]);
    assert!(client.events.is_empty(), "who only asked listens to nothing");
    client.decide(&asked_one, "approve");
    first.event_of("run_complete");
    second.decide(&asked_two, "deny");
    second.event_of("run_complete");
    assert_eq!(client.get("list_approvals", json!({})), json!({"approvals": []}));
}

#[test]
fn a_change_of_the_pending_approvals_is_waited_for() {
    let mut daemon = Daemon::start();
    let (mut first, session) = daemon.session();
    let mut watcher = daemon.connect();
    let known = watcher.get("list_approvals", json!({"knownRevision": 0}))["revision"].clone();
    // A connection has one such wait.
    let both = [(); 2].map(|()| watcher.send("list_approvals", json!({"knownRevision": known})));
    let answered = watcher.next();
    assert_eq!(answered["payload"], json!({"approvals": [], "revision": known}));
    let waiting = both.iter().find(|id| answered["requestId"] != **id).unwrap().clone();
    // Neither queries nor commands wait for it.
    for kind in ["list_sessions", "list_approvals", "ping"] {
        let request = watcher.send(kind, json!({}));
        assert_eq!(watcher.next()["requestId"], request, "{kind}");
    }
    first.prompt(&session, "$? echo one\n");
    let asked = first.event_of("approval_required");
    let listed = watcher.answer(&waiting)["payload"].clone();
    assert_eq!(listed["approvals"][0]["approvalId"], asked["payload"]["approvalId"]);
    assert_ne!(listed["revision"], known);
    let waiting = watcher.send("list_approvals", json!({"knownRevision": listed["revision"]}));
    first.decide(&asked, "approve");
    assert_eq!(watcher.answer(&waiting)["payload"]["approvals"], json!([]));
    // A client that is gone, or sends no more, keeps no connection open, and the daemon stops.
    let known = watcher.get("list_approvals", json!({"knownRevision": 0}))["revision"].clone();
    watcher.send("list_approvals", json!({"knownRevision": known}));
    watcher.close_write();
    let last = String::from_utf8(watcher.rest()).unwrap();
    assert!(last.contains(r#""ok":false"#), "{last}");
    let mut other = daemon.connect();
    other.send("list_approvals", json!({"knownRevision": known}));
    other.ping();
    first.event_of("run_complete");
    daemon.stop();
}

#[test]
fn a_run_that_waited_when_the_daemon_died_still_waits() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let run = client.prompt(&session, "$ echo x >> before\n$? echo x >> approved\n");
    let approval = client.event_of("approval_required");
    for round in 0..3 {
        if round == 1 {
            daemon.stop()
        } else {
            daemon.kill()
        }
        daemon.restart();
        let mut client = daemon.connect();
        client.attach(&session, approval["seq"].as_u64().unwrap());
        for _ in 0..=round {
            let recovered = client.event_of("run_recovered");
            assert_eq!((&recovered["payload"]["found"], &recovered["runId"]), (&json!("waiting"), &json!(run)));
        }
        let listed = client.get("list_approvals", json!({}))["approvals"].clone();
        assert_eq!(listed[0]["approvalId"], approval["payload"]["approvalId"]);
        assert_eq!(listed.as_array().unwrap().len(), 1);
    }
    let mut client = daemon.connect();
    client.attach(&session, 0);
    assert_eq!(client.decide(&approval, "approve")["ok"], true);
    expect_outcome(&mut client, "success", 0);
    assert_eq!(read_file(&daemon, "before"), "x\n", "a step that was done ran again");
    assert_eq!(read_file(&daemon, "approved"), "x\n");
}

#[test]
fn a_step_interrupted_by_a_crash_runs_again_only_with_approval() {
    let (daemon, mut client, approval) = crash_during_step();
    decide_with_choice(&daemon, &mut client, &approval, "approve", Some("run_again"));
    expect_outcome(&mut client, "success", 0);
    assert_eq!((read_file(&daemon, "count").as_str(), read_file(&daemon, "next").as_str()), ("x\nx\n", "x\n"));
}

#[test]
fn plain_approval_of_an_interrupted_step_runs_it_again() {
    let (daemon, mut client, approval) = crash_during_step();
    decide_with_choice(&daemon, &mut client, &approval, "approve", None);
    expect_outcome(&mut client, "success", 0);
    assert_eq!(read_file(&daemon, "count"), "x\nx\n");
}

#[test]
fn a_step_interrupted_by_a_crash_can_be_skipped() {
    let (daemon, mut client, approval) = crash_during_step();
    decide_with_choice(&daemon, &mut client, &approval, "approve", Some("skip"));
    assert_eq!(client.event_of("tool_result")["payload"]["status"], "skipped");
    expect_outcome(&mut client, "success", 0);
    assert_eq!((read_file(&daemon, "count").as_str(), read_file(&daemon, "next").as_str()), ("x\n", "x\n"));
}

#[test]
fn a_step_interrupted_by_a_crash_can_end_its_run() {
    for choice in [Some("stop"), None] {
        let (daemon, mut client, approval) = crash_during_step();
        decide_with_choice(&daemon, &mut client, &approval, "deny", choice);
        expect_outcome(&mut client, "denied", 3);
        assert_eq!(read_file(&daemon, "count"), "x\n");
        assert!(!daemon.cwd().join("next").exists());
    }
}

#[test]
fn the_approval_of_an_interrupted_step_survives_further_crashes() {
    let (mut daemon, _, approval) = crash_during_step();
    daemon.kill();
    daemon.restart();
    let mut client = daemon.connect();
    client.attach(approval["sessionId"].as_str().unwrap(), approval["seq"].as_u64().unwrap());
    assert_eq!(client.event_of("run_recovered")["payload"]["found"], "waiting");
    let listed = client.get("list_approvals", json!({}))["approvals"].clone();
    assert_eq!(listed[0]["approvalId"], approval["payload"]["approvalId"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "asked twice");
    decide_with_choice(&daemon, &mut client, &approval, "approve", Some("skip"));
    expect_outcome(&mut client, "success", 0);
    assert_eq!(read_file(&daemon, "count"), "x\n");
}

/// A daemon that was killed in the middle of a step, a client after the restart, and the approval it is asked for.
fn crash_during_step() -> (Daemon, Client, Value) {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let step = "$ echo x >> count; echo begun; until [ -e go ]; do sleep 0.01; done\n$ echo x >> next\n";
    client.prompt(&session, step);
    client.event_of("tool_output");
    daemon.kill();
    daemon.restart();
    let mut client = daemon.connect();
    client.attach(&session, 0);
    let events = client.events_until("approval_required");
    let recovered = &events[events.len() - 2];
    assert_eq!(recovered["payload"], json!({"found": "unknown"}), "{:?}", types(&events));
    let request = events.last().unwrap().clone();
    assert_eq!(request["payload"]["details"]["choices"], json!(["run_again", "skip", "stop"]));
    assert_eq!(read_file(&daemon, "count"), "x\n", "it ran again before anybody was asked");
    (daemon, client, request)
}

fn decide_with_choice(daemon: &Daemon, client: &mut Client, request: &Value, decision: &str, choice: Option<&str>) {
    for wrong in [("approve", "stop"), ("deny", "skip"), ("approve", "dance")] {
        let payload = decision_payload(request, wrong.0, Some(wrong.1));
        assert_eq!(client.refused("submit_approval", payload), "INVALID_REQUEST", "{wrong:?}");
    }
    fs::write(daemon.cwd().join("go"), "").unwrap();
    client.get("submit_approval", decision_payload(request, decision, choice));
}

fn decision_payload(request: &Value, decision: &str, choice: Option<&str>) -> Value {
    let environment = json!({"PATH": std::env::var("PATH").unwrap()});
    json!({"sessionId": request["sessionId"], "runId": request["runId"], "choice": choice, "decision": decision,
        "approvalId": request["payload"]["approvalId"], "environment": environment})
}

/// Waits for the end of the run and returns its event.
fn expect_outcome(client: &mut Client, outcome: &str, hint: u32) -> Value {
    let complete = client.event_of("run_complete")["payload"].clone();
    assert_eq!((&complete["outcome"], &complete["headless"]["exitCodeHint"]), (&json!(outcome), &json!(hint)));
    complete
}

fn read_file(daemon: &Daemon, name: &str) -> String {
    fs::read_to_string(daemon.cwd().join(name)).unwrap()
}

#[test]
fn rules_apply_to_the_steps_of_a_playbook() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let config = daemon.home.path().join(".config/push");
    fs::create_dir_all(&config).unwrap();
    let rules = "[approvals]\nrules = ['deny: exec(rm*)', 'ask: write(.env*)']\n";
    fs::write(config.join("config.toml"), rules).unwrap();
    assert_eq!(client.run(&session, "$ touch kept\n")["outcome"], "success");
    let over = client.run(&session, "$ true && rm kept\n");
    assert_eq!((&over["outcome"], &over["headless"]["exitCodeHint"]), (&json!("failed"), &json!(1)));
    assert_eq!(client.run(&session, "$? rm kept\n")["outcome"], "failed", "nobody is asked about what is denied");
    client.prompt(&session, "$ echo x > .env\n");
    let approval = client.event_of("approval_required");
    assert_eq!(approval["payload"]["summary"], "echo x > .env");
    client.decide(&approval, "deny");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "denied");
    let mine = json!({"sessionId": session, "text": "$ touch kept\n", "rules": ["deny: exec(touch*)"]});
    client.get("send_user_message", mine);
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "failed");
}
