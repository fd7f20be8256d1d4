//! Runs and turns: user messages, assistant messages and how runs end.
//!
//! Where a message of the assistant ends is decided by the fold of the conversation; this follows it.

use std::sync::Arc;

use super::entry::{self, Role, skip_text, stop_reason};
use super::event_sink::{EventSink, PendingDelta};
use super::message_json::{StopReason, ToolResult, announced_call_id, user_message, write_arguments};
use super::open_message::{BlockKind, OpenMessage};
use super::ui;
use super::{CompleteMessage, Projection, TurnState};
use crate::kernel::conversation::{AssistantMessage, Call, CallOutcome};
use crate::kernel::event::{Event, Image, Message, Steering, TokenUsage, TurnUsage};
use crate::kernel::id::{Json, Seq};

impl Projection {
    /// Starts a run.
    pub(super) fn begin_run(&mut self, event: &Event, message: &Message, out: &mut EventSink) {
        if self.run_start.is_some() {
            self.finish_run(event, out);
        }
        let waiting = self.queue.len();
        self.queue.retain(|queued| Some(&queued.run) != event.run.as_ref());
        if self.queue.len() < waiting {
            self.show_queue(event.seq, out);
        }
        self.run_start = Some(event.seq);
        self.turn = TurnState::default();
        out.emit_empty("agent_start");
        self.begin_turn(out);
        self.add_user_message(event, &message.text, &message.images, out);
    }

    /// Handles a steering message: calls that have not started are skipped.
    pub(super) fn steer(&mut self, event: &Event, steering: &Steering, out: &mut EventSink) {
        self.skip_calls(event, out);
        self.add_user_message(event, &steering.text, &steering.images, out);
    }

    /// Handles the end of the model's text.
    pub(super) fn end_text(&mut self, out: &mut EventSink) {
        if let Some(open) = &mut self.open_message {
            open.end_block(out);
        }
    }

    /// Returns whether an event added to the open message.
    pub(super) fn extends_open_message(&self, event: &Event) -> bool {
        let open = self.open_message.as_ref();
        open.is_some_and(|open| self.conversation.last_change(open.first_seq) == Some(event.seq))
    }

    /// Ends the open message if the conversation has closed or discarded it; `why` says why it is discarded.
    pub(super) fn follow_open_message(&mut self, why: &str, out: &mut EventSink) {
        let Some(first_seq) = self.open_message.as_ref().map(|open| open.first_seq) else { return };
        if self.conversation.is_open(first_seq) {
            return;
        }
        let Some(mut open) = self.open_message.take() else { return };
        let closed = self.conversation.message(first_seq);
        let stop = closed.map_or(StopReason::Failed(why), |message| stop_reason(&message.end));
        if !open.is_empty() {
            self.turn.message = Some(open.end(stop, out));
            self.end_turn(out);
        }
        self.deliver_deferred(out);
    }

    /// Ends the turn unless it has an open message or unfinished calls.
    pub(super) fn end_turn(&mut self, out: &mut EventSink) {
        let under_way = self.calls.values().any(|used| used.belongs_to_turn());
        if !self.turn.started || self.open_message.is_some() || under_way || self.has_pending_calls {
            return;
        }
        let Some(message) = self.turn.message.take() else { return };
        let results = std::mem::take(&mut self.turn.results);
        out.emit("turn_end", |event| {
            event.raw("message", message.as_bytes()).list("toolResults", results.iter().map(|result| &**result)).end();
        });
        self.turn = TurnState::default();
    }

    /// Opens the assistant message that starts with an event, unless one is open.
    pub(super) fn begin_message(&mut self, event: &Event, first_seq: Seq, out: &mut EventSink) -> &mut OpenMessage {
        self.begin_turn(out);
        let (provider, model) = (self.conversation.provider(), self.conversation.model());
        self.open_message.get_or_insert_with(|| OpenMessage::new(first_seq, event.at, provider, model))
    }

    /// Adds a complete message; it is deferred while an announced message is open.
    pub(super) fn add_message(&mut self, message: CompleteMessage, out: &mut EventSink) {
        if self.open_message.as_ref().is_some_and(|open| open.announced) {
            return self.deferred.push(message);
        }
        match message {
            CompleteMessage::User(json) => {
                if self.run_start.is_some() {
                    self.begin_turn(out);
                }
                out.emit_message(&json);
            }
            CompleteMessage::UserCommand(json) => out.emit_message(&json),
        }
    }

    /// Appends a text or thinking delta of the model.
    pub(super) fn append_delta(&mut self, event: &Event, block: BlockKind, text: &str, out: &mut EventSink) {
        let going_on = self.open_message.as_ref().is_some_and(|open| open.has_open_block(block));
        if !going_on {
            self.flush(out);
            self.begin_message(event, event.seq, out).begin_block(block, out);
        }
        if let Some(open) = &mut self.open_message {
            open.append(text);
        }
        if out.is_recording() {
            match &mut out.pending {
                Some(PendingDelta::Text(delta)) => delta.push_str(text),
                Some(PendingDelta::Output(_)) | None => out.pending = Some(PendingDelta::Text(text.to_owned())),
            }
        }
    }

    /// Handles the usage of a turn and the calls that it announces.
    pub(super) fn record_usage(&mut self, event: &Event, turn: &TurnUsage, out: &mut EventSink) {
        self.accumulate_usage(&turn.usage);
        if !turn.pending.is_empty() {
            self.begin_turn(out);
        }
        let (provider, model) = (self.conversation.provider(), self.conversation.model());
        // An empty turn is not emitted; a tool call of it may follow.
        let open = self.open_message.get_or_insert_with(|| OpenMessage::new(event.seq, event.at, provider, model));
        open.set_usage(&turn.model, turn.usage);
        for (index, call) in (0..).zip(&turn.pending) {
            open.add_call(&announced_call_id(open.first_seq, index), &call.tool, &call.args, out);
        }
    }

    /// Handles the end of a run.
    pub(super) fn finish_run(&mut self, event: &Event, out: &mut EventSink) {
        self.skip_calls(event, out);
        // Their results may be among lost events.
        self.calls.retain(|_, used| !used.belongs_to_turn());
        self.questions.clear();
        self.end_turn(out);
        let unanswered = self.conversation.message(event.seq).filter(|message| message.blocks.is_empty());
        if let Some(end) = unanswered.map(|message| message.end.clone()) {
            self.begin_message(event, event.seq, out);
            if let Some(mut open) = self.open_message.take() {
                self.turn.message = Some(open.end(stop_reason(&end), out));
            }
            self.end_turn(out);
        }
        self.turn = TurnState::default();
        if std::mem::take(&mut self.working_message_set) {
            ui::working_message("", event.seq, out);
        }
        if let Some(from) = self.run_start.take()
            && out.is_recording()
        {
            // If the end of the run is lost, the event is the start of the next one.
            let of_next_run = |seq, role| seq == event.seq && role == Role::User;
            let entries = entry::since(&self.conversation, from);
            let messages: Vec<Arc<str>> =
                entries.take_while(|entry| !of_next_run(entry.seq, entry.role)).map(|entry| entry.json()).collect();
            out.emit("agent_end", |object| object.list("messages", messages.iter().map(|json| &**json)).end());
        }
    }

    fn deliver_deferred(&mut self, out: &mut EventSink) {
        for message in std::mem::take(&mut self.deferred) {
            self.add_message(message, out);
        }
    }

    fn begin_turn(&mut self, out: &mut EventSink) {
        if !std::mem::replace(&mut self.turn.started, true) {
            out.emit_empty("turn_start");
        }
    }

    fn add_user_message(&mut self, event: &Event, text: &str, images: &[Image], out: &mut EventSink) {
        self.add_message(CompleteMessage::User(user_message(text, images, event.at)), out);
    }

    /// Emits the results of the calls that an event has skipped.
    fn skip_calls(&mut self, event: &Event, out: &mut EventSink) {
        let since = self.run_start.unwrap_or_default();
        let items = self.conversation.items().iter().rev().take_while(|item| item.first_seq >= since);
        let mut messages = items.filter_map(|item| Some((item.first_seq, item.assistant()?)));
        let skipped = messages.find(|(_, message)| skipped_calls(message, event.seq).next().is_some());
        let mut results = Vec::new();
        for (message, (index, tool, args, why)) in skipped
            .iter()
            .flat_map(|(first_seq, message)| skipped_calls(message, event.seq).map(|call| (*first_seq, call)))
        {
            let id = announced_call_id(message, index);
            let result = ToolResult::skipped(&id, tool, why);
            out.emit("tool_execution_start", |event| {
                event
                    .text("toolCallId", &id)
                    .text("toolName", tool)
                    .with("args", |out| write_arguments(out, args))
                    .end();
            });
            out.emit("tool_execution_end", |event| result.write_end(event));
            let message = result.message(event.at);
            out.emit_message(&message);
            results.push(message);
        }
        self.turn.results.append(&mut results);
        self.end_turn(out);
    }

    /// Adds the result of a call that the model requested.
    pub(super) fn add_result(&mut self, message: Arc<str>, out: &mut EventSink) {
        out.emit_message(&message);
        self.turn.results.push(message);
    }

    fn accumulate_usage(&mut self, used: &TokenUsage) {
        let plain = used.input.saturating_sub(used.cache_read).saturating_sub(used.cache_write);
        let sums = [
            (&mut self.usage.input, plain),
            (&mut self.usage.output, used.output),
            (&mut self.usage.cache_read, used.cache_read),
            (&mut self.usage.cache_write, used.cache_write),
            (&mut self.usage.cost, used.cost.unwrap_or(0)),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        if used.input > 0 {
            self.context_tokens = Some(used.input.saturating_add(used.output));
        }
    }
}

/// Returns the calls of a message that an event has skipped: their indexes, tools, arguments and the reason.
fn skipped_calls(message: &AssistantMessage, at: Seq) -> impl Iterator<Item = (u32, &str, &Json, &'static str)> {
    let skipped = move |call: &Call| match &call.completion {
        Some(completion) if completion.seq == at => match completion.outcome {
            CallOutcome::Skipped(reason) => Some(skip_text(reason)),
            CallOutcome::Settled(_) => None,
        },
        Some(_) | None => None,
    };
    message.calls().filter_map(move |call| {
        let announced = call.announcement.as_ref()?;
        Some((announced.index, announced.call.tool.as_str(), &announced.call.args, skipped(call)?))
    })
}
