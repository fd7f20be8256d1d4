//! Everything that the clients saw, across all generations of a daemon; recorded at once, and verified at the end.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::pi_client::PiObservations;

/// The lines of a session by their positions.
pub(crate) type Lines = BTreeMap<u64, Vec<u8>>;

/// Everything that was observed.
#[derive(Default)]
pub(crate) struct Observations {
    /// By session: events as they arrived on any connection.
    pub(crate) events: BTreeMap<String, Lines>,
    /// By session: events that one client alone received.
    pub(crate) private: BTreeMap<String, Lines>,
    /// The events of a session that each connection received after an attach.
    pub(crate) spans: Vec<EventSpan>,
    pub(crate) messages: BTreeMap<String, Message>,
    pub(crate) granted: Vec<GrantedRequest>,
    pub(crate) pi: PiObservations,
    pub(crate) findings: Vec<String>,
}

/// The events of a session that one connection received after one attach.
#[derive(Debug, Clone)]
pub(crate) struct EventSpan {
    pub(crate) generation: u64,
    pub(crate) session: String,
    /// The position after which it begins.
    pub(crate) after: u64,
    pub(crate) seqs: Vec<u64>,
}

/// How a message was delivered to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryMode {
    Send,
    Queue,
    Steer,
}

/// The final reply to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MessageResult {
    Unanswered,
    Accepted { run: String },
    Refused { code: String },
}

/// A message with the names of its steps.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) session: String,
    pub(crate) delivery: DeliveryMode,
    pub(crate) steps: Vec<String>,
    pub(crate) attempts: u32,
    pub(crate) result: MessageResult,
}

/// Another request that was granted.
#[derive(Debug, Clone)]
pub(crate) enum GrantedRequest {
    Decision { session: String, approval: String, decision: String, choice: Option<String> },
    Cancel { session: String, run: String },
    Removal { session: String, message: String },
    Name { session: String, name: String },
}

/// The observations of all clients.
#[derive(Default)]
pub(crate) struct SharedObservations(Mutex<Observations>);

impl SharedObservations {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Observations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_finding(&self, text: String) {
        self.lock().findings.push(text);
    }

    /// Records an event; the same position must always have the same bytes.
    pub(crate) fn record_event(&self, session: &str, seq: u64, line: &[u8]) {
        let mut seen = self.lock();
        if let Some(private) = seen.private.get(session).and_then(|lines| lines.get(&seq)) {
            let finding = format!("{session} {seq} was told to one client and is used again: {}", both(private, line));
            seen.findings.push(finding);
        }
        let lines = seen.events.entry(session.to_owned()).or_default();
        match lines.get(&seq) {
            None => drop(lines.insert(seq, line.to_vec())),
            Some(known) if known == line => {}
            Some(known) => {
                let finding = format!("{session} {seq} stands for two events: {}", both(known, line));
                seen.findings.push(finding);
            }
        }
    }

    /// Records an event for one client; its position must never be used again.
    pub(crate) fn record_private(&self, session: &str, seq: u64, line: &[u8]) {
        let mut seen = self.lock();
        let taken = seen.events.get(session).and_then(|lines| lines.get(&seq)).cloned();
        let known = seen.private.entry(session.to_owned()).or_default().insert(seq, line.to_vec());
        if let Some(other) = taken.or(known) {
            let finding = format!("{session} {seq} is used again for one client: {}", both(&other, line));
            seen.findings.push(finding);
        }
    }

    /// Records the reply to a message; a later reply must agree with an earlier one.
    pub(crate) fn record_result(&self, id: &str, result: MessageResult) {
        let mut seen = self.lock();
        let message = seen.messages.get_mut(id).expect("a message of ours");
        let before = std::mem::replace(&mut message.result, result);
        if before != MessageResult::Unanswered && before != message.result {
            let finding = format!("{id} was {before:?} and then {:?}", message.result);
            seen.findings.push(finding);
        }
    }
}

fn both(one: &[u8], other: &[u8]) -> String {
    format!("\n    {}\n    {}", excerpt(one), excerpt(other))
}

/// A line for reports, truncated.
pub(crate) fn excerpt(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    line.chars().take(400).collect()
}
