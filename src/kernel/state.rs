//! The state of a session: the fold of its events.
//!
//! `fold` is the only function that changes the state. A state restored from the journal therefore equals the live
//! one, and a checkpoint is a serialized state.

mod gates;
mod run;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::command::{Phase, SessionStatus};
use super::effect::ModelChoice;
use super::event::{
    Adjustment, Branch, CompactionReason, ContextEvent, Event, EventKind, LossCause, Message, NoticeEvent, Opening,
    ParticipantEvent, Purpose, QueuedMessage, RunEvent, RunOutcome, SessionEvent, Steering, ToolEvent,
    WorkspaceIdentity, is_turn_interrupted,
};
use super::gate::{Gate, Voter};
use super::id::{CallId, Fingerprint, GateId, MessageId, ParticipantId, RunId, Seq};
use super::idempotency::{IdempotencyCache, KeyEntry, KeySpace};
use super::limits::Limits;
use super::participant::Participant;
use super::time::Now;
pub use run::{ActiveCall, CallStage, PendingStop, Run, RunUsage};

/// The folded history of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The parameters with which it was opened; `None` before the first event.
    pub opening: Option<Opening>,
    /// Its display name.
    pub name: Option<String>,
    /// When it was opened.
    pub opened_at: Now,
    /// When the last event happened.
    pub updated_at: Now,
    /// The newest event.
    pub last_seq: Seq,
    /// The active run. It is boxed, because most sessions in memory have none.
    pub run: Option<Box<Run>>,
    /// The open gates, those of the run and those of no run.
    pub gates: BTreeMap<GateId, Gate>,
    /// Recently settled gates, oldest first.
    pub settled_gates: VecDeque<GateId>,
    /// The rules granted for this session, oldest first.
    pub granted: VecDeque<String>,
    /// The messages queued behind the run.
    pub queue: VecDeque<QueuedMessage>,
    /// The idempotency keys of recent messages.
    pub idempotency: IdempotencyCache,
    /// The tail of the last assistant text.
    pub last_text: String,
    /// The tail of the last user message.
    pub last_message: String,
    /// The last run, its outcome and its exit code.
    pub last_run: Option<(RunId, RunOutcome, u8)>,
    /// Whether it accepts messages.
    pub open: SessionStatus,
    /// The first event in the provider's context verbatim; a summary replaces those before it.
    pub context_from: Seq,
    /// The version, incremented with every change.
    pub version: u64,
    /// Settings that differ from the opening.
    pub adjusted: Adjustment,
    /// The user commands that are running.
    pub user_commands: BTreeMap<CallId, ActiveCall>,
    /// The compaction in progress.
    pub compaction: Option<ActiveCompaction>,
    /// The participants that have joined and not left. The owner of the daemon is not among them.
    pub participants: BTreeMap<ParticipantId, Participant>,
    /// Whether an event has an audience, so that subscribers do not all receive the same.
    pub has_restricted_events: bool,
    /// The kinds of the events that this version does not know. A version that knows one of them has to fold the
    /// history again.
    pub unknown_kinds: BTreeSet<String>,
}

/// How many kinds of unknown events are remembered.
const MAX_UNKNOWN_KINDS: usize = 64;

/// A compaction in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveCompaction {
    /// The sequence number of its first event, which identifies it.
    pub start_seq: Seq,
    /// Why it started.
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
            idempotency: IdempotencyCache::default(),
            last_text: String::new(),
            last_message: String::new(),
            last_run: None,
            open: SessionStatus::Open,
            context_from: Seq::ZERO,
            version: 0,
            adjusted: Adjustment::default(),
            user_commands: BTreeMap::new(),
            compaction: None,
            participants: BTreeMap::new(),
            has_restricted_events: false,
            unknown_kinds: BTreeSet::new(),
        }
    }
}

impl State {
    /// Folds one event into the state.
    pub fn fold(&mut self, event: &Event, limits: &Limits) {
        self.last_seq = event.seq;
        self.has_restricted_events |= !event.audience.is_public();
        // An imported event happened earlier than the import.
        self.updated_at = self.updated_at.max(event.at);
        self.version = event.version.unwrap_or(self.version);
        match &event.kind {
            EventKind::Session(change) => self.fold_session_event(change, event.at),
            EventKind::Run(change) => self.fold_run_event(change, event, limits),
            EventKind::Context(change) => self.fold_context_event(change, event.seq),
            EventKind::Participant(change) => self.fold_participant_event(change),
            EventKind::Notice(NoticeEvent::Unknown(unknown)) => self.fold_unknown(&unknown.name),
            EventKind::Tool(_) if self.fold_user_command(&event.kind) => {}
            EventKind::Gate(change) => self.fold_gate_event(change, event.run.as_ref(), limits),
            EventKind::Tool(_) | EventKind::Notice(_) => self.fold_into_run(event, limits),
        }
    }

    fn fold_session_event(&mut self, event: &SessionEvent, at: Now) {
        match event {
            SessionEvent::Opened(opening) => self.fold_opening(opening, at),
            SessionEvent::Renamed { name } => self.name = Some(name.clone()),
            SessionEvent::Ended { by: _ } => self.open = SessionStatus::Ended,
            SessionEvent::Adjusted { adjustment, by: _ } => self.fold_adjustment(adjustment),
            SessionEvent::VersionBumped { .. } => {}
            SessionEvent::Loaded { .. } => self.fold_load(),
        }
    }

    fn fold_run_event(&mut self, change: &RunEvent, event: &Event, limits: &Limits) {
        match change {
            RunEvent::Started(message) => self.fold_run(event, message, limits),
            RunEvent::MessageQueued(queued) => self.fold_queued(queued, limits),
            RunEvent::MessageUnqueued { message, by: _ } => {
                self.queue.retain(|queued| queued.message.message != *message);
                self.idempotency.remove(&(KeySpace::Prompt, message.clone()));
            }
            RunEvent::Ended(report) => {
                if let Some(run) = self.run.take() {
                    self.last_run = Some((run.id, report.outcome, report.exit_code));
                }
            }
            RunEvent::Steered(steering) => self.fold_steering(steering, limits),
            RunEvent::RetryStarted(_)
            | RunEvent::RetryEnded { .. }
            | RunEvent::ThinkingDelta { .. }
            | RunEvent::TextDelta { .. }
            | RunEvent::TextDone { .. }
            | RunEvent::TurnUsage(_)
            | RunEvent::Stopping { .. }
            | RunEvent::Recovered { .. } => self.fold_into_run(event, limits),
        }
    }

    fn fold_context_event(&mut self, event: &ContextEvent, seq: Seq) {
        match event {
            ContextEvent::Branched { branch, by: _ } => self.fold_branch(*branch),
            ContextEvent::CompactionStarted { reason, by: _ } => {
                self.compaction = Some(ActiveCompaction { start_seq: seq, reason: *reason });
            }
            ContextEvent::Compacted(compaction) => {
                self.context_from = compaction.kept_from;
                self.compaction = None;
            }
            ContextEvent::CompactionFailed { .. } => self.compaction = None,
        }
    }

    fn fold_participant_event(&mut self, event: &ParticipantEvent) {
        match event {
            ParticipantEvent::Joined { participant, by: _ } => {
                self.participants.insert(participant.id.clone(), (**participant).clone());
            }
            ParticipantEvent::Left { participant, .. } => {
                self.participants.remove(participant);
                // Whoever joins under the id later votes for itself.
                let voter = Voter::Participant(participant.clone());
                for gate in self.gates.values_mut() {
                    gate.votes.remove(&voter);
                }
            }
            ParticipantEvent::Posted(_) | ParticipantEvent::Audited { by: _ } => {}
            ParticipantEvent::RolesChanged { participant, roles, capabilities, by: _ } => {
                if let Some(known) = self.participants.get_mut(participant) {
                    known.roles.clone_from(roles);
                    known.capabilities = *capabilities;
                }
            }
            ParticipantEvent::ApprovalGranted { participant, granted, by: _ } => {
                if let Some(known) = self.participants.get_mut(participant) {
                    known.approval_granted = *granted;
                }
            }
        }
    }

    /// Returns the phase of the session.
    pub fn phase(&self) -> Phase {
        match (&self.run, &self.last_run) {
            (Some(_), _) if self.awaits_gate() => Phase::Waiting,
            (Some(_), _) => Phase::Running,
            (None, None) => Phase::Idle,
            (None, Some((_, RunOutcome::Success, _))) => Phase::Completed,
            (None, Some((_, RunOutcome::Failed | RunOutcome::Denied, _))) => Phase::Failed,
            (None, Some((_, RunOutcome::Cancelled, _))) => Phase::Cancelled,
        }
    }

    /// Returns the provider, the model and their settings for the next run.
    pub fn model_choice(&self) -> ModelChoice {
        let opening = self.opening.as_ref();
        let (provider, model) = match &self.adjusted.provider {
            Some(provider) => (provider.clone(), None),
            None => opening.map_or_else(Default::default, |opening| (opening.provider.clone(), opening.model.clone())),
        };
        ModelChoice::new(provider, self.adjusted.model.clone().or(model), &self.adjusted)
    }

    /// Returns the identity of the working directory, if it was recorded.
    pub fn workspace(&self) -> Option<&WorkspaceIdentity> {
        let began = self.opening.as_ref().and_then(|opening| opening.workspace.as_ref());
        self.adjusted.workspace.as_ref().or(began)
    }

    /// Applies an adjustment. The active run keeps its provider, because another provider cannot read its provider
    /// state.
    fn fold_adjustment(&mut self, adjustment: &Adjustment) {
        self.adjusted.add(adjustment);
        let model_choice = self.model_choice();
        if let Some(run) = self.run.as_mut().filter(|run| run.model_choice.provider == model_choice.provider) {
            run.model_choice = model_choice;
        } else if let Some(run) = &mut self.run {
            run.model_choice = ModelChoice {
                provider: run.model_choice.provider.clone(),
                model: run.model_choice.model.clone(),
                ..model_choice
            };
        }
    }

    /// Folds an event of a user command; returns whether the event belongs to one.
    fn fold_user_command(&mut self, kind: &EventKind) -> bool {
        if let EventKind::Tool(ToolEvent::Intended(intention)) = kind {
            let is_user_command = matches!(intention.purpose, Purpose::UserCommand { .. });
            if is_user_command {
                self.user_commands.insert(intention.call.clone(), ActiveCall::intended(intention));
            }
            return is_user_command;
        }
        if let EventKind::Tool(ToolEvent::Settled(result)) = kind {
            self.user_commands.remove(&result.call);
            return matches!(result.purpose, Purpose::UserCommand { .. });
        }
        let EventKind::Tool(ToolEvent::Started { call, tool: _ }) = kind else { return false };
        let user_command = self.user_commands.get_mut(call);
        user_command.map(|call| call.stage = CallStage::Started).is_some()
    }

    fn fold_opening(&mut self, opening: &Opening, at: Now) {
        if self.opening.is_some() {
            // A reopened session inherits nothing, in particular no approvals of its old directory.
            self.granted.clear();
            self.queue.clear();
            self.idempotency = IdempotencyCache::default();
            self.last_text.clear();
            self.last_message.clear();
            self.last_run = None;
            self.participants.clear();
        }
        self.name.clone_from(&opening.name);
        self.opening = Some(opening.clone());
        self.opened_at = at;
        // A reopened session accepts messages again.
        self.open = SessionStatus::Open;
        self.adjusted = Adjustment::default();
    }

    fn fold_unknown(&mut self, name: &str) {
        if self.unknown_kinds.len() < MAX_UNKNOWN_KINDS {
            self.unknown_kinds.insert(name.to_owned());
        }
    }

    const fn fold_load(&mut self) {
        self.open = SessionStatus::Open;
        self.adjusted.unloaded = None;
    }

    fn fold_branch(&mut self, branch: Branch) {
        self.context_from = branch.from;
        if branch.until == Seq::ZERO {
            // The name belonged to the abandoned conversation.
            self.name = None;
        }
    }

    fn fold_run(&mut self, event: &Event, message: &Message, limits: &Limits) {
        let Some(run) = &event.run else { return };
        self.queue.retain(|queued| queued.run != *run);
        self.last_message = tail(&message.text, limits.text_tail).to_owned();
        self.run = Some(Box::new(Run::new(run.clone(), message, event.at, self.model_choice())));
        self.record_key(KeySpace::Prompt, &message.message, message.fingerprint, run, limits);
    }

    fn fold_queued(&mut self, queued: &QueuedMessage, limits: &Limits) {
        self.queue.push_back(queued.clone());
        let message = &queued.message;
        self.record_key(KeySpace::Prompt, &message.message, message.fingerprint, &queued.run, limits);
    }

    fn fold_steering(&mut self, steering: &Steering, limits: &Limits) {
        let Some(run) = &mut self.run else { return };
        // The images are read from the journal when needed; keeping them would take too much memory.
        let kept = Steering { images: Vec::new(), ..steering.clone() };
        run.steers.push((run.steps_started, kept));
        let run = run.id.clone();
        self.last_message = tail(&steering.text, limits.text_tail).to_owned();
        self.record_key(KeySpace::Steer, &steering.message, steering.fingerprint, &run, limits);
    }

    fn record_key(&mut self, scope: KeySpace, key: &MessageId, fingerprint: Fingerprint, run: &RunId, limits: &Limits) {
        self.idempotency.insert((scope, key.clone()), KeyEntry { fingerprint, run: run.clone() });
        let (active, queue) = (&self.run, &self.queue);
        self.idempotency.evict(limits.idempotency_keys, |run| {
            active.as_ref().is_some_and(|active| active.id == *run) || queue.iter().any(|queued| queued.run == *run)
        });
    }

    fn fold_into_run(&mut self, event: &Event, limits: &Limits) {
        let Some(run) = &mut self.run else { return };
        match &event.kind {
            EventKind::Run(RunEvent::TextDelta { text }) => {
                if run.open_text() {
                    self.last_text.clear();
                }
                append_tail(&mut self.last_text, text, limits.text_tail);
            }
            EventKind::Run(RunEvent::TextDone { message: _ }) => run.close_text(),
            EventKind::Run(RunEvent::TurnUsage(usage)) => run.spent.add(&usage.usage),
            EventKind::Tool(ToolEvent::Intended(intention)) => run.add_call(intention),
            EventKind::Tool(ToolEvent::Started { call, tool: _ }) => run.start_call(call),
            EventKind::Tool(ToolEvent::Settled(result)) => run.settle_call(result),
            EventKind::Run(RunEvent::Stopping { outcome, reason, by }) => {
                run.stopping = Some(PendingStop { outcome: *outcome, reason: reason.clone(), by: by.clone() });
            }
            EventKind::Run(RunEvent::Recovered { phase: _ }) => run.discard_open_text(),
            EventKind::Notice(NoticeEvent::Warned { code, .. }) if is_turn_interrupted(code) => run.discard_open_text(),
            EventKind::Run(RunEvent::RetryStarted(retry)) => run.retry_attempt = Some(retry.attempt),
            EventKind::Run(RunEvent::RetryEnded { .. }) => run.retry_attempt = None,
            EventKind::Notice(NoticeEvent::EventsLost { after: _, cause }) => {
                run.history_damaged |= *cause == LossCause::Damage
            }
            EventKind::Session(_)
            | EventKind::Context(_)
            | EventKind::Gate(_)
            | EventKind::Participant(_)
            | EventKind::Run(
                RunEvent::Started(_)
                | RunEvent::MessageQueued(_)
                | RunEvent::MessageUnqueued { .. }
                | RunEvent::Ended(_)
                | RunEvent::Steered(_)
                | RunEvent::ThinkingDelta { .. },
            )
            | EventKind::Tool(ToolEvent::Output { .. })
            | EventKind::Notice(
                NoticeEvent::Status { .. }
                | NoticeEvent::Warned { .. }
                | NoticeEvent::Failed { .. }
                | NoticeEvent::Unknown(_),
            ) => {}
        }
    }
}

/// Returns the end of a text: at most `limit` bytes, cut at a character boundary.
fn tail(text: &str, limit: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(limit))..]
}

/// Appends to a text of which only the tail is kept. It is trimmed at twice the limit, so that appending costs
/// amortized O(1).
fn append_tail(text: &mut String, more: &str, limit: usize) {
    text.push_str(more);
    if text.len() > limit.saturating_mul(2) {
        let cut = text.len() - tail(text, limit).len();
        text.drain(..cut);
    }
}
