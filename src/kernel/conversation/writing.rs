//! How the messages of the assistant are written, and where one ends and the next begins.

use std::sync::Arc;

use super::Conversation;
use super::assistant::{AssistantMessage, AssistantText, Block, Completion, MessageEnd, SkipReason};
use super::draft::{DeltaKind, Draft};
use super::item::{CountedTokens, Interruption, Item};
use super::progress::Progress;
use crate::kernel::event::{Event, RunOutcome, TurnUsage};
use crate::kernel::id::{MessageId, Seq};

/// The current turn of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CurrentTurn {
    /// Its first event.
    pub(super) first_seq: Seq,
    /// Whether its text is over, so that only calls follow.
    pub(super) is_over: bool,
}

impl Conversation {
    /// Starts a run.
    pub(super) fn begin_run(&mut self, event: &Event) {
        if self.progress.is_active {
            self.end_run(event, &Interruption::EventsLost);
        }
        self.close();
        self.turn = None;
        self.progress.begin_run();
    }

    /// Handles a steering message. It takes precedence: the pending calls of the model are skipped.
    pub(super) fn steer(&mut self, event: &Event) {
        // A turn whose usage is recorded gets no further calls.
        if self.open.and_then(|open| self.message(open)).is_some_and(|message| message.usage.is_some()) {
            self.close();
        }
        self.skip_pending(event, SkipReason::Steered);
        let is_writing = self.open_message().is_some();
        self.progress.add_message(is_writing);
    }

    /// Appends a delta to the draft, or starts the next message with it.
    pub(super) fn append(&mut self, event: &Event, kind: DeltaKind, delta: &str) {
        if self.open.is_some() || self.draft.as_ref().is_some_and(|draft| draft.text_complete) {
            self.close();
        }
        if self.draft.is_none() {
            if self.turn.is_some_and(|turn| turn.is_over) {
                self.turn = None;
            }
            self.progress.turn_started = true;
            let draft = self.new_draft(event);
            self.draft = Some(Box::new(draft));
        }
        if let Some(draft) = &mut self.draft {
            draft.append(event, kind, delta);
        }
    }

    /// Completes the text of the assistant.
    pub(super) fn complete_text(&mut self, event: &Event, message: &MessageId) {
        if let Some(draft) = &mut self.draft {
            return draft.complete_text(event, message);
        }
        let completion = Some(Completion { message: message.clone(), seq: event.seq, at: event.at });
        if let Some(text) = self.incomplete_text_mut() {
            text.completion = completion;
            return;
        }
        let mut draft = self.new_draft(event);
        let (first_seq, text) = (event.seq, String::new());
        draft.message.blocks.push(Block::Text(AssistantText { first_seq, text, completion }));
        self.insert(draft.into_item());
    }

    /// Handles the usage of a turn: its text is over, and its calls follow or are announced.
    pub(super) fn end_provider_turn(&mut self, event: &Event, usage: &TurnUsage) {
        if self.open.is_some() {
            self.close();
        }
        self.pending = None;
        if self.draft.is_none() && self.turn.is_some_and(|turn| turn.is_over) {
            self.turn = None;
        }
        let mut draft = self.draft.take().map_or_else(|| self.new_draft(event), |draft| *draft);
        draft.touch(event);
        if !usage.model.is_empty() {
            draft.message.model = Arc::from(usage.model.as_str());
        }
        if self.model.is_empty() {
            self.model = Arc::from(usage.model.as_str());
        }
        draft.message.usage = Some(usage.usage);
        draft.message.provider_state.clone_from(&usage.provider_state);
        let (first_seq, turn) = (draft.first_seq, draft.message.turn);
        self.turn = Some(CurrentTurn { first_seq: turn, is_over: true });
        self.count_tokens(turn, usage);
        self.announce_calls(&mut draft, &usage.pending);
        self.insert(draft.into_item());
        self.open = Some(first_seq);
        // The turn gets no further calls: all are announced, or a message of the user interrupted it.
        if !usage.pending.is_empty() || self.progress.has_waiting_message {
            self.close();
        }
    }

    /// Discards the draft, which the model repeats. Its completed texts stay messages; a message with usage or calls
    /// is complete.
    pub(super) fn discard_draft(&mut self, event: &Event) {
        self.close_open();
        self.turn = None;
        let Some(mut draft) = self.draft.take() else { return };
        if let Some(last_seq) = draft.message.supersede(event.seq) {
            draft.last_seq = last_seq;
            self.insert(draft.into_item());
        }
        self.end_message();
    }

    /// Ends the run.
    pub(super) fn end_run(&mut self, event: &Event, end: &Interruption) {
        let is_interrupted = self.draft.as_ref().is_some_and(|draft| !draft.text_complete);
        if is_interrupted && let Some(draft) = &mut self.draft {
            draft.message.end = MessageEnd::Interrupted(end.clone());
        }
        self.close();
        self.skip_pending(event, SkipReason::RunEnded);
        // Their results may be among lost events.
        self.unsettled.clear();
        self.end_turn();
        self.turn = None;
        let is_unanswered = (!is_success(end) && !is_interrupted) || self.progress.turn_started;
        // An imported run has exactly the messages of its file.
        if self.progress.is_active && event.origin.is_none() && is_unanswered {
            let mut draft = self.new_draft(event);
            draft.message.end = MessageEnd::Interrupted(end.clone());
            self.insert(draft.into_item());
        }
        self.turn = None;
        self.progress = Progress::default();
    }

    /// Closes the message that the assistant writes: nothing is added to it.
    pub(super) fn close(&mut self) {
        self.close_open();
        if let Some(draft) = self.draft.take() {
            self.insert(draft.into_item());
            self.end_message();
        }
    }

    fn close_open(&mut self) {
        let Some(open) = self.open.take() else { return };
        if self.message(open).is_some_and(AssistantMessage::has_content) {
            self.end_message();
        } else {
            self.progress.deliver_waiting();
        }
    }

    /// Ends the turn unless a message may still change or a call has no result.
    pub(super) fn end_turn(&mut self) {
        let is_writing = self.draft.is_some() || self.open.is_some();
        if !is_writing && self.unsettled.is_empty() && self.pending.is_none() {
            self.progress.end_turn();
        }
    }

    /// Creates a message of the current turn.
    pub(super) fn new_draft(&mut self, event: &Event) -> Draft {
        let turn = self.turn.get_or_insert(CurrentTurn { first_seq: event.seq, is_over: false }).first_seq;
        Draft::new(event, turn, &self.provider, &self.model)
    }

    /// Inserts a message; what arrived while it was written follows it.
    pub(super) fn insert(&mut self, item: Item) {
        let index = self.items.partition_point(|other| other.first_seq <= item.first_seq);
        self.items.insert(index, Arc::new(item));
    }

    fn end_message(&mut self) {
        self.progress.turn_answered = true;
        self.end_turn();
        self.progress.deliver_waiting();
    }

    /// Returns the text of the current turn that is not complete, in a message that is.
    fn incomplete_text_mut(&mut self) -> Option<&mut AssistantText> {
        let turn = self.turn.filter(|turn| !turn.is_over)?.first_seq;
        let of_turn = |item: &Arc<Item>| item.assistant().is_some_and(|message| message.turn == turn);
        let item = self.items.iter_mut().rev().find(|item| of_turn(item))?;
        let is_incomplete = item.assistant()?.texts().last()?.completion.is_none();
        if is_incomplete { Arc::make_mut(item).assistant_mut()?.incomplete_text_mut() } else { None }
    }

    fn count_tokens(&mut self, turn: Seq, usage: &TurnUsage) {
        let used = usage.usage;
        // A server that does not count tokens reports zero.
        let counted = CountedTokens { turn, tokens: used.input.saturating_add(used.output) };
        self.counted = (used.input > 0 && !used.estimated).then_some(counted);
    }
}

fn is_success(end: &Interruption) -> bool {
    match end {
        Interruption::RunEnded(report) => report.outcome == RunOutcome::Success,
        Interruption::EventsLost => false,
    }
}
