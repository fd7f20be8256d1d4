//! `push completions` and `push man`: scripts for every shell, live values, pages for every verb.

use crate::support::home::Home;

#[test]
fn every_shell_has_a_script_that_asks_the_program() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = home.ok(&["completions", shell]);
        assert!(script.contains("PUSH_COMPLETE"), "{shell}: {script}");
    }
    assert!(!home.push_path("").exists(), "a daemon was started for nothing");
}

#[test]
fn verbs_options_sessions_and_approvals_are_completed() {
    let home = Home::new();
    assert!(complete(&home, &["exp"]).contains("export\t"));
    assert!(complete(&home, &["export", "--format", ""]).contains("jsonl"));
    assert!(!complete(&home, &["show", ""]).contains("@last"), "without a daemon there are no sessions");
    assert!(!home.push_path("").exists(), "a daemon was started for nothing");
    home.ok(&["run", "--yes", "--name", "release notes", "$ true"]);
    let sessions = complete(&home, &["show", ""]);
    assert!(sessions.contains("@last\t") && sessions.contains("\trelease notes\n"), "{sessions}");
    home.start_detached("?$ true");
    let approval = home.wait_for_approval();
    assert!(complete(&home, &["approve", ""]).contains(&approval));
}

#[test]
fn every_verb_has_a_manual_page() {
    let home = Home::new();
    assert!(home.ok(&["man"]).starts_with(".ie"), "roff");
    assert!(home.ok(&["man", "daemon", "run"]).contains("push\\-daemon\\-run"));
    assert_eq!(home.push(&["man", "nothing"]).code, Some(64));
    home.ok(&["man", "--directory", "pages"]);
    for page in ["push.1", "push-export.1", "push-daemon-run.1"] {
        assert!(!home.read(&format!("pages/{page}")).is_empty(), "{page}");
    }
}

/// Returns what a shell is offered after `push` and these words.
fn complete(home: &Home, words: &[&str]) -> String {
    let words: Vec<&str> = ["--", "push"].iter().chain(words).copied().collect();
    let output = home.push_with(&words, &[("PUSH_COMPLETE", "fish")], "");
    assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{output:?}");
    output.out
}
