//! A client's view of one session: its position, its state, and the events that its connection must deliver.

use std::collections::BTreeMap;

use serde_json::Value;

use super::wire::Head;
use super::witness::{Stretch, Witness, text};

/// Positions from here on are never issued.
pub(crate) const FOREIGN: u64 = 1 << 40;

/// A position in a session, and the state up to it.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// The last position seen, over all connections.
    pub(crate) last: u64,
    /// The active run.
    pub(crate) run: Option<String>,
    /// Queued messages.
    pub(crate) queued: Vec<String>,
    /// Open approvals, with their choices.
    pub(crate) open: BTreeMap<String, Vec<String>>,
    joining: bool,
    stretch: Option<Stretch>,
}

impl Following {
    /// Whether this connection has requested the events.
    pub(crate) const fn is_joined(&self) -> bool {
        self.joining || self.stretch.is_some()
    }

    /// Whether this connection receives the events.
    pub(crate) const fn is_settled(&self) -> bool {
        self.stretch.is_some()
    }

    pub(crate) fn join(&mut self) {
        self.joining = true;
    }

    /// Compares the reply to an attach with the request.
    pub(crate) fn attached(
        &mut self,
        life: u64,
        session: &str,
        after: u64,
        granted: bool,
        payload: &Value,
        witness: &Witness,
    ) {
        let replay = &payload["replay"];
        let fits = if after >= FOREIGN {
            replay["gap"] == true && replay["completed"] == false
        } else {
            replay["gap"] == false && replay["completed"] == true && replay["fromSeq"] == after + 1
        };
        if !granted || !fits {
            witness.finding(format!(
                "generation {life}: attach to {session} after {after} was answered by {payload}"
            ));
        }
        self.begin_stretch(life, session, after, witness);
    }

    /// From here on the connection receives everything after `after`.
    pub(crate) fn begin_stretch(&mut self, life: u64, session: &str, after: u64, witness: &Witness) {
        self.end_stretch(witness);
        self.joining = true;
        self.stretch = Some(Stretch { life, session: session.to_owned(), after, seqs: Vec::new() });
    }

    pub(crate) fn end_stretch(&mut self, witness: &Witness) {
        self.joining = false;
        if let Some(stretch) = self.stretch.take() {
            witness.lock().stretches.push(stretch);
        }
    }

    /// Records an event.
    pub(crate) fn take(&mut self, head: &Head<'_>, session: &str, seq: u64, line: &[u8], witness: &Witness) {
        let Some(stretch) = &mut self.stretch else {
            return witness.finding(format!("an event before its attach was answered: {}", text(line)));
        };
        let private = head.r#type == "session_snapshot"
            || (head.r#type == "warning" && head.payload.get().contains("EVENT_GAP"));
        if private {
            if stretch.after < FOREIGN && !stretch.seqs.is_empty() {
                witness.finding(format!("a gap in the middle of events: {}", text(line)));
            }
            witness.private(session, seq, line);
            // Later events are counted from here.
            stretch.after = seq;
            self.last = self.last.max(seq);
            return;
        }
        if stretch.seqs.last().copied().unwrap_or(stretch.after) >= seq {
            let before = stretch.seqs.last().copied().unwrap_or(stretch.after);
            witness.finding(format!("generation {}: after {before} came {}", stretch.life, text(line)));
        }
        stretch.seqs.push(seq);
        witness.event(session, seq, line);
        if seq > self.last {
            self.last = seq;
            self.learn(head);
        }
    }

    fn learn(&mut self, head: &Head<'_>) {
        let string = |payload: &Value, key: &str| payload[key].as_str().unwrap_or_default().to_owned();
        match head.r#type {
            "user_message" => {
                let payload = head.payload();
                if payload.get("delivery").is_none() {
                    self.run = head.run_id.map(str::to_owned);
                    self.queued.retain(|message| *message != string(&payload, "messageId"));
                }
            }
            "message_queued" => self.queued.push(string(&head.payload(), "messageId")),
            "message_unqueued" => {
                let message = string(&head.payload(), "messageId");
                self.queued.retain(|queued| *queued != message);
            }
            "approval_required" => {
                let payload = head.payload();
                let choices = payload["details"]["choices"].as_array().cloned().unwrap_or_default();
                let choices =
                    choices.iter().filter_map(|choice| choice.as_str().map(str::to_owned)).collect();
                self.open.insert(string(&payload, "approvalId"), choices);
            }
            "approval_received" => drop(self.open.remove(&string(&head.payload(), "approvalId"))),
            "run_complete" => {
                self.run = None;
                self.open.clear();
            }
            _ => {}
        }
    }
}
