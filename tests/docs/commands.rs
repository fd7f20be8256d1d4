//! The command line reference, row by row: its verbs exist, have the options of their row and no others, and its exit
//! codes and rules hold.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use super::page::repository;
use crate::support::home::{Home, ProgramOutput};

/// Options that belong to every verb, or that the page describes once for all verbs.
const COMMON: [&str; 7] = ["--color", "--quiet", "--verbose", "--help", "--version", "--host", "--json"];

#[test]
fn every_row_names_verbs_that_exist_with_exactly_their_options() {
    let home = Home::new();
    let of_run = options_in(&table_rows("option of `push run`").concat());
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for row in table_rows("command") {
        let verbs = verbs_in(&row);
        let mut documented = options_in(&own_spans(&row));
        if ["push run", "push playbook"].iter().any(|verb| verbs.contains(*verb)) {
            documented.extend(of_run.clone());
        }
        let mut existing = BTreeSet::new();
        for verb in &verbs {
            let words: Vec<&str> = verb.split(' ').skip(1).chain(["--help"]).collect();
            let help = home.push(&words);
            if help.code != Some(0) {
                wrong.push(format!("{verb}: there is no such verb"));
                continue;
            }
            existing.extend(options_in(&options_of_help(&help.out)));
            seen.insert(verb.clone());
        }
        documented.retain(|option| !COMMON.contains(&option.as_str()));
        existing.retain(|option| !COMMON.contains(&option.as_str()));
        let is_playbook = verbs.contains("push playbook");
        for option in documented.difference(&existing) {
            // The row of playbooks names the options that they do not have.
            let is_excluded = is_playbook && ["--provider", "--model", "--no-stdin"].contains(&option.as_str());
            wrong.extend((!is_excluded).then(|| format!("{verbs:?} has no {option}")));
        }
        wrong.extend(existing.difference(&documented).map(|option| format!("{verbs:?}: {option} is not in its row")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen.len() > 45, "{} verbs were found: {seen:?}", seen.len());
}

#[test]
fn every_exit_code_of_the_reference_is_what_the_verbs_return() {
    let home = Home::new();
    home.write("wrong.toml", "nonsense = 1\n");
    home.write("fails.md", "$ false\n");
    let code = |words: &[&str]| home.push(words).code;
    let waited = |message: &str, words: &[&str]| {
        let session = home.start_detached(message);
        if words == ["cancel"] {
            home.ok(&["cancel", &session]);
        }
        home.push(&["wait", &session])
    };
    // A row of the table, by its code and the verbs that it is about, and what is tried.
    let mut tried: BTreeMap<(&str, &str), Vec<Option<i32>>> = BTreeMap::new();
    tried.insert(("69", "every command"), vec![code(&["daemon", "status"]), code(&["daemon", "status", "--json"])]);
    tried.insert(("75", "`push stdio --resume`"), vec![code(&["stdio", "--resume"])]);
    tried.insert(
        ("0", "every command"),
        vec![code(&["sessions"]), code(&["run", "$ true"]), code(&["run", "--detach", "$ true"])],
    );
    let failed = [code(&["run", "$ false"]), code(&["playbook", "fails.md"]), code(&["wait", "@last"])];
    let timeout = code(&["run", "--timeout", "0.1", "$ sleep 1000"]);
    tried.insert(("1", "`push run`, `push playbook`, `push wait`"), failed.into_iter().chain([timeout]).collect());
    let others = vec![code(&["search", "zzzzzz"]), code(&["config", "check", "wrong.toml"])];
    tried.insert(("1", "other commands"), others);
    tried.insert(("2", "`push run`, `push playbook`, `push wait`"), vec![waited("$ sleep 1000", &["cancel"]).code]);
    let denied = vec![code(&["run", "--headless", "$? true"]), code(&["wait", "@last"])];
    tried.insert(("3", "`push run`, `push playbook`, `push wait`"), denied);
    let unaccepted = vec![code(&["run", "--accept", "false", "$ true"]), code(&["wait", "@last"])];
    tried.insert(("4", "`push run`, `push playbook`, `push wait`"), unaccepted);
    let usage = vec![
        code(&["dance"]),
        code(&["run", "--timeout", "soon", "$ true"]),
        code(&["show", "no-such-session"]),
        code(&["approvals", "no-such-session"]),
        code(&["export", "@last"]),
        code(&["search", "!?"]),
    ];
    tried.insert(("64", "every command"), usage);
    let session = home.start_detached("$ sleep 1000");
    tried.insert(("124", "`push wait`"), vec![code(&["wait", &session, "--timeout", "0.05"])]);
    home.ok(&["cancel", &session]);
    tried.insert(("141", "`push run`, `push playbook`"), vec![with_closed_output(&home)]);
    // Tried at a terminal by tests/terminal, where a confirmation can be declined.
    let elsewhere = [("2", "`push delete`, `push purge`")];
    let rows = table_rows("code");
    for row in &rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let key = (cells[1], cells[2]);
        let expected = Some(key.0.parse().expect("a number"));
        match tried.remove(&key) {
            Some(codes) => assert!(codes.iter().all(|code| *code == expected), "{key:?}: {codes:?}"),
            None => assert!(elsewhere.contains(&key), "nothing tries {key:?}"),
        }
    }
    assert!(tried.is_empty(), "the page lacks {tried:?}");
}

#[test]
fn standard_output_is_the_answer_and_json_has_the_words_of_the_wire() {
    let home = Home::new();
    let stopped = home.push(&["daemon", "status", "--json"]);
    assert_eq!((stopped.code, stopped.json()), (Some(69), json!({"running": false})));
    home.write("message.md", "$ echo from-file\n");
    for (words, input, answer) in [
        (&["run", "$ echo one"][..], "", "one\n"),
        (&["run", "--headless", "@message.md"], "", "from-file\n"),
        (&["run", "-"], "$ echo from-stdin\n", "from-stdin\n"),
        (&["playbook", "-"], "$ echo piped\n", "piped\n"),
        (&["-q", "run", "$ echo two; echo three >&2"], "", "two\n"),
    ] {
        let output = home.push_with_input(words, input);
        assert_eq!((output.code, output.out.as_str()), (Some(0), answer), "{words:?}: {output:?}");
        assert!(words[0] != "-q" || output.err.is_empty(), "{output:?}");
    }
    let result = home.json(&["run", "--headless", "--json", "$ true"]);
    has_fields(&result, &["sessionId", "runId", "outcome", "exitCode"]);
    let ids = home.json(&["run", "--detach", "--json", "--idempotency-key", "k", "$ true"]);
    has_fields(&ids, &["sessionId", "runId"]);
    let again = home.json(&["run", "--detach", "--json", "--idempotency-key", "k", "$ true"]);
    assert_eq!(ids["runId"], again["runId"], "a retry is the same run");
    home.ok(&["wait", ids["sessionId"].as_str().expect("an id")]);
    let status = home.json(&["daemon", "status", "--json"]);
    has_fields(
        &status,
        &["running", "pid", "version", "uptimeSeconds", "socket", "http", "pi", "pvp", "sessions", "connections"],
    );
    has_fields(&status, &["events", "journalBytes", "memoryBytes"]);
    has_fields(&home.json(&["sessions", "--json"])["sessions"][0], &["sessionId", "state", "updatedAt"]);
    home.start_detached("$? true");
    home.wait_for_approval();
    has_fields(&home.json(&["approvals", "--json"])["approvals"][0], &["approvalId", "sessionId"]);
}

#[test]
fn every_list_and_state_has_json() {
    let home = Home::new();
    home.ok(&["run", "--name", "one", "$ true"]);
    for line in [
        "sessions",
        "ls",
        "ps",
        "show one",
        "search true",
        "stats",
        "approvals",
        "approvals --remembered",
        "queue one",
        "token list",
        "config show",
        "daemon status",
        "doctor",
    ] {
        let words: Vec<&str> = line.split(' ').chain(["--json"]).collect();
        let output = home.push(&words);
        assert!(output.code == Some(0) && output.json().is_object(), "{line}: {output:?}");
    }
}

#[test]
fn handles_name_sessions_as_the_page_says() {
    let home = Home::new();
    for name in ["first", "same", "same"] {
        home.ok(&["run", "--name", name, "$ true"]);
    }
    let sessions = home.json(&["sessions", "--json"])["sessions"].as_array().expect("a list").clone();
    let ids: Vec<&str> = sessions.iter().map(|item| item["sessionId"].as_str().expect("an id")).collect();
    let shown = |typed: &str| -> Value { home.json(&["show", typed, "--json"])["sessionId"].clone() };
    let first = ids[2];
    for typed in ["first", first, &first[..first.len() - 1], &first[first.len() - 6..]] {
        assert_eq!(shown(typed), first, "{typed}");
    }
    assert_eq!((shown("@last"), shown("@last-any")), (json!(ids[0]), json!(ids[0])));
    let ambiguous = home.push(&["show", "same"]);
    assert_eq!(ambiguous.code, Some(64), "{ambiguous:?}");
    assert!(ids[..2].iter().all(|id| ambiguous.err.contains(id)), "the candidates are listed: {ambiguous:?}");
    let ProgramOutput { code, err, .. } = home.push(&["show", "nothing"]);
    assert!(code == Some(64) && err.contains("no session has the name, handle or id"), "{err}");
}

/// Runs steps that go on, closes their output after the first line, and returns the exit code.
fn with_closed_output(home: &Home) -> Option<i32> {
    let steps = "$ while sleep 0.01; do echo line; done";
    let mut child = home.command(&["run", "--headless", steps]).spawn().expect("the client");
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "line\n");
    drop(output);
    child.wait().expect("its end").code()
}

fn has_fields(object: &Value, fields: &[&str]) {
    for field in fields {
        assert!(object.get(field).is_some(), "no {field} in {object}");
    }
}

/// The rows of the tables of the page whose first heading is this one.
fn table_rows(heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("docs/commands.md")).expect("the page");
    let mut rows = Vec::new();
    let mut is_in = false;
    for line in text.lines() {
        let first = line.split('|').nth(1).unwrap_or_default().trim();
        is_in = line.starts_with('|') && (is_in || first == heading);
        if is_in && first != heading && !first.starts_with("---") {
            rows.push(line.replace("\\|", "/"));
        }
    }
    assert!(!rows.is_empty(), "docs/commands.md has no table {heading:?}");
    rows
}

/// The verbs in the first cell of a row: `push config check` of `push config check [FILE]`.
fn verbs_in(row: &str) -> BTreeSet<String> {
    let cell = row.split('|').nth(1).unwrap_or_default();
    let spans = cell.split('`').skip(1).step_by(2);
    let is_word = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_lowercase());
    spans.map(|span| span.split(' ').take_while(is_word).collect::<Vec<_>>().join(" ")).collect()
}

/// The long options in the code of a text, without those of other programs.
fn options_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 3).map(str::to_owned).collect()
}

/// The code of a row, without command lines of other verbs in its explanation.
fn own_spans(row: &str) -> String {
    let cells: Vec<&str> = row.split('|').collect();
    let explanation = cells[2..].concat();
    let spans = explanation.split('`').skip(1).step_by(2).filter(|span| !span.starts_with("push "));
    cells[1].to_owned() + "\n" + &spans.collect::<Vec<_>>().join("\n")
}

/// The options that a help text lists and their aliases, without its descriptions and examples.
fn options_of_help(help: &str) -> String {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let aliases = help.split("[alias").skip(1).map(|rest| rest.split(']').next().unwrap_or_default());
    lines.map(|line| line.split("  ").next().unwrap_or_default()).chain(aliases).collect::<Vec<_>>().join("\n")
}
