//! Messages to sessions, and approvals, from other processes.

use super::home::{Home, until};

/// A step that runs until the test creates the file `go`.
const LONG: &str = "$ echo begun > begun; until test -e go; do sleep 0.01; done";

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
fn a_message_to_a_busy_session_is_refused_with_a_way_out() {
    let home = Home::new();
    home.detached(LONG);
    home.until_written("begun", "begun");
    let said = home.push(&["send", "@last", "$ true"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert!(said.err.starts_with("push: ") && said.err.contains("push queue"), "{said:?}");
    home.ok(&["cancel", "@last"]);
    assert_eq!(home.push(&["wait", "@last"]).code, Some(2));
}

#[test]
fn what_is_steered_in_runs_next_and_what_is_queued_runs_afterwards() {
    let home = Home::new();
    let session = home.detached(&format!("{LONG}\n$ echo second >> order"));
    home.until_written("begun", "begun");
    home.ok(&["queue", &session, "$ echo queued >> order"]);
    home.ok(&["steer", &session, "$ echo steered >> order"]);
    let queue = home.json(&["queue", &session, "--json"]);
    assert_eq!(queue["messages"][0]["text"], "$ echo queued >> order");
    home.write("go", "");
    home.until_written("order", "queued");
    assert_eq!(home.read("order"), "steered\nsecond\nqueued\n");
}

#[test]
fn a_queued_message_is_taken_back() {
    let home = Home::new();
    let session = home.detached(LONG);
    home.until_written("begun", "begun");
    let one = home.json(&["queue", &session, "--json", "$ echo one >> order"]);
    home.ok(&["queue", &session, "$ echo two >> order"]);
    let id = one["messageId"].as_str().unwrap();
    assert!(home.ok(&["queue", &session]).contains("$ echo one"));
    home.ok(&["queue", &session, "--remove", id]);
    assert_eq!(home.push(&["queue", &session, "--remove", "msg_nothing"]).code, Some(1));
    home.write("go", "");
    home.until_written("order", "two");
    assert_eq!(home.read("order"), "two\n");
}

#[test]
fn a_waiting_approval_is_listed_and_denied_with_a_reason() {
    let home = Home::new();
    assert_eq!(home.ok(&["approvals"]), "");
    let run = home.start(&["run", "$? rm everything"]);
    let id = home.until_asked();
    let listed = home.ok(&["approvals"]);
    assert!(listed.contains("rm everything") && listed.contains(&id[..15]), "{listed}");
    assert_eq!(home.json(&["approvals", "@last", "--json"])["approvals"].as_array().unwrap().len(), 1);
    assert!(home.ok(&["show"]).contains("rm everything"));
    home.ok(&["deny", "--comment", "not today"]);
    let said = run.said();
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains("not today"), "{said:?}");
    assert_eq!(home.json(&["approvals", "--json"])["approvals"].as_array().unwrap().len(), 0);
}

#[test]
fn an_approval_must_be_clear_and_there() {
    let home = Home::new();
    let said = home.push(&["approve"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("there is no pending approval"), "{said:?}");
    home.detached("$? true");
    home.detached("$? true");
    let mut ids = Vec::new();
    until("two approvals", || {
        let waiting = home.json(&["approvals", "--json"]);
        let id = |item: &serde_json::Value| item["approvalId"].as_str().unwrap().to_owned();
        ids = waiting["approvals"].as_array().unwrap().iter().map(id).collect();
        ids.len() == 2
    });
    for words in [&["approve"][..], &["deny"], &["approve", "appr_0"]] {
        let said = home.push(words);
        assert_eq!(said.code, Some(64), "{words:?}");
        assert!(said.err.contains(&ids[0]) && said.err.contains(&ids[1]), "{said:?}");
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
    let said = home.push(&["cancel", "@last"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert!(said.err.starts_with("push: "), "{said:?}");
    let said = home.push(&["steer", "@last", "hello"]);
    assert_eq!(said.code, Some(1), "{said:?}");
}
