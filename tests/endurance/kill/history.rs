//! The complete history of a session as the daemon replays it, read for verification.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Instant;

use serde_json::{Value, json};

use super::connection::{Connection, Envelope, ReadResult};
use super::harness::{Harness, TIMEOUT};
use super::observations::{Lines, excerpt};
use crate::support::schemas;

/// One parsed event.
pub(crate) struct HistoryEvent {
    pub(crate) seq: u64,
    pub(crate) run: Option<String>,
    pub(crate) kind: String,
    pub(crate) payload: Value,
}

impl HistoryEvent {
    pub(crate) fn new(envelope: &Envelope<'_>, seq: u64) -> Self {
        let (run, kind) = (envelope.run_id.map(str::to_owned), envelope.r#type.to_owned());
        Self { seq, run, kind, payload: envelope.payload() }
    }

    /// A string of the payload, empty when there is none.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.payload[key].as_str().unwrap_or_default()
    }
}

/// Requests the complete history of a session.
pub(crate) fn fetch(harness: &Harness, session: &str) -> Lines {
    let mut connection = Connection::connect(&harness.socket()).expect("a daemon that was not killed");
    connection.send("attach_session", &json!({"sessionId": session})).expect("a daemon that was not killed");
    let mut lines = Lines::new();
    let mut until = None;
    let deadline = Instant::now() + TIMEOUT;
    while until.is_none_or(|until| lines.last_key_value().is_none_or(|(seq, _)| *seq < until)) {
        let line = match connection.read_line(TIMEOUT) {
            ReadResult::Line(line) => line,
            ReadResult::Timeout | ReadResult::Closed => panic!("the history of {session} breaks off"),
        };
        assert!(Instant::now() < deadline, "the history of {session} does not end");
        let envelope: Envelope<'_> = serde_json::from_slice(&line).expect("a message");
        match envelope.seq {
            None => until = envelope.payload()["replay"]["toSeq"].as_u64(),
            Some(seq) => {
                let before = lines.last_key_value().map_or(0, |(seq, _)| *seq);
                if seq <= before {
                    harness
                        .observations
                        .add_finding(format!("the history of {session} is out of order: {}", excerpt(&line)));
                }
                lines.insert(seq, line);
            }
        }
    }
    lines
}

/// Parses every line, and validates it against the schemas.
pub(crate) fn parse(lines: &Lines, findings: &mut Vec<String>) -> Vec<HistoryEvent> {
    let mut events = Vec::new();
    for (seq, line) in lines {
        let line = std::str::from_utf8(line).unwrap_or_default();
        if let Err(problems) = schemas::validate_line(line) {
            findings.push(format!("not valid under the schemas: {problems:?} {}", excerpt(line.as_bytes())));
        }
        let envelope: Envelope<'_> = serde_json::from_str(line).expect("a message");
        events.push(HistoryEvent::new(&envelope, *seq));
    }
    events
}
