//! Gates: votes, expiry, and the consequences of a decision.

use super::Session;
use super::effects::Effects;
use super::running::unused;
use crate::kernel::command::{Answer, Caller, Decide, Reply};
use crate::kernel::effect::Ask;
use crate::kernel::event::{
    Decision, Denial, Ending, EventKind, Fault, Intention, Lasting, Outcome, Question, Settlement, Verdict,
};
use crate::kernel::gate::{self, Gate};
use crate::kernel::id::{CallId, GateId, Json};
use crate::kernel::refusal::Refusal;
use crate::kernel::state::Stage;
use crate::kernel::time::Now;

/// The source that settles an expired gate.
const TIMEOUT: &str = "timeout";
/// The source that settles the gates of a stopped run.
const CANCEL: &str = "cancel";
/// The error kind of a denial with a comment.
const DENIED: &str = "DENIED";
/// The error kind of a dismissed question.
const DISMISSED: &str = "DISMISSED";
/// The error kind of a question that expired without an answer.
const TIMED_OUT: &str = "TIMED_OUT";

impl Session {
    pub(super) fn decide(&mut self, caller: &Caller, vote: &Decide, now: Now, fx: &mut Effects) -> Reply {
        self.entitled(self.roster.rights(caller).decide)?;
        let gate = self.open_gate(vote)?;
        let choice = gate.choice(vote)?;
        gate.offers(vote)?;
        gate.takes(vote)?;
        let by = caller.source.clone();
        if !gate.settles(&by, vote.decision) {
            let kind = EventKind::GateVoted { gate: vote.gate.clone(), decision: vote.decision, by };
            self.record(kind, now, fx);
            return Ok(Answer::Decided);
        }
        let comment = vote.comment.clone();
        let (gate, decision, lasting) = (vote.gate.clone(), vote.decision, vote.lasting);
        let answer = vote.answer.clone();
        let verdict = Verdict { gate, decision, choice, by, comment, lasting, answer };
        self.settle(verdict, now, fx);
        Ok(Answer::Decided)
    }

    /// Opens the gate that a requested call needs.
    pub(super) fn ask(&mut self, call: CallId, ask: Ask, now: Now, fx: &mut Effects) {
        let question = Question {
            gate: ask.gate,
            call,
            kind: ask.kind,
            title: ask.title,
            summary: ask.summary,
            details: ask.details,
            choices: ask.choices,
            needed: ask.needed,
            expires: now.after(ask.millis.unwrap_or(self.limits.gate_millis)),
            remember: ask.remember,
            digest: ask.digest,
            denial: ask.denial,
            form: ask.form,
        };
        let verdict = self.verdict_of_run(&question, ask.policy_comment);
        self.record(EventKind::GateOpened(Box::new(question)), now, fx);
        if let Some(verdict) = verdict {
            self.settle(verdict, now, fx);
        }
    }

    /// Returns the decision of a run's own policy, if the run has one that answers gates.
    ///
    /// Such a policy cannot approve more budget or stand for several voters, and it dismisses forms. A denial has a
    /// comment, so that a provider that can continue without the call does so.
    fn verdict_of_run(&self, question: &Question, comment: Option<String>) -> Option<Verdict> {
        let rules = &self.state.run.as_ref()?.rules;
        let has = |rule: &str| rules.iter().any(|line| line == rule);
        let can_approve = question.kind != gate::BUDGET && question.needed == 1;
        let is_form = question.form.is_some();
        let (decision, choice) = if has(gate::APPROVE_NOTHING) || has(gate::APPROVE_ALL) && is_form {
            (Decision::Deny, question.choices.last())
        } else if has(gate::APPROVE_ALL) && can_approve {
            (Decision::Approve, question.choices.first())
        } else {
            return None;
        };
        Some(Verdict {
            gate: question.gate.clone(),
            decision,
            choice: choice.cloned(),
            by: gate::POLICY.to_owned(),
            comment: comment.filter(|_| decision == Decision::Deny),
            lasting: Lasting::Once,
            answer: None,
        })
    }

    /// Opens the gate of a call that had started and whose result is unknown.
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
            remember: None,
            digest: None,
            denial: Denial::Ends,
            form: None,
        };
        self.record(EventKind::GateOpened(Box::new(question)), now, fx);
    }

    /// Settles every expired gate, and stops a run whose time limit has expired.
    pub(super) fn expire(&mut self, now: Now, fx: &mut Effects) {
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        if self.state.run.as_ref().and_then(|run| run.deadline).is_some_and(|deadline| deadline <= now) {
            return self.stop(Outcome::Failed, TIMEOUT.to_owned(), TIMEOUT, now, fx);
        }
        // A run may continue without an answer, so more than one gate may be due.
        while let Some(due) = self.state.gates.values().find(|gate| gate.question.expires <= now) {
            let verdict = denied(due, TIMEOUT);
            self.settle(verdict, now, fx);
        }
    }

    /// Denies all open gates of a run that is being stopped.
    pub(super) fn deny_open_gates(&mut self, now: Now, fx: &mut Effects) {
        let open: Vec<_> = self.state.gates.values().map(|gate| denied(gate, CANCEL)).collect();
        for verdict in open {
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
        let Some(question) = self.state.gates.get(&verdict.gate).map(|gate| gate.question.clone()) else {
            return;
        };
        let of_budget = question.kind == gate::BUDGET;
        let Verdict { decision, choice, by, comment, lasting, answer, .. } = verdict.clone();
        self.record(EventKind::GateSettled(Box::new(verdict)), now, fx);
        if let Some(rule) = question.remember.filter(|_| lasting == Lasting::Always) {
            fx.remember(rule, by.clone());
        }
        let calls = self.state.run.as_ref().map(|run| &run.calls);
        let Some(call) = calls.and_then(|calls| calls.get(&question.call)) else { return };
        let intention = call.intention.clone();
        if question.form.is_some() {
            return self.fill_in(intention, answer, &by, comment.as_deref(), now, fx);
        }
        let told = comment.filter(|comment| question.denial == Denial::Told && !comment.trim().is_empty());
        match (decision, call.stage) {
            (Decision::Deny, Stage::Intended) if let Some(comment) = &told => {
                self.tell_of_denial(&intention, &by, comment, now, fx);
            }
            // The budget is used up, which is a failure and not a denial.
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

    /// Reports a denial and its comment to the provider; the run continues.
    fn tell_of_denial(&mut self, intention: &Intention, by: &str, comment: &str, now: Now, fx: &mut Effects) {
        let message = format!("denied by {by}: {comment}");
        let kind = if by == gate::POLICY { gate::DENIED_BY_POLICY } else { DENIED };
        let fault = Fault { kind: kind.to_owned(), retryable: false, message, detail: None };
        let settlement = unused(intention, Ending::Failed, fault);
        self.record(EventKind::CallSettled(Box::new(settlement)), now, fx);
        self.advance(fx);
    }

    /// Settles a call that was a form: with the submitted answer, or with an error if there is none.
    fn fill_in(
        &mut self,
        intention: Intention,
        answer: Option<Json>,
        by: &str,
        comment: Option<&str>,
        now: Now,
        fx: &mut Effects,
    ) {
        let settlement = match answer {
            Some(answer) => {
                Settlement { ending: Ending::Done, text: answer.as_str().to_owned(), ..skipped(intention) }
            }
            None if by == TIMEOUT => {
                let message = "nobody answered in time".to_owned();
                let kind = TIMED_OUT.to_owned();
                unused(&intention, Ending::Failed, Fault { kind, retryable: false, message, detail: None })
            }
            None => {
                let why = comment.map_or_else(String::new, |comment| format!(": {comment}"));
                let (kind, message) = (DISMISSED.to_owned(), format!("dismissed by {by}{why}"));
                unused(&intention, Ending::Failed, Fault { kind, retryable: false, message, detail: None })
            }
        };
        self.record(EventKind::CallSettled(Box::new(settlement)), now, fx);
        self.advance(fx);
    }

    fn skip(&mut self, intention: Intention, now: Now, fx: &mut Effects) {
        self.record(EventKind::CallSettled(Box::new(skipped(intention))), now, fx);
        self.advance(fx);
    }
}

fn skipped(intention: Intention) -> Settlement {
    Settlement {
        call: intention.call,
        tool: intention.tool,
        purpose: intention.purpose,
        millis: 0,
        ending: Ending::Skipped,
        exit_code: None,
        text: String::new(),
        fault: None,
    }
}

/// Returns the denial of a gate that no voter has decided.
fn denied(gate: &Gate, by: &str) -> Verdict {
    Verdict {
        gate: gate.question.gate.clone(),
        decision: Decision::Deny,
        choice: gate.question.choices.last().cloned(),
        by: by.to_owned(),
        comment: None,
        lasting: Lasting::Once,
        answer: None,
    }
}
