//! The open gates: how they open, take votes and close.

use std::collections::VecDeque;

use super::State;
use crate::kernel::event::{ApprovalScope, Decision, GateDecision, GateEvent, GateQuestion};
use crate::kernel::gate::{Gate, GateSubject, Voter};
use crate::kernel::id::RunId;
use crate::kernel::limits::Limits;

impl State {
    /// Returns the open gates of the active run.
    pub fn run_gates(&self) -> impl Iterator<Item = &Gate> {
        self.gates.values().filter(|gate| gate.run.is_some())
    }

    /// Returns whether the active run waits for a gate.
    pub fn awaits_gate(&self) -> bool {
        self.run_gates().next().is_some()
    }

    pub(super) fn fold_gate_event(&mut self, event: &GateEvent, run: Option<&RunId>, limits: &Limits) {
        match event {
            GateEvent::Opened(question) => self.open_gate(question, run),
            GateEvent::Voted { gate, decision, by: _, participant } => {
                if let Some(gate) = self.gates.get_mut(gate) {
                    gate.votes.insert(Voter::new(participant.as_ref()), *decision);
                }
            }
            GateEvent::Settled(decision) => self.close_gate(decision, limits),
        }
    }

    fn open_gate(&mut self, question: &GateQuestion, run: Option<&RunId>) {
        // A gate of a run that has ended blocks nothing.
        if run.is_some() && self.run.is_none() {
            return;
        }
        if let (Some(run), Some(call), Some(digest)) = (&mut self.run, question.call(), &question.digest)
            && let Some(call) = run.calls.get_mut(call)
        {
            // The gate about a call of unknown result has no digest and keeps the approved one.
            call.approved_digest = Some(digest.clone());
        }
        self.gates.insert(question.gate.clone(), Gate::new(run.cloned(), question.clone()));
    }

    fn close_gate(&mut self, decided: &GateDecision, limits: &Limits) {
        let gate = self.gates.remove(&decided.gate);
        if gate.is_none() && self.run.is_none() {
            return;
        }
        if let (Some(run), Some(gate)) = (&mut self.run, gate) {
            if let GateSubject::Budget { resource: Some(resource), .. } = gate.question.subject
                && decided.decision == Decision::Approve
            {
                run.spent.raise(resource);
            }
            if let Some(rule) = decided.granted_rule(&gate.question) {
                match decided.scope {
                    ApprovalScope::Run => add_grant(&mut run.granted, rule, limits.granted),
                    ApprovalScope::Session => add_grant(&mut self.granted, rule, limits.granted),
                    // These are stored outside the session, or not at all.
                    ApprovalScope::Always | ApprovalScope::Once => {}
                }
            }
        }
        self.settled_gates.push_back(decided.gate.clone());
        while self.settled_gates.len() > limits.settled_gates {
            self.settled_gates.pop_front();
        }
    }
}

/// Adds a rule if it is new. Beyond the limit the oldest rule is dropped, and its calls ask again.
fn add_grant(granted: &mut VecDeque<String>, rule: String, limit: usize) {
    if !granted.contains(&rule) {
        granted.push_back(rule);
    }
    while granted.len() > limit {
        granted.pop_front();
    }
}
