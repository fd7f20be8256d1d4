//! The bodies of the fuzz targets, run over the committed corpus and over seeded mutations of it.
//!
//! `PUSH_FUZZ_RUNS` sets the number of mutated inputs per body, `PUSH_FUZZ_SEED` the first seed.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

// With its path it is the root of its folder, as for the fuzz targets.
#[path = "properties/bodies.rs"]
mod bodies;

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use bodies::random::Random;

/// The number of mutated inputs per body.
const RUNS: u64 = 3_000;

/// The maximum length of a mutated input.
const MAX_INPUT_BYTES: usize = 2_048;

#[test]
fn any_bytes_in_any_pieces_are_the_lines_of_a_plain_split() {
    holds_for_all("framing");
}

#[test]
fn canonical_json_preserves_values_and_refuses_only_invalid_lines() {
    holds_for_all("compaction");
}

#[test]
fn every_canonical_line_is_decoded_or_answered() {
    holds_for_all("decoder");
}

#[test]
fn a_decoded_event_round_trips() {
    holds_for_all("record");
}

#[test]
fn a_journal_with_damaged_files_serves_only_what_was_written() {
    // Each input opens a journal twice.
    holds_for_some("recovery", RUNS / 30);
}

#[test]
fn a_text_cut_anywhere_is_redacted_as_the_whole() {
    holds_for_all("redaction");
}

#[test]
fn any_bytes_are_a_session_that_round_trips_or_are_refused_with_a_message() {
    holds_for_all("sessions");
}

#[test]
fn every_folder_of_the_corpus_has_its_body() {
    let mut folders: Vec<String> = fs::read_dir(corpus())
        .expect("the corpus")
        .map(|entry| entry.expect("a folder").file_name().into_string().expect("a name"))
        .collect();
    folders.sort();
    let mut names: Vec<&str> = bodies::ALL.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(folders, names);
}

/// Runs a body over the files of its corpus, then over mutations of them.
fn holds_for_all(name: &str) {
    holds_for_some(name, RUNS);
}

/// The same, with another default number of mutations.
fn holds_for_some(name: &str, runs: u64) {
    let body = bodies::ALL.iter().find(|(known, _)| *known == name).expect("a body").1;
    let mut inputs: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(corpus().join(name))
        .expect("a corpus")
        .map(|entry| entry.expect("a file").path())
        .map(|path| (path.clone(), fs::read(path).expect("an input")))
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "an empty corpus shows nothing");
    for (path, input) in &inputs {
        run_body(&path.display().to_string(), input, body);
    }
    let first = number("PUSH_FUZZ_SEED").unwrap_or(1);
    let runs = number("PUSH_FUZZ_RUNS").unwrap_or(runs);
    println!("{name}: {} files, then {runs} changes from seed {first} on", inputs.len());
    for seed in first..first + runs {
        let input = mutate(&inputs, &mut Random::new(seed));
        run_body(&format!("PUSH_FUZZ_SEED={seed} PUSH_FUZZ_RUNS=1"), &input, body);
    }
}

/// Runs a body, and reports the input when it fails.
fn run_body(which: &str, input: &[u8], body: bodies::Body) {
    if let Err(failure) = catch_unwind(AssertUnwindSafe(|| body(input))) {
        println!("failed for {which}: {}", input.escape_ascii());
        resume_unwind(failure);
    }
}

/// Mutates an input: parts are repeated, dropped, overwritten and joined with other inputs.
fn mutate(inputs: &[(PathBuf, Vec<u8>)], random: &mut Random) -> Vec<u8> {
    let some = |random: &mut Random| random.pick(inputs).expect("an input").1.clone();
    let mut input = some(random);
    for _ in 0..1 + random.below(6) {
        let at = random.below(input.len() as u64 + 1) as usize;
        let to = at + random.below((input.len() - at) as u64 + 1) as usize;
        match random.below(7) {
            0 => drop(input.splice(at..at, [random.next() as u8])),
            1 => drop(input.splice(at..to, some(random))),
            2 => drop(input.drain(at..to.min(at + 8))),
            3 => drop(input.splice(at..at, input[at..to].to_vec())),
            4 => drop(input.splice(at..at, random.pick(WORDS).expect("a word").bytes())),
            5 => input.truncate(to),
            _ => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        }
        input.truncate(MAX_INPUT_BYTES);
    }
    input
}

/// Tokens that are meaningful to one of the parsers.
const WORDS: &[&str] = &[
    "\n",
    "\r",
    "\r\n",
    "\"",
    "\\",
    "\\u0061",
    "\\ud83e\\udd80",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "true",
    "-0",
    "1e400",
    "18446744073709551616",
    "{\"a\":1}",
    "\u{0}",
    "\u{1}",
    "\u{2}",
    "é",
    "🦀",
    "\u{feff}",
    "[redacted]",
    "password=",
    "Bearer ",
    "sk-",
    "-----BEGIN PRIVATE KEY-----",
    "://a:b@",
    "\"choices\":[\"a\"]",
    "\"payload\":{}",
    "\"requestId\":\"\"",
    "\"sessionId\":\"s\"",
    "\"parentId\":\"a\"",
    "\"content\":[{\"type\":\"text\"}]",
    "\"role\":\"toolResult\"",
    "\"type\":\"compaction\"",
    "\"version\":1",
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} must be a number, but is {value:?}")))
}
