//! What a session is: the sum of its events, and nothing else.
//!
//! `fold` is the only function that changes it. A state restored from the journal is therefore the state that was
//! lived through, and a checkpoint is a state that was written down.

use std::collections::{BTreeMap, VecDeque};

use super::command::{Openness, Phase};
use super::event::{
    Budget, CheckResult, Criterion, Decision, Ending, Event, EventKind, Intention, Lasting, LossCause,
    Message, Opening, Outcome, Purpose, QueuedMessage, Settlement, Steering, TURN_CUT, Used, Verdict,
};
use super::gate::{self, Gate, Limited};
use super::id::{CallId, Fingerprint, GateId, MessageId, RunId, Seq};
use super::ledger::{Entry, Ledger, Scope};
use super::limits::Limits;
use super::time::Now;

/// The folded history of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// How it began; none before its first event.
    pub opening: Option<Opening>,
    /// Its name for people.
    pub name: Option<String>,
    /// When it began.
    pub opened_at: Now,
    /// When something last happened.
    pub updated_at: Now,
    /// The newest event.
    pub last_seq: Seq,
    /// The active run.
    pub run: Option<Run>,
    /// Its open gates.
    pub gates: BTreeMap<GateId, Gate>,
    /// Gates that were settled, oldest first.
    pub settled_gates: VecDeque<GateId>,
    /// What may go ahead unasked in this session, as rules, oldest first.
    pub granted: VecDeque<String>,
    /// What waits behind the run.
    pub queue: VecDeque<QueuedMessage>,
    /// What was asked under which key.
    pub ledger: Ledger,
    /// The end of the last assistant text.
    pub last_text: String,
    /// The end of the last user message.
    pub last_message: String,
    /// How the last run ended.
    pub last_run: Option<(RunId, Outcome, u8)>,
    /// Whether it takes messages.
    pub open: Openness,
    /// The first event that the provider is told word by word; a summary stands for those before it.
    pub context_from: Seq,
}

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
    fn add(&mut self, used: &Used) {
        self.turns += 1;
        self.cost = self.cost.saturating_add(used.cost.unwrap_or(0));
        self.tokens = self.tokens.saturating_add(used.input).saturating_add(used.output);
    }

    fn raise(&mut self, limited: Limited) {
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

impl Default for State {
    fn default() -> Self {
        Self {
            opening: None,
            name: None,
            opened_at: Now::default(),
            updated_at: Now::default(),
            last_seq: Seq::ZERO,
            run: None,
            gates: BTreeMap::new(),
            settled_gates: VecDeque::new(),
            granted: VecDeque::new(),
            queue: VecDeque::new(),
            ledger: Ledger::default(),
            last_text: String::new(),
            last_message: String::new(),
            last_run: None,
            open: Openness::Open,
            context_from: Seq::ZERO,
        }
    }
}

impl State {
    /// Adds one event to the sum.
    pub fn fold(&mut self, event: &Event, limits: &Limits) {
        self.last_seq = event.seq;
        self.updated_at = event.at;
        match &event.kind {
            EventKind::SessionOpened(opening) => self.fold_opening(opening, event.at),
            EventKind::SessionRenamed { name } => self.name = Some(name.clone()),
            EventKind::SessionEnded { by: _ } => self.open = Openness::Ended,
            EventKind::RunStarted(message) => self.fold_run(event, message, limits),
            EventKind::MessageQueued(queued) => self.fold_queued(queued, limits),
            EventKind::MessageUnqueued { message, by: _ } => {
                self.queue.retain(|queued| queued.message.message != *message);
                self.ledger.remove(&(Scope::Prompt, message.clone()));
            }
            EventKind::RunEnded(report) => {
                if let Some(run) = self.run.take() {
                    self.last_run = Some((run.id, report.outcome, report.exit_code));
                }
            }
            EventKind::Steered(steering) => self.fold_steering(steering, limits),
            EventKind::Compacted(compaction) => self.context_from = compaction.kept_from,
            EventKind::Status { .. }
            | EventKind::Thought { .. }
            | EventKind::Said { .. }
            | EventKind::SayingDone { .. }
            | EventKind::TurnTaken(_)
            | EventKind::CallIntended(_)
            | EventKind::CallStarted { .. }
            | EventKind::CallOutput { .. }
            | EventKind::CallSettled(_)
            | EventKind::GateOpened(_)
            | EventKind::GateVoted { .. }
            | EventKind::GateSettled(_)
            | EventKind::Warned { .. }
            | EventKind::Failed { .. }
            | EventKind::Stopping { .. }
            | EventKind::RunRecovered { .. }
            | EventKind::Lost { .. } => self.fold_into_run(event, limits),
        }
    }

    /// Returns what the session is doing, in one word.
    pub fn phase(&self) -> Phase {
        match (&self.run, &self.last_run) {
            (Some(_), _) if !self.gates.is_empty() => Phase::Waiting,
            (Some(_), _) => Phase::Running,
            (None, None) => Phase::Idle,
            (None, Some((_, Outcome::Success, _))) => Phase::Completed,
            (None, Some((_, Outcome::Failed | Outcome::Denied, _))) => Phase::Failed,
            (None, Some((_, Outcome::Cancelled, _))) => Phase::Cancelled,
        }
    }

    fn fold_opening(&mut self, opening: &Opening, at: Now) {
        self.name.clone_from(&opening.name);
        self.opening = Some(opening.clone());
        self.opened_at = at;
    }

    fn fold_run(&mut self, event: &Event, message: &Message, limits: &Limits) {
        let Some(run) = &event.run else { return };
        self.queue.retain(|queued| queued.run != *run);
        self.last_message = tail(&message.text, limits.text_tail).to_owned();
        self.run = Some(Run {
            id: run.clone(),
            message: message.message.clone(),
            text: message.text.clone(),
            criteria: message.criteria.clone(),
            deadline: message.time_limit.map(|millis| event.at.after(millis)),
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
        });
        self.remember(Scope::Prompt, &message.message, message.fingerprint, run, limits);
    }

    fn fold_queued(&mut self, queued: &QueuedMessage, limits: &Limits) {
        self.queue.push_back(queued.clone());
        let message = &queued.message;
        self.remember(Scope::Prompt, &message.message, message.fingerprint, &queued.run, limits);
    }

    fn fold_steering(&mut self, steering: &Steering, limits: &Limits) {
        let Some(run) = &mut self.run else { return };
        run.steers.push((run.begun, steering.clone()));
        let run = run.id.clone();
        self.last_message = tail(&steering.text, limits.text_tail).to_owned();
        self.remember(Scope::Steer, &steering.message, steering.fingerprint, &run, limits);
    }

    fn remember(
        &mut self,
        scope: Scope,
        key: &MessageId,
        fingerprint: Fingerprint,
        run: &RunId,
        limits: &Limits,
    ) {
        self.ledger.insert((scope, key.clone()), Entry { fingerprint, run: run.clone() });
        let (active, queue) = (&self.run, &self.queue);
        self.ledger.trim(limits.ledger, |run| {
            active.as_ref().is_some_and(|active| active.id == *run)
                || queue.iter().any(|queued| queued.run == *run)
        });
    }

    fn close_gate(&mut self, verdict: &Verdict, limits: &Limits) {
        let (Some(run), gate) = (&mut self.run, self.gates.remove(&verdict.gate)) else { return };
        let of_budget = gate.as_ref().filter(|gate| gate.question.kind == gate::BUDGET);
        let limited = of_budget.and_then(|gate| Limited::named_in(&gate.question.details));
        if let Some(limited) = limited.filter(|_| verdict.decision == Decision::Approve) {
            run.spent.raise(limited);
        }
        if let Some(rule) = gate.and_then(|gate| gate.question.remember) {
            match verdict.lasting {
                Lasting::Run => remember(&mut run.granted, rule, limits.granted),
                Lasting::Session => remember(&mut self.granted, rule, limits.granted),
                // Kept outside of the session, where it is found by others.
                Lasting::Always | Lasting::Once => {}
            }
        }
        self.settled_gates.push_back(verdict.gate.clone());
        while self.settled_gates.len() > limits.settled_gates {
            self.settled_gates.pop_front();
        }
    }

    fn fold_into_run(&mut self, event: &Event, limits: &Limits) {
        let Some(run) = &mut self.run else { return };
        match &event.kind {
            EventKind::Said { text } => {
                if run.begin_speaking() {
                    self.last_text.clear();
                }
                append_tail(&mut self.last_text, text, limits.text_tail);
            }
            EventKind::SayingDone { message: _ } => run.end_speaking(),
            EventKind::TurnTaken(taken) => run.spent.add(&taken.used),
            EventKind::CallIntended(intention) => run.intend(intention),
            EventKind::CallStarted { call, tool: _ } => {
                if let Some(call) = run.calls.get_mut(call) {
                    call.stage = Stage::Started;
                }
            }
            EventKind::CallSettled(settlement) => run.settle(settlement),
            EventKind::GateOpened(question) => {
                // A question of the daemon's own, about how a call ended, changes nothing of what was approved.
                if let (Some(call), Some(digest)) = (run.calls.get_mut(&question.call), &question.digest) {
                    call.bound = Some(digest.clone());
                }
                self.gates.insert(question.gate.clone(), Gate::new((**question).clone()));
            }
            EventKind::GateVoted { gate, decision, by } => {
                if let Some(gate) = self.gates.get_mut(gate) {
                    gate.votes.insert(by.clone(), *decision);
                }
            }
            EventKind::GateSettled(verdict) => self.close_gate(verdict, limits),
            EventKind::Stopping { outcome, reason, by } => {
                run.stopping = Some(Stopping { outcome: *outcome, reason: reason.clone(), by: by.clone() });
            }
            EventKind::RunRecovered { found: _ } => run.unsay(),
            EventKind::Warned { code, .. } if code == TURN_CUT => run.unsay(),
            EventKind::Lost { after: _, cause } => run.torn |= *cause == LossCause::Damage,
            EventKind::SessionOpened(_)
            | EventKind::SessionRenamed { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::RunStarted(_)
            | EventKind::MessageQueued(_)
            | EventKind::MessageUnqueued { .. }
            | EventKind::RunEnded(_)
            | EventKind::Steered(_)
            | EventKind::Compacted(_)
            | EventKind::Status { .. }
            | EventKind::Thought { .. }
            | EventKind::CallOutput { .. }
            | EventKind::Warned { .. }
            | EventKind::Failed { .. } => {}
        }
    }
}

impl Run {
    /// Returns whether a new text begins.
    fn begin_speaking(&mut self) -> bool {
        let begins = !self.speaking;
        if begins {
            self.speaking = true;
            self.begun += 1;
        }
        begins
    }

    fn end_speaking(&mut self) {
        if !self.speaking {
            self.begun += 1;
        }
        self.speaking = false;
        self.done += 1;
    }

    /// A text that was cut short counts as not begun: the provider says it again.
    fn unsay(&mut self) {
        if self.speaking {
            self.speaking = false;
            self.begun -= 1;
        }
    }

    fn intend(&mut self, intention: &Intention) {
        if intention.purpose == Purpose::Work {
            self.begun += 1;
        }
        let call = Call { intention: intention.clone(), stage: Stage::Intended, bound: None };
        self.calls.insert(intention.call.clone(), call);
    }

    fn settle(&mut self, settlement: &Settlement) {
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

/// Adds a rule that is not there yet; the oldest goes where there are too many, and is asked about again.
fn remember(granted: &mut VecDeque<String>, rule: String, limit: usize) {
    if !granted.contains(&rule) {
        granted.push_back(rule);
    }
    while granted.len() > limit {
        granted.pop_front();
    }
}

/// Returns the end of a text, at most `limit` bytes, cut between characters.
fn tail(text: &str, limit: usize) -> &str {
    let mut start = text.len().saturating_sub(limit);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Appends to a text of which only the end is wanted; it is cut in strides, so that a token costs what it adds.
fn append_tail(text: &mut String, more: &str, limit: usize) {
    text.push_str(more);
    if text.len() > limit.saturating_mul(2) {
        let cut = text.len() - tail(text, limit).len();
        text.drain(..cut);
    }
}
