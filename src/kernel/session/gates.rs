//! Gates: votes, expiry, and the consequences of a decision.

use super::Session;
use super::effects::Effects;
use super::runs::unexecuted_result;
use crate::kernel::command::{Answer, Caller, Command, GateProposal, GateVote, Reply, Right};
use crate::kernel::effect::{GateRequest, RequestSubject};
use crate::kernel::event::{
    ApprovalScope, CallResult, Decision, DenialEffect, EventKind, GateDecision, GateEvent, GateQuestion, Intention,
    RunOutcome, ToolError, ToolEvent, ToolOutcome,
};
use crate::kernel::gate::{self, Gate, GateSubject, Voter};
use crate::kernel::id::{CallId, GateId, Json};
use crate::kernel::quorum::Quorum;
use crate::kernel::refusal::Refusal;
use crate::kernel::state::CallStage;
use crate::kernel::time::Now;

/// The source that settles an expired gate.
const TIMEOUT: &str = "timeout";
/// The source that settles a gate whose voters have changed.
const QUORUM: &str = "quorum";
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
        let gate = self.find_open_gate(vote)?;
        let voter = Voter::new(caller.participant.as_ref());
        if !gate.admits(&voter, &self.state.participants) {
            return Err(Refusal::NotEligible);
        }
        let choice = gate.resolve_choice(vote)?;
        gate.check_scope(vote)?;
        gate.check_answer(vote)?;
        if vote.scope == ApprovalScope::Always || vote.rule.is_some() {
            // The rule is stored for the repository, beyond this session and its participants, or is not the offered
            // one.
            self.require(caller, Right::Own)?;
        }
        let (by, participant) = (caller.source.clone(), caller.participant.clone());
        let mut voted = gate.clone();
        voted.votes.insert(voter, vote.decision);
        if voted.verdict(&self.state.participants) != Some(vote.decision) {
            let (gate, decision) = (vote.gate.clone(), vote.decision);
            let event = GateEvent::Voted { gate, decision, by, participant };
            self.record_for(voted.run, EventKind::Gate(event), now, fx);
            self.settle_decided_gates(|gate, _| gate.question.gate == vote.gate, now, fx);
            return Ok(Answer::Decided);
        }
        let comment = vote.comment.clone();
        let (gate, decision, scope) = (vote.gate.clone(), vote.decision, vote.scope);
        let (rule, answer) = (vote.rule.clone(), vote.answer.clone());
        let gate_decision = GateDecision { gate, decision, choice, by, participant, comment, scope, rule, answer };
        self.settle_gate(gate_decision, now, fx);
        Ok(Answer::Decided)
    }

    /// Opens the gate that a requested call needs.
    pub(super) fn open_gate(&mut self, call: CallId, request: GateRequest, now: Now, fx: &mut Effects) {
        let (kind, subject) = match request.subject {
            RequestSubject::ToolCall { kind } => (kind, GateSubject::ToolCall { call }),
            RequestSubject::Budget(resource) => {
                (gate::BUDGET.to_owned(), GateSubject::Budget { call, resource: Some(resource) })
            }
            RequestSubject::Form { kind, form } => (kind, GateSubject::Form { call, form }),
        };
        let question = GateQuestion {
            gate: request.gate,
            subject,
            kind,
            title: request.title,
            summary: request.summary,
            details: request.details,
            choices: request.choices,
            quorum: request.quorum,
            eligible: None,
            expires: now.after(request.timeout_millis.unwrap_or(self.limits.gate_millis)),
            grant_rule: request.grant_rule,
            digest: request.digest,
            on_denial: request.on_denial,
        };
        let gate_decision = self.policy_decision(&question, request.policy_comment);
        self.record(EventKind::Gate(GateEvent::Opened(Box::new(question))), now, fx);
        if let Some(gate_decision) = gate_decision {
            self.settle_gate(gate_decision, now, fx);
        }
    }

    /// Opens a gate that belongs to no run. Its decision is an event and nothing else.
    pub(super) fn open_gate_without_run(&mut self, proposal: GateProposal, now: Now, fx: &mut Effects) -> Reply {
        self.ensure_open()?;
        if self.state.gates.contains_key(&proposal.gate) || self.state.settled_gates.contains(&proposal.gate) {
            return Err(Refusal::GateExists);
        }
        if self.state.gates.values().filter(|gate| gate.run.is_none()).count() >= self.limits.gates_without_run {
            return Err(Refusal::TooManyGates);
        }
        let question = GateQuestion {
            gate: proposal.gate,
            subject: GateSubject::Other,
            kind: proposal.kind,
            title: proposal.title,
            summary: proposal.summary,
            details: proposal.details,
            choices: proposal.choices,
            quorum: proposal.quorum,
            eligible: proposal.eligible,
            expires: now.after(proposal.timeout_millis.unwrap_or(self.limits.gate_millis)),
            grant_rule: None,
            digest: None,
            on_denial: DenialEffect::EndRun,
        };
        self.record_for(None, EventKind::Gate(GateEvent::Opened(Box::new(question))), now, fx);
        Ok(Answer::GateOpened)
    }

    /// Returns whether a caller votes on a gate that names it as a voter.
    pub(super) fn is_named_voter(&self, caller: &Caller, command: &Command) -> bool {
        let Command::Decide(vote) = command else { return false };
        let voter = Voter::new(caller.participant.as_ref());
        let gate = self.state.gates.get(&vote.gate);
        gate.is_some_and(|gate| gate.question.quorum.names_voters() && gate.admits(&voter, &self.state.participants))
    }

    /// Settles the gates that are decided without a further vote, if `is_due`.
    pub(super) fn settle_decided_gates(
        &mut self,
        is_due: impl Fn(&Gate, Decision) -> bool,
        now: Now,
        fx: &mut Effects,
    ) {
        let decided = |gate: &Gate| {
            let decision = gate.verdict(&self.state.participants).filter(|decision| is_due(gate, *decision))?;
            // The answer to a form comes with the vote that settles it.
            (decision == Decision::Deny || gate.question.form().is_none()).then(|| settlement(gate, decision, QUORUM))
        };
        let due: Vec<_> = self.state.gates.values().filter_map(decided).collect();
        for gate_decision in due {
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
        let can_approve = !question.is_about_budget() && question.quorum.is_single_vote();
        let is_form = question.form().is_some();
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
            participant: None,
            comment: comment.filter(|_| decision == Decision::Deny),
            scope: ApprovalScope::Once,
            rule: None,
            answer: None,
        })
    }

    /// Opens the gate of a call that had started and whose result is unknown.
    pub(super) fn open_unknown_call_gate(&mut self, gate: GateId, intention: Intention, now: Now, fx: &mut Effects) {
        let question = GateQuestion {
            gate,
            subject: GateSubject::UnknownCall { call: intention.call },
            kind: gate::UNKNOWN_CALL.to_owned(),
            title: "A step was interrupted and its end is unknown".to_owned(),
            summary: format!("{} had started when the daemon stopped; it may or may not have finished", intention.tool),
            details: intention.args,
            choices: gate::unknown_call_choices(),
            quorum: Quorum::Any(1),
            eligible: None,
            expires: now.after(self.limits.gate_millis),
            grant_rule: None,
            digest: None,
            on_denial: DenialEffect::EndRun,
        };
        self.record(EventKind::Gate(GateEvent::Opened(Box::new(question))), now, fx);
    }

    /// Settles every expired gate, and stops a run whose time limit has expired.
    pub(super) fn expire(&mut self, now: Now, fx: &mut Effects) {
        if self.next_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        if self.state.run.as_ref().and_then(|run| run.deadline).is_some_and(|deadline| deadline <= now) {
            self.stop(RunOutcome::Failed, TIMEOUT.to_owned(), TIMEOUT, now, fx);
        }
        // A run may continue without an answer, so more than one gate may be due.
        while let Some(due) = self.state.gates.values().find(|gate| gate.question.expires <= now) {
            let gate_decision = settlement(due, Decision::Deny, TIMEOUT);
            self.settle_gate(gate_decision, now, fx);
        }
    }

    /// Denies all open gates of a run that is being stopped.
    pub(super) fn deny_open_gates(&mut self, now: Now, fx: &mut Effects) {
        let open: Vec<_> = self.state.run_gates().map(|gate| settlement(gate, Decision::Deny, CANCEL)).collect();
        for gate_decision in open {
            self.record(EventKind::Gate(GateEvent::Settled(Box::new(gate_decision))), now, fx);
        }
    }

    fn find_open_gate(&self, vote: &GateVote) -> Result<&Gate, Refusal> {
        match self.state.gates.get(&vote.gate) {
            Some(gate) if vote.run.is_some() && vote.run != gate.run => Err(Refusal::UnknownGate),
            Some(gate) => Ok(gate),
            None if self.state.settled_gates.contains(&vote.gate) => Err(Refusal::GateClosed),
            None => Err(Refusal::UnknownGate),
        }
    }

    fn settle_gate(&mut self, gate_decision: GateDecision, now: Now, fx: &mut Effects) {
        let Some(Gate { run, question, votes: _ }) = self.state.gates.get(&gate_decision.gate).cloned() else {
            return;
        };
        let of_budget = question.is_about_budget();
        let granted = gate_decision.granted_rule(&question);
        let GateDecision { decision, choice, by, comment, scope, answer, .. } = gate_decision.clone();
        self.record_for(run, EventKind::Gate(GateEvent::Settled(Box::new(gate_decision))), now, fx);
        let is_form = question.form().is_some();
        let call = question.call().cloned();
        if let Some(rule) = granted.filter(|_| scope == ApprovalScope::Always) {
            fx.store_grant(rule, by.clone());
        }
        let calls = self.state.run.as_ref().map(|run| &run.calls);
        let Some(call) = calls.zip(call).and_then(|(calls, call)| calls.get(&call)) else { return };
        let intention = call.intention.clone();
        if is_form {
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
        self.record(EventKind::Tool(ToolEvent::Settled(Box::new(result))), now, fx);
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
        self.record(EventKind::Tool(ToolEvent::Settled(Box::new(result))), now, fx);
        self.advance(fx);
    }

    fn skip(&mut self, intention: Intention, now: Now, fx: &mut Effects) {
        self.record(EventKind::Tool(ToolEvent::Settled(Box::new(skipped_result(intention)))), now, fx);
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
        diff: None,
    }
}

/// Returns the decision of a gate that no vote settles.
fn settlement(gate: &Gate, decision: Decision, by: &str) -> GateDecision {
    let choices = &gate.question.choices;
    GateDecision {
        gate: gate.question.gate.clone(),
        decision,
        choice: match decision {
            Decision::Approve => choices.first().cloned(),
            Decision::Deny => choices.last().cloned(),
        },
        by: by.to_owned(),
        participant: None,
        comment: None,
        scope: ApprovalScope::Once,
        rule: None,
        answer: None,
    }
}
