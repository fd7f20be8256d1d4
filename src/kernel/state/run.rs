//! The state of the active run.

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
    /// The message that started it.
    pub message: MessageId,
    /// The text of that message.
    pub text: String,
    /// Acceptance criteria to check at its end.
    pub criteria: Vec<Criterion>,
    /// When its time limit expires.
    pub deadline: Option<Now>,
    /// Its budget; beyond it a gate asks.
    pub budget: Budget,
    /// Policy rules for its tool calls.
    pub rules: Vec<String>,
    /// Its usage so far.
    pub spent: Spent,
    /// Whether the provider comes from the sender's environment.
    pub needs_environment: bool,
    /// Steering messages, each with the number of steps that had started before it.
    pub steers: Vec<(u32, Steering)>,
    /// The number of started steps: texts and calls of the provider.
    pub begun: u32,
    /// The number of finished steps.
    pub done: u32,
    /// Whether a text has started and is not complete.
    pub speaking: bool,
    /// Calls that are not settled.
    pub calls: BTreeMap<CallId, Call>,
    /// The rules granted for this run, oldest first.
    pub granted: VecDeque<String>,
    /// The result of the provider's last call.
    pub last: Option<Settlement>,
    /// The results of the acceptance checks so far.
    pub checks: Vec<CheckResult>,
    /// The stop request, once the run is being stopped.
    pub stopping: Option<Stopping>,
    /// Whether journaled events of the run may be lost, so that its past actions are unknown.
    pub torn: bool,
    /// The provider, the model and its settings.
    pub voice: Voice,
    /// The number of the retry that the run waits for.
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

/// The usage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Cost in millionths of a US dollar, as far as it is known.
    pub cost: u64,
    /// Turns of the provider.
    pub turns: u64,
    /// Tokens, input and output.
    pub tokens: u64,
    /// The usage at which each budget was last raised; the budget counts from there.
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

/// A tool call that is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The intent of the call.
    pub intention: Intention,
    /// Whether the call has started and may have changed the outside world.
    pub stage: Stage,
    /// Digest of the operation that a gate asked about.
    pub bound: Option<String>,
}

impl Call {
    pub(super) fn intended(intention: &Intention) -> Self {
        Self { intention: intention.clone(), stage: Stage::Intended, bound: None }
    }
}

/// The stage of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The intent is recorded; nothing has happened.
    Intended,
    /// The call has started.
    Started,
}

/// The request to stop a run, which determines its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopping {
    /// The outcome that the run will have.
    pub outcome: Outcome,
    /// A machine-readable reason.
    pub reason: String,
    /// Who stopped it.
    pub by: String,
}

impl Run {
    /// Starts a text, or continues the open one; returns whether a new text starts.
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

    /// Discards an incomplete text: it counts as not started, because the provider generates it again.
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
            // A user command is no part of the run.
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
