//! The tutorial, from nothing to a reviewed commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::page::{Page, repository};
use super::terminal::Terminal;
use super::walkthrough::Walkthrough;
use crate::support::home::wait_until;
use crate::support::model::{Reply, call, say};
use crate::support::skip::skip;

#[test]
fn the_tutorial_leads_from_nothing_to_a_reviewed_commit() {
    if !Terminal::is_possible() {
        return skip("the tutorial: tmux is missing");
    }
    if !has_full_sandbox() {
        return skip("the tutorial: without the full sandbox there are more questions");
    }
    let mut page = Walkthrough::open("docs/tutorial.md");
    page.list("cargo install --locked --path .", "builds the program, as the test itself did");
    page.change_directory("");
    page.script("mkdir ~/sum && cd ~/sum");
    page.change_directory("sum");
    page.open_terminal();
    page.transcript("$ push run '$ sh test.sh'");
    page.transcript("$ push sessions");
    page.transcript("$ push config");
    page.model.script(fix().into_iter().chain(revision()));
    page.transcript("$ push run 'The test fails.");

    page.change_directory("");
    page.open_terminal();
    page.transcript("$ cd ~/sum");
    page.switch_terminals();
    page.transcript("approve? [");
    page.switch_terminals();
    page.close_other_terminal();
    wait_until("the client to be gone", || {
        page.home.json(&["daemon", "status", "--json"])["connections"].as_u64() == Some(1)
    });
    page.transcript("$ push sessions");
    page.transcript("$ git log --stat -1");

    // The same without a model, from the first commit on.
    page.change_directory("sum");
    page.shell("git reset -q --hard HEAD~1");
    let playbook = Page::open("docs/tutorial.md").blocks();
    let playbook = playbook.iter().find(|block| block.language == "markdown").expect("the playbook");
    page.write("fix.md", &playbook.text);
    page.transcript("$ push playbook fix.md");

    let clean_up = page.next("push sessions");
    let listed = page.home.json(&["sessions", "--all", "--json"]);
    let ids = listed["sessions"].as_array().expect("sessions").iter().map(|session| &session["sessionId"]);
    let handles: Vec<&str> = ids.map(|id| id.as_str().expect("an id").rsplit('_').next().expect("a handle")).collect();
    assert!(clean_up.text.contains("push delete a30c f239 "), "{}", clean_up.text);
    let text = clean_up.text.replace("a30c f239 ", &format!("{} ", handles.join(" ")));
    page.type_text(&text, &[("delete 3 sessions", "y")], &clean_up.location);
    assert!(!page.home.path().join("sum").exists());
    page.finish();
}

#[test]
fn the_pictures_show_what_the_program_shows() {
    if !Terminal::is_possible() || Command::new("python3").arg("--version").output().is_err() {
        return skip("the pictures: tmux or python3 is missing");
    }
    if !has_full_sandbox() {
        return skip("the pictures: without the full sandbox there are more questions");
    }
    let committed = repository().join("docs/screenshot");
    let made = tempfile::TempDir::new().expect("a directory");
    let script = Command::new(committed.join("make")).arg(env!("CARGO_BIN_EXE_push")).arg(made.path()).output();
    let script = script.expect("the script");
    assert!(script.status.success(), "{script:?}");
    for name in ["chat.svg", "attach.svg"] {
        let [made, committed] = [made.path(), &committed].map(|folder| texts(&folder.join(name)));
        assert_eq!(made, committed, "{name}: run docs/screenshot/make");
    }
}

/// The rows of a picture, without numbers, the handle of the session and the temporary directory.
fn texts(picture: &Path) -> Vec<String> {
    let picture = std::fs::read_to_string(picture).expect("the picture");
    let mut rows: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for piece in picture.lines().filter(|line| line.starts_with("<text ")) {
        let row = piece.split("y=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse().ok()).expect("a row");
        let (_, text) = piece.trim_end_matches("</text>").split_once('>').expect("a text");
        rows.entry(row).or_default().extend(text.split(' '));
    }
    // The name of the directory need not have a digit.
    let is_directory = |word: &str| word.contains("/push-");
    let is_number = |word: &str| word.contains(|c: char| c.is_ascii_digit()) && !word.contains('$');
    let row = |words: Vec<&str>| {
        let is_status = words.ends_with(&["?", "keys"]);
        let shown = words.iter().skip(usize::from(is_status)).filter(|word| !is_number(word) && !is_directory(word));
        shown.copied().collect::<Vec<_>>().join(" ")
    };
    rows.into_values().map(row).collect()
}

/// Whether the commands of a model run without a question here.
fn has_full_sandbox() -> bool {
    let home = crate::support::home::Home::new();
    home.ok(&["daemon", "start"]);
    home.push(&["doctor"]).out.contains("commands of models are confined (")
}

/// The turns of the model up to the first question.
fn fix() -> Vec<Reply> {
    let commit = r#"{"message":"Add the numbers instead of subtracting them","paths":["sum.sh"]}"#;
    vec![
        Reply::turn([say("I read the program first."), call("1", "sandbox_read_file", r#"{"path":"sum.sh"}"#)]),
        Reply::turn([
            say("It subtracts."),
            call("2", "sandbox_edit_file", r#"{"path":"sum.sh","old":"$1 - $2","new":"$1 + $2"}"#),
        ]),
        Reply::turn([call("3", "sandbox_exec", r#"{"command":"sh test.sh"}"#)]),
        Reply::turn([call("4", "sandbox_git_commit", commit)]),
    ]
}

/// The turns after the first commit was denied.
fn revision() -> Vec<Reply> {
    let test = r#"{"path":"test.sh","old":"echo passed","new":"[ \"$(sh sum.sh -2 -3)\" = -5 ] || { echo \"wrong: -2 + -3\"; exit 1; }\necho passed"}"#;
    let commit = r#"{"message":"Add the numbers instead of subtracting them\n\nA test covers negative numbers.","paths":["sum.sh","test.sh"]}"#;
    vec![
        Reply::turn([say("I add a test for negative numbers."), call("5", "sandbox_edit_file", test)]),
        Reply::turn([call("6", "sandbox_exec", r#"{"command":"sh test.sh"}"#)]),
        Reply::turn([call("7", "sandbox_git_commit", commit)]),
        Reply::says("sum.sh adds its arguments. The test covers negative numbers and passes."),
    ]
}
