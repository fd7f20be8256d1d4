//! Forks: a child session starts with the conversation of its parent up to an event.
//!
//! The child has a copy of the events that make that conversation, under the same sequence numbers, so that it needs
//! its parent no more, and a position means the same in both. Everything else of the parent is absent: gates, votes,
//! approvals, queued messages, participants and posted messages. The parent gets no event.

use std::collections::BTreeSet;

use super::audience::Viewer;
use super::command::Snapshot;
use super::event::{
    Adjustment, Branch, ContextEvent, Event, EventKind, GateEvent, NoticeEvent, Opening, Purpose, RunEvent,
    SessionEvent, ToolEvent, is_turn_interrupted,
};
use super::gate::RAISE_BUDGET;
use super::id::{CallId, Seq};
use super::limits::Limits;
use super::refusal::Refusal;

/// The point of a session at which a fork starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkPoint {
    /// The last event that the fork inherits; zero means none.
    pub at: Seq,
    /// Who forks: the fork inherits nothing that it may not see.
    pub viewer: Viewer,
    /// The session as it is now.
    pub snapshot: Snapshot,
}

/// A session that starts as a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// Its parameters; they name the parent and the point of the fork.
    pub opening: Opening,
    /// The inherited events, from [`Inheritance`].
    pub inherited: Vec<Event>,
    /// The settings of the parent that differ from its opening.
    pub settings: Adjustment,
    /// Its version. It continues the count of the parent, so that a client that goes on in the fork sees none twice.
    pub version: u64,
}

impl ForkPoint {
    /// Returns the opening of the fork: that of its parent with another name.
    pub fn opening(&self, parent: super::id::SessionId, name: Option<String>) -> Opening {
        Opening { name, parent: Some(parent), forked_at: Some(self.at), ..self.snapshot.opening.clone() }
    }

    /// Returns the settings that the fork continues with.
    pub fn settings(&self) -> Adjustment {
        Adjustment { unloaded: None, ..self.snapshot.adjusted.clone() }
    }
}

/// Collects the events that a fork inherits from the history of its parent.
///
/// A text keeps its first and its last delta; the other deltas become part of the first. So the conversation is the
/// same, and a long answer costs two events.
#[derive(Debug)]
pub struct Inheritance {
    viewer: Viewer,
    limits: Limits,
    events: Vec<Event>,
    bytes: usize,
    /// The calls of the model that have no result yet.
    unsettled: BTreeSet<CallId>,
    /// A gate has ended the message of the assistant. The start of its call stands for it if something follows that
    /// would continue the message.
    interruption: Option<Event>,
    /// Where the verbatim context starts: a summary replaces what precedes.
    context_from: Seq,
}

impl Inheritance {
    /// Starts without events.
    pub const fn new(viewer: Viewer, limits: Limits) -> Self {
        Self {
            viewer,
            limits,
            events: Vec::new(),
            bytes: 0,
            unsettled: BTreeSet::new(),
            interruption: None,
            context_from: Seq::ZERO,
        }
    }

    /// Adds the next event of the parent.
    pub fn add(&mut self, event: Event) {
        if !event.audience.contains(&self.viewer) {
            return;
        }
        match &event.kind {
            EventKind::Gate(GateEvent::Opened(question)) if event.run.is_some() => {
                let call = question.call().filter(|call| self.unsettled.contains(*call)).cloned();
                let started = |call| EventKind::Tool(ToolEvent::Started { call, tool: String::new() });
                self.interruption = call.map(|call| Event { kind: started(call), ..event });
            }
            EventKind::Session(SessionEvent::Opened(_)) => self.clear(),
            EventKind::Context(ContextEvent::Branched { branch: Branch { until: Seq::ZERO, .. }, by: _ }) => {
                self.clear()
            }
            EventKind::Context(ContextEvent::Compacted(compaction)) => {
                self.context_from = compaction.kept_from;
                self.push(event);
                self.trim();
            }
            EventKind::Context(ContextEvent::Branched { branch, by: _ }) => {
                self.context_from = branch.from;
                self.push(event);
            }
            kind if is_inherited(kind) => self.push(event),
            EventKind::Session(_)
            | EventKind::Run(_)
            | EventKind::Tool(_)
            | EventKind::Gate(_)
            | EventKind::Participant(_)
            | EventKind::Context(_)
            | EventKind::Notice(_) => {}
        }
    }

    /// Returns the inherited events, without a text that is not complete and user commands that have no result.
    ///
    /// # Errors
    ///
    /// Refuses more than the limits allow, even of what follows the last summary alone.
    pub fn finish(mut self) -> Result<Vec<Event>, Refusal> {
        while self.events.last().is_some_and(is_delta) {
            self.events.pop();
        }
        let settled: BTreeSet<CallId> = self.events.iter().filter_map(settled_user_command).collect();
        self.events.retain(|event| user_command(event).is_none_or(|call| settled.contains(call)));
        self.trim();
        if self.is_too_large() { Err(Refusal::ImportTooLarge) } else { Ok(self.events) }
    }

    fn clear(&mut self) {
        *self = Self::new(self.viewer.clone(), self.limits);
    }

    /// Drops what a summary replaces if everything is too much.
    fn trim(&mut self) {
        if self.is_too_large() {
            let from = self.context_from;
            self.events.retain(|event| event.seq >= from);
            self.bytes = self.events.iter().map(size).sum();
        }
    }

    const fn is_too_large(&self) -> bool {
        let most = self.limits.import_steps.saturating_mul(EVENTS_PER_STEP);
        self.events.len() > most || self.bytes > self.limits.import_bytes
    }

    fn push(&mut self, mut event: Event) {
        if let Some(interruption) = self.interruption.take()
            && !ends_message(&event.kind)
        {
            self.events.push(interruption);
        }
        match &mut event.kind {
            EventKind::Tool(ToolEvent::Intended(intention)) if is_work(&intention.purpose, &intention.tool) => {
                self.unsettled.insert(intention.call.clone());
            }
            EventKind::Tool(ToolEvent::Settled(result)) => {
                self.unsettled.remove(&result.call);
            }
            // A fork is visible, whatever became of its parent.
            EventKind::Session(SessionEvent::Adjusted { adjustment, by: _ }) => adjustment.unloaded = None,
            EventKind::Session(_)
            | EventKind::Run(_)
            | EventKind::Tool(_)
            | EventKind::Gate(_)
            | EventKind::Participant(_)
            | EventKind::Context(_)
            | EventKind::Notice(_) => {}
        }
        self.bytes = self.bytes.saturating_add(size(&event));
        let event = Event { version: None, ..event };
        if let [.., first, last] = self.events.as_mut_slice()
            && continues(first, last)
            && continues(last, &event)
        {
            append(first, std::mem::replace(last, event));
            return;
        }
        self.events.push(event);
    }
}

/// Returns whether an event changes the conversation, the gates and openings apart.
fn is_inherited(kind: &EventKind) -> bool {
    match kind {
        EventKind::Session(change) => matches!(change, SessionEvent::Adjusted { .. }),
        EventKind::Run(change) => match change {
            RunEvent::Started(_)
            | RunEvent::Steered(_)
            | RunEvent::ThinkingDelta { .. }
            | RunEvent::TextDelta { .. }
            | RunEvent::TextDone { .. }
            | RunEvent::TurnUsage(_)
            | RunEvent::Recovered { .. }
            | RunEvent::Ended(_) => true,
            RunEvent::MessageQueued(_)
            | RunEvent::MessageUnqueued { .. }
            | RunEvent::RetryStarted(_)
            | RunEvent::RetryEnded { .. }
            | RunEvent::Stopping { .. } => false,
        },
        EventKind::Tool(change) => !matches!(change, ToolEvent::Output { .. }),
        EventKind::Context(change) => matches!(change, ContextEvent::Branched { .. } | ContextEvent::Compacted(_)),
        EventKind::Notice(NoticeEvent::Warned { code, .. }) => is_turn_interrupted(code),
        EventKind::Notice(notice) => matches!(notice, NoticeEvent::EventsLost { .. }),
        EventKind::Gate(_) | EventKind::Participant(_) => false,
    }
}

/// Returns whether an event ends the message of the assistant by itself. A recovery discards it.
fn ends_message(kind: &EventKind) -> bool {
    match kind {
        EventKind::Tool(ToolEvent::Started { .. } | ToolEvent::Settled(_)) => true,
        EventKind::Run(RunEvent::Started(_) | RunEvent::Ended(_)) => true,
        EventKind::Tool(ToolEvent::Intended(_) | ToolEvent::Output { .. })
        | EventKind::Session(_)
        | EventKind::Run(_)
        | EventKind::Gate(_)
        | EventKind::Participant(_)
        | EventKind::Context(_)
        | EventKind::Notice(_) => false,
    }
}

fn is_work(purpose: &Purpose, tool: &str) -> bool {
    *purpose == Purpose::Work && tool != RAISE_BUDGET
}

const fn is_delta(event: &Event) -> bool {
    matches!(event.kind, EventKind::Run(RunEvent::TextDelta { .. } | RunEvent::ThinkingDelta { .. }))
}

/// Returns whether two successive events are deltas of the same text.
fn continues(first: &Event, next: &Event) -> bool {
    let is_same_kind = std::mem::discriminant(&first.kind) == std::mem::discriminant(&next.kind);
    let is_same_text = match (&first.kind, &next.kind) {
        (EventKind::Run(first), EventKind::Run(next)) => std::mem::discriminant(first) == std::mem::discriminant(next),
        (_, _) => false,
    };
    is_delta(first) && is_same_kind && is_same_text && (&first.run, &first.origin) == (&next.run, &next.origin)
}

/// Appends the text of the next delta.
fn append(first: &mut Event, next: Event) {
    let EventKind::Run(RunEvent::TextDelta { text: more } | RunEvent::ThinkingDelta { text: more }) = next.kind else {
        return;
    };
    if let EventKind::Run(RunEvent::TextDelta { text } | RunEvent::ThinkingDelta { text }) = &mut first.kind {
        text.push_str(&more);
    }
}

/// Returns the call of a user command.
fn user_command(event: &Event) -> Option<&CallId> {
    match &event.kind {
        EventKind::Tool(ToolEvent::Intended(intention)) if is_of_user(intention.purpose) => Some(&intention.call),
        EventKind::Tool(ToolEvent::Started { call, tool: _ }) if event.run.is_none() => Some(call),
        EventKind::Session(_)
        | EventKind::Run(_)
        | EventKind::Tool(_)
        | EventKind::Gate(_)
        | EventKind::Participant(_)
        | EventKind::Context(_)
        | EventKind::Notice(_) => None,
    }
}

fn settled_user_command(event: &Event) -> Option<CallId> {
    let EventKind::Tool(ToolEvent::Settled(result)) = &event.kind else { return None };
    is_of_user(result.purpose).then(|| result.call.clone())
}

const fn is_of_user(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::UserCommand { .. })
}

/// Returns the approximate size of an event in bytes.
fn size(event: &Event) -> usize {
    let images = |images: &[super::event::Image]| images.iter().map(|image| image.data.len()).sum::<usize>();
    match &event.kind {
        EventKind::Run(RunEvent::Started(message)) => message.text.len() + images(&message.images),
        EventKind::Run(RunEvent::Steered(steering)) => steering.text.len() + images(&steering.images),
        EventKind::Run(RunEvent::TextDelta { text } | RunEvent::ThinkingDelta { text }) => text.len(),
        EventKind::Run(RunEvent::TurnUsage(usage)) => usage.provider_state.as_ref().map_or(0, String::len),
        EventKind::Tool(ToolEvent::Intended(intention)) => intention.args.as_str().len(),
        EventKind::Tool(ToolEvent::Settled(result)) => {
            result.text.len() + result.diff.as_ref().map_or(0, |diff| diff.text.len())
        }
        EventKind::Context(ContextEvent::Compacted(compaction)) => compaction.summary.len(),
        EventKind::Session(_)
        | EventKind::Run(_)
        | EventKind::Tool(_)
        | EventKind::Gate(_)
        | EventKind::Participant(_)
        | EventKind::Context(_)
        | EventKind::Notice(_) => 0,
    }
}

/// How many events a step of a conversation has at most, as a rule: a call is requested, started and settled; a text
/// has two deltas and an end.
const EVENTS_PER_STEP: usize = 4;
