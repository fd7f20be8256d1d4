//! Runs and turns: user messages, assistant messages and how runs end.

use std::sync::Arc;

use super::entry::{Entry, Role, origin};
use super::event_sink::{EventSink, PendingDelta};
use super::object_writer::{ObjectWriter, object, write_text_content};
use super::open_message::{BlockKind, OpenMessage, StopReason, write_arguments};
use super::ui;
use super::{Projection, TurnState, UnstartedCall};
use crate::kernel::event::{Event, Image, Message, RunOutcome, RunReport, Steering, TokenUsage, TurnUsage};
use crate::kernel::id::{Json, Seq};
use crate::kernel::time::Now;

impl Projection {
    /// Starts a run.
    pub(super) fn begin_run(&mut self, event: &Event, message: &Message, out: &mut EventSink) {
        if self.run_start.is_some() {
            self.finish_run(event, StopReason::Failed("the end of the run is lost"), out);
        }
        self.close(out);
        let waiting = self.queue.len();
        self.queue.retain(|queued| Some(&queued.run) != event.run.as_ref());
        if self.queue.len() < waiting {
            self.show_queue(event.seq, out);
        }
        self.run_start = Some(self.conversation.len());
        self.turn = TurnState::default();
        out.emit_empty("agent_start");
        self.begin_turn(out);
        self.add_user_message(event, &message.text, &message.images, out);
    }

    /// Handles a steering message: calls that have not started are skipped.
    pub(super) fn steer(&mut self, event: &Event, steering: &Steering, out: &mut EventSink) {
        // A turn whose usage is recorded gets no further calls.
        if self.open_message.as_ref().is_some_and(OpenMessage::has_usage) {
            self.close(out);
        }
        self.skip_unstarted(event, "a user message arrived first", out);
        self.add_user_message(event, &steering.text, &steering.images, out);
    }

    /// Handles the end of the model's text.
    pub(super) fn end_text(&mut self, out: &mut EventSink) {
        if let Some(open) = &mut self.open_message {
            open.end_block(out);
            open.text_complete = true;
        }
    }

    /// Closes the open message, if there is one.
    pub(super) fn close(&mut self, out: &mut EventSink) {
        self.close_with(StopReason::Complete, out);
    }

    /// Discards the open message.
    pub(super) fn discard_open_message(&mut self, why: &str, out: &mut EventSink) {
        let Some(mut open) = self.open_message.take() else { return };
        if open.announced {
            let message = open.end(StopReason::Failed(why), out);
            self.turn.message = Some(message);
            self.end_turn(out);
        }
        self.deliver_deferred(out);
    }

    /// Ends the turn unless it has an open message or unfinished calls.
    pub(super) fn end_turn(&mut self, out: &mut EventSink) {
        let under_way = self.calls.values().any(|used| used.belongs_to_turn());
        if !self.turn.started || self.open_message.is_some() || under_way || !self.unstarted.is_empty() {
            return;
        }
        let Some(message) = self.turn.message.take() else { return };
        let results = std::mem::take(&mut self.turn.results);
        out.emit("turn_end", |event| {
            event.raw("message", message.as_bytes()).list("toolResults", results.iter().map(|result| &**result)).end();
        });
        self.turn = TurnState::default();
    }

    /// Opens an assistant message unless one is open.
    pub(super) fn begin_message(&mut self, event: &Event, out: &mut EventSink) -> &mut OpenMessage {
        self.begin_turn(out);
        let (provider, model) = (&self.provider, &self.model);
        let open = self.open_message.get_or_insert_with(|| OpenMessage::new(event.seq, event.at, provider, model));
        open.last_seq = event.seq;
        open.origin = open.origin.take().or_else(|| origin(event));
        open
    }

    /// Adds a complete entry; it is deferred while an announced message is open.
    pub(super) fn add_entry(&mut self, entry: Entry, out: &mut EventSink) {
        if self.open_message.as_ref().is_some_and(|open| open.announced) {
            return self.deferred.push(entry);
        }
        if entry.role == Role::User && self.run_start.is_some() {
            self.begin_turn(out);
        }
        out.emit_message(&entry.json);
        self.conversation.push(entry);
    }

    /// Appends a text or thinking delta of the model.
    pub(super) fn append_delta(&mut self, event: &Event, block: BlockKind, text: &str, out: &mut EventSink) {
        let over = |open: &OpenMessage| open.text_complete || open.has_usage() || open.call_count > 0;
        if self.open_message.as_ref().is_some_and(over) {
            self.close(out);
        }
        let going_on = self.open_message.as_ref().is_some_and(|open| open.has_open_block(block));
        if !going_on {
            self.flush(out);
            self.begin_message(event, out).begin_block(block, out);
        }
        if let Some(open) = &mut self.open_message {
            open.append(text);
            open.last_seq = event.seq;
        }
        if out.is_recording() {
            match &mut out.pending {
                Some(PendingDelta::Text(delta)) => delta.push_str(text),
                Some(PendingDelta::Output(_)) | None => out.pending = Some(PendingDelta::Text(text.to_owned())),
            }
        }
    }

    /// Handles the usage of a turn and the calls that it requests.
    pub(super) fn record_usage(&mut self, event: &Event, turn: &TurnUsage, out: &mut EventSink) {
        self.accumulate_usage(&turn.usage);
        let over = |open: &OpenMessage| open.has_usage() || open.call_count > 0;
        if self.open_message.as_ref().is_some_and(over) {
            self.close(out);
        }
        self.unstarted.clear();
        let (provider, model) = (&self.provider, &self.model);
        // An empty turn is not emitted; a tool call of it may follow.
        let open = self.open_message.get_or_insert_with(|| OpenMessage::new(event.seq, event.at, provider, model));
        open.set_usage(&turn.model, turn.usage);
        open.last_seq = event.seq;
        open.origin = open.origin.take().or_else(|| origin(event));
        if self.model.is_empty() {
            self.model.clone_from(&turn.model);
        }
        if turn.pending.is_empty() {
            // A user message interrupted the turn, so no calls follow and the message is complete.
            if self.deferred.iter().any(|entry| entry.role == Role::User) {
                self.close(out);
            }
            return;
        }
        self.begin_turn(out);
        let since = self.open_message.as_ref().map_or(event.seq, |open| open.first_seq);
        for (at, call) in turn.pending.iter().enumerate() {
            let id = format!("call_{:x}_{at}", since.number());
            if let Some(open) = &mut self.open_message {
                open.add_call(&id, &call.tool, call.args.as_str(), out);
            }
            self.unstarted.push_back(UnstartedCall { id, tool: call.tool.clone(), args: call.args.clone() });
        }
        self.close(out);
    }

    /// Handles the end of a run.
    pub(super) fn end_run(&mut self, event: &Event, report: &RunReport, out: &mut EventSink) {
        let stop = match report.outcome {
            RunOutcome::Success => StopReason::Complete,
            RunOutcome::Cancelled | RunOutcome::Denied => StopReason::Aborted(&report.summary),
            RunOutcome::Failed => StopReason::Failed(&report.summary),
        };
        self.finish_run(event, stop, out);
    }

    fn finish_run(&mut self, event: &Event, stop: StopReason<'_>, out: &mut EventSink) {
        let half_said = self.open_message.as_ref().is_some_and(|open| !open.has_usage() && !open.text_complete);
        self.close_with(if half_said { stop } else { StopReason::Complete }, out);
        self.skip_unstarted(event, "the run ended first", out);
        // Their results may be among lost events.
        self.calls.retain(|_, used| !used.belongs_to_turn());
        self.questions.clear();
        self.end_turn(out);
        let unsaid = stop != StopReason::Complete && !half_said;
        // An imported run keeps exactly the messages of its file.
        let is_imported = event.origin.is_some();
        if self.run_start.is_some() && !is_imported && (unsaid || self.turn.started) {
            self.begin_message(event, out);
            self.end_message(stop, out);
        }
        self.turn = TurnState::default();
        if std::mem::take(&mut self.working_message_set) {
            ui::working_message("", event.seq, out);
        }
        if let Some(from) = self.run_start.take() {
            let messages = self.conversation.since(from).map(|entry| &*entry.json);
            out.emit("agent_end", |object| object.list("messages", messages).end());
        }
    }

    fn close_with(&mut self, stop: StopReason<'_>, out: &mut EventSink) {
        if self.open_message.as_ref().is_some_and(OpenMessage::is_empty) {
            self.open_message = None;
            return self.deliver_deferred(out);
        }
        self.end_message(stop, out);
    }

    /// Closes the open message, even an empty one.
    fn end_message(&mut self, stop: StopReason<'_>, out: &mut EventSink) {
        let Some(mut open) = self.open_message.take() else { return };
        let json = open.end(stop, out);
        let role = Role::Assistant { calls: open.call_count };
        self.conversation.push(Entry {
            seq: open.first_seq,
            part: 0,
            last_seq: open.last_seq,
            at: open.at,
            role,
            json: json.clone(),
            origin: open.origin.clone(),
        });
        self.turn.message = Some(json);
        self.turn.entry = Some((open.first_seq, 0));
        self.end_turn(out);
        self.deliver_deferred(out);
    }

    fn deliver_deferred(&mut self, out: &mut EventSink) {
        for entry in std::mem::take(&mut self.deferred) {
            self.add_entry(entry, out);
        }
    }

    fn begin_turn(&mut self, out: &mut EventSink) {
        if !std::mem::replace(&mut self.turn.started, true) {
            out.emit_empty("turn_start");
        }
    }

    fn add_user_message(&mut self, event: &Event, text: &str, images: &[Image], out: &mut EventSink) {
        let json = user_message(text, images, event.at);
        let (seq, at, origin) = (event.seq, event.at, origin(event));
        self.add_entry(Entry { seq, part: 0, last_seq: seq, at, role: Role::User, json, origin }, out);
    }

    /// Emits results for the calls that have not started and now never will.
    fn skip_unstarted(&mut self, event: &Event, why: &str, out: &mut EventSink) {
        let waiting = std::mem::take(&mut self.unstarted);
        for (part, UnstartedCall { id, tool, args }) in (1..).zip(waiting) {
            let text = format!("not executed: {why}");
            let result = ToolResult { id: &id, tool: &tool, text: &text, failed: true, details: NO_DETAILS };
            result.emit_skipped(&args, out);
            self.add_result(result.entry(event, part), self.turn.entry, out);
        }
        self.end_turn(out);
    }

    /// Adds the result of a call that the model requested.
    pub(super) fn add_result(&mut self, entry: Entry, wanted_by: Option<(Seq, u32)>, out: &mut EventSink) {
        out.emit_message(&entry.json);
        self.turn.results.push(entry.json.clone());
        self.conversation.push_result(wanted_by, entry);
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

/// The result of a call as the model receives it.
pub(super) struct ToolResult<'a> {
    pub(super) id: &'a str,
    pub(super) tool: &'a str,
    pub(super) text: &'a str,
    pub(super) failed: bool,
    /// The details as JSON.
    pub(super) details: &'a [u8],
}

/// The details of a call that was not executed.
const NO_DETAILS: &[u8] = b"{\"durationMs\":0}";

impl ToolResult<'_> {
    /// Emits the end of the tool execution.
    pub(super) fn emit_end(&self, out: &mut EventSink) {
        out.emit("tool_execution_end", |event| {
            event
                .text("toolCallId", self.id)
                .text("toolName", self.tool)
                .with("result", |out| {
                    ObjectWriter::new(out)
                        .with("content", |out| write_text_content(out, self.text))
                        .raw("details", self.details)
                        .end();
                })
                .flag("isError", self.failed)
                .end();
        });
    }

    /// Emits the start and the end of a call that was not executed.
    fn emit_skipped(&self, args: &Json, out: &mut EventSink) {
        out.emit("tool_execution_start", |event| {
            event
                .text("toolCallId", self.id)
                .text("toolName", self.tool)
                .with("args", |out| write_arguments(out, args.as_str()))
                .end();
        });
        self.emit_end(out);
    }

    /// Builds the conversation entry of the result.
    pub(super) fn entry(&self, event: &Event, part: u32) -> Entry {
        let (seq, at, origin) = (event.seq, event.at, origin(event));
        let json = object(|message| {
            message
                .text("role", "toolResult")
                .text("toolCallId", self.id)
                .text("toolName", self.tool)
                .with("content", |out| write_text_content(out, self.text))
                .raw("details", self.details)
                .flag("isError", self.failed)
                .number("timestamp", at.0)
                .end();
        });
        Entry { seq, part, last_seq: seq, at, role: Role::ToolResult, json, origin }
    }
}

fn user_message(text: &str, images: &[Image], at: Now) -> Arc<str> {
    object(|message| {
        message
            .text("role", "user")
            .with("content", |out| {
                out.push(b'[');
                ObjectWriter::new(out).text("type", "text").text("text", text).end();
                for image in images {
                    out.push(b',');
                    ObjectWriter::new(out)
                        .text("type", "image")
                        .text("data", &image.data)
                        .text("mimeType", &image.mime)
                        .end();
                }
                out.push(b']');
            })
            .number("timestamp", at.0)
            .end();
    })
}
