//! `push search` and `push stats`.

use std::fs;

use serde_json::json;

use crate::support::home::{Home, wait_until};

#[test]
fn a_search_finds_messages_tool_output_and_names_with_their_filters() {
    let home = Home::new();
    home.ok(&["run", "--name", "quokka-session", "Look at the wombat.\n\n$ echo Numbat-$((40 + 2))"]);
    for (text, kinds) in [
        (&["wombat"][..], &["message", "message"][..]),
        (&["numbat-42"], &["tool"]),
        (&["NUMB"], &["message", "tool"]),
        (&["quokka"], &["name"]),
        (&["\"at the wombat\""], &["message", "message"]),
        (&["wombat", "--kind", "tool"], &[]),
        (&["numbat-42", "--kind", "tool"], &["tool"]),
        (&["numbat-42", "--since", "1h"], &["tool"]),
        (&["numbat-42", "--repo", "/usr"], &[]),
        (&["numbat-42", "--here"], &["tool"]),
        (&["\"wombat the\""], &[]),
        (&["wombat", "numbat-42"], &[]),
    ] {
        let out = home.push(&[&["search", "--json"], text].concat());
        assert_eq!(out.code, Some(i32::from(kinds.is_empty())), "{text:?}: {}", out.err);
        let found = out.json();
        let mut found: Vec<&str> =
            found["hits"].as_array().unwrap().iter().map(|hit| hit["kind"].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, kinds, "{text:?}");
    }
    let shown = home.ok(&["search", "numbat-42"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["ID", "KIND", "SEQ", "AGE", "SESSION"]);
    assert!(lines[1].contains(" tool ") && lines[1].ends_with("quokka-session"), "{shown}");
    assert!(lines[2].contains("Numbat-42"), "{shown}");
}

#[test]
fn old_names_do_not_keep_newer_messages_out() {
    let home = Home::new();
    for name in ["quokka-one", "quokka-two"] {
        home.ok(&["run", "--name", name, "$ true"]);
    }
    home.ok(&["run", "--name", "other", "Look at the quokka.\n\n$ true"]);
    let found = home.json(&["search", "quokka", "--limit", "1", "--json"]);
    assert_eq!(found["hits"][0]["kind"], "message", "{found}");
}

#[test]
fn a_deleted_session_leaves_no_word_in_the_index() {
    let home = Home::new();
    home.ok(&["run", "$ echo zebrafinch-$((1 + 1))"]);
    home.ok(&["run", "$ echo other"]);
    assert_eq!(home.json(&["search", "zebrafinch-2", "--kind", "tool", "--json"])["hits"].as_array().unwrap().len(), 1);
    let session = home.json(&["search", "zebrafinch", "--json"])["hits"][0]["sessionId"].as_str().unwrap().to_owned();
    assert!(index_contains(&home, "ebrafinch"), "the test looks at the right files");
    home.ok(&["delete", "--yes", &session]);
    assert_eq!(home.push(&["search", "zebrafinch"]).code, Some(1));
    assert!(!index_contains(&home, "ebrafinch"), "a word of a deleted session is left");
    assert_eq!(home.json(&["search", "other", "--kind", "tool", "--json"])["hits"].as_array().unwrap().len(), 1);
}

#[test]
fn a_missing_and_a_damaged_index_are_built_again() {
    let home = Home::new();
    home.ok(&["run", "$ echo bandicoot"]);
    home.ok(&["search", "bandicoot"]);
    for damage in [None, Some("this is no database, and long enough to be looked at as one".repeat(100))] {
        home.ok(&["daemon", "stop"]);
        for suffix in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(home.push_path(&format!("state/pushd.index{suffix}")));
        }
        if let Some(content) = damage {
            fs::write(home.push_path("state/pushd.index"), content).unwrap();
        }
        wait_until("the index is built again", || home.push(&["search", "bandicoot"]).code == Some(0));
    }
}

#[test]
fn stats_count_runs_and_tools() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    home.push(&["run", "$ false"]);
    let stats = home.json(&["stats", "--json"]);
    let row = &stats["rows"][0];
    assert_eq!(
        (&row["succeeded"], &row["failed"], &row["model"]),
        (&json!(1), &json!(1), &json!("playbook")),
        "{stats}"
    );
    assert_eq!((&row["toolCalls"], &row["toolFailures"]), (&json!(2), &json!(1)), "{stats}");
    let shown = home.ok(&["stats", "--here"]);
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["runs", "2"]), "{shown}");
    assert!(rows.contains(&vec!["playbook", "████████", "2", "$0.00"]), "{shown}");
    assert!(home.ok(&["stats", "--repo", "/usr"]).is_empty());
}

#[test]
fn a_fork_is_not_counted_twice() {
    let home = Home::new();
    home.ok(&["run", "--name", "parent", "$ true"]);
    let before = home.json(&["stats", "--json"]);
    home.ok(&["fork", "parent", "--name", "child"]);
    let sessions = home.json(&["ls", "--json"]);
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(home.json(&["stats", "--json"]), before, "the fork has the same runs");
    home.ok(&["run", "--session", "child", "$ true"]);
    let after = home.json(&["stats", "--json"]);
    assert_eq!((&before["rows"][0]["succeeded"], &after["rows"][0]["succeeded"]), (&json!(1), &json!(2)), "{after}");
    // An index that is built again counts the same.
    home.ok(&["daemon", "stop"]);
    fs::remove_file(home.push_path("state/pushd.index")).unwrap();
    wait_until("the index is built again", || home.json(&["stats", "--json"]) == after);
}

#[test]
fn a_session_that_loses_its_oldest_events_loses_their_words_and_keeps_its_figures() {
    let home = Home::with(&[("PUSH_SESSION_BYTES", "400000"), ("PUSH_PARK_SECONDS", "0.05")]);
    home.ok(&["run", "--name", "long", "$ echo zebrafinch-$((1 + 1))"]);
    let hits = |word: &str| home.push(&["search", word, "--json"]).json()["hits"].as_array().unwrap().len();
    assert!(hits("zebrafinch") > 0);
    assert!(index_contains(&home, "ebrafinch"), "the test looks at the right files");
    let mut runs = 1;
    wait_until("the first events are removed", || {
        home.ok(&["run", "--session", "long", "$ seq 60000"]);
        runs += 1;
        let oldest = home.push(&["log", "long", "--jsonl"]).out;
        !oldest.contains("zebrafinch")
    });
    wait_until("the words are removed", || !index_contains(&home, "ebrafinch"));
    assert_eq!(hits("zebrafinch"), 0);
    assert!(hits("59999") > 0, "the rest is found");
    let stats = home.json(&["stats", "--json"]);
    assert_eq!(
        (&stats["rows"][0]["succeeded"], &stats["rows"][0]["toolCalls"]),
        (&json!(runs), &json!(runs)),
        "{stats}"
    );
}

#[test]
fn a_failed_pass_of_the_index_is_reported() {
    let home = Home::new();
    home.ok(&["run", "$ echo one"]);
    home.ok(&["search", "one"]);
    home.ok(&["daemon", "stop"]);
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(home.push_path(&format!("state/pushd.index{suffix}")));
    }
    // What is a directory cannot be opened as an index.
    fs::create_dir(home.push_path("state/pushd.index")).unwrap();
    home.ok(&["run", "$ echo two"]);
    let search = |findings: &serde_json::Value| {
        let findings = findings["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["about"] == "search")
    };
    let mut found = None;
    wait_until("the doctor to report it", || {
        found = search(&home.push(&["doctor", "--json"]).json());
        found.is_some()
    });
    let found = found.unwrap();
    assert_eq!(found["level"], "problem", "{found}");
    assert!(found["text"].as_str().unwrap().contains("pushd.index"), "{found}");
    assert!(home.ok(&["daemon", "logs"]).contains("cannot extend the search index"));
    let refused = home.push(&["search", "two"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("cannot search"), "{refused:?}");
    // Once it can be created, the next change repairs it.
    fs::remove_dir(home.push_path("state/pushd.index")).unwrap();
    home.ok(&["run", "$ echo three"]);
    wait_until("the index to be complete", || home.push(&["search", "one"]).code == Some(0));
    assert_eq!(search(&home.push(&["doctor", "--json"]).json()), None);
}

fn index_contains(home: &Home, word: &str) -> bool {
    let files = ["pushd.index", "pushd.index-wal"]
        .map(|name| fs::read(home.push_path(&format!("state/{name}"))).unwrap_or_default());
    files.iter().any(|file| file.windows(word.len()).any(|bytes| bytes == word.as_bytes()))
}
