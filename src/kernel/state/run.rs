//! The state of the active run.

use std::collections::{BTreeMap, VecDeque};

use crate::kernel::effect::ModelChoice;
use crate::kernel::event::{
    Budget, CallResult, CheckResult, Criterion, Intention, Message, Purpose, RunOutcome, Steering, TokenUsage,
    ToolOutcome,
};
use crate::kernel::gate::{self, BudgetResource};
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
    pub spent: RunUsage,
    /// Whether the provider comes from the sender's environment.
    pub needs_environment: bool,
    /// Steering messages, each with the number of steps that had started before it.
    pub steers: Vec<(u32, Steering)>,
    /// The number of started steps: texts and calls of the provider.
    pub steps_started: u32,
    /// The number of finished steps.
    pub steps_done: u32,
    /// Whether a text has started and is not complete.
    pub text_open: bool,
    /// Calls that are not settled.
    pub calls: BTreeMap<CallId, ActiveCall>,
    /// The rules granted for this run, oldest first.
    pub granted: VecDeque<String>,
    /// The result of the provider's last call.
    pub last_call: Option<CallResult>,
    /// The results of the acceptance checks so far.
    pub checks: Vec<CheckResult>,
    /// The stop request, once the run is being stopped.
    pub stopping: Option<PendingStop>,
    /// Whether journaled events of the run may be lost, so that its past actions are unknown.
    pub history_damaged: bool,
    /// The provider, the model and its settings.
    pub model_choice: ModelChoice,
    /// The number of the retry that the run waits for.
    pub retry_attempt: Option<u32>,
}

impl Run {
    pub(super) fn new(id: RunId, message: &Message, at: Now, model_choice: ModelChoice) -> Self {
        Self {
            id,
            message: message.message.clone(),
            text: message.text.clone(),
            criteria: message.criteria.clone(),
            deadline: message.time_limit.map(|millis| at.after(millis)),
            budget: message.budget,
            rules: message.rules.clone(),
            spent: RunUsage::default(),
            needs_environment: message.needs_environment,
            steers: Vec::new(),
            steps_started: 0,
            steps_done: 0,
            text_open: false,
            calls: BTreeMap::new(),
            granted: VecDeque::new(),
            last_call: None,
            checks: Vec::new(),
            stopping: None,
            history_damaged: false,
            model_choice,
            retry_attempt: None,
        }
    }

    /// Returns whether the commands of its message ask first and run confined, because the owner has not sent it.
    pub fn is_confined(&self) -> bool {
        self.rules.iter().any(|rule| rule == gate::CONFINED)
    }

    /// Returns whether its rules, or those granted for it, may let calls start without a gate. Only whoever may decide
    /// gives a run such rules.
    pub fn may_start_without_gate(&self) -> bool {
        let restricts = |rule: &String| rule == gate::CONFINED || rule == gate::DENY_ALL;
        !self.granted.is_empty() || !self.rules.iter().all(restricts)
    }
}

/// The usage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunUsage {
    /// Cost in millionths of a US dollar, as far as it is known.
    pub cost: u64,
    /// Turns of the provider.
    pub turns: u64,
    /// Tokens, input and output.
    pub tokens: u64,
    /// The usage at which each budget was last raised; the budget counts from there.
    pub baseline: Budget,
    /// The cost of the run when it was allowed to go on beyond the limit of the day.
    pub daily_baseline: Option<u64>,
}

impl RunUsage {
    pub(super) fn add(&mut self, usage: &TokenUsage) {
        self.turns += 1;
        self.cost = self.cost.saturating_add(usage.cost.unwrap_or(0));
        self.tokens = self.tokens.saturating_add(usage.input).saturating_add(usage.output);
    }

    pub(super) fn raise(&mut self, resource: BudgetResource) {
        match resource {
            BudgetResource::Cost => self.baseline.cost = Some(self.cost),
            BudgetResource::Turns => self.baseline.turns = Some(self.turns),
            BudgetResource::Tokens => self.baseline.tokens = Some(self.tokens),
            BudgetResource::DailyCost => self.daily_baseline = Some(self.cost),
        }
    }
}

/// A tool call that is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveCall {
    /// The intent of the call.
    pub intention: Intention,
    /// Whether the call has started and may have changed the outside world.
    pub stage: CallStage,
    /// Digest of the operation that a gate asked about.
    pub approved_digest: Option<String>,
}

impl ActiveCall {
    pub(super) fn intended(intention: &Intention) -> Self {
        Self { intention: intention.clone(), stage: CallStage::Intended, approved_digest: None }
    }
}

/// The stage of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStage {
    /// The intent is recorded; nothing has happened.
    Intended,
    /// The call has started.
    Started,
}

/// The request to stop a run, which determines its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingStop {
    /// The outcome that the run will have.
    pub outcome: RunOutcome,
    /// A machine-readable reason.
    pub reason: String,
    /// Who stopped it.
    pub by: String,
}

impl Run {
    /// Starts a text, or continues the open one; returns whether a new text starts.
    pub(super) fn open_text(&mut self) -> bool {
        let begins = !self.text_open;
        if begins {
            self.text_open = true;
            self.steps_started += 1;
        }
        begins
    }

    pub(super) fn close_text(&mut self) {
        if !self.text_open {
            self.steps_started += 1;
        }
        self.text_open = false;
        self.steps_done += 1;
    }

    /// Discards an incomplete text: it counts as not started, because the provider generates it again.
    pub(super) fn discard_open_text(&mut self) {
        if self.text_open {
            self.text_open = false;
            self.steps_started -= 1;
        }
    }

    pub(super) fn add_call(&mut self, intention: &Intention) {
        if intention.purpose == Purpose::Work {
            self.steps_started += 1;
        }
        self.calls.insert(intention.call.clone(), ActiveCall::intended(intention));
    }

    /// Records that a call has started.
    pub(super) fn start_call(&mut self, call: &CallId) {
        if let Some(call) = self.calls.get_mut(call) {
            call.stage = CallStage::Started;
        }
    }

    pub(super) fn settle_call(&mut self, result: &CallResult) {
        self.calls.remove(&result.call);
        match result.purpose {
            Purpose::Work => {
                self.steps_done += 1;
                self.last_call = Some(result.without_diff());
            }
            Purpose::Check(index) => {
                if let Some(criterion) = self.criteria.get(index as usize) {
                    self.checks.push(check_result(criterion, result));
                }
            }
            // A user command is no part of the run.
            Purpose::UserCommand { .. } => {}
        }
    }
}

fn check_result(criterion: &Criterion, result: &CallResult) -> CheckResult {
    let ended = matches!(result.outcome, ToolOutcome::Succeeded | ToolOutcome::Failed);
    CheckResult {
        id: criterion.id.clone(),
        passed: ended && result.exit_code == Some(criterion.exit_code),
        exit_code: result.exit_code,
        output: result.text.clone(),
    }
}
