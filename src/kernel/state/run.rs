//! The active run, as far as it has come.

use std::collections::{BTreeMap, VecDeque};

use crate::kernel::effect::Voice;
use crate::kernel::event::{
    Budget, CheckResult, Criterion, Ending, Intention, Message, Outcome, Purpose, Settlement, Steering, Used,
};
use crate::kernel::gate::Limited;
use crate::kernel::id::{CallId, MessageId, RunId};
use crate::kernel::time::Now;

/// The active run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// The message that began it.
    pub message: MessageId,
    /// The text of that message.
    pub text: String,
    /// What must hold at its end.
    pub criteria: Vec<Criterion>,
    /// When it must have ended.
    pub deadline: Option<Now>,
    /// What it may use before somebody is asked.
    pub budget: Budget,
    /// Rules for its calls.
    pub rules: Vec<String>,
    /// What it has used.
    pub spent: Spent,
    /// Whether the environment of its message's sender says whom to ask.
    pub needs_environment: bool,
    /// What was said into it, each with the number of steps begun by then.
    pub steers: Vec<(u32, Steering)>,
    /// How many steps have begun: texts and calls of the provider.
    pub begun: u32,
    /// How many of them are done.
    pub done: u32,
    /// Whether a text has begun and is not whole.
    pub speaking: bool,
    /// Calls that are not settled.
    pub calls: BTreeMap<CallId, Call>,
    /// What may go ahead unasked until it ends, as rules, oldest first.
    pub granted: VecDeque<String>,
    /// How the provider's last call ended.
    pub last: Option<Settlement>,
    /// The acceptance checks that were run.
    pub checks: Vec<CheckResult>,
    /// How it will end, once it is being stopped.
    pub stopping: Option<Stopping>,
    /// Whether events of it may be gone that had been on disk: nobody knows what it has done.
    pub torn: bool,
    /// Who answers, and how.
    pub voice: Voice,
    /// Which repetition of a question it waits for.
    pub retrying: Option<u32>,
}

impl Run {
    pub(super) fn new(id: RunId, message: &Message, at: Now, voice: Voice) -> Self {
        Self {
            id,
            message: message.message.clone(),
            text: message.text.clone(),
            criteria: message.criteria.clone(),
            deadline: message.time_limit.map(|millis| at.after(millis)),
            budget: message.budget,
            rules: message.rules.clone(),
            spent: Spent::default(),
            needs_environment: message.needs_environment,
            steers: Vec::new(),
            begun: 0,
            done: 0,
            speaking: false,
            calls: BTreeMap::new(),
            granted: VecDeque::new(),
            last: None,
            checks: Vec::new(),
            stopping: None,
            torn: false,
            voice,
            retrying: None,
        }
    }
}

/// What a run has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Money, in millionths of a US dollar, as far as it is known.
    pub cost: u64,
    /// Turns of the provider.
    pub turns: u64,
    /// Tokens, read and written.
    pub tokens: u64,
    /// What of each had been used when somebody last allowed more of it: from there on it counts anew.
    pub raised: Budget,
}

impl Spent {
    pub(super) fn add(&mut self, used: &Used) {
        self.turns += 1;
        self.cost = self.cost.saturating_add(used.cost.unwrap_or(0));
        self.tokens = self.tokens.saturating_add(used.input).saturating_add(used.output);
    }

    pub(super) fn raise(&mut self, limited: Limited) {
        match limited {
            Limited::Cost => self.raised.cost = Some(self.cost),
            Limited::Turns => self.raised.turns = Some(self.turns),
            Limited::Tokens => self.raised.tokens = Some(self.tokens),
        }
    }
}

/// A use of a tool that is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What is to be used.
    pub intention: Intention,
    /// Whether the outside world may have changed.
    pub stage: Stage,
    /// What exactly was asked about, as a digest.
    pub bound: Option<String>,
}

impl Call {
    pub(super) fn intended(intention: &Intention) -> Self {
        Self { intention: intention.clone(), stage: Stage::Intended, bound: None }
    }
}

/// How far a use of a tool has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing has happened.
    Intended,
    /// It was started.
    Started,
}

/// How a run will end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopping {
    /// In one word.
    pub outcome: Outcome,
    /// A word for why.
    pub reason: String,
    /// Who asked.
    pub by: String,
}

impl Run {
    /// Returns whether a new text begins.
    pub(super) fn begin_speaking(&mut self) -> bool {
        let begins = !self.speaking;
        if begins {
            self.speaking = true;
            self.begun += 1;
        }
        begins
    }

    pub(super) fn end_speaking(&mut self) {
        if !self.speaking {
            self.begun += 1;
        }
        self.speaking = false;
        self.done += 1;
    }

    /// A text that was cut short counts as not begun: the provider says it again.
    pub(super) fn unsay(&mut self) {
        if self.speaking {
            self.speaking = false;
            self.begun -= 1;
        }
    }

    pub(super) fn intend(&mut self, intention: &Intention) {
        if intention.purpose == Purpose::Work {
            self.begun += 1;
        }
        self.calls.insert(intention.call.clone(), Call::intended(intention));
    }

    pub(super) fn settle(&mut self, settlement: &Settlement) {
        self.calls.remove(&settlement.call);
        match settlement.purpose {
            Purpose::Work => {
                self.done += 1;
                self.last = Some(settlement.clone());
            }
            Purpose::Check(index) => {
                if let Some(criterion) = self.criteria.get(index as usize) {
                    self.checks.push(check_result(criterion, settlement));
                }
            }
            // It is no part of the run.
            Purpose::Aside { .. } => {}
        }
    }
}

fn check_result(criterion: &Criterion, settlement: &Settlement) -> CheckResult {
    let ended = matches!(settlement.ending, Ending::Done | Ending::Failed);
    CheckResult {
        id: criterion.id.clone(),
        passed: ended && settlement.exit_code == Some(criterion.exit_code),
        exit_code: settlement.exit_code,
        output: settlement.text.clone(),
    }
}
