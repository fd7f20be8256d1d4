//! The tutorial, from nothing to a reviewed commit.

use std::collections::BTreeMap;

use super::normalize::normalize;
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
    page.transcript("$ push\n");
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
    page.transcript("$ push\n");
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

/// The picture of the README is made by a script, not by a test; it must be made again when the output changes.
#[test]
fn the_picture_shows_what_the_tutorial_shows() {
    let picture = std::fs::read_to_string(repository().join("docs/screenshot/run.svg")).expect("the picture");
    let mut shown: BTreeMap<u32, String> = BTreeMap::new();
    for piece in picture.lines().filter(|line| line.starts_with("<text ")) {
        let row = piece.split("y=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse().ok()).expect("a row");
        let (_, text) = piece.trim_end_matches("</text>").split_once('>').expect("a text");
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let line = shown.entry(row).or_default();
        *line = format!("{line} {text}").trim().to_owned();
    }
    let blocks = Page::open("docs/tutorial.md").blocks();
    let run = blocks.iter().find(|block| block.text.starts_with("$ push run 'The test fails.")).expect("the run");
    let expected = normalize(&run.text, "/home/ann").into_iter().map(|line| line.trim().to_owned());
    let shown = normalize(&shown.into_values().collect::<Vec<_>>().join("\n"), "/home/ann");
    let panel = shown.into_iter().skip(1).take_while(|line| !line.starts_with("terminal 2"));
    let panel = panel.filter(|line| line != "starting pushd");
    assert_eq!(panel.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "run docs/screenshot/make");
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
