//! The random actions of a client.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use serde_json::json;

use super::client::{RandomClient, Role};
use super::connection::{Connection, ConnectionLost};
use super::harness::Phase;
use super::observations::{DeliveryMode, Message, MessageResult};
use super::request::Request;
use super::session_view::NEVER_ISSUED;
use super::workload;

impl RandomClient {
    /// Does one random action.
    pub(super) fn random_action(&mut self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        if self.pending.len() > 4 {
            return Ok(());
        }
        match (self.role, self.harness.phase()) {
            (_, Phase::Done) => Ok(()),
            (Role::Watcher, Phase::Busy) => self.watch(connection),
            (Role::Worker, Phase::Busy) => self.work(connection),
            (_, Phase::Finishing) => self.finish(connection),
        }
    }

    fn watch(&mut self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        let sessions: Vec<_> = self.views.keys().cloned().collect();
        let Some(session) = self.random.pick(&sessions).cloned() else { return Ok(()) };
        if self.random.one_in(4) {
            return self.decide(connection, &session);
        }
        let view = self.views.get(&session).expect("it is followed");
        if !view.is_attached() {
            return Ok(());
        }
        let after = match self.random.below(16) {
            // Never issued: the daemon must report a gap, and continue from there.
            0 => NEVER_ISSUED + self.random.below(1000),
            1 => self.random.below(view.last_seq + 1),
            2..=5 => view.last_seq.saturating_sub(self.random.below(300)),
            _ => return Ok(()),
        };
        self.send(connection, Request::Attach { session, after })
    }

    fn work(&mut self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        let Some(session) = self.attached_session() else { return Ok(()) };
        if let Some(again) = self.unanswered.pop() {
            return self.send(connection, again);
        }
        let view = &self.views[&session];
        let (run, queued) = (view.run.clone(), view.queued.clone());
        match (run, self.random.below(20)) {
            (None, 0) => self.send_message(connection, &session, DeliveryMode::Queue),
            (None, 1..=3) => {
                self.wants_pause = true;
                Ok(())
            }
            (None, _) => self.send_message(connection, &session, DeliveryMode::Send),
            (Some(_), 0..=5) => self.decide(connection, &session),
            (Some(_), 6 | 7) if queued.len() < 3 => self.send_message(connection, &session, DeliveryMode::Queue),
            (Some(_), 8 | 9) => self.send_message(connection, &session, DeliveryMode::Steer),
            (Some(run), 10) if self.random.one_in(2) => self.send(connection, Request::Cancel { session, run }),
            (Some(_), 11) => match self.random.pick(&queued).cloned() {
                Some(message) => self.send(connection, Request::Remove { session, message }),
                None => Ok(()),
            },
            (Some(_), 12) if self.random.one_in(4) => {
                let name = format!("name {}", self.random.below(1_000_000));
                self.send(connection, Request::Rename { session, name })
            }
            (Some(_), 13) if self.random.one_in(4) => self.send_message(connection, &session, DeliveryMode::Send),
            (Some(_), _) => Ok(()),
        }
    }

    fn finish(&mut self, connection: &mut Connection) -> Result<(), ConnectionLost> {
        let Some(session) = self.attached_session() else { return Ok(()) };
        if let Some(again) = self.unanswered.pop() {
            return self.send(connection, again);
        }
        self.decide(connection, &session)?;
        if self.pending.is_empty() && !self.is_idle {
            self.send(connection, Request::Snapshot { session })
        } else {
            Ok(())
        }
    }

    /// The worker's session, once this connection has requested its events.
    fn attached_session(&self) -> Option<String> {
        self.session.clone().filter(|session| self.views[session].is_attaching())
    }

    fn send_message(
        &mut self,
        connection: &mut Connection,
        session: &str,
        delivery: DeliveryMode,
    ) -> Result<(), ConnectionLost> {
        self.messages_made += 1;
        let id = format!("{}m{}x{}", self.harness.name(), self.number, self.messages_made);
        let ledger = self.harness.ledger();
        let work = match delivery {
            DeliveryMode::Send | DeliveryMode::Queue => {
                workload::message(&mut self.random, &id, &ledger, self.number == 0)
            }
            DeliveryMode::Steer => workload::steering(&mut self.random, &id, &ledger),
        };
        let mut payload = json!({"sessionId": session, "clientMessageId": id, "text": work.text});
        if !work.checks.is_empty() {
            payload["acceptanceCriteria"] = work.checks.iter().map(|check| json!({"check": check})).collect();
        }
        let (session, steps) = (session.to_owned(), work.steps);
        let message = Message { session, delivery, steps, attempts: 0, result: MessageResult::Unanswered };
        self.harness.observations.lock().messages.insert(id.clone(), message);
        self.send(connection, Request::Message { id, delivery, payload })
    }

    fn decide(&mut self, connection: &mut Connection, session: &str) -> Result<(), ConnectionLost> {
        let open: Vec<_> =
            self.views[session].open_approvals.iter().map(|(id, choices)| (id.clone(), choices.clone())).collect();
        let Some((approval, choices)) = self.random.pick(&open).cloned() else { return Ok(()) };
        let is_decided =
            |request: &Request| matches!(request, Request::Decide { approval: other, .. } if *other == approval);
        if self.pending.values().any(is_decided) {
            return Ok(());
        }
        let decision = if self.random.one_in(8) { "deny" } else { "approve" }.to_owned();
        let choice = match decision.as_str() {
            "approve" if !choices.is_empty() => {
                Some(if self.random.one_in(2) { "run_again" } else { "skip" }.to_owned())
            }
            _ => None,
        };
        self.send(connection, Request::Decide { session: session.to_owned(), approval, decision, choice })?;
        match self.views[session].run.clone() {
            // At once, so that it reaches the daemon while the step is starting.
            Some(run) if self.random.one_in(8) => {
                self.send(connection, Request::Cancel { session: session.to_owned(), run })
            }
            Some(_) | None => Ok(()),
        }
    }
}
