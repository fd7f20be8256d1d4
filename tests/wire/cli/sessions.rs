//! Session subcommands: list, show, log, rename, end, and abbreviated ids.

use std::fs;

use serde_json::json;

use crate::support::home::{Home, Running};

#[test]
fn without_arguments_push_shows_sessions_and_next_steps() {
    let home = Home::new();
    let out = home.ok(&[]);
    assert!(out.starts_with("No sessions yet.\n") && out.contains("push run"), "{out}");
    let session = home.start_detached("$? true");
    home.wait_for_approval();
    let out = home.ok(&[]);
    let row = out.lines().nth(1).unwrap();
    assert!(out.starts_with("ID ") && session.ends_with(&row[..4]) && out.contains("push approvals"), "{out}");
}

#[test]
fn sessions_are_listed_latest_first() {
    let home = Home::new();
    assert_eq!(home.ok(&["sessions"]), "");
    assert_eq!(home.json(&["sessions", "--json"]), json!({"sessions": []}));
    for number in 1..=22 {
        home.ok(&["run", &format!("$ true # number {number}")]);
    }
    let out = home.ok(&["sessions"]);
    assert_eq!(out.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(), COLUMNS);
    assert_eq!(out.lines().count(), 1 + 20);
    assert!(out.lines().nth(1).unwrap().contains("number 22"), "{out}");
    assert_eq!(home.ok(&["sessions", "--all"]).lines().count(), 1 + 22);
    let all = home.json(&["sessions", "--all", "--json"]);
    let all = all["sessions"].as_array().unwrap();
    assert_eq!(all.len(), 22);
    for session in all {
        for field in ["sessionId", "state", "updatedAt", "cwd"] {
            assert!(!session[field].is_null(), "no {field} in {session}");
        }
    }
}

const COLUMNS: [&str; 5] = ["ID", "STATE", "AGE", "NAME", "DIRECTORY"];

#[test]
fn sessions_are_selected_by_state_directory_and_age() {
    let home = Home::new();
    let project = home.path().join("project");
    fs::create_dir_all(project.join(".git")).unwrap();
    fs::create_dir_all(project.join("below")).unwrap();
    fs::write(project.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let run = |name: &str, directory: &str, step: &str| {
        home.push(&["run", "--headless", "--name", name, "--cwd", directory, step]);
    };
    run("good", "project/below", "$ true");
    run("bad", "project", "$ false");
    run("elsewhere", ".", "$ true");
    run("over", ".", "$ true");
    home.ok(&["end", "over"]);
    let listed = |words: &[&str], directory: &str| {
        let mut command = home.command(&[&["ls", "--json"], words].concat());
        command.current_dir(home.path().join(directory));
        let found = Running::start(command).wait_for_output().json();
        let names = found["sessions"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names.join(" ")
    };
    let project = project.to_str().unwrap();
    for (words, directory, names) in [
        (&[][..], ".", "bad elsewhere good over"),
        (&["--state", "failed"], ".", "bad"),
        (&["--state", "failed", "--state", "ended"], ".", "bad over"),
        (&["--state", "running"], ".", ""),
        (&["--here"], "project/below", "bad good"),
        (&["--here", "--state", "completed"], "project", "good"),
        (&["--repo", project], ".", "bad good"),
        (&["--repo", "/usr"], ".", ""),
        (&["--since", "1h"], ".", "bad elsewhere good over"),
        (&["--since", "0s"], ".", ""),
    ] {
        assert_eq!(listed(words, directory), names, "{words:?} in {directory}");
    }
    assert_eq!(
        home.json(&["ps", "--state", "failed", "--json"]),
        home.json(&["sessions", "--state", "failed", "--json"])
    );
    let none = home.push(&["ls", "--state", "idle"]);
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""));
    assert!(none.err.contains("no session matches"), "{none:?}");
    assert_eq!(home.push(&["ls", "--state", "asleep"]).code, Some(64));
}

#[test]
fn a_session_is_shown_as_text_and_as_json() {
    let home = Home::new();
    home.push(&["run", "--name", "try", "Words.\n\n$ exit 6"]);
    let out = home.ok(&["show"]);
    for fact in ["state      failed\n", "name       try\n", "(exit 1)\n", "\n> $ exit 6\n"] {
        assert!(out.contains(fact), "no {fact:?} in {out}");
    }
    let shown = home.json(&["show", "@last", "--json"]);
    assert_eq!(shown["state"], "failed");
    assert_eq!(shown["lastRun"]["exitCode"], 1);
    assert!(shown["sessionId"].as_str().unwrap().starts_with("sess_"));
}

#[test]
fn the_log_is_the_whole_history() {
    let home = Home::new();
    home.ok(&["run", "Words.\n\n$ echo out"]);
    let log = home.ok(&["log"]);
    for part in ["> Words.\n", "\nWords.\n", "$ echo out\n", "  out\n", "success: 1 step done\n"] {
        assert!(log.contains(part), "no {part:?} in {log}");
    }
    let events = home.push(&["log", "@last", "--jsonl"]).events();
    assert_eq!(events[0]["seq"], 1);
    assert_eq!(events.last().unwrap()["type"], "run_complete");
}

#[test]
fn a_followed_log_continues() {
    let home = Home::new();
    home.ok(&["run", "$ echo one"]);
    let mut log = home.start(&["log", "--follow"]);
    log.wait_for_line("success");
    home.ok(&["run", "--session", "@last", "$ echo two"]);
    log.wait_for_line("  two");
}

#[test]
fn attach_without_a_terminal_only_observes() {
    let home = Home::new();
    let session = home.start_detached("$ echo one; until test -e go; do sleep 0.01; done; echo two");
    let mut watcher = home.start(&["attach", &session, "--read-only"]);
    watcher.wait_for_line("  one");
    home.write("go", "");
    watcher.wait_for_line("  two");
    watcher.wait_for_line("success");
    let seen = home.json(&["show", &session, "--json"])["lastSeq"].as_u64().unwrap();
    let mut late = home.start(&["attach", &session, "--read-only", "--since", &(seen - 1).to_string()]);
    assert_eq!(late.wait_for_line(""), "success: 1 step done\n");
}

#[test]
fn attach_without_a_terminal_ends_with_the_run() {
    let home = Home::new();
    let session = home.start_detached("$ echo one; until test -e go; do sleep 0.01; done; echo two");
    let mut attached = home.start(&["attach", &session]);
    attached.wait_for_line("  one");
    home.write("go", "");
    let output = attached.wait_for_output();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.out.contains("  two\n") && output.out.contains("success"), "{output:?}");
    // Without a run it shows the history.
    let again = home.push(&["attach", &session]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.out.contains("  one\n") && again.out.contains("success"), "{again:?}");
    let seen = home.json(&["show", &session, "--json"])["lastSeq"].to_string();
    let nothing = home.push(&["attach", &session, "--since", &seen]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""), "{nothing:?}");
}

#[test]
fn a_session_is_renamed_and_ended() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    home.ok(&["rename", "@last", "another name"]);
    assert_eq!(home.json(&["show", "--json"])["meta"]["name"], "another name");
    home.ok(&["end", "@last"]);
    let output = home.push(&["run", "--session", "@last", "$ true"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("ended"), "{output:?}");
    assert!(home.ok(&["log"]).contains("the session was ended"));
    assert!(home.ok(&["show"]).contains(", ended"));
}

#[test]
fn ids_may_be_shortened_while_unambiguous() {
    let home = Home::new();
    let first = home.start_detached("$ true");
    let second = home.start_detached("$ true");
    for name in [second.as_str(), &second[..30], &second[5..], &second[5..29]] {
        assert_eq!(home.json(&["show", name, "--json"])["sessionId"], second.as_str(), "{name}");
    }
    assert_eq!(home.json(&["show", "@last", "--json"])["sessionId"], second.as_str());
    home.ok(&["rename", &first, "the first"]);
    for name in ["the first", &first[first.len() - 6..], &first[first.len() - 4..].to_uppercase()] {
        assert_eq!(home.json(&["show", name, "--json"])["sessionId"], first.as_str(), "{name}");
    }
    let output = home.push(&["show", "sess_0"]);
    assert_eq!(output.code, Some(64));
    assert!(output.err.contains(&first) && output.err.contains(&second), "{output:?}");
    for name in ["sess_nothing", "nothing", ""] {
        let output = home.push(&["show", name]);
        assert_eq!((output.code, output.out.as_str()), (Some(64), ""), "{name}");
        assert!(output.err.contains("no session has the name"), "{output:?}");
    }
}

#[test]
fn there_is_no_last_session_at_first() {
    let home = Home::new();
    for words in [&["show"][..], &["log"], &["attach"], &["wait", "@last"], &["cancel", "@last"]] {
        let output = home.push(words);
        assert_eq!((output.code, output.out.as_str()), (Some(64), ""), "{words:?}");
        assert!(output.err.contains("no session belongs to this directory"), "{output:?}");
    }
}

#[test]
fn the_last_session_is_of_this_repository_and_may_be_of_all() {
    let home = Home::new();
    for directory in ["repo/.git", "repo/deep", "other"] {
        fs::create_dir_all(home.path().join(directory)).unwrap();
    }
    home.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    let run = |directory: &str| {
        home.json(&["run", "--json", "--cwd", directory, "$ true"])["sessionId"].as_str().unwrap().to_owned()
    };
    let (in_repo, elsewhere) = (run("repo/deep"), run("other"));
    let shown = |directory: &str, name: &str| {
        let mut command = home.command(&["show", name, "--json"]);
        command.current_dir(home.path().join(directory));
        Running::start(command).wait_for_output()
    };
    assert_eq!(shown("repo", "@last").json()["sessionId"], in_repo.as_str());
    assert_eq!(shown("other", "@last").json()["sessionId"], elsewhere.as_str());
    assert_eq!(shown("repo", "@last-any").json()["sessionId"], elsewhere.as_str());
    let output = shown(".", "@last");
    assert!(output.code == Some(64) && output.err.contains("@last-any"), "{output:?}");
}

#[test]
fn listed_names_can_be_used_as_arguments() {
    let home = Home::new();
    for _ in 0..5 {
        home.start_detached("$ true");
    }
    for line in home.ok(&["sessions"]).lines().skip(1) {
        let name = line.split_whitespace().next().unwrap();
        assert!((4..=6).contains(&name.len()), "{name}");
        let shown = home.json(&["show", name, "--json"]);
        assert!(shown["sessionId"].as_str().unwrap().ends_with(name), "{shown}");
    }
}

#[test]
fn a_closed_output_pipe_is_no_error() {
    let home = Home::new();
    home.ok(&["run", "$ seq 20000"]);
    let push = env!("CARGO_BIN_EXE_push");
    let line = format!("{{ {push} log @last; echo $? >code; }} 2>words | head -n 1");
    let output = Running::start(home.program("/bin/sh", &["-c", &line])).wait_for_output();
    assert_eq!(output.out, "> $ seq 20000\n");
    assert_eq!((home.read("words"), home.read("code")), (String::new(), "0\n".to_owned()));
}

#[test]
fn colours_are_for_terminals_or_on_request() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    assert!(!home.ok(&["log"]).contains('\u{1b}'));
    assert!(home.ok(&["log", "--color", "always"]).contains('\u{1b}'));
    let mut command = home.command(&["log"]);
    command.env("NO_COLOR", "1");
    assert!(!Running::start(command).wait_for_output().out.contains('\u{1b}'));
}

#[test]
fn hostile_output_cannot_reach_the_terminal() {
    let home = Home::new();
    let hostile = concat!(
        "$ printf 'a\\033[2J\\033]52;c;ZXZpbA==\\007b\\033]0;title\\033\\\\c\\rd\\010e\\342\\200\\256f",
        "\\302\\2331mg\\342\\201\\246h\\n'; printf '\\377\\n' # \u{202e}\u{1b}[8m"
    );
    for words in [&["run", hostile][..], &["log"], &["sessions"], &["show"], &[], &["log", "--jsonl"]] {
        let out = home.ok(words);
        let bad = out.chars().find(|c| c.is_control() && *c != '\n' && *c != '\t');
        assert_eq!(bad, None, "{words:?}: {out:?}");
        assert!(!out.contains(['\u{202e}', '\u{2066}']), "{words:?}: {out:?}");
        assert!(!out.contains("ZXZpbA==") || words == ["log", "--jsonl"] || out.contains("printf"), "{out:?}");
    }
    assert_eq!(home.push(&["log", "--jsonl"]).events().last().unwrap()["type"], "run_complete");
}
