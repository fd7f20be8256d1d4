//! The calls of the model, and the commands of the user.

use std::sync::Arc;

use super::Conversation;
use super::assistant::{Announcement, Block, Call, CallCompletion, CallOutcome, CallRequest, SkipReason};
use super::draft::{Draft, origin};
use super::item::{ItemContent, UserCommand};
use super::writing::CurrentTurn;
use crate::kernel::event::{CallResult, Event, Intention, PendingCall, Purpose};
use crate::kernel::gate::RAISE_BUDGET;
use crate::kernel::id::{CallId, Seq};

/// The announced calls that are not requested yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PendingCalls {
    /// The message that announced them.
    pub(super) message: Seq,
    /// The index of the next one.
    pub(super) next: u32,
}

impl Conversation {
    /// Returns the calls of the last turn that have not started yet, in order.
    pub fn pending(&self) -> impl Iterator<Item = &PendingCall> {
        let pending = self.pending.and_then(|pending| Some((self.message(pending.message)?, pending.next)));
        pending.into_iter().flat_map(|(message, next)| {
            let announced = message.calls().filter_map(|call| call.announcement.as_ref());
            announced.filter(move |announced| announced.index >= next).map(|announced| &announced.call)
        })
    }

    /// Returns a requested call without a result, and the message that requested it.
    pub fn unsettled_call(&self, call: &CallId) -> Option<(Seq, &Call)> {
        let message = *self.unsettled.get(call)?;
        let is_requested = |other: &&Call| other.request.as_ref().is_some_and(|request| request.id == *call);
        Some((message, self.message(message)?.calls().rfind(is_requested)?))
    }

    /// Adds the calls that a turn announces.
    pub(super) fn announce_calls(&mut self, draft: &mut Draft, calls: &[PendingCall]) {
        if calls.is_empty() {
            return;
        }
        self.progress.turn_started = true;
        self.pending = Some(PendingCalls { message: draft.first_seq, next: 0 });
        let announced = (0..).zip(calls).map(|(index, call)| {
            let announcement = Some(Announcement { index, call: call.clone() });
            Block::Call(Box::new(Call { announcement, request: None, completion: None }))
        });
        draft.message.blocks.extend(announced);
    }

    /// Adds a requested call.
    pub(super) fn add_call(&mut self, event: &Event, intention: &Intention) {
        match intention.purpose {
            Purpose::UserCommand { in_context: _ } => {
                self.user_commands.insert(intention.call.clone(), Arc::new(intention.clone()));
            }
            Purpose::Check(_) => self.close(),
            Purpose::Work if intention.tool == RAISE_BUDGET => self.close(),
            Purpose::Work => {
                let request = CallRequest::new(event.seq, intention);
                let message = match self.request_pending(&request) {
                    Some(message) => message,
                    None => self.add_to_message(event, request),
                };
                self.unsettled.insert(intention.call.clone(), message);
            }
        }
    }

    /// Completes a call.
    pub(super) fn complete_call(&mut self, event: &Event, result: &CallResult) {
        let shared = Arc::new(result.without_diff());
        if let Some(intention) = self.user_commands.remove(&result.call) {
            return self.add(event, ItemContent::UserCommand(UserCommand { intention, result: shared }));
        }
        match result.purpose {
            Purpose::UserCommand { in_context: _ } => return self.add(event, ItemContent::LostCall(shared)),
            Purpose::Check(_) => return self.close(),
            Purpose::Work if result.tool == RAISE_BUDGET => return self.close(),
            Purpose::Work => self.close(),
        }
        let message = self.unsettled.remove(&result.call);
        let completion = completion(event, CallOutcome::Settled(Arc::clone(&shared)));
        let item = message.and_then(|message| self.item_mut(message));
        let is_requested = |call: &&mut Call| call.request.as_ref().is_some_and(|request| request.id == result.call);
        let message = item.and_then(|item| item.assistant_mut());
        match message.and_then(|message| message.calls_mut().filter(is_requested).last()) {
            Some(call) => call.completion = Some(completion),
            None => self.add(event, ItemContent::LostCall(shared)),
        }
        self.end_turn();
    }

    /// Completes the pending calls, which are never requested.
    pub(super) fn skip_pending(&mut self, event: &Event, reason: SkipReason) {
        if let Some(PendingCalls { message, next }) = self.pending.take()
            && let Some(message) = self.item_mut(message).and_then(|item| item.assistant_mut())
        {
            let is_pending =
                |call: &&mut Call| call.announcement.as_ref().is_some_and(|announced| announced.index >= next);
            for call in message.calls_mut().filter(is_pending) {
                call.completion = Some(completion(event, CallOutcome::Skipped(reason)));
            }
        }
        self.end_turn();
    }

    /// Requests the next announced call, and returns its message.
    fn request_pending(&mut self, request: &CallRequest) -> Option<Seq> {
        let PendingCalls { message, next } = self.pending?;
        let calls = self.item_mut(message)?.assistant_mut()?;
        // Calls are requested in order and without others in between; their arguments may differ by redaction.
        let mut rest = calls.calls_mut().filter(|call| match &call.announcement {
            Some(announced) => announced.index >= next,
            None => false,
        });
        let call = rest.next()?;
        let is_last = rest.next().is_none();
        drop(rest);
        call.request = Some(request.clone());
        self.pending = if is_last { None } else { Some(PendingCalls { message, next: next + 1 }) };
        Some(message)
    }

    /// Adds a call to the message that the assistant is writing, or to a message of its own; returns that message.
    fn add_to_message(&mut self, event: &Event, request: CallRequest) -> Seq {
        self.progress.turn_started = true;
        let call = Block::Call(Box::new(Call { announcement: None, request: Some(request), completion: None }));
        if let Some(open) = self.open
            && let Some(item) = self.item_mut(open)
        {
            item.last_seq = event.seq;
            item.origin = item.origin.take().or_else(|| origin(event));
            if let Some(message) = item.assistant_mut() {
                message.blocks.push(call);
            }
            return open;
        }
        let mut draft = self.draft.take().map_or_else(|| self.new_draft(event), |draft| *draft);
        draft.touch(event);
        draft.message.blocks.push(call);
        let (first_seq, turn) = (draft.first_seq, draft.message.turn);
        self.turn = Some(CurrentTurn { first_seq: turn, is_over: true });
        self.insert(draft.into_item());
        self.open = Some(first_seq);
        first_seq
    }
}

fn completion(event: &Event, outcome: CallOutcome) -> CallCompletion {
    CallCompletion { seq: event.seq, at: event.at, origin: origin(event), outcome }
}
