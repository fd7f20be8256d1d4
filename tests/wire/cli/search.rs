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
    assert!(shown.contains("tool at ") && shown.contains("Numbat-42"), "{shown}");
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
    assert!(
        shown.contains("runs       2\n") && shown.contains("by model\n  playbook   ████████     2 $0.00\n"),
        "{shown}"
    );
    assert!(home.ok(&["stats", "--repo", "/usr"]).is_empty());
}

fn index_contains(home: &Home, word: &str) -> bool {
    let files = ["pushd.index", "pushd.index-wal"]
        .map(|name| fs::read(home.push_path(&format!("state/{name}"))).unwrap_or_default());
    files.iter().any(|file| file.windows(word.len()).any(|bytes| bytes == word.as_bytes()))
}
