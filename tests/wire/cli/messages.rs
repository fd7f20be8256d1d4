//! Messages to sessions, and approvals, from other processes.

use crate::support::home::{Home, wait_until};

/// A step that runs until the test creates the file `go`.
const WAITING_STEP: &str = "$ echo begun > begun; until test -e go; do sleep 0.01; done";

#[test]
fn a_message_is_sent_and_its_run_goes_on_alone() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    let run = home.ok(&["send", "@last", "$ exit 3"]);
    assert!(run.starts_with("run_"), "{run}");
    assert_eq!(home.push(&["wait", "@last"]).code, Some(1));
    let sent = home.json(&["send", "@last", "--json", "$ true"]);
    assert!(sent["runId"].as_str().unwrap().starts_with("run_"), "{sent}");
    assert_eq!(home.push(&["wait", "@last"]).code, Some(0));
}

#[test]
fn a_message_to_a_busy_session_is_refused_with_alternatives() {
    let home = Home::new();
    home.start_detached(WAITING_STEP);
    home.wait_for_text("begun", "begun");
    let output = home.push(&["send", "@last", "$ true"]);
    assert_eq!((output.code, output.out.as_str()), (Some(1), ""));
    assert!(output.err.starts_with("push: ") && output.err.contains("push queue"), "{output:?}");
    home.ok(&["cancel", "@last"]);
    assert_eq!(home.push(&["wait", "@last"]).code, Some(2));
}

#[test]
fn a_steered_step_runs_next_and_a_queued_one_afterwards() {
    let home = Home::new();
    let session = home.start_detached(&format!("{WAITING_STEP}\n$ echo second >> order"));
    home.wait_for_text("begun", "begun");
    home.ok(&["queue", &session, "$ echo queued >> order"]);
    home.ok(&["steer", &session, "$ echo steered >> order"]);
    let queue = home.json(&["queue", &session, "--json"]);
    assert_eq!(queue["messages"][0]["text"], "$ echo queued >> order");
    home.write("go", "");
    home.wait_for_text("order", "queued");
    assert_eq!(home.read("order"), "steered\nsecond\nqueued\n");
}

#[test]
fn a_queued_message_is_withdrawn() {
    let home = Home::new();
    let session = home.start_detached(WAITING_STEP);
    home.wait_for_text("begun", "begun");
    let one = home.json(&["queue", &session, "--json", "$ echo one >> order"]);
    home.ok(&["queue", &session, "$ echo two >> order"]);
    let id = one["messageId"].as_str().unwrap();
    assert!(home.ok(&["queue", &session]).contains("$ echo one"));
    home.ok(&["queue", &session, "--remove", id]);
    assert_eq!(home.push(&["queue", &session, "--remove", "msg_nothing"]).code, Some(1));
    home.write("go", "");
    home.wait_for_text("order", "two");
    assert_eq!(home.read("order"), "two\n");
}

#[test]
fn a_waiting_approval_is_listed_and_denied_with_a_reason() {
    let home = Home::new();
    assert_eq!(home.ok(&["approvals"]), "");
    let run = home.start(&["run", "$? rm everything"]);
    let id = home.wait_for_approval();
    let listed = home.ok(&["approvals"]);
    assert!(listed.contains("rm everything") && listed.contains(&id[..15]), "{listed}");
    assert_eq!(home.json(&["approvals", "@last", "--json"])["approvals"].as_array().unwrap().len(), 1);
    assert!(home.ok(&["show"]).contains("rm everything"));
    home.ok(&["deny", "--comment", "not today"]);
    let output = run.wait_for_output();
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.err.contains("not today"), "{output:?}");
    assert_eq!(home.json(&["approvals", "--json"])["approvals"].as_array().unwrap().len(), 0);
}

#[test]
fn an_approval_argument_must_be_unambiguous_and_pending() {
    let home = Home::new();
    let output = home.push(&["approve"]);
    assert_eq!(output.code, Some(1));
    assert!(output.err.contains("there is no pending approval"), "{output:?}");
    home.start_detached("$? true");
    home.start_detached("$? true");
    let mut ids = Vec::new();
    wait_until("two approvals", || {
        let waiting = home.json(&["approvals", "--json"]);
        let id = |item: &serde_json::Value| item["approvalId"].as_str().unwrap().to_owned();
        ids = waiting["approvals"].as_array().unwrap().iter().map(id).collect();
        ids.len() == 2
    });
    for words in [&["approve"][..], &["deny"], &["approve", "appr_0"]] {
        let output = home.push(words);
        assert_eq!(output.code, Some(64), "{words:?}");
        assert!(output.err.contains(&ids[0]) && output.err.contains(&ids[1]), "{output:?}");
    }
    assert_eq!(home.push(&["approve", &ids[0], "--choice", "maybe"]).code, Some(64));
    home.ok(&["approve", &ids[0][5..]]);
    home.ok(&["deny", &ids[1]]);
    let again = home.push(&["approve", &ids[1]]);
    assert_eq!(again.code, Some(1), "{again:?}");
}

#[test]
fn there_is_nothing_to_cancel_in_an_idle_session() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    let output = home.push(&["cancel", "@last"]);
    assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{output:?}");
    assert!(output.err.starts_with("push: "), "{output:?}");
    let output = home.push(&["steer", "@last", "hello"]);
    assert_eq!(output.code, Some(1), "{output:?}");
}
