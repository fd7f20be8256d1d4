//! Work from a message to its result: reading, editing, running, committing, denying, checking.

use std::fs;

use serde_json::json;

use crate::model_runs::fixture::{Fixture, git, tool_call, turn_with_call};
use crate::support::daemon::{types, wait_until};
use crate::support::model::{Reply, ServerDialect, say, think};

#[test]
fn a_status_precedes_each_turn_of_a_model() {
    let fixture = Fixture::new();
    fixture.server.script([
        turn_with_call("I look.", "sandbox_read_file", json!({"path": "sum.sh"})),
        Reply::says("I have looked."),
    ]);
    let (mut client, _) = fixture.start_run("look");
    let events = client.events_until("run_complete");
    let mut approval = 0;
    for event in &events {
        match event["type"].as_str().unwrap() {
            "status" if event["payload"]["phase"] == "Asking model..." => approval += 1,
            // The end of the text of a turn.
            "assistant_done" => assert_eq!(approval, 1, "{events:?}"),
            "tool_call" => approval = 0,
            _ => {}
        }
    }
    assert_eq!(approval, 1, "one for the second turn: {events:?}");
}

#[test]
fn a_failing_test_is_fixed_and_committed() {
    for dialect in [ServerDialect::OpenAi, ServerDialect::Ollama, ServerDialect::Anthropic] {
        let fixture = Fixture::with_dialect(dialect);
        fixture.server.script([
            Reply::turn([
                think("let me look"),
                say("I look. "),
                tool_call("sandbox_read_file", json!({"path": "sum.sh"})),
                tool_call("sandbox_list_dir", json!({})),
            ]),
            turn_with_call(
                "Found it.",
                "sandbox_edit_file",
                json!({"path": "sum.sh", "old": "$1 - $2", "new": "$1 + $2"}),
            ),
            turn_with_call("Try it.", "sandbox_exec", json!({"command": "sh test.sh"})),
            turn_with_call(
                "Keep it.",
                "sandbox_git_commit",
                json!({"message": "Add instead of subtracting", "all": true}),
            ),
            Reply::says("The test passes."),
        ]);
        let (mut client, session) = fixture.start_run("fix the test");
        let (mut approval, mut diffs) = (Vec::new(), Vec::new());
        loop {
            let event = client.event();
            match event["type"].as_str().expect("a type") {
                "tool_result" => diffs.extend(event["payload"]["diff"].as_str().map(str::to_owned)),
                "approval_required" => {
                    approval.push(event["payload"].clone());
                    assert_eq!(client.decide(&event, "approve")["ok"], true);
                }
                "run_complete" => {
                    assert_eq!(event["payload"]["outcome"], "success", "{event}");
                    assert_eq!(event["payload"]["summary"], "The test passes.");
                    break;
                }
                _ => {}
            }
        }
        let kinds: Vec<_> = approval.iter().map(|approval| approval["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["write", "exec", "commit"], "reading goes ahead, and nothing else");
        assert!(approval[0]["details"]["diff"].as_str().unwrap().contains("+echo $(($1 + $2))"), "{}", approval[0]);
        assert_eq!(approval[1]["summary"], "sh test.sh");
        let commit = &approval[2]["details"];
        assert_eq!(
            (&commit["filesChanged"], &commit["insertions"], &commit["deletions"]),
            (&json!(1), &json!(1), &json!(1))
        );
        assert_eq!(approval[2]["summary"], "Add instead of subtracting");
        assert!(fixture.file("sum.sh").contains("$1 + $2"));
        let log = git(&fixture.cwd(), &["log", "--format=%s"]);
        assert!(String::from_utf8_lossy(&log.stdout).starts_with("Add instead of subtracting\n"));
        // The model gets the result of each call, in order.
        let last = serde_json::to_string(&fixture.sent_messages(4)).unwrap();
        // Clients get the diffs of the edit and of the commit, and the model does not.
        assert_eq!(diffs.len(), 2, "{diffs:?}");
        assert!(diffs.iter().all(|diff| diff.contains("\n+echo $(($1 + $2))")), "{diffs:?}");
        assert_eq!(diffs[0], approval[0]["details"]["diff"]);
        assert!(!last.contains("@@ -"), "{last}");
        for text in ["I look. ", "$1 - $2", "sum.sh", "passed"] {
            assert!(last.contains(text), "{dialect:?}: {text} is not in {last}");
        }
        // The same is journaled for later requests.
        let messages = client.get("get_session_messages", json!({"sessionId": session}));
        assert_eq!(messages["messages"].as_array().map(Vec::len), Some(6), "{messages}");
    }
}

#[test]
fn read_only_calls_run_concurrently_and_all_others_one_by_one() {
    let fixture = Fixture::new();
    fixture.server.script([
        Reply::turn([
            tool_call("sandbox_read_file", json!({"path": "sum.sh"})),
            tool_call("sandbox_git_status", json!({})),
            tool_call("sandbox_write_file", json!({"path": "a", "content": "1"})),
            tool_call("sandbox_exec", json!({"command": "cat a"})),
        ]),
        Reply::says("ok"),
    ]);
    let (mut client, _) = fixture.start_run("go");
    let before = client.events_until("approval_required");
    let calls: Vec<_> = before.iter().filter(|event| event["type"] == "tool_call").collect();
    assert_eq!(calls.len(), 3, "the command waits for the file: {:?}", types(&before));
    assert_eq!(before.iter().filter(|event| event["type"] == "tool_result").count(), 2, "both looks are done");
    client.decide(before.last().unwrap(), "approve");
    let then = client.event_of("approval_required");
    assert_eq!(then["payload"]["summary"], "cat a");
    client.decide(&then, "approve");
    let result = client.event_of("tool_result");
    assert_eq!((&result["payload"]["text"], &result["payload"]["exitCode"]), (&json!("1"), &json!(0)));
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    let sent = fixture.sent_messages(1);
    let results = sent.iter().filter(|message| message["role"] == "tool").count();
    assert_eq!(results, 4, "{sent:?}");
}

#[test]
fn an_impossible_change_needs_no_approval_and_is_not_tried() {
    let fixture = Fixture::new();
    fixture.server.script([
        Reply::turn([
            tool_call("sandbox_edit_file", json!({"path": "sum.sh", "old": "not there", "new": "x"})),
            tool_call("sandbox_git_commit", json!({"message": "nothing", "all": true})),
        ]),
        Reply::says("I see."),
    ]);
    let (mut client, _) = fixture.start_run("go");
    let events = client.events_until("run_complete");
    let results: Vec<_> = events.iter().filter(|event| event["type"] == "tool_result").collect();
    assert_eq!(results[0]["payload"]["structuredError"]["code"], "NO_MATCH", "{results:?}");
    assert_eq!(results.len(), 2);
    let began = |event: &&serde_json::Value| event["payload"]["phase"] == "Executing tool...";
    assert_eq!(events.iter().filter(began).count(), 0, "nothing was begun");
    assert!(!types(&events).contains(&"approval_required".to_owned()));
}

#[test]
fn a_denied_commit_ends_the_run_as_denied() {
    let fixture = Fixture::new();
    fs::write(fixture.cwd().join("new"), "x").expect("a file");
    fixture.server.script([turn_with_call("Commit.", "sandbox_git_commit", json!({"message": "no", "all": true}))]);
    let (mut client, _) = fixture.start_run("commit it");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "deny");
    let over = client.event_of("run_complete");
    assert_eq!(
        (&over["payload"]["outcome"], &over["payload"]["headless"]["exitCodeHint"]),
        (&json!("denied"), &json!(3))
    );
    let log = git(&fixture.cwd(), &["log", "--format=%s"]);
    assert_eq!(String::from_utf8_lossy(&log.stdout), "begin\n");
}

#[test]
fn a_cancelled_run_leaves_no_process_and_no_connection() {
    let fixture = Fixture::new();
    // Its pid differs inside the namespace, so it is found by its command line.
    let words = format!("sleep\0{}.5\0", std::process::id());
    let command = format!("sleep {}.5 & echo begun; wait", std::process::id());
    fixture.server.script([turn_with_call("Sleep.", "sandbox_exec", json!({"command": command}))]);
    let (mut client, session) = fixture.start_run("sleep");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "approve");
    client.event_of("tool_output");
    wait_until("it sleeps", || is_running(&words));
    client.get("cancel_run", json!({"sessionId": session}));
    let events = client.events_until("run_complete");
    let over = &events.last().unwrap()["payload"];
    assert_eq!((&over["outcome"], &over["headless"]["exitCodeHint"]), (&json!("cancelled"), &json!(2)));
    let cut = events.iter().find(|event| event["type"] == "tool_result").expect("what was cut is reported");
    assert_eq!(cut["payload"]["status"], "cut");
    wait_until("nothing is left", || !is_running(&words));
}

/// Whether a process with this command line is running.
pub(crate) fn is_running(words: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("the processes").flatten();
    let mut started = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    started.any(|started| started == words.as_bytes())
}

#[test]
fn cancelling_a_streaming_turn_closes_the_connection() {
    let fixture = Fixture::new();
    let words: Vec<_> = (0..2_000).map(|word| say(&format!("word{word} "))).collect();
    let pace = crate::support::model::Delivery::Paced(std::time::Duration::from_millis(5));
    fixture.server.script([Reply::turn(words).delivered(pace)]);
    let (mut client, session) = fixture.start_run("talk");
    client.event_of("assistant_token");
    client.get("cancel_run", json!({"sessionId": session}));
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "cancelled");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let gone = tokio::time::timeout(std::time::Duration::from_secs(20), fixture.server.hangups(1));
        gone.await.expect("the stream is closed");
    });
}

#[test]
fn acceptance_that_fails_fails_the_run_with_its_own_code() {
    let fixture = Fixture::new();
    fixture.server.script([Reply::says("I did nothing.")]);
    let (mut client, session) = fixture.session();
    client.get(
        "send_user_message",
        json!({"sessionId": session, "text": "fix it", "acceptanceCriteria": [{"id": "test", "check": "sh test.sh"}]}),
    );
    let over = client.event_of("run_complete");
    let payload = &over["payload"];
    assert_eq!((&payload["outcome"], &payload["headless"]["exitCodeHint"]), (&json!("failed"), &json!(4)));
    assert_eq!(payload["acceptance"]["results"][0]["output"], "failed\n");
    // The next request tells the model what failed.
    fixture.server.script([Reply::says("Sorry.")]);
    client.run(&session, "why?");
    let sent = fixture.sent_messages(1);
    assert!(sent.last().unwrap()["content"].to_string().contains("check test failed"), "{sent:?}");
}

#[test]
fn an_invalid_tool_call_is_explained_to_the_model() {
    let fixture = Fixture::new();
    fixture.server.script([
        Reply::turn([
            tool_call("sandbox_dance", json!({})),
            tool_call("sandbox_read_file", json!({"file": "sum.sh"})),
            crate::support::model::call("broken", "sandbox_read_file", "{\"path\": "),
            crate::support::model::call("list", "sandbox_read_file", "[\"sum.sh\"]"),
            tool_call("sandbox_read_file", json!({"path": "../../etc/passwd"})),
        ]),
        Reply::says("I see."),
    ]);
    let (mut client, _) = fixture.start_run("go");
    let events = client.events_until("run_complete");
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success");
    let kinds: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "tool_result")
        .map(|event| event["payload"]["structuredError"]["code"].as_str().unwrap_or("none").to_owned())
        .collect();
    let mut sorted = kinds.clone();
    sorted.sort();
    let bad = "BAD_ARGUMENTS";
    assert_eq!(sorted, [bad, bad, bad, "OUTSIDE_WORKSPACE", "UNKNOWN_TOOL"], "{kinds:?}");
    let calls = events.iter().filter(|event| event["type"] == "tool_call");
    assert!(calls.into_iter().all(|event| event["payload"]["args"].is_object()), "as its schema says");
    let sent = serde_json::to_string(&fixture.sent_messages(1)).unwrap();
    for words in ["unknown tool sandbox_dance", "OUTSIDE_WORKSPACE", "not JSON: EOF", "not a JSON object"] {
        assert!(sent.contains(words), "{words}: {sent}");
    }
}
