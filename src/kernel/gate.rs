//! A gate: a question that blocks a run, and the votes on it.
//!
//! The gate is settled when `quorum` participants with the right to decide agree, either way. A voter is identified
//! by the source of its connection, so a second connection gives no second vote.

use std::collections::BTreeMap;

use super::command::GateVote;
use super::event::{ApprovalScope, Decision, GateQuestion};
use super::id::Json;
use super::refusal::Refusal;

/// An open gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// Its question.
    pub question: GateQuestion,
    /// The votes by source.
    pub votes: BTreeMap<String, Decision>,
}

impl Gate {
    /// Opens a gate without votes.
    pub const fn new(question: GateQuestion) -> Self {
        Self { question, votes: BTreeMap::new() }
    }

    /// Returns whether this vote settles the gate.
    pub fn settles(&self, voter: &str, decision: Decision) -> bool {
        let agreeing = self.votes.iter().filter(|(who, vote)| *who != voter && **vote == decision).count();
        agreeing + 1 >= self.question.quorum as usize
    }

    /// Checks that the gate offers the scope of a vote.
    ///
    /// With a quorum above one, an approval is valid once: the voters agreed on nothing else.
    pub fn check_scope(&self, vote: &GateVote) -> Result<(), Refusal> {
        let lasts =
            vote.decision == Decision::Approve && self.question.grant_rule.is_some() && self.question.quorum == 1;
        if vote.scope == ApprovalScope::Once || lasts { Ok(()) } else { Err(Refusal::UnknownScope) }
    }

    /// Checks that a vote submits a form exactly if the gate has one.
    ///
    /// The content of the form is not validated here.
    pub const fn check_answer(&self, vote: &GateVote) -> Result<(), Refusal> {
        match (&self.question.form, &vote.answer, vote.decision) {
            (Some(_), Some(_), Decision::Approve) | (_, None, Decision::Deny) => Ok(()),
            (None, None, Decision::Approve) => Ok(()),
            (Some(_), None, Decision::Approve) => Err(Refusal::AnswerNeeded),
            (None, Some(_), Decision::Approve) | (_, Some(_), Decision::Deny) => Err(Refusal::UnknownAnswer),
        }
    }

    /// Returns the option that a vote selects. The default is the first for approval and the last for denial.
    ///
    /// A gate without options has none to select. An option that the gate does not offer, or one that contradicts the
    /// decision (only the last one denies), is refused.
    pub fn resolve_choice(&self, vote: &GateVote) -> Result<Option<String>, Refusal> {
        let choices = &self.question.choices;
        let (Some(first), Some(last)) = (choices.first(), choices.last()) else {
            return if vote.choice.is_none() { Ok(None) } else { Err(Refusal::UnknownChoice) };
        };
        let chosen = match (&vote.choice, vote.decision) {
            (Some(named), _) => choices.iter().find(|choice| *choice == named).ok_or(Refusal::UnknownChoice)?,
            (None, Decision::Approve) => first,
            (None, Decision::Deny) => last,
        };
        let denies = chosen == last;
        if denies == (vote.decision == Decision::Deny) { Ok(Some(chosen.clone())) } else { Err(Refusal::UnknownChoice) }
    }
}

/// The first option for a tool call whose result is unknown: run it again.
pub const RUN_AGAIN: &str = "run_again";
/// The second option: continue without it.
pub const SKIP: &str = "skip";
/// The last option: end the run.
pub const STOP: &str = "stop";

/// The rule of a run that approves every gate, except those about its budget.
pub const APPROVE_ALL: &str = "approve: all";
/// The rule of a run that denies every gate.
pub const DENY_ALL: &str = "approve: deny";
/// The source that settles the gates of a run with such a rule.
pub const POLICY: &str = "policy";

/// The error kind of a call that such a rule denied while the run continues.
pub const DENIED_BY_POLICY: &str = "DENIED_BY_POLICY";

/// Returns whether a rule answers gates, instead of matching single calls.
pub fn is_approval_policy(rule: &str) -> bool {
    matches!(rule, APPROVE_ALL | DENY_ALL)
}

/// The kind of a gate that asks whether a run may exceed its budget.
pub const BUDGET: &str = "budget";
/// The first option of a budget gate: the same amount again.
pub const RAISE: &str = "raise";

/// A resource that a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetResource {
    /// Cost, in millionths of a US dollar.
    Cost,
    /// Turns of the provider.
    Turns,
    /// Tokens, input and output.
    Tokens,
}

impl BudgetResource {
    /// All resources.
    pub const ALL: [Self; 3] = [Self::Cost, Self::Turns, Self::Tokens];

    /// Returns the name with which the value of `of` starts in the details of a gate.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Turns => "turns",
            Self::Tokens => "tokens",
        }
    }

    /// Returns the resource that the details of a gate name.
    pub fn from_details(details: &Json) -> Option<Self> {
        let names = |resource: &Self| details.as_str().contains(&format!("\"of\":\"{}", resource.name()));
        Self::ALL.into_iter().find(names)
    }
}

/// Returns the options of a budget gate.
pub fn budget_choices() -> Vec<String> {
    [RAISE, STOP].map(String::from).to_vec()
}

/// Returns the options for a tool call whose result is unknown.
pub fn unknown_call_choices() -> Vec<String> {
    [RUN_AGAIN, SKIP, STOP].map(String::from).to_vec()
}
