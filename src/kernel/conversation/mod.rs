//! The conversation of a session, folded from its events: messages of users and of the assistant, calls with their
//! results, user commands, branches and summaries.
//!
//! The fold is incremental: folding a history in parts gives the same conversation as folding it at once. It may start
//! at any event; what precedes that event is absent. An interrupted text that the model repeats appears once. Results
//! belong to their calls, whatever arrived in between. A branch restores the conversation at its point.
//!
//! It decides nothing about a reader: what a model receives, or which messages a client gets, is a view of it.
//! Items are shared, so that a copy of a conversation costs a pointer for each item.

mod assistant;
mod calls;
mod draft;
mod item;
mod message;
mod progress;
mod rewind;
mod settled;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use assistant::{
    Announcement, AssistantMessage, AssistantText, Block, Call, CallCompletion, CallOutcome, CallRequest, Completion,
    MessageEnd, SkipReason,
};
pub use item::{CountedTokens, Delivery, Interruption, Item, ItemContent, Summary, UserCommand, UserMessage};
pub use message::{Author, Message};

use super::event::{
    Compaction, ContextEvent, Event, EventKind, GateEvent, Image, Intention, NoticeEvent, RunEvent, RunOutcome,
    SessionEvent, ToolEvent, is_turn_interrupted,
};
use super::id::{CallId, MessageId, Seq};
use calls::PendingCalls;
use draft::{DeltaKind, Draft, origin};
use progress::Progress;
use writing::CurrentTurn;

/// A conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The items, by their first events.
    items: Vec<Arc<Item>>,
    /// The summaries of older parts, the newest last.
    summaries: Vec<Summary>,
    /// The newest event.
    last_seq: Seq,
    /// The first event of the conversation; an earlier conversation may precede it in the session.
    start: Seq,
    /// The commands of the user that have no result yet.
    user_commands: BTreeMap<CallId, Arc<Intention>>,
    /// The message that the assistant is writing.
    draft: Option<Box<Draft>>,
    /// The message with usage or calls, which is an item and may get more calls.
    open: Option<Seq>,
    turn: Option<CurrentTurn>,
    /// The calls of the last turn that have not started yet.
    pending: Option<PendingCalls>,
    /// The requested calls without results, and their messages.
    unsettled: BTreeMap<CallId, Seq>,
    progress: Progress,
    provider: Arc<str>,
    model: Arc<str>,
    /// What interrupted the conversation since the last message.
    interruption: Option<Interruption>,
    counted: Option<CountedTokens>,
}

impl Conversation {
    /// Folds one event.
    pub fn fold(&mut self, event: &Event) {
        if self.last_seq == Seq::ZERO {
            self.start = event.seq;
        }
        self.last_seq = event.seq;
        match &event.kind {
            EventKind::Session(change) => self.fold_session_event(change),
            EventKind::Run(change) => self.fold_run_event(event, change),
            EventKind::Tool(change) => self.fold_tool_event(event, change),
            // A gate of no run interrupts nothing.
            EventKind::Gate(GateEvent::Opened(_)) if event.run.is_some() => self.close(),
            EventKind::Context(ContextEvent::Branched { branch, by: _ }) => self.rewind_to(event, *branch),
            EventKind::Context(ContextEvent::Compacted(compaction)) => self.compact(event, compaction),
            EventKind::Notice(NoticeEvent::Warned { code, .. }) if is_turn_interrupted(code) => {
                self.discard_draft(event)
            }
            EventKind::Notice(NoticeEvent::EventsLost { after: _, cause: _ }) => {
                self.discard_draft(event);
                self.interruption = Some(Interruption::EventsLost);
            }
            EventKind::Context(_) | EventKind::Notice(_) | EventKind::Gate(_) | EventKind::Participant(_) => {}
        }
    }

    /// Returns the newest event.
    pub const fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Returns the items, by their first events. Items that a summary replaces are included.
    pub fn items(&self) -> &[Arc<Item>] {
        &self.items
    }

    /// Returns the items from an event on as a reader sees them, in order. The message that the assistant is writing
    /// is absent, and so is what arrived since: it follows that message.
    pub fn settled_items(&self, first: Seq) -> Vec<&Item> {
        let open = self.open_message().unwrap_or(Seq::new(u64::MAX));
        let items = self.items[self.items.partition_point(|item| item.first_seq < first)..].iter();
        let mut items: Vec<&Item> = items.map(|item| &**item).filter(|item| item.place() < open).collect();
        items.sort_by_key(|item| item.place());
        items
    }

    /// Returns the place of the assistant's message that has content and may still change.
    fn open_message(&self) -> Option<Seq> {
        let draft = self.draft.as_ref().map(|draft| draft.first_seq);
        draft.or_else(|| {
            let item = self.items.get(self.index(self.open?)?)?;
            item.assistant()?.has_content().then(|| item.place())
        })
    }

    /// Returns whether the assistant's message that starts with an event may still change.
    pub fn is_open(&self, first_seq: Seq) -> bool {
        self.open == Some(first_seq) || self.draft.as_ref().is_some_and(|draft| draft.first_seq == first_seq)
    }

    /// Returns the last event that changed the assistant's message that starts with an event.
    pub fn last_change(&self, first_seq: Seq) -> Option<Seq> {
        let draft = self.draft.as_ref().filter(|draft| draft.first_seq == first_seq).map(|draft| draft.last_seq);
        draft.or_else(|| Some(self.items.get(self.index(first_seq)?)?.last_seq))
    }

    /// Returns the assistant's message that starts with an event and has no more text.
    pub fn message(&self, first_seq: Seq) -> Option<&AssistantMessage> {
        self.items.get(self.index(first_seq)?)?.assistant()
    }

    /// Returns the provider of the session.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Returns the model of the session; empty if it is unknown.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the summaries of older parts, the newest last.
    pub fn summaries(&self) -> &[Summary] {
        &self.summaries
    }

    /// Returns the tokens that the provider counted last; unknown after a compaction or a branch.
    pub const fn counted_tokens(&self) -> Option<CountedTokens> {
        self.counted
    }

    /// Returns whether a run is active.
    pub const fn is_run_active(&self) -> bool {
        self.progress.is_active
    }

    fn fold_session_event(&mut self, change: &SessionEvent) {
        match change {
            SessionEvent::Opened(opening) => {
                self.provider = Arc::from(opening.provider.as_str());
                self.model = Arc::from(opening.model.as_deref().unwrap_or_default());
            }
            SessionEvent::Adjusted { adjustment, by: _ } => {
                if let Some(provider) = &adjustment.provider {
                    self.provider = Arc::from(provider.as_str());
                    self.model = Arc::default();
                }
                if let Some(model) = &adjustment.model {
                    self.model = Arc::from(model.as_str());
                }
            }
            SessionEvent::Renamed { .. }
            | SessionEvent::Ended { .. }
            | SessionEvent::VersionBumped { .. }
            | SessionEvent::Loaded { .. } => {}
        }
    }

    fn fold_run_event(&mut self, event: &Event, change: &RunEvent) {
        match change {
            RunEvent::Started(message) => {
                self.begin_run(event);
                self.add_message(event, Delivery::Prompt, &message.message, &message.text, &message.images);
            }
            RunEvent::Steered(steering) => {
                self.steer(event);
                self.add_message(event, Delivery::Steering, &steering.message, &steering.text, &steering.images);
            }
            RunEvent::ThinkingDelta { text } => self.append(event, DeltaKind::Thinking, text),
            RunEvent::TextDelta { text } => self.append(event, DeltaKind::Text, text),
            RunEvent::TextDone { message } => self.complete_text(event, message),
            RunEvent::TurnUsage(usage) => self.end_provider_turn(event, usage),
            RunEvent::Recovered { phase: _ } => self.discard_draft(event),
            RunEvent::Ended(report) => {
                let end = Interruption::RunEnded(Arc::new((**report).clone()));
                self.end_run(event, &end);
                self.interruption = Some(end).filter(|_| report.outcome != RunOutcome::Success);
            }
            RunEvent::MessageQueued(_)
            | RunEvent::MessageUnqueued { .. }
            | RunEvent::RetryStarted(_)
            | RunEvent::RetryEnded { .. }
            | RunEvent::Stopping { .. } => {}
        }
    }

    fn fold_tool_event(&mut self, event: &Event, change: &ToolEvent) {
        match change {
            ToolEvent::Intended(intention) => self.add_call(event, intention),
            ToolEvent::Started { call, tool: _ } => {
                // A user command runs outside the run and does not end the message.
                if self.unsettled.contains_key(call) {
                    self.close();
                }
            }
            ToolEvent::Output { .. } => {}
            ToolEvent::Settled(result) => self.complete_call(event, result),
        }
    }

    /// Adds an item of one event.
    fn add(&mut self, event: &Event, content: ItemContent) {
        let (seq, at, run, origin) = (event.seq, event.at, event.run.clone(), origin(event));
        self.items.push(Arc::new(Item { first_seq: seq, last_seq: seq, at, run, origin, content }));
    }

    fn add_message(&mut self, event: &Event, delivery: Delivery, message: &MessageId, text: &str, images: &[Image]) {
        let (message, text, images) = (message.clone(), text.to_owned(), images.to_vec());
        let interruption = self.interruption.take();
        let message = UserMessage { message, delivery, interruption, text, images };
        self.add(event, ItemContent::UserMessage(message));
    }

    fn compact(&mut self, event: &Event, compaction: &Compaction) {
        self.summaries.push(Summary {
            created_at: event.seq,
            at: event.at,
            kept_from: compaction.kept_from,
            place: self.open_message().unwrap_or(event.seq),
            tokens_before: compaction.tokens_before,
            text: Arc::from(compaction.summary.as_str()),
            origin: origin(event),
        });
        self.counted = None;
    }

    /// Returns the message of the assistant that starts with an event, for a change.
    fn item_mut(&mut self, first_seq: Seq) -> Option<&mut Item> {
        let index = self.index(first_seq)?;
        self.items.get_mut(index).map(Arc::make_mut)
    }

    /// Finds the message of the assistant that starts with an event.
    fn index(&self, first_seq: Seq) -> Option<usize> {
        let first = self.items.partition_point(|item| item.first_seq < first_seq);
        let same = self.items[first..].iter().take_while(|item| item.first_seq == first_seq);
        same.zip(first..).find(|(item, _)| item.assistant().is_some()).map(|(_, index)| index)
    }
}
