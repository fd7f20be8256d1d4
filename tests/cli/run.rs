//! `push run`: what it prints, where its message comes from, and how it is told to go on.

use std::fs;

use serde_json::Value;

use super::home::{Home, until};

#[test]
fn a_first_run_starts_the_daemon_and_streams_to_the_end() {
    let home = Home::new();
    let said = home.push(&["run", "Say hello.\n\n$ echo hello; echo oops >&2\n"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines[..2], ["Say hello.", "$ echo hello; echo oops >&2"]);
    assert!(lines.contains(&"  hello") && lines.contains(&"  oops"), "{lines:?}");
    assert!(lines[4].starts_with("  exit 0, "), "{lines:?}");
    assert_eq!(lines[5..], ["success: 1 step done"]);
    assert_eq!(said.err, "");
    assert!(home.daemon().is_some());
}

#[test]
fn what_a_step_prints_is_seen_while_it_runs() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; until test -e go; do sleep 0.01; done; echo ended"]);
    run.until_line("  begun");
    home.write("go", "");
    let said = run.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("  begun\n  ended\n"), "{said:?}");
}

#[test]
fn json_is_the_result_and_nothing_else() {
    let home = Home::new();
    let said = home.push(&["run", "--json", "Words.\n\n$ echo out\n$ exit 7\n"]);
    assert_eq!((said.code, said.err.as_str()), (Some(1), ""));
    let result = said.json();
    assert_eq!(result["outcome"], "failed");
    assert_eq!(result["exitCode"], 1);
    assert_eq!(result["reason"], "step_failed");
    assert_eq!(result["text"], "Words.");
    assert_eq!(result["denials"], Value::Array(Vec::new()));
    assert!(result["sessionId"].as_str().unwrap().starts_with("sess_"));
    assert!(result["runId"].as_str().unwrap().starts_with("run_"));
}

#[test]
fn jsonl_is_every_event_as_the_daemon_sent_it() {
    let home = Home::new();
    let said = home.push(&["run", "--jsonl", "--accept", "true", "Words.\n\n$ echo out\n"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    let events = said.events();
    let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for expected in
        ["session_started", "user_message", "assistant_token", "tool_call", "tool_output", "tool_result"]
    {
        assert!(types.contains(&expected), "no {expected} in {types:?}");
    }
    assert_eq!(types.last(), Some(&"run_complete"));
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
}

#[test]
fn a_message_comes_from_the_line_from_input_and_from_a_file() {
    let home = Home::new();
    home.write("plan.md", "A plan.\n\n```sh\necho one\necho two\n```\n");
    let said = home.push(&["run", "@plan.md"]);
    assert!(said.code == Some(0) && said.out.contains("  one\n  two\n"), "{said:?}");
    for words in [&["run", "-"][..], &["run"]] {
        let said = home.push_with_input(words, "$ echo from input\n");
        assert!(said.code == Some(0) && said.out.contains("  from input\n"), "{said:?}");
    }
}

#[test]
fn steps_run_where_the_user_is_or_says() {
    let home = Home::new();
    fs::create_dir(home.path().join("there")).unwrap();
    let here = home.path().canonicalize().unwrap();
    let out = home.ok(&["run", "$ pwd"]);
    assert!(out.contains(&format!("  {}\n", here.display())), "{out}");
    let out = home.ok(&["run", "--cwd", "there", "$ pwd"]);
    assert!(out.contains(&format!("  {}\n", here.join("there").display())), "{out}");
}

#[test]
fn a_session_is_continued_and_named() {
    let home = Home::new();
    home.ok(&["run", "--name", "first things", "$ echo one"]);
    home.ok(&["run", "--session", "@last", "$ echo two"]);
    let sessions = home.json(&["sessions", "--json"]);
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(sessions["sessions"][0]["name"], "first things");
    let log = home.ok(&["log"]);
    assert!(log.contains("> $ echo one\n") && log.contains("> $ echo two\n"), "{log}");
    assert!(home.ok(&["sessions"]).contains("first things"));
}

#[test]
fn a_continued_session_shows_the_new_run_alone() {
    let home = Home::new();
    home.ok(&["run", "$ echo one"]);
    let out = home.ok(&["run", "--session", "@last", "$ echo two"]);
    assert!(out.contains("  two\n") && !out.contains("echo one"), "{out}");
}

#[test]
fn a_detached_run_goes_on_and_is_waited_for() {
    let home = Home::new();
    let said = home.push(&["run", "--detach", "$ until test -e go; do sleep 0.01; done; exit 3"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let ids: Vec<&str> = said.out.split_whitespace().collect();
    assert!(ids[0].starts_with("sess_") && ids[1].starts_with("run_"), "{said:?}");
    let waited = home.push(&["wait", ids[0], "--timeout", "0.05"]);
    assert_eq!(waited.code, Some(124), "{waited:?}");
    home.write("go", "");
    let waited = home.push(&["wait", ids[0]]);
    assert_eq!(waited.code, Some(1), "{waited:?}");
    let again = home.push(&["wait", "--json", ids[0]]);
    assert_eq!((again.code, again.json()["outcome"].as_str()), (Some(1), Some("failed")));
}

#[test]
fn a_retry_with_the_same_key_attaches_to_the_first_run() {
    let home = Home::new();
    let words = ["run", "--headless", "--idempotency-key", "job 7", "$ echo once >> ran; echo out; exit 5"];
    let first = home.push(&words);
    let second = home.push(&words);
    assert_eq!((first.code, second.code), (Some(1), Some(1)), "{second:?}");
    assert_eq!(first.out, second.out);
    assert_eq!(home.read("ran"), "once\n");
    assert_eq!(home.json(&["sessions", "--json"])["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn a_retry_while_the_first_run_is_active_reports_how_it_ends() {
    let home = Home::new();
    let words =
        ["run", "--json", "--idempotency-key", "k", "$ echo x >> ran; until test -e go; do sleep 0.01; done"];
    let first = home.start(&words);
    home.until_written("ran", "x");
    let second = home.start(&words);
    until("two clients", || home.json(&["daemon", "status", "--json"])["connections"] == 3);
    home.write("go", "");
    let (first, second) = (first.said(), second.said());
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{second:?}");
    assert_eq!(first.json(), second.json());
    assert_eq!(home.read("ran"), "x\n");
}

#[test]
fn a_key_with_another_message_is_refused() {
    let home = Home::new();
    home.ok(&["run", "--idempotency-key", "k", "$ true"]);
    let said = home.push(&["run", "--idempotency-key", "k", "$ false"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("push: ") && said.out.is_empty(), "{said:?}");
}

#[test]
fn approve_all_goes_ahead_and_ask_waits_for_somebody_elsewhere() {
    let home = Home::new();
    let out = home.ok(&["run", "--headless", "--yes", "$? echo went"]);
    assert!(out.contains("  went\n"), "{out}");
    let run = home.start(&["run", "--headless", "--approve", "ask", "$? echo went there"]);
    let id = home.until_asked();
    let word = home.ok(&["approve", &id, "--comment", "fine with me"]);
    assert!(word.starts_with("approved appr_"), "{word}");
    let said = run.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("fine with me") && said.out.contains("  went there\n"), "{said:?}");
}

#[test]
fn a_step_has_its_clients_environment_and_not_the_daemons() {
    let home = Home::with(&[("FOO", "of the starter"), ("STARTER", "yes")]);
    home.ok(&["daemon", "start"]);
    let message = "$ echo foo=$FOO starter=$STARTER path=$PATH";
    for (foo, path) in [("one", "/usr/bin:/bin"), ("two", "/bin:/usr/bin:/nowhere")] {
        let mut command = home.command(&["run", message]);
        command.env("FOO", foo).env("PATH", path).env_remove("STARTER");
        let said = super::home::Running::start(command).said();
        assert!(said.out.contains(&format!("  foo={foo} starter= path={path}\n")), "{said:?}");
    }
}
