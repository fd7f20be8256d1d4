//! A daemon that is killed and restarted at every point of a model run.

use std::fs;

use serde_json::json;

use crate::bench::{Bench, git, using, wants};
use crate::daemon::wait_until;
use crate::model::{Delivery, ModelServer, Reply, Speaks, Spent, say};
use crate::work::is_running;

#[test]
fn a_turn_that_was_cut_by_a_restart_is_asked_for_again() {
    let mut bench = Bench::new();
    let session = in_mid_sentence(&bench);
    let mut client = restarted(&mut bench, &session);
    let over = client.event_of("run_complete");
    assert_eq!(
        (&over["payload"]["outcome"], &over["payload"]["summary"]),
        (&json!("success"), &json!("The whole answer."))
    );
    assert_eq!(bench.told(0), bench.told(1), "the same question");
    let messages = client.get("get_session_messages", json!({"sessionId": session}));
    assert_eq!(messages["messages"][1]["text"], "The whole answer.", "what was half said is not told");
}

#[test]
fn a_run_whose_key_only_the_client_knows_waits_for_a_client() {
    let mut bench = Bench::new();
    let session = in_mid_sentence(&bench);
    bench.daemon.kill();
    bench.daemon.revive();
    let mut watcher = bench.daemon.connect();
    watcher.attach(&session, 0);
    let waits = |event: &serde_json::Value| event["payload"]["code"] == "ENVIRONMENT_MISSING";
    while !waits(&watcher.event()) {}
    let mut client = bench.back(&session);
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "The whole answer.");
}

#[test]
fn a_conversation_goes_to_no_other_server_after_a_restart() {
    let mut bench = Bench::new();
    let other = ModelServer::start();
    other.usually(Reply::says("I am somebody else."));
    bench.store_key(Speaks::OpenAi, "another-key-0123456789");
    let place = other.base_url(Speaks::OpenAi);
    fs::write(bench.config(), format!("[providers.openai]\nbase_url = \"{place}\"\n")).expect("a file");
    let session = in_mid_sentence(&bench);
    bench.daemon.kill();
    bench.daemon.revive();
    let mut watcher = bench.daemon.connect();
    watcher.attach(&session, 0);
    while watcher.event_of("warning")["payload"]["code"] != "ENVIRONMENT_MISSING" {}
    let mut client = bench.back(&session);
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "The whole answer.");
    assert_eq!(other.seen().len(), 0, "nobody else was asked");
    // A session without an environment uses the server of the configuration file and no other.
    let mut client = bench.daemon.connect();
    let start = json!({"cwd": bench.cwd(), "provider": "openai", "model": "test-model"});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(client.run(&session, "hi")["summary"], "I am somebody else.");
}

#[test]
fn an_approval_that_waited_still_waits_and_its_tool_runs_once() {
    let mut bench = Bench::new();
    bench.server.script([
        wants("Do.", "sandbox_exec", json!({"command": "echo once >> done"})),
        Reply::says("Done."),
    ]);
    let (mut client, session) = bench.begin("do it");
    let asked = client.event_of("approval_required");
    let mut client = restarted(&mut bench, &session);
    assert_eq!(client.decide(&asked, "approve")["ok"], true);
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    assert_eq!(bench.file("done"), "once\n");
}

#[test]
fn a_tool_of_unknown_end_becomes_a_question_and_the_model_hears_the_answer() {
    let mut bench = Bench::new();
    bench.server.script([
        wants("Do.", "sandbox_exec", json!({"command": "echo begun; sleep 1000"})),
        Reply::says("Without it, then."),
    ]);
    let (mut client, session) = bench.begin("do it");
    let asked = client.event_of("approval_required");
    client.decide(&asked, "approve");
    client.event_of("tool_output");
    let mut client = restarted(&mut bench, &session);
    let unknown = loop {
        let event = client.event_of("approval_required");
        if event["payload"]["kind"] == "unknown_step" {
            break event;
        }
    };
    let vote = json!({"sessionId": session, "approvalId": unknown["payload"]["approvalId"], "decision": "approve", "choice": "skip"});
    client.get("submit_approval", vote);
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "Without it, then.");
    let told = bench.told(1);
    assert!(
        told.last().unwrap()["content"].to_string().contains("the user chose to go on without it"),
        "{told:?}"
    );
}

#[test]
fn calls_that_waited_for_others_are_not_forgotten() {
    let mut bench = Bench::new();
    bench.server.script([
        Reply::turn([
            using("sandbox_exec", json!({"command": "echo one >> done"})),
            using("sandbox_exec", json!({"command": "echo two >> done"})),
        ]),
        Reply::says("Done."),
    ]);
    let (mut client, session) = bench.begin("do both");
    let first = client.event_of("approval_required");
    let mut client = restarted(&mut bench, &session);
    client.decide(&first, "approve");
    let second = loop {
        let event = client.event_of("approval_required");
        if event["payload"]["approvalId"] != first["payload"]["approvalId"] {
            break event;
        }
    };
    client.decide(&second, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    assert_eq!(bench.file("done"), "one\ntwo\n");
    assert_eq!(bench.server.seen().len(), 2);
}

#[test]
fn a_budget_that_was_asked_about_is_still_asked_about() {
    let mut bench = Bench::new();
    let spent = Spent { fresh: 500, cache_read: 0, cache_write: 0, output: 0, dollars: 0.0 };
    bench.server.script([
        wants("One.", "sandbox_read_file", json!({"path": "sum.sh"})).spends(spent),
        Reply::says("Done."),
    ]);
    let (mut client, session) = bench.session();
    client
        .get("send_user_message", json!({"sessionId": session, "text": "go", "budget": {"maxTokens": 400}}));
    let asked = client.event_of("approval_required");
    let mut client = restarted(&mut bench, &session);
    client.decide(&asked, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn what_was_steered_and_queued_is_heard_after_a_restart() {
    let mut bench = Bench::new();
    bench.server.script([
        wants("Do.", "sandbox_exec", json!({"command": "true"})),
        Reply::says("One."),
        Reply::says("Two."),
    ]);
    let (mut client, session) = bench.begin("first");
    let asked = client.event_of("approval_required");
    client.get("steer", json!({"sessionId": session, "text": "mind the gap"}));
    client.get("queue_message", json!({"sessionId": session, "text": "second"}));
    let mut client = restarted(&mut bench, &session);
    client.decide(&asked, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "One.");
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "Two.");
    assert_eq!(bench.told(1).last().unwrap()["content"], "mind the gap");
    assert_eq!(bench.told(2).last().unwrap()["content"], "second");
}

#[test]
fn a_commit_that_waited_over_a_restart_can_be_denied_and_the_run_cancelled() {
    for (settle, outcome, code) in [("deny", "denied", 3), ("cancel", "cancelled", 2)] {
        let mut bench = Bench::new();
        fs::write(bench.cwd().join("new"), "x").expect("a file");
        bench.server.script([wants("Commit.", "sandbox_git_commit", json!({"message": "m", "all": true}))]);
        let (mut client, session) = bench.begin("commit");
        let asked = client.event_of("approval_required");
        let mut client = restarted(&mut bench, &session);
        if settle == "deny" {
            client.decide(&asked, "deny");
        } else {
            client.get("cancel_run", json!({"sessionId": session}));
        }
        let over = client.event_of("run_complete");
        assert_eq!(
            (&over["payload"]["outcome"], &over["payload"]["headless"]["exitCodeHint"]),
            (&json!(outcome), &json!(code))
        );
        let log = git(&bench.cwd(), &["log", "--format=%s"]);
        assert_eq!(String::from_utf8_lossy(&log.stdout), "begin\n");
    }
}

#[test]
fn a_run_that_slept_through_a_restart_can_be_cancelled_and_nothing_is_left() {
    let mut bench = Bench::new();
    let words = format!("sleep\0{}.25\0", std::process::id());
    let command = format!("echo begun; sleep {}.25", std::process::id());
    bench.server.script([wants("Sleep.", "sandbox_exec", json!({"command": command}))]);
    let (mut client, session) = bench.begin("sleep");
    let asked = client.event_of("approval_required");
    client.decide(&asked, "approve");
    wait_until("it sleeps", || is_running(&words));
    let mut client = restarted(&mut bench, &session);
    wait_until("it ended with the daemon", || !is_running(&words));
    while client.event_of("approval_required")["payload"]["kind"] != "unknown_step" {}
    client.get("cancel_run", json!({"sessionId": session}));
    let over = client.event_of("run_complete");
    assert_eq!(
        (&over["payload"]["outcome"], &over["payload"]["headless"]["exitCodeHint"]),
        (&json!("cancelled"), &json!(2))
    );
    assert!(!is_running(&words), "it was not begun again");
    assert_eq!(bench.server.seen().len(), 1, "and nobody was asked");
}

#[test]
fn a_check_that_was_cut_by_a_restart_is_asked_about_and_still_decides() {
    let mut bench = Bench::new();
    bench.server.script([Reply::says("I did nothing.")]);
    let (mut client, session) = bench.session();
    let check = "echo checking; test -e go || exec sleep 1000; exit 1";
    let criteria = json!([{"id": "check", "check": check}]);
    client.get(
        "send_user_message",
        json!({"sessionId": session, "text": "fix it", "acceptanceCriteria": criteria}),
    );
    client.event_of("tool_output");
    bench.daemon.kill();
    bench.daemon.revive();
    fs::write(bench.cwd().join("go"), "").expect("a word to the check");
    let mut client = bench.back(&session);
    let unknown = client.event_of("approval_required");
    assert_eq!(unknown["payload"]["kind"], "unknown_step");
    client.decide(&unknown, "approve");
    let over = client.event_of("run_complete");
    assert_eq!(bench.server.seen().len(), 1, "the model had said that it was done");
    assert_eq!(
        (&over["payload"]["outcome"], &over["payload"]["headless"]["exitCodeHint"]),
        (&json!("failed"), &json!(4))
    );
}

#[test]
fn a_server_that_is_down_is_asked_again_after_a_restart_and_the_run_fails() {
    let mut bench = Bench::new();
    bench.server.usually(Reply::Never);
    let (_, session) = bench.begin("hi");
    wait_until("the server is asked", || !bench.server.seen().is_empty());
    bench.daemon.kill();
    bench.daemon.revive();
    bench.server.usually(Reply::status(500, "{}"));
    let mut client = bench.back(&session);
    let over = client.event_of("run_complete");
    assert_eq!(
        (&over["payload"]["reason"], &over["payload"]["headless"]["exitCodeHint"]),
        (&json!("provider_failed"), &json!(1))
    );
}

/// Starts a run with a slow turn for a restart to interrupt; the next request gets a complete answer.
fn in_mid_sentence(bench: &Bench) -> String {
    let slowly = (0..500).map(|word| say(&format!("word{word} ")));
    let pace = Delivery::Paced(std::time::Duration::from_millis(20));
    bench.server.script([Reply::turn(slowly).delivered(pace), Reply::says("The whole answer.")]);
    let (mut client, session) = bench.begin("talk");
    client.event_of("assistant_token");
    session
}

/// Kills and restarts the daemon, and attaches again.
fn restarted(bench: &mut Bench, session: &str) -> crate::daemon::Client {
    bench.daemon.kill();
    bench.daemon.revive();
    bench.back(session)
}
