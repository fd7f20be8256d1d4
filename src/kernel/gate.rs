//! A gate: a question that blocks a run, or stands by itself, and the votes on it.
//!
//! The quorum of the gate says when votes settle it. A participant is one voter, however many connections it has, and
//! so is the owner of the daemon, whatever client it uses.

use std::collections::{BTreeMap, BTreeSet};

use super::command::GateVote;
use super::event::{ApprovalScope, Decision, GateQuestion};
use super::id::{CallId, Json, ParticipantId, RunId};
use super::participant::Participant;
use super::refusal::Refusal;

/// An open gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// The run that waits for it; `None` for a gate that stands by itself and settles into an event only.
    pub run: Option<RunId>,
    /// Its question.
    pub question: GateQuestion,
    /// The last vote of each voter.
    pub votes: BTreeMap<Voter, Decision>,
}

/// What a gate asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateSubject {
    /// Whether a tool call may start.
    ToolCall {
        /// The call.
        call: CallId,
    },
    /// Whether the run may exceed its budget.
    Budget {
        /// The call that stands for the raise.
        call: CallId,
        /// The exhausted resource; `None` in old records that do not name it.
        resource: Option<BudgetResource>,
    },
    /// A question with a form. The submitted form is the result of the call, and the tool itself never runs.
    Form {
        /// The call.
        call: CallId,
        /// The form to fill in: a JSON object.
        form: Json,
    },
    /// What to do about a call that had started and whose result is unknown.
    UnknownCall {
        /// The call.
        call: CallId,
    },
    /// Anything else, such as a merge or a review; the kind of the question names it and its details describe it.
    Other,
}

/// Somebody who votes. Each voter has one vote, and the last one counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Voter {
    /// The owner of the daemon, through whatever connection.
    Owner,
    /// A participant, through whatever connection.
    Participant(ParticipantId),
}

impl Voter {
    /// Returns the voter behind a participant; `None` means the owner of the daemon.
    pub fn new(participant: Option<&ParticipantId>) -> Self {
        participant.map_or(Self::Owner, |participant| Self::Participant(participant.clone()))
    }
}

impl Gate {
    /// Opens a gate without votes.
    pub const fn new(run: Option<RunId>, question: GateQuestion) -> Self {
        Self { run, question, votes: BTreeMap::new() }
    }

    /// Returns whether the votes of a voter count.
    pub fn admits(&self, voter: &Voter, participants: &BTreeMap<ParticipantId, Participant>) -> bool {
        let GateQuestion { quorum, eligible, .. } = &self.question;
        quorum.admits(voter, participants) && is_eligible(eligible.as_ref(), voter)
    }

    /// Returns the decision that the votes make; `None` while the gate stays open.
    pub fn verdict(&self, participants: &BTreeMap<ParticipantId, Participant>) -> Option<Decision> {
        let GateQuestion { quorum, eligible, .. } = &self.question;
        quorum.evaluate(quorum.tally(&self.votes, participants, eligible.as_ref()))
    }

    /// Checks that the gate offers the scope of a vote.
    ///
    /// Where more than one vote is needed, an approval is valid once: the voters agreed on nothing else.
    pub fn check_scope(&self, vote: &GateVote) -> Result<(), Refusal> {
        let lasts = vote.decision == Decision::Approve
            && self.question.grant_rule.is_some()
            && self.question.quorum.is_single_vote();
        match vote.scope {
            ApprovalScope::Once if vote.rule.is_some() => Err(Refusal::RuleWithoutScope),
            ApprovalScope::Once => Ok(()),
            ApprovalScope::Run | ApprovalScope::Session | ApprovalScope::Always if lasts => Ok(()),
            ApprovalScope::Run | ApprovalScope::Session | ApprovalScope::Always => Err(Refusal::UnknownScope),
        }
    }

    /// Checks that a vote submits a form exactly if the gate has one.
    ///
    /// The content of the form is not validated here.
    pub const fn check_answer(&self, vote: &GateVote) -> Result<(), Refusal> {
        match (self.question.form(), &vote.answer, vote.decision) {
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

/// Returns whether a voter is in the set of a gate that limits its voters to some participants.
pub(super) fn is_eligible(eligible: Option<&BTreeSet<ParticipantId>>, voter: &Voter) -> bool {
    match (eligible, voter) {
        (None, _) => true,
        (Some(_), Voter::Owner) => false,
        (Some(eligible), Voter::Participant(id)) => eligible.contains(id),
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

/// The rule of a run whose message somebody other than the owner has sent: the commands that the message contains, steps
/// of a playbook and acceptance checks, ask first and run confined.
pub const CONFINED: &str = "confined";

/// Returns whether a rule applies to the run as a whole, instead of matching single calls.
pub fn is_run_policy(rule: &str) -> bool {
    matches!(rule, APPROVE_ALL | DENY_ALL | CONFINED)
}

/// The kind of a gate about a call whose result is unknown.
pub const UNKNOWN_CALL: &str = "unknown_step";
/// The kind of a gate that asks whether a run may exceed its budget.
pub const BUDGET: &str = "budget";
/// The tool name of the call that waits for such a gate. It is no call of the provider.
pub const RAISE_BUDGET: &str = "raise_budget";
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
    /// The cost of all runs of a day, in millionths of a US dollar.
    DailyCost,
}

impl BudgetResource {
    /// All resources.
    pub const ALL: [Self; 4] = [Self::Cost, Self::Turns, Self::Tokens, Self::DailyCost];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Turns => "turns",
            Self::Tokens => "tokens",
            Self::DailyCost => "daily",
        }
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
