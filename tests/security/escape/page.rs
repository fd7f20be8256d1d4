//! Checks that `docs/escape-attempts.md` lists exactly the attempts of the suite, with their files and counts.

use std::path::Path;

use super::attempts::{ATTEMPTS, Attempt, Group, UnconfinedRun};
use super::attempts_calls::CALL_ATTEMPTS;
use super::attempts_home::HOME_ATTEMPTS;
use super::daemon_attempts::DAEMON_ATTEMPTS;
use super::rules_mode::Outcome;
use super::{attempts_limits, git_directory, rules_mode};

const PAGE: &str = include_str!("../../../docs/escape-attempts.md");

/// The heading of the list of attempts, which extends to the end of the page.
const LIST: &str = "## Every attempt by name\n";

#[test]
fn the_page_lists_the_attempts_of_the_suite() {
    let (_, listed) = PAGE.split_once(LIST).expect("the list of attempts");
    let expected = expected_list();
    assert!(listed == expected, "docs/escape-attempts.md should go on after {LIST:?} with:\n{expected}");
}

#[test]
fn the_page_counts_the_attempts_of_each_file() {
    for (file, count) in [
        ("attempts.rs", ATTEMPTS.len()),
        ("attempts_home.rs", HOME_ATTEMPTS.len()),
        ("attempts_calls.rs", CALL_ATTEMPTS.len()),
        ("attempts_limits.rs", attempts_limits::all().count()),
        ("daemon_attempts.rs", DAEMON_ATTEMPTS.len()),
        ("git_directory.rs", git_directory::ATTEMPTS.len()),
    ] {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `tests/security/escape/{file}`")));
        let row = row.unwrap_or_else(|| panic!("no row of {file}"));
        assert!(row.contains(&format!("| {count} attempts,")), "{file} has {count} attempts: {row}");
    }
}

#[test]
fn the_page_names_the_attempts_at_the_git_directory_that_landlock_alone_does_not_defend() {
    for (name, why) in git_directory::UNDEFENDED_WITHOUT_MOUNTS {
        assert!(git_directory::ATTEMPTS.iter().any(|(known, ..)| known == name), "{name}");
        assert!(PAGE.lines().any(|line| line == format!("- {name}: {why};")), "- {name}: {why};");
    }
}

#[test]
fn the_page_names_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let words = PAGE.split('`').skip(1).step_by(2);
    let files: Vec<&str> = words
        .filter(|word| (word.starts_with("tests/") || word.starts_with("src/")) && word.ends_with(".rs"))
        .collect();
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        assert!(root.join(file).is_file(), "{file}");
    }
}

/// The list as the page must contain it.
fn expected_list() -> String {
    let mut text = String::from(
        "\n*Landlock alone* says what happens where there are no namespaces. *Unconfined* says whether the attempt succeeds without \
         confinement; a dash is one that is not made there.\n",
    );
    for (file, attempts) in [
        ("attempts.rs", ATTEMPTS.iter().collect::<Vec<_>>()),
        ("attempts_home.rs", HOME_ATTEMPTS.iter().collect()),
        ("attempts_calls.rs", CALL_ATTEMPTS.iter().collect()),
        ("attempts_limits.rs", attempts_limits::all().collect()),
    ] {
        text.push_str(&format!("\n### `tests/security/escape/{file}`\n\n"));
        text.push_str("| attempt | at | Landlock alone | unconfined |\n|---|---|---|---|\n");
        for attempt in attempts {
            let (group, unconfined) = (group_cell(attempt.group), unconfined_cell(attempt.unconfined));
            let alone = landlock_cell(attempt);
            text.push_str(&format!("| {} | {group} | {alone} | {unconfined} |\n", attempt.name));
        }
    }
    text.push_str("\n### `tests/security/escape/daemon_attempts.rs`\n\nRefused with every mechanism:\n\n");
    for (name, _) in DAEMON_ATTEMPTS {
        text.push_str(&format!("- {name}\n"));
    }
    text
}

fn landlock_cell(attempt: &Attempt) -> String {
    match rules_mode::outcome(attempt) {
        Outcome::Refused => "refused".to_owned(),
        Outcome::Succeeds(why) => format!("not defended: {why}"),
        Outcome::SucceedsUnlessRoot(why) => format!("refused for root; otherwise not defended: {why}"),
        Outcome::NotMadeAsRoot(why) => format!("refused; not made as root: {why}"),
        Outcome::NotMade(why) => format!("not made: {why}"),
    }
}

const fn group_cell(group: Group) -> &'static str {
    match group {
        Group::Files => "files",
        Group::Protected => "`.git` and `.push`",
        Group::Processes => "processes",
        Group::Sockets => "sockets",
        Group::Machine => "the machine",
        Group::Resources => "limits",
    }
}

const fn unconfined_cell(alone: UnconfinedRun) -> &'static str {
    match alone {
        UnconfinedRun::Harmless => "succeeds",
        UnconfinedRun::Never => "–",
    }
}
