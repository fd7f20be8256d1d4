//! Gates: votes, expiry, and the consequences of a decision.

use super::Session;
use super::effects::Effects;
use super::runs::unexecuted_result;
use crate::kernel::command::{Answer, Caller, GateVote, Reply};
use crate::kernel::effect::GateRequest;
use crate::kernel::event::{
    ApprovalScope, CallResult, Decision, DenialEffect, EventKind, GateDecision, GateQuestion, Intention, RunOutcome,
    ToolError, ToolOutcome,
};
use crate::kernel::gate::{self, Gate};
use crate::kernel::id::{CallId, GateId, Json};
use crate::kernel::refusal::Refusal;
use crate::kernel::state::CallStage;
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
    pub(super) fn decide(&mut self, caller: &Caller, vote: &GateVote, now: Now, fx: &mut Effects) -> Reply {
        self.require(self.roster.rights(caller).decide)?;
        let gate = self.find_open_gate(vote)?;
        let choice = gate.resolve_choice(vote)?;
        gate.check_scope(vote)?;
        gate.check_answer(vote)?;
        let by = caller.source.clone();
        if !gate.settles(&by, vote.decision) {
            let kind = EventKind::GateVoted { gate: vote.gate.clone(), decision: vote.decision, by };
            self.record(kind, now, fx);
            return Ok(Answer::Decided);
        }
        let comment = vote.comment.clone();
        let (gate, decision, scope) = (vote.gate.clone(), vote.decision, vote.scope);
        let answer = vote.answer.clone();
        let gate_decision = GateDecision { gate, decision, choice, by, comment, scope, answer };
        self.settle_gate(gate_decision, now, fx);
        Ok(Answer::Decided)
    }

    /// Opens the gate that a requested call needs.
    pub(super) fn open_gate(&mut self, call: CallId, request: GateRequest, now: Now, fx: &mut Effects) {
        let question = GateQuestion {
            gate: request.gate,
            call,
            kind: request.kind,
            title: request.title,
            summary: request.summary,
            details: request.details,
            choices: request.choices,
            quorum: request.quorum,
            expires: now.after(request.timeout_millis.unwrap_or(self.limits.gate_millis)),
            grant_rule: request.grant_rule,
            digest: request.digest,
            on_denial: request.on_denial,
            form: request.form,
        };
        let gate_decision = self.policy_decision(&question, request.policy_comment);
        self.record(EventKind::GateOpened(Box::new(question)), now, fx);
        if let Some(gate_decision) = gate_decision {
            self.settle_gate(gate_decision, now, fx);
        }
    }

    /// Returns the decision of a run's own policy, if the run has one that answers gates.
    ///
    /// Such a policy cannot approve more budget or stand for several voters, and it dismisses forms. A denial has a
    /// comment, so that a provider that can continue without the call does so.
    fn policy_decision(&self, question: &GateQuestion, comment: Option<String>) -> Option<GateDecision> {
        let rules = &self.state.run.as_ref()?.rules;
        let has = |rule: &str| rules.iter().any(|line| line == rule);
        let can_approve = question.kind != gate::BUDGET && question.quorum == 1;
        let is_form = question.form.is_some();
        let (decision, choice) = if has(gate::DENY_ALL) || has(gate::APPROVE_ALL) && is_form {
            (Decision::Deny, question.choices.last())
        } else if has(gate::APPROVE_ALL) && can_approve {
            (Decision::Approve, question.choices.first())
        } else {
            return None;
        };
        Some(GateDecision {
            gate: question.gate.clone(),
            decision,
            choice: choice.cloned(),
            by: gate::POLICY.to_owned(),
            comment: comment.filter(|_| decision == Decision::Deny),
            scope: ApprovalScope::Once,
            answer: None,
        })
    }

    /// Opens the gate of a call that had started and whose result is unknown.
    pub(super) fn open_unknown_call_gate(&mut self, gate: GateId, intention: Intention, now: Now, fx: &mut Effects) {
        let question = GateQuestion {
            gate,
            call: intention.call,
            kind: "unknown_step".to_owned(),
            title: "A step was interrupted and its end is unknown".to_owned(),
            summary: format!("{} had started when the daemon stopped; it may or may not have finished", intention.tool),
            details: intention.args,
            choices: gate::unknown_call_choices(),
            quorum: 1,
            expires: now.after(self.limits.gate_millis),
            grant_rule: None,
            digest: None,
            on_denial: DenialEffect::EndRun,
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
            return self.stop(RunOutcome::Failed, TIMEOUT.to_owned(), TIMEOUT, now, fx);
        }
        // A run may continue without an answer, so more than one gate may be due.
        while let Some(due) = self.state.gates.values().find(|gate| gate.question.expires <= now) {
            let gate_decision = denial(due, TIMEOUT);
            self.settle_gate(gate_decision, now, fx);
        }
    }

    /// Denies all open gates of a run that is being stopped.
    pub(super) fn deny_open_gates(&mut self, now: Now, fx: &mut Effects) {
        let open: Vec<_> = self.state.gates.values().map(|gate| denial(gate, CANCEL)).collect();
        for gate_decision in open {
            self.record(EventKind::GateSettled(Box::new(gate_decision)), now, fx);
        }
    }

    fn find_open_gate(&self, vote: &GateVote) -> Result<&Gate, Refusal> {
        let active = self.state.run.as_ref().map(|run| &run.id);
        match self.state.gates.get(&vote.gate) {
            Some(_) if vote.run.is_some() && vote.run.as_ref() != active => Err(Refusal::UnknownGate),
            Some(gate) => Ok(gate),
            None if self.state.settled_gates.contains(&vote.gate) => Err(Refusal::GateClosed),
            None => Err(Refusal::UnknownGate),
        }
    }

    fn settle_gate(&mut self, gate_decision: GateDecision, now: Now, fx: &mut Effects) {
        let Some(question) = self.state.gates.get(&gate_decision.gate).map(|gate| gate.question.clone()) else {
            return;
        };
        let of_budget = question.kind == gate::BUDGET;
        let GateDecision { decision, choice, by, comment, scope, answer, .. } = gate_decision.clone();
        self.record(EventKind::GateSettled(Box::new(gate_decision)), now, fx);
        if let Some(rule) = question.grant_rule.filter(|_| scope == ApprovalScope::Always) {
            fx.store_grant(rule, by.clone());
        }
        let calls = self.state.run.as_ref().map(|run| &run.calls);
        let Some(call) = calls.and_then(|calls| calls.get(&question.call)) else { return };
        let intention = call.intention.clone();
        if question.form.is_some() {
            return self.settle_form(intention, answer, &by, comment.as_deref(), now, fx);
        }
        let model_comment =
            comment.filter(|comment| question.on_denial == DenialEffect::InformModel && !comment.trim().is_empty());
        match (decision, call.stage) {
            (Decision::Deny, CallStage::Intended) if let Some(comment) = &model_comment => {
                self.report_denial(&intention, &by, comment, now, fx);
            }
            // The budget is used up, which is a failure and not a denial.
            (Decision::Deny, CallStage::Intended) if of_budget => {
                self.stop(RunOutcome::Failed, gate::BUDGET.to_owned(), &by, now, fx);
            }
            (Decision::Deny, CallStage::Intended | CallStage::Started) => {
                self.stop(RunOutcome::Denied, "denied".to_owned(), &by, now, fx);
            }
            (Decision::Approve, CallStage::Started) if choice.as_deref() == Some(gate::SKIP) => {
                self.skip(intention, now, fx);
            }
            (Decision::Approve, CallStage::Intended | CallStage::Started) => self.start_call(intention, now, fx),
        }
    }

    /// Reports a denial and its comment to the provider; the run continues.
    fn report_denial(&mut self, intention: &Intention, by: &str, comment: &str, now: Now, fx: &mut Effects) {
        let message = format!("denied by {by}: {comment}");
        let kind = if by == gate::POLICY { gate::DENIED_BY_POLICY } else { DENIED };
        let error = ToolError { kind: kind.to_owned(), retryable: false, message, detail: None };
        let result = unexecuted_result(intention, ToolOutcome::Failed, error);
        self.record(EventKind::CallSettled(Box::new(result)), now, fx);
        self.advance(fx);
    }

    /// Settles a call that was a form: with the submitted answer, or with an error if there is none.
    fn settle_form(
        &mut self,
        intention: Intention,
        answer: Option<Json>,
        by: &str,
        comment: Option<&str>,
        now: Now,
        fx: &mut Effects,
    ) {
        let result = match answer {
            Some(answer) => CallResult {
                outcome: ToolOutcome::Succeeded,
                text: answer.as_str().to_owned(),
                ..skipped_result(intention)
            },
            None if by == TIMEOUT => {
                let message = "the question timed out without an answer".to_owned();
                let kind = TIMED_OUT.to_owned();
                unexecuted_result(
                    &intention,
                    ToolOutcome::Failed,
                    ToolError { kind, retryable: false, message, detail: None },
                )
            }
            None => {
                let why = comment.map_or_else(String::new, |comment| format!(": {comment}"));
                let (kind, message) = (DISMISSED.to_owned(), format!("dismissed by {by}{why}"));
                unexecuted_result(
                    &intention,
                    ToolOutcome::Failed,
                    ToolError { kind, retryable: false, message, detail: None },
                )
            }
        };
        self.record(EventKind::CallSettled(Box::new(result)), now, fx);
        self.advance(fx);
    }

    fn skip(&mut self, intention: Intention, now: Now, fx: &mut Effects) {
        self.record(EventKind::CallSettled(Box::new(skipped_result(intention))), now, fx);
        self.advance(fx);
    }
}

fn skipped_result(intention: Intention) -> CallResult {
    CallResult {
        call: intention.call,
        tool: intention.tool,
        purpose: intention.purpose,
        millis: 0,
        outcome: ToolOutcome::Skipped,
        exit_code: None,
        text: String::new(),
        error: None,
    }
}

/// Returns the denial of a gate that no voter has decided.
fn denial(gate: &Gate, by: &str) -> GateDecision {
    GateDecision {
        gate: gate.question.gate.clone(),
        decision: Decision::Deny,
        choice: gate.question.choices.last().cloned(),
        by: by.to_owned(),
        comment: None,
        scope: ApprovalScope::Once,
        answer: None,
    }
}
