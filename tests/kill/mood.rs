//! The random actions of a client.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use serde_json::json;

use super::ask::Ask;
use super::follow::FOREIGN;
use super::player::{Player, Role};
use super::stage::Act;
use super::wire::{Lost, Wire};
use super::witness::{Fate, How, Message};
use super::workload;

impl Player {
    /// Does one random action.
    pub(super) fn act(&mut self, wire: &mut Wire) -> Result<(), Lost> {
        if self.pending.len() > 4 {
            return Ok(());
        }
        match (self.role, self.stage.act()) {
            (_, Act::Over) => Ok(()),
            (Role::Watcher, Act::Busy) => self.watch(wire),
            (Role::Worker, Act::Busy) => self.work(wire),
            (_, Act::Finishing) => self.finish(wire),
        }
    }

    fn watch(&mut self, wire: &mut Wire) -> Result<(), Lost> {
        let sessions: Vec<_> = self.following.keys().cloned().collect();
        let Some(session) = self.random.pick(&sessions).cloned() else { return Ok(()) };
        if self.random.one_in(4) {
            return self.decide(wire, &session);
        }
        let place = self.following.get(&session).expect("it is followed");
        if !place.is_settled() {
            return Ok(());
        }
        let after = match self.random.below(16) {
            // Never issued: the daemon must report a gap, and continue from there.
            0 => FOREIGN + self.random.below(1000),
            1 => self.random.below(place.last + 1),
            2..=5 => place.last.saturating_sub(self.random.below(300)),
            _ => return Ok(()),
        };
        self.ask(wire, Ask::Attach { session, after })
    }

    fn work(&mut self, wire: &mut Wire) -> Result<(), Lost> {
        let Some(session) = self.joined() else { return Ok(()) };
        if let Some(again) = self.unanswered.pop() {
            return self.ask(wire, again);
        }
        let place = &self.following[&session];
        let (run, queued) = (place.run.clone(), place.queued.clone());
        match (run, self.random.below(20)) {
            (None, 0) => self.message(wire, &session, How::Queue),
            (None, 1..=3) => {
                self.tired = true;
                Ok(())
            }
            (None, _) => self.message(wire, &session, How::Send),
            (Some(_), 0..=5) => self.decide(wire, &session),
            (Some(_), 6 | 7) if queued.len() < 3 => self.message(wire, &session, How::Queue),
            (Some(_), 8 | 9) => self.message(wire, &session, How::Steer),
            (Some(run), 10) if self.random.one_in(2) => self.ask(wire, Ask::Cancel { session, run }),
            (Some(_), 11) => match self.random.pick(&queued).cloned() {
                Some(message) => self.ask(wire, Ask::Remove { session, message }),
                None => Ok(()),
            },
            (Some(_), 12) if self.random.one_in(4) => {
                let name = format!("name {}", self.random.below(1_000_000));
                self.ask(wire, Ask::Rename { session, name })
            }
            (Some(_), 13) if self.random.one_in(4) => self.message(wire, &session, How::Send),
            (Some(_), _) => Ok(()),
        }
    }

    fn finish(&mut self, wire: &mut Wire) -> Result<(), Lost> {
        let Some(session) = self.joined() else { return Ok(()) };
        if let Some(again) = self.unanswered.pop() {
            return self.ask(wire, again);
        }
        self.decide(wire, &session)?;
        if self.pending.is_empty() && !self.resting {
            self.ask(wire, Ask::Snapshot { session })
        } else {
            Ok(())
        }
    }

    /// The worker's session, once this connection has requested its events.
    fn joined(&self) -> Option<String> {
        self.session.clone().filter(|session| self.following[session].is_joined())
    }

    fn message(&mut self, wire: &mut Wire, session: &str, how: How) -> Result<(), Lost> {
        self.made += 1;
        let id = format!("{}m{}x{}", self.stage.name(), self.number, self.made);
        let ledger = self.stage.ledger();
        let work = match how {
            How::Send | How::Queue => workload::message(&mut self.random, &id, &ledger, self.number == 0),
            How::Steer => workload::steering(&mut self.random, &id, &ledger),
        };
        let mut payload = json!({"sessionId": session, "clientMessageId": id, "text": work.text});
        if !work.checks.is_empty() {
            payload["acceptanceCriteria"] = work.checks.iter().map(|check| json!({"check": check})).collect();
        }
        let (session, steps) = (session.to_owned(), work.steps);
        let message = Message { session, how, steps, attempts: 0, fate: Fate::Unanswered };
        self.stage.witness.lock().messages.insert(id.clone(), message);
        self.ask(wire, Ask::Message { id, how, payload })
    }

    fn decide(&mut self, wire: &mut Wire, session: &str) -> Result<(), Lost> {
        let open: Vec<_> =
            self.following[session].open.iter().map(|(id, choices)| (id.clone(), choices.clone())).collect();
        let Some((approval, choices)) = self.random.pick(&open).cloned() else { return Ok(()) };
        let asked = |ask: &Ask| matches!(ask, Ask::Decide { approval: other, .. } if *other == approval);
        if self.pending.values().any(asked) {
            return Ok(());
        }
        let decision = if self.random.one_in(8) { "deny" } else { "approve" }.to_owned();
        let choice = match decision.as_str() {
            "approve" if !choices.is_empty() => {
                Some(if self.random.one_in(2) { "run_again" } else { "skip" }.to_owned())
            }
            _ => None,
        };
        self.ask(wire, Ask::Decide { session: session.to_owned(), approval, decision, choice })?;
        match self.following[session].run.clone() {
            // At once, so that it reaches the daemon while the step is starting.
            Some(run) if self.random.one_in(8) => {
                self.ask(wire, Ask::Cancel { session: session.to_owned(), run })
            }
            Some(_) | None => Ok(()),
        }
    }
}
