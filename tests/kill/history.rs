//! The complete history of a session as the daemon replays it, read for verification.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Instant;

use serde_json::{Value, json};

use super::schemas;
use super::stage::{PATIENCE, Stage};
use super::wire::{Head, Heard, Wire};
use super::witness::{Lines, text};

/// One parsed event.
pub(crate) struct Fact {
    pub(crate) seq: u64,
    pub(crate) run: Option<String>,
    pub(crate) kind: String,
    pub(crate) payload: Value,
}

impl Fact {
    pub(crate) fn new(head: &Head<'_>, seq: u64) -> Self {
        let (run, kind) = (head.run_id.map(str::to_owned), head.r#type.to_owned());
        Self { seq, run, kind, payload: head.payload() }
    }

    /// A string of the payload, empty when there is none.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.payload[key].as_str().unwrap_or_default()
    }
}

/// Requests the complete history of a session.
pub(crate) fn fetch(stage: &Stage, session: &str) -> Lines {
    let mut wire = Wire::connect(&stage.socket()).expect("a daemon that was not killed");
    wire.send("attach_session", &json!({"sessionId": session})).expect("a daemon that was not killed");
    let mut lines = Lines::new();
    let mut until = None;
    let deadline = Instant::now() + PATIENCE;
    while until.is_none_or(|until| lines.last_key_value().is_none_or(|(seq, _)| *seq < until)) {
        let line = match wire.hear(PATIENCE) {
            Heard::Line(line) => line,
            Heard::Nothing | Heard::End => panic!("the history of {session} breaks off"),
        };
        assert!(Instant::now() < deadline, "the history of {session} does not end");
        let head: Head<'_> = serde_json::from_slice(&line).expect("a message");
        match head.seq {
            None => until = head.payload()["replay"]["toSeq"].as_u64(),
            Some(seq) => {
                let before = lines.last_key_value().map_or(0, |(seq, _)| *seq);
                if seq <= before {
                    stage
                        .witness
                        .finding(format!("the history of {session} is out of order: {}", text(&line)));
                }
                lines.insert(seq, line);
            }
        }
    }
    lines
}

/// Parses every line, and validates it against the schemas.
pub(crate) fn open(lines: &Lines, findings: &mut Vec<String>) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (seq, line) in lines {
        let line = std::str::from_utf8(line).unwrap_or_default();
        if let Err(problems) = schemas::judge_line(line) {
            findings.push(format!("not valid under the schemas: {problems:?} {}", text(line.as_bytes())));
        }
        let head: Head<'_> = serde_json::from_str(line).expect("a message");
        facts.push(Fact::new(&head, *seq));
    }
    facts
}
