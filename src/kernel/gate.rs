//! A question that holds a run, and the votes on it.
//!
//! Any `needed` of those entitled settle it, whichever way they agree. A voter is the source its connection stands
//! for, so opening a second connection gives nobody a second vote.

use std::collections::BTreeMap;

use super::command::Decide;
use super::event::{Decision, Lasting, Question};
use super::id::Json;
use super::refusal::Refusal;

/// An open gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// What it asks.
    pub question: Question,
    /// Who voted what.
    pub votes: BTreeMap<String, Decision>,
}

impl Gate {
    /// Opens a gate.
    pub const fn new(question: Question) -> Self {
        Self { question, votes: BTreeMap::new() }
    }

    /// Tells whether one more vote settles the gate.
    pub fn settles(&self, voter: &str, decision: Decision) -> bool {
        let agreeing = self.votes.iter().filter(|(who, vote)| *who != voter && **vote == decision).count();
        agreeing + 1 >= self.question.needed as usize
    }

    /// Tells whether a yes may hold as long as a vote says.
    ///
    /// What several have to agree on holds once: they agreed on nothing else.
    pub fn offers(&self, vote: &Decide) -> Result<(), Refusal> {
        let lasts = vote.decision == Decision::Approve
            && self.question.remember.is_some()
            && self.question.needed == 1;
        if vote.lasting == Lasting::Once || lasts { Ok(()) } else { Err(Refusal::UnknownScope) }
    }

    /// Tells whether a vote fills in what the gate wants filled in, and nothing where it wants nothing.
    ///
    /// Whether it is filled in sensibly is not judged here.
    pub const fn takes(&self, vote: &Decide) -> Result<(), Refusal> {
        match (&self.question.form, &vote.answer, vote.decision) {
            (Some(_), Some(_), Decision::Approve) | (_, None, Decision::Deny) => Ok(()),
            (None, None, Decision::Approve) => Ok(()),
            (Some(_), None, Decision::Approve) => Err(Refusal::AnswerNeeded),
            (None, Some(_), Decision::Approve) | (_, Some(_), Decision::Deny) => Err(Refusal::UnknownAnswer),
        }
    }

    /// Returns the choice that a vote stands for: the first for yes and the last for no unless it names one.
    ///
    /// No choice at all for a gate of plain yes or no. A choice that the gate does not offer, or one that
    /// contradicts the decision (only the last is a no), is refused.
    pub fn choice(&self, vote: &Decide) -> Result<Option<String>, Refusal> {
        let choices = &self.question.choices;
        let (Some(first), Some(last)) = (choices.first(), choices.last()) else {
            return if vote.choice.is_none() { Ok(None) } else { Err(Refusal::UnknownChoice) };
        };
        let chosen = match (&vote.choice, vote.decision) {
            (Some(named), _) => {
                choices.iter().find(|choice| *choice == named).ok_or(Refusal::UnknownChoice)?
            }
            (None, Decision::Approve) => first,
            (None, Decision::Deny) => last,
        };
        let denies = chosen == last;
        if denies == (vote.decision == Decision::Deny) {
            Ok(Some(chosen.clone()))
        } else {
            Err(Refusal::UnknownChoice)
        }
    }
}

/// The first choice for a tool whose end nobody knows: use it once more.
pub const RUN_AGAIN: &str = "run_again";
/// The second: go on without it.
pub const SKIP: &str = "skip";
/// The last: end the run.
pub const STOP: &str = "stop";

/// The rule of a run for which everything is approved that would ask, except more than its budget.
pub const APPROVE_ALL: &str = "approve: all";
/// The rule of a run for which everything is denied that would ask.
pub const APPROVE_NOTHING: &str = "approve: deny";
/// Who settles the gates of a run that has such a rule.
pub const POLICY: &str = "policy";

/// The word for programs where such a rule has denied a use of a tool and the provider goes on.
pub const DENIED_BY_POLICY: &str = "DENIED_BY_POLICY";

/// Returns whether a rule answers what would ask, and says nothing of single calls.
pub fn is_approval_policy(rule: &str) -> bool {
    matches!(rule, APPROVE_ALL | APPROVE_NOTHING)
}

/// The kind of a gate that asks whether a run may use more than was said.
pub const BUDGET: &str = "budget";
/// The first choice where a budget is used up: as much again.
pub const RAISE: &str = "raise";

/// What a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// Money, in millionths of a US dollar.
    Cost,
    /// Turns of the provider.
    Turns,
    /// Tokens, read and written.
    Tokens,
}

impl Limited {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cost, Self::Turns, Self::Tokens];

    /// Returns the word for it, with which the value of `of` begins in the particulars of a gate.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Turns => "turns",
            Self::Tokens => "tokens",
        }
    }

    /// Finds which limit the particulars of a gate name.
    pub fn named_in(details: &Json) -> Option<Self> {
        let names = |limited: &Self| details.as_str().contains(&format!("\"of\":\"{}", limited.word()));
        Self::ALL.into_iter().find(names)
    }
}

/// Returns the choices where a budget is used up.
pub fn budget_choices() -> Vec<String> {
    [RAISE, STOP].map(String::from).to_vec()
}

/// Returns the choices for a tool whose end nobody knows.
pub fn unknown_choices() -> Vec<String> {
    [RUN_AGAIN, SKIP, STOP].map(String::from).to_vec()
}
