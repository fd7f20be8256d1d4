//! A client's view of one session: its position, its state, and the events that its connection must deliver.

use std::collections::BTreeMap;

use serde_json::Value;

use super::connection::Envelope;
use super::observations::{EventSpan, SharedObservations, excerpt};

/// Positions from here on are never issued.
pub(crate) const NEVER_ISSUED: u64 = 1 << 40;

/// A position in a session, and the state up to it.
#[derive(Debug, Default)]
pub(crate) struct SessionView {
    /// The last position seen, over all connections.
    pub(crate) last_seq: u64,
    /// The active run.
    pub(crate) run: Option<String>,
    /// Queued messages.
    pub(crate) queued: Vec<String>,
    /// Open approvals, with their choices.
    pub(crate) open_approvals: BTreeMap<String, Vec<String>>,
    attaching: bool,
    span: Option<EventSpan>,
}

impl SessionView {
    /// Whether this connection has requested the events.
    pub(crate) const fn is_attaching(&self) -> bool {
        self.attaching || self.span.is_some()
    }

    /// Whether this connection receives the events.
    pub(crate) const fn is_attached(&self) -> bool {
        self.span.is_some()
    }

    pub(crate) fn begin_attach(&mut self) {
        self.attaching = true;
    }

    /// Compares the reply to an attach with the request.
    pub(crate) fn check_attach_reply(
        &mut self,
        generation: u64,
        session: &str,
        after: u64,
        granted: bool,
        payload: &Value,
        observations: &SharedObservations,
    ) {
        let replay = &payload["replay"];
        let fits = if after >= NEVER_ISSUED {
            replay["gap"] == true && replay["completed"] == false
        } else {
            replay["gap"] == false && replay["completed"] == true && replay["fromSeq"] == after + 1
        };
        if !granted || !fits {
            observations.add_finding(format!(
                "generation {generation}: attach to {session} after {after} was answered by {payload}"
            ));
        }
        self.begin_span(generation, session, after, observations);
    }

    /// From here on the connection receives everything after `after`.
    pub(crate) fn begin_span(&mut self, generation: u64, session: &str, after: u64, observations: &SharedObservations) {
        self.end_span(observations);
        self.attaching = true;
        self.span = Some(EventSpan { generation, session: session.to_owned(), after, seqs: Vec::new() });
    }

    pub(crate) fn end_span(&mut self, observations: &SharedObservations) {
        self.attaching = false;
        if let Some(span) = self.span.take() {
            observations.lock().spans.push(span);
        }
    }

    /// Records an event.
    pub(crate) fn record_event(
        &mut self,
        envelope: &Envelope<'_>,
        session: &str,
        seq: u64,
        line: &[u8],
        observations: &SharedObservations,
    ) {
        let Some(span) = &mut self.span else {
            return observations.add_finding(format!("an event before its attach was answered: {}", excerpt(line)));
        };
        let private = envelope.r#type == "session_snapshot"
            || (envelope.r#type == "warning" && envelope.payload.get().contains("EVENT_GAP"));
        if private {
            if span.after < NEVER_ISSUED && !span.seqs.is_empty() {
                observations.add_finding(format!("a gap in the middle of events: {}", excerpt(line)));
            }
            observations.record_private(session, seq, line);
            // Later events are counted from here.
            span.after = seq;
            self.last_seq = self.last_seq.max(seq);
            return;
        }
        if span.seqs.last().copied().unwrap_or(span.after) >= seq {
            let before = span.seqs.last().copied().unwrap_or(span.after);
            observations.add_finding(format!("generation {}: after {before} came {}", span.generation, excerpt(line)));
        }
        span.seqs.push(seq);
        observations.record_event(session, seq, line);
        if seq > self.last_seq {
            self.last_seq = seq;
            self.update_state(envelope);
        }
    }

    fn update_state(&mut self, envelope: &Envelope<'_>) {
        let string = |payload: &Value, key: &str| payload[key].as_str().unwrap_or_default().to_owned();
        match envelope.r#type {
            "user_message" => {
                let payload = envelope.payload();
                if payload.get("delivery").is_none() {
                    self.run = envelope.run_id.map(str::to_owned);
                    self.queued.retain(|message| *message != string(&payload, "messageId"));
                }
            }
            "message_queued" => self.queued.push(string(&envelope.payload(), "messageId")),
            "message_unqueued" => {
                let message = string(&envelope.payload(), "messageId");
                self.queued.retain(|queued| *queued != message);
            }
            "approval_required" => {
                let payload = envelope.payload();
                let choices = payload["details"]["choices"].as_array().cloned().unwrap_or_default();
                let choices = choices.iter().filter_map(|choice| choice.as_str().map(str::to_owned)).collect();
                self.open_approvals.insert(string(&payload, "approvalId"), choices);
            }
            "approval_received" => drop(self.open_approvals.remove(&string(&envelope.payload(), "approvalId"))),
            "run_complete" => {
                self.run = None;
                self.open_approvals.clear();
            }
            _ => {}
        }
    }
}
