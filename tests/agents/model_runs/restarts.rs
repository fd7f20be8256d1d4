//! A daemon that is killed and restarted at every point of a model run.

use std::fs;

use serde_json::json;

use crate::model_runs::fixture::{Fixture, git, tool_call, turn_with_call};
use crate::model_runs::work::is_running;
use crate::support::daemon::wait_until;
use crate::support::model::{Delivery, ModelServer, Reply, ServerDialect, TurnCost, say};

#[test]
fn a_turn_interrupted_by_a_restart_is_requested_again() {
    let mut fixture = Fixture::new();
    let session = start_slow_turn(&fixture);
    let mut client = restart_and_attach(&mut fixture, &session);
    let over = client.event_of("run_complete");
    assert_eq!(
        (&over["payload"]["outcome"], &over["payload"]["summary"]),
        (&json!("success"), &json!("The whole answer."))
    );
    assert_eq!(fixture.sent_messages(0), fixture.sent_messages(1), "the same question");
    let messages = client.get("get_session_messages", json!({"sessionId": session}));
    assert_eq!(messages["messages"][1]["text"], "The whole answer.", "what was half said is not told");
}

#[test]
fn a_run_whose_key_only_the_client_knows_waits_for_a_client() {
    let mut fixture = Fixture::new();
    let session = start_slow_turn(&fixture);
    fixture.daemon.kill();
    fixture.daemon.restart();
    let mut watcher = fixture.daemon.connect();
    watcher.attach(&session, 0);
    let waits = |event: &serde_json::Value| event["payload"]["code"] == "ENVIRONMENT_MISSING";
    while !waits(&watcher.event()) {}
    let mut client = fixture.attach(&session);
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "The whole answer.");
}

#[test]
fn a_conversation_is_sent_to_no_other_server_after_a_restart() {
    let mut fixture = Fixture::new();
    let other = ModelServer::start();
    other.usually(Reply::says("I am somebody else."));
    fixture.store_key(ServerDialect::OpenAi, "another-key-0123456789");
    let place = other.base_url(ServerDialect::OpenAi);
    fs::write(fixture.config(), format!("[providers.openai]\nbase_url = \"{place}\"\n")).expect("a file");
    let session = start_slow_turn(&fixture);
    fixture.daemon.kill();
    fixture.daemon.restart();
    let mut watcher = fixture.daemon.connect();
    watcher.attach(&session, 0);
    while watcher.event_of("warning")["payload"]["code"] != "ENVIRONMENT_MISSING" {}
    let mut client = fixture.attach(&session);
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "The whole answer.");
    assert_eq!(other.seen().len(), 0, "nobody else was asked");
    // A session without an environment uses the server of the configuration file and no other.
    let mut client = fixture.daemon.connect();
    let start = json!({"cwd": fixture.cwd(), "provider": "openai", "model": "test-model"});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(client.run(&session, "hi")["summary"], "I am somebody else.");
}

#[test]
fn a_pending_approval_survives_a_restart_and_its_tool_runs_once() {
    let mut fixture = Fixture::new();
    fixture
        .server
        .script([turn_with_call("Do.", "sandbox_exec", json!({"command": "echo once >> done"})), Reply::says("Done.")]);
    let (mut client, session) = fixture.start_run("do it");
    let approval = client.event_of("approval_required");
    let mut client = restart_and_attach(&mut fixture, &session);
    assert_eq!(client.decide(&approval, "approve")["ok"], true);
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    assert_eq!(fixture.file("done"), "once\n");
}

#[test]
fn an_interrupted_tool_call_needs_a_decision_and_the_model_gets_the_result() {
    let mut fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("Do.", "sandbox_exec", json!({"command": "echo begun; sleep 1000"})),
        Reply::says("Without it, then."),
    ]);
    let (mut client, session) = fixture.start_run("do it");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "approve");
    client.event_of("tool_output");
    let mut client = restart_and_attach(&mut fixture, &session);
    let unknown = loop {
        let event = client.event_of("approval_required");
        if event["payload"]["kind"] == "unknown_step" {
            break event;
        }
    };
    let vote = json!({"sessionId": session, "approvalId": unknown["payload"]["approvalId"], "decision": "approve", "choice": "skip"});
    client.get("submit_approval", vote);
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "Without it, then.");
    let sent = fixture.sent_messages(1);
    assert!(sent.last().unwrap()["content"].to_string().contains("the user skipped the call"), "{sent:?}");
}

#[test]
fn calls_that_waited_for_others_survive_a_restart() {
    let mut fixture = Fixture::new();
    fixture.server.script([
        Reply::turn([
            tool_call("sandbox_exec", json!({"command": "echo one >> done"})),
            tool_call("sandbox_exec", json!({"command": "echo two >> done"})),
        ]),
        Reply::says("Done."),
    ]);
    let (mut client, session) = fixture.start_run("do both");
    let first = client.event_of("approval_required");
    let mut client = restart_and_attach(&mut fixture, &session);
    client.decide(&first, "approve");
    let second = loop {
        let event = client.event_of("approval_required");
        if event["payload"]["approvalId"] != first["payload"]["approvalId"] {
            break event;
        }
    };
    client.decide(&second, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    assert_eq!(fixture.file("done"), "one\ntwo\n");
    assert_eq!(fixture.server.seen().len(), 2);
}

#[test]
fn a_pending_budget_approval_survives_a_restart() {
    let mut fixture = Fixture::new();
    let spent = TurnCost { fresh: 500, cache_read: 0, cache_write: 0, output: 0, dollars: 0.0 };
    fixture.server.script([
        turn_with_call("One.", "sandbox_read_file", json!({"path": "sum.sh"})).spends(spent),
        Reply::says("Done."),
    ]);
    let (mut client, session) = fixture.session();
    client.get("send_user_message", json!({"sessionId": session, "text": "go", "budget": {"maxTokens": 400}}));
    let approval = client.event_of("approval_required");
    let mut client = restart_and_attach(&mut fixture, &session);
    client.decide(&approval, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn steered_and_queued_messages_survive_a_restart() {
    let mut fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("Do.", "sandbox_exec", json!({"command": "true"})),
        Reply::says("One."),
        Reply::says("Two."),
    ]);
    let (mut client, session) = fixture.start_run("first");
    let approval = client.event_of("approval_required");
    client.get("steer", json!({"sessionId": session, "text": "mind the gap"}));
    client.get("queue_message", json!({"sessionId": session, "text": "second"}));
    let mut client = restart_and_attach(&mut fixture, &session);
    client.decide(&approval, "approve");
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "One.");
    assert_eq!(client.event_of("run_complete")["payload"]["summary"], "Two.");
    assert_eq!(fixture.sent_messages(1).last().unwrap()["content"], "mind the gap");
    assert_eq!(fixture.sent_messages(2).last().unwrap()["content"], "second");
}

#[test]
fn a_commit_pending_over_a_restart_can_be_denied_and_the_run_cancelled() {
    for (settle, outcome, code) in [("deny", "denied", 3), ("cancel", "cancelled", 2)] {
        let mut fixture = Fixture::new();
        fs::write(fixture.cwd().join("new"), "x").expect("a file");
        fixture.server.script([turn_with_call("Commit.", "sandbox_git_commit", json!({"message": "m", "all": true}))]);
        let (mut client, session) = fixture.start_run("commit");
        let approval = client.event_of("approval_required");
        let mut client = restart_and_attach(&mut fixture, &session);
        if settle == "deny" {
            client.decide(&approval, "deny");
        } else {
            client.get("cancel_run", json!({"sessionId": session}));
        }
        let over = client.event_of("run_complete");
        assert_eq!(
            (&over["payload"]["outcome"], &over["payload"]["headless"]["exitCodeHint"]),
            (&json!(outcome), &json!(code))
        );
        let log = git(&fixture.cwd(), &["log", "--format=%s"]);
        assert_eq!(String::from_utf8_lossy(&log.stdout), "begin\n");
    }
}

#[test]
fn a_run_restored_after_a_restart_can_be_cancelled_and_leaves_no_process() {
    let mut fixture = Fixture::new();
    let words = format!("sleep\0{}.25\0", std::process::id());
    let command = format!("echo begun; sleep {}.25", std::process::id());
    fixture.server.script([turn_with_call("Sleep.", "sandbox_exec", json!({"command": command}))]);
    let (mut client, session) = fixture.start_run("sleep");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "approve");
    wait_until("it sleeps", || is_running(&words));
    let mut client = restart_and_attach(&mut fixture, &session);
    wait_until("it ended with the daemon", || !is_running(&words));
    while client.event_of("approval_required")["payload"]["kind"] != "unknown_step" {}
    client.get("cancel_run", json!({"sessionId": session}));
    let over = client.event_of("run_complete");
    assert_eq!(
        (&over["payload"]["outcome"], &over["payload"]["headless"]["exitCodeHint"]),
        (&json!("cancelled"), &json!(2))
    );
    assert!(!is_running(&words), "it was not begun again");
    assert_eq!(fixture.server.seen().len(), 1, "and nobody was asked");
}

#[test]
fn an_acceptance_check_interrupted_by_a_restart_needs_a_decision_and_still_counts() {
    let mut fixture = Fixture::new();
    fixture.server.script([Reply::says("I did nothing.")]);
    let (mut client, session) = fixture.session();
    let check = "echo checking; test -e go || exec sleep 1000; exit 1";
    let criteria = json!([{"id": "check", "check": check}]);
    client.get("send_user_message", json!({"sessionId": session, "text": "fix it", "acceptanceCriteria": criteria}));
    client.event_of("tool_output");
    fixture.daemon.kill();
    fixture.daemon.restart();
    fs::write(fixture.cwd().join("go"), "").expect("a word to the check");
    let mut client = fixture.attach(&session);
    let unknown = client.event_of("approval_required");
    assert_eq!(unknown["payload"]["kind"], "unknown_step");
    client.decide(&unknown, "approve");
    let over = client.event_of("run_complete");
    assert_eq!(fixture.server.seen().len(), 1, "the model had said that it was done");
    assert_eq!(
        (&over["payload"]["outcome"], &over["payload"]["headless"]["exitCodeHint"]),
        (&json!("failed"), &json!(4))
    );
}

#[test]
fn an_unreachable_server_is_tried_again_after_a_restart_and_the_run_fails() {
    let mut fixture = Fixture::new();
    fixture.server.usually(Reply::Never);
    let (_, session) = fixture.start_run("hi");
    wait_until("the server is asked", || !fixture.server.seen().is_empty());
    fixture.daemon.kill();
    fixture.daemon.restart();
    fixture.server.usually(Reply::status(500, "{}"));
    let mut client = fixture.attach(&session);
    let over = client.event_of("run_complete");
    assert_eq!(
        (&over["payload"]["reason"], &over["payload"]["headless"]["exitCodeHint"]),
        (&json!("provider_failed"), &json!(1))
    );
}

/// Starts a run with a slow turn for a restart to interrupt; the next request gets a complete answer.
fn start_slow_turn(fixture: &Fixture) -> String {
    let slowly = (0..500).map(|word| say(&format!("word{word} ")));
    let pace = Delivery::Paced(std::time::Duration::from_millis(20));
    fixture.server.script([Reply::turn(slowly).delivered(pace), Reply::says("The whole answer.")]);
    let (mut client, session) = fixture.start_run("talk");
    client.event_of("assistant_token");
    session
}

/// Kills and restarts the daemon, and attaches again.
fn restart_and_attach(fixture: &mut Fixture, session: &str) -> crate::support::daemon::Client {
    fixture.daemon.kill();
    fixture.daemon.restart();
    fixture.attach(session)
}
