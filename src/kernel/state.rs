//! What a session is: the sum of its events, and nothing else.
//!
//! `fold` is the only function that changes it. A state restored from the journal is therefore the state that was
//! lived through, and a checkpoint is a state that was written down.

mod run;

use std::collections::{BTreeMap, VecDeque};

use super::command::{Openness, Phase};
use super::effect::Voice;
use super::event::{
    Adjustment, Branch, CompactionReason, Decision, Event, EventKind, Lasting, LossCause, Message, Opening,
    Outcome, Purpose, QueuedMessage, Steering, TURN_CUT, Verdict, WorkspaceIdentity,
};
use super::gate::{self, Gate, Limited};
use super::id::{CallId, Fingerprint, GateId, MessageId, RunId, Seq};
use super::ledger::{Entry, Ledger, Scope};
use super::limits::Limits;
use super::time::Now;
pub use run::{Call, Run, Spent, Stage, Stopping};

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
    /// How often it was changed.
    pub version: u64,
    /// What is different from how it began.
    pub adjusted: Adjustment,
    /// Tools that are used for the user.
    pub asides: BTreeMap<CallId, Call>,
    /// The summary that is being made.
    pub compaction: Option<Compacting>,
}

/// A summary that is being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacting {
    /// The event that says that it began, which names it.
    pub began: Seq,
    /// Why.
    pub reason: CompactionReason,
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
            version: 0,
            adjusted: Adjustment::default(),
            asides: BTreeMap::new(),
            compaction: None,
        }
    }
}

impl State {
    /// Adds one event to the sum.
    pub fn fold(&mut self, event: &Event, limits: &Limits) {
        self.last_seq = event.seq;
        // What was imported happened earlier than the import.
        self.updated_at = self.updated_at.max(event.at);
        self.version = event.version.unwrap_or(self.version);
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
            EventKind::Adjusted { adjustment, by: _ } => self.fold_adjustment(adjustment),
            EventKind::Branched { branch, by: _ } => self.fold_branch(*branch),
            EventKind::CompactionBegan { reason, by: _ } => {
                self.compaction = Some(Compacting { began: event.seq, reason: *reason });
            }
            EventKind::Compacted(compaction) => {
                self.context_from = compaction.kept_from;
                self.compaction = None;
            }
            EventKind::CompactionOver { .. } => self.compaction = None,
            EventKind::Touched { .. } => {}
            EventKind::Loaded { .. } => self.fold_load(),
            EventKind::CallIntended(_) | EventKind::CallStarted { .. } | EventKind::CallSettled(_)
                if self.fold_aside(&event.kind) => {}
            EventKind::RetryBegan(_)
            | EventKind::RetryOver { .. }
            | EventKind::Status { .. }
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

    /// Returns who answers in the next run, and how.
    pub fn voice(&self) -> Voice {
        let opening = self.opening.as_ref();
        let (provider, model) = match &self.adjusted.provider {
            Some(provider) => (provider.clone(), None),
            None => opening
                .map_or_else(Default::default, |opening| (opening.provider.clone(), opening.model.clone())),
        };
        Voice::new(provider, self.adjusted.model.clone().or(model), &self.adjusted)
    }

    /// Returns which directory the session works in, as far as it was noted.
    pub fn workspace(&self) -> Option<&WorkspaceIdentity> {
        let began = self.opening.as_ref().and_then(|opening| opening.workspace.as_ref());
        self.adjusted.workspace.as_ref().or(began)
    }

    /// A run keeps its provider: what another one said in it could not be told to the next.
    fn fold_adjustment(&mut self, adjustment: &Adjustment) {
        self.adjusted.add(adjustment);
        let voice = self.voice();
        if let Some(run) = self.run.as_mut().filter(|run| run.voice.provider == voice.provider) {
            run.voice = voice;
        } else if let Some(run) = &mut self.run {
            run.voice =
                Voice { provider: run.voice.provider.clone(), model: run.voice.model.clone(), ..voice };
        }
    }

    /// Adds what became of a tool that is used for the user; returns whether it is one.
    fn fold_aside(&mut self, kind: &EventKind) -> bool {
        if let EventKind::CallIntended(intention) = kind {
            let aside = matches!(intention.purpose, Purpose::Aside { .. });
            if aside {
                self.asides.insert(intention.call.clone(), Call::intended(intention));
            }
            return aside;
        }
        if let EventKind::CallSettled(settlement) = kind {
            self.asides.remove(&settlement.call);
            return matches!(settlement.purpose, Purpose::Aside { .. });
        }
        let EventKind::CallStarted { call, tool: _ } = kind else { return false };
        let aside = self.asides.get_mut(call);
        aside.map(|call| call.stage = Stage::Started).is_some()
    }

    fn fold_opening(&mut self, opening: &Opening, at: Now) {
        if self.opening.is_some() {
            // A session that is opened again inherits nothing, least of all what was approved in its old directory.
            self.granted.clear();
            self.queue.clear();
            self.ledger = Ledger::default();
            self.last_text.clear();
            self.last_message.clear();
            self.last_run = None;
        }
        self.name.clone_from(&opening.name);
        self.opening = Some(opening.clone());
        self.opened_at = at;
        // A session that is opened again is as new.
        self.open = Openness::Open;
        self.adjusted = Adjustment::default();
    }

    const fn fold_load(&mut self) {
        self.open = Openness::Open;
        self.adjusted.unloaded = None;
    }

    fn fold_branch(&mut self, branch: Branch) {
        self.context_from = branch.from;
        if branch.until == Seq::ZERO {
            // The name was that of the conversation that was left.
            self.name = None;
        }
    }

    fn fold_run(&mut self, event: &Event, message: &Message, limits: &Limits) {
        let Some(run) = &event.run else { return };
        self.queue.retain(|queued| queued.run != *run);
        self.last_message = tail(&message.text, limits.text_tail).to_owned();
        self.run = Some(Run::new(run.clone(), message, event.at, self.voice()));
        self.remember(Scope::Prompt, &message.message, message.fingerprint, run, limits);
    }

    fn fold_queued(&mut self, queued: &QueuedMessage, limits: &Limits) {
        self.queue.push_back(queued.clone());
        let message = &queued.message;
        self.remember(Scope::Prompt, &message.message, message.fingerprint, &queued.run, limits);
    }

    fn fold_steering(&mut self, steering: &Steering, limits: &Limits) {
        let Some(run) = &mut self.run else { return };
        // Its pictures are told from the journal: many of them would be a burden in memory.
        let kept = Steering { images: Vec::new(), ..steering.clone() };
        run.steers.push((run.begun, kept));
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
            EventKind::RetryBegan(retry) => run.retrying = Some(retry.attempt),
            EventKind::RetryOver { .. } => run.retrying = None,
            EventKind::Lost { after: _, cause } => run.torn |= *cause == LossCause::Damage,
            EventKind::SessionOpened(_)
            | EventKind::SessionRenamed { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::RunStarted(_)
            | EventKind::MessageQueued(_)
            | EventKind::MessageUnqueued { .. }
            | EventKind::RunEnded(_)
            | EventKind::Steered(_)
            | EventKind::Touched { .. }
            | EventKind::Loaded { .. }
            | EventKind::Adjusted { .. }
            | EventKind::Branched { .. }
            | EventKind::CompactionBegan { .. }
            | EventKind::Compacted(_)
            | EventKind::CompactionOver { .. }
            | EventKind::Status { .. }
            | EventKind::Thought { .. }
            | EventKind::CallOutput { .. }
            | EventKind::Warned { .. }
            | EventKind::Failed { .. } => {}
        }
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
