//! Messages to run: prose, steps of every kind, and approvals. Each step appends its own name to one file.

use std::path::Path;

use crate::support::random::Random;

/// A message and the names of its steps, in order.
pub(crate) struct GeneratedMessage {
    pub(crate) text: String,
    /// Commands that are run after the steps.
    pub(crate) checks: Vec<String>,
    pub(crate) steps: Vec<String>,
}

/// The last letter of a step that needs approval.
pub(crate) const NEEDS_APPROVAL: char = 'a';

/// Builds the message `id`; a `long` one has many more words than steps.
pub(crate) fn message(random: &mut Random, id: &str, ledger: &Path, long: bool) -> GeneratedMessage {
    let mut work = GeneratedMessage { text: String::new(), checks: Vec::new(), steps: Vec::new() };
    if long {
        let words = 200 + random.below(600);
        prose(random, words, &mut work.text);
    }
    let count = 1 + random.below(4);
    for number in 0..count {
        if random.one_in(3) {
            let words = 1 + random.below(60);
            prose(random, words, &mut work.text);
        }
        let step = step(random, &format!("{id}k{number}"), ledger, number + 1 == count);
        work.text.push_str(&step.0);
        work.steps.push(step.1);
    }
    if random.one_in(12) {
        prose(random, 400, &mut work.text);
    }
    if random.one_in(4) {
        for number in 0..1 + random.below(2) {
            let name = format!("{id}c{number}");
            work.checks.push(append(&name, ledger));
            work.steps.push(name);
        }
    }
    work
}

/// Builds the message `id` to be steered into a run.
pub(crate) fn steering(random: &mut Random, id: &str, ledger: &Path) -> GeneratedMessage {
    let mut text = String::new();
    if random.one_in(2) {
        let words = 1 + random.below(10);
        prose(random, words, &mut text);
    }
    let (step, name) = step(random, &format!("{id}k0"), ledger, false);
    text.push_str(&step);
    GeneratedMessage { text, checks: Vec::new(), steps: vec![name] }
}

/// Returns the text of a step and its name.
fn step(random: &mut Random, name: &str, ledger: &Path, is_last: bool) -> (String, String) {
    let needs_approval = random.one_in(4);
    let name = if needs_approval { format!("{name}{NEEDS_APPROVAL}") } else { name.to_owned() };
    let note = append(&name, ledger);
    let sign = if needs_approval { "$?" } else { "$" };
    let text = match random.below(10) {
        0 => format!("{sign} {note}; sleep 0.0{}\n", 1 + random.below(9)),
        1 => format!("{sign} {note}; sleep 0.{}\n", 1 + random.below(3)),
        2 => format!("{sign} {note}; seq 1 {}\n", 2_000 + random.below(50_000)),
        // A background process is found by its environment.
        3 | 4 => {
            format!("{sign} {note}; STEP='{}' setsid sleep 1000 >/dev/null 2>&1 &\n", process_mark(&name))
        }
        5 if !needs_approval => format!("```sh continue\n{note}; echo failing >&2; exit 3\n```\n"),
        6 if is_last => format!("{sign} {note}; exit 7\n"),
        _ => format!("{sign} {note}\n"),
    };
    (text, name)
}

/// The text by which the processes of a step are found, given its name; the name of a message finds all of its steps.
pub(crate) fn process_mark(name: &str) -> String {
    format!("echo {name}")
}

fn append(name: &str, ledger: &Path) -> String {
    format!("{} >> {}", process_mark(name), ledger.display())
}

fn prose(random: &mut Random, words: u64, text: &mut String) {
    const WORDS: [&str; 8] = ["the", "daemon", "keeps", "what", "it", "says", "größer", "—"];
    for _ in 0..words {
        text.push_str(WORDS[random.below(8) as usize]);
        text.push(' ');
    }
    text.push_str(".\n\n");
}
