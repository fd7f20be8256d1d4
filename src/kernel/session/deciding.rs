//! Gates: votes, expiry, and what follows from a verdict.

use super::Session;
use super::effects::Effects;
use crate::kernel::command::{Answer, Caller, Decide, Reply};
use crate::kernel::effect::Ask;
use crate::kernel::event::{Decision, Ending, EventKind, Intention, Outcome, Question, Settlement, Verdict};
use crate::kernel::gate::{self, Gate};
use crate::kernel::id::{CallId, GateId};
use crate::kernel::refusal::Refusal;
use crate::kernel::state::Stage;
use crate::kernel::time::Now;

/// Who settles a gate whose time has come.
const TIMEOUT: &str = "timeout";
/// Who settles the gates of a run that is stopped.
const CANCEL: &str = "cancel";

impl Session {
    pub(super) fn decide(&mut self, caller: &Caller, vote: &Decide, now: Now, fx: &mut Effects) -> Reply {
        self.entitled(self.roster.rights(caller).decide)?;
        let gate = self.open_gate(vote)?;
        let choice = gate.choice(vote)?;
        let by = caller.source.clone();
        if !gate.settles(&by, vote.decision) {
            let kind = EventKind::GateVoted { gate: vote.gate.clone(), decision: vote.decision, by };
            self.record(kind, now, fx);
            return Ok(Answer::Decided);
        }
        let comment = vote.comment.clone();
        let verdict = Verdict { gate: vote.gate.clone(), decision: vote.decision, choice, by, comment };
        self.settle(verdict, now, fx);
        Ok(Answer::Decided)
    }

    /// Opens the gate of a call that a provider wants asked about.
    pub(super) fn ask(&mut self, call: CallId, ask: Ask, now: Now, fx: &mut Effects) {
        let Ask { gate, kind, title, summary, details, choices, needed } = ask;
        let expires = now.after(self.limits.gate_millis);
        let question = Question { gate, call, kind, title, summary, details, choices, needed, expires };
        self.record(EventKind::GateOpened(Box::new(question)), now, fx);
    }

    /// Opens the gate of a call that had been started and has no known end.
    pub(super) fn ask_about_unknown(
        &mut self,
        gate: GateId,
        intention: Intention,
        now: Now,
        fx: &mut Effects,
    ) {
        let question = Question {
            gate,
            call: intention.call,
            kind: "unknown_step".to_owned(),
            title: "A step was interrupted and its end is unknown".to_owned(),
            summary: format!(
                "{} had started when the daemon stopped; it may or may not have finished",
                intention.tool
            ),
            details: intention.args,
            choices: gate::unknown_choices(),
            needed: 1,
            expires: now.after(self.limits.gate_millis),
        };
        self.record(EventKind::GateOpened(Box::new(question)), now, fx);
    }

    /// Settles every gate whose time has come, and stops a run whose time has come.
    pub(super) fn expire(&mut self, now: Now, fx: &mut Effects) {
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        if self.state.run.as_ref().and_then(|run| run.deadline).is_some_and(|deadline| deadline <= now) {
            return self.stop(Outcome::Failed, TIMEOUT.to_owned(), TIMEOUT, now, fx);
        }
        let due = self.state.gates.values().find(|gate| gate.question.expires <= now).map(denied);
        if let Some((gate, choice)) = due {
            let by = TIMEOUT.to_owned();
            self.settle(Verdict { gate, decision: Decision::Deny, choice, by, comment: None }, now, fx);
        }
    }

    /// Settles all open gates of a run that is being stopped.
    pub(super) fn deny_open_gates(&mut self, now: Now, fx: &mut Effects) {
        let open: Vec<_> = self.state.gates.values().map(denied).collect();
        for (gate, choice) in open {
            let by = CANCEL.to_owned();
            let verdict = Verdict { gate, decision: Decision::Deny, choice, by, comment: None };
            self.record(EventKind::GateSettled(Box::new(verdict)), now, fx);
        }
    }

    fn open_gate(&self, vote: &Decide) -> Result<&Gate, Refusal> {
        let active = self.state.run.as_ref().map(|run| &run.id);
        match self.state.gates.get(&vote.gate) {
            Some(_) if vote.run.is_some() && vote.run.as_ref() != active => Err(Refusal::UnknownGate),
            Some(gate) => Ok(gate),
            None if self.state.settled_gates.contains(&vote.gate) => Err(Refusal::GateClosed),
            None => Err(Refusal::UnknownGate),
        }
    }

    fn settle(&mut self, verdict: Verdict, now: Now, fx: &mut Effects) {
        let question = self.state.gates.get(&verdict.gate).map(|gate| &gate.question);
        let of_budget = question.is_some_and(|question| question.kind == gate::BUDGET);
        let call = question.map(|question| question.call.clone());
        let choice = verdict.choice.clone();
        let (decision, by) = (verdict.decision, verdict.by.clone());
        self.record(EventKind::GateSettled(Box::new(verdict)), now, fx);
        let calls = self.state.run.as_ref().map(|run| &run.calls);
        let Some(call) = call.and_then(|call| calls?.get(&call)) else { return };
        let intention = call.intention.clone();
        match (decision, call.stage) {
            // Nothing was forbidden: what was given is used up.
            (Decision::Deny, Stage::Intended) if of_budget => {
                self.stop(Outcome::Failed, gate::BUDGET.to_owned(), &by, now, fx);
            }
            (Decision::Deny, Stage::Intended | Stage::Started) => {
                self.stop(Outcome::Denied, "denied".to_owned(), &by, now, fx);
            }
            (Decision::Approve, Stage::Started) if choice.as_deref() == Some(gate::SKIP) => {
                self.skip(intention, now, fx);
            }
            (Decision::Approve, Stage::Intended | Stage::Started) => self.start_call(intention, now, fx),
        }
    }

    fn skip(&mut self, intention: Intention, now: Now, fx: &mut Effects) {
        let settlement = Settlement {
            call: intention.call,
            tool: intention.tool,
            purpose: intention.purpose,
            millis: 0,
            ending: Ending::Skipped,
            exit_code: None,
            text: String::new(),
            fault: None,
        };
        self.record(EventKind::CallSettled(Box::new(settlement)), now, fx);
        self.advance(fx);
    }
}

/// Returns a gate and the choice that denies it.
fn denied(gate: &Gate) -> (GateId, Option<String>) {
    (gate.question.gate.clone(), gate.question.choices.last().cloned())
}
