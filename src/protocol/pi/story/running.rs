//! Runs and turns: user messages, assistant messages and how runs end.

use std::sync::Arc;

use super::entry::{Entry, Role, origin};
use super::open::{Block, Open, Stop, arguments};
use super::out::{Held, Out};
use super::ui;
use super::write::{Object, object, text_content};
use super::{Story, Turn, Waiting};
use crate::kernel::event::{Event, Image, Message, Outcome, RunReport, Steering, Taken, Used};
use crate::kernel::id::{Json, Seq};
use crate::kernel::time::Now;

impl Story {
    /// Starts a run.
    pub(super) fn begin_run(&mut self, event: &Event, message: &Message, out: &mut Out) {
        if self.run.is_some() {
            self.finish_run(event, Stop::Failed("the end of the run is lost"), out);
        }
        self.close(out);
        let waiting = self.queue.len();
        self.queue.retain(|queued| Some(&queued.run) != event.run.as_ref());
        if self.queue.len() < waiting {
            self.show_queue(event.seq, out);
        }
        self.run = Some(self.conversation.len());
        self.turn = Turn::default();
        out.tell_plain("agent_start");
        self.begin_turn(out);
        self.hear(event, &message.text, &message.images, out);
    }

    /// Handles a steering message: calls that have not started are skipped.
    pub(super) fn steer(&mut self, event: &Event, steering: &Steering, out: &mut Out) {
        // A turn whose usage is recorded gets no further calls.
        if self.open.as_ref().is_some_and(Open::is_taken) {
            self.close(out);
        }
        self.skip_waiting(event, "a user message arrived first", out);
        self.hear(event, &steering.text, &steering.images, out);
    }

    /// Handles the end of the model's text.
    pub(super) fn end_text(&mut self, out: &mut Out) {
        if let Some(open) = &mut self.open {
            open.end_block(out);
            open.whole = true;
        }
    }

    /// Closes the open message, if there is one.
    pub(super) fn close(&mut self, out: &mut Out) {
        self.close_as(Stop::Said, out);
    }

    /// Discards the open message.
    pub(super) fn unsay(&mut self, why: &str, out: &mut Out) {
        let Some(mut open) = self.open.take() else { return };
        if open.shown {
            let message = open.end(Stop::Failed(why), out);
            self.turn.message = Some(message);
            self.end_turn(out);
        }
        self.deliver_deferred(out);
    }

    /// Ends the turn unless it has an open message or unfinished calls.
    pub(super) fn end_turn(&mut self, out: &mut Out) {
        let under_way = self.calls.values().any(|used| used.is_of_turn());
        if !self.turn.open || self.open.is_some() || under_way || !self.waiting.is_empty() {
            return;
        }
        let Some(message) = self.turn.message.take() else { return };
        let results = std::mem::take(&mut self.turn.results);
        out.tell("turn_end", |event| {
            event
                .raw("message", message.as_bytes())
                .list("toolResults", results.iter().map(|result| &**result))
                .end();
        });
        self.turn = Turn::default();
    }

    /// Opens an assistant message unless one is open.
    pub(super) fn begin_message(&mut self, event: &Event, out: &mut Out) -> &mut Open {
        self.begin_turn(out);
        let (provider, model) = (&self.provider, &self.model);
        let open = self.open.get_or_insert_with(|| Open::new(event.seq, event.at, provider, model));
        open.till = event.seq;
        open.origin = open.origin.take().or_else(|| origin(event));
        open
    }

    /// Adds a complete entry; it is deferred while an announced message is open.
    pub(super) fn add(&mut self, entry: Entry, out: &mut Out) {
        if self.open.as_ref().is_some_and(|open| open.shown) {
            return self.deferred.push(entry);
        }
        if entry.role == Role::User && self.run.is_some() {
            self.begin_turn(out);
        }
        out.tell_message(&entry.json);
        self.conversation.push(entry);
    }

    /// Appends a text or thinking delta of the model.
    pub(super) fn piece(&mut self, event: &Event, block: Block, text: &str, out: &mut Out) {
        let over = |open: &Open| open.whole || open.is_taken() || open.calls > 0;
        if self.open.as_ref().is_some_and(over) {
            self.close(out);
        }
        let going_on = self.open.as_ref().is_some_and(|open| open.is_writing(block));
        if !going_on {
            self.release(out);
            self.begin_message(event, out).begin(block, out);
        }
        if let Some(open) = &mut self.open {
            open.add(text);
            open.till = event.seq;
        }
        if out.listens() {
            match &mut out.held {
                Some(Held::Said(piece)) => piece.push_str(text),
                Some(Held::Printed(_)) | None => out.held = Some(Held::Said(text.to_owned())),
            }
        }
    }

    /// Handles the usage of a turn and the calls that it requests.
    pub(super) fn take(&mut self, event: &Event, taken: &Taken, out: &mut Out) {
        self.count(&taken.used);
        let over = |open: &Open| open.is_taken() || open.calls > 0;
        if self.open.as_ref().is_some_and(over) {
            self.close(out);
        }
        self.waiting.clear();
        let (provider, model) = (&self.provider, &self.model);
        // An empty turn is not emitted; a tool call of it may follow.
        let open = self.open.get_or_insert_with(|| Open::new(event.seq, event.at, provider, model));
        open.take(&taken.model, taken.used);
        open.till = event.seq;
        open.origin = open.origin.take().or_else(|| origin(event));
        if self.model.is_empty() {
            self.model.clone_from(&taken.model);
        }
        if taken.pending.is_empty() {
            // A user message interrupted the turn, so no calls follow and the message is complete.
            if self.deferred.iter().any(|entry| entry.role == Role::User) {
                self.close(out);
            }
            return;
        }
        self.begin_turn(out);
        let since = self.open.as_ref().map_or(event.seq, |open| open.since);
        for (at, wanted) in taken.pending.iter().enumerate() {
            let id = format!("call_{:x}_{at}", since.number());
            if let Some(open) = &mut self.open {
                open.call(&id, &wanted.tool, wanted.args.as_str(), out);
            }
            self.waiting.push_back(Waiting { id, tool: wanted.tool.clone(), args: wanted.args.clone() });
        }
        self.close(out);
    }

    /// Handles the end of a run.
    pub(super) fn end_run(&mut self, event: &Event, report: &RunReport, out: &mut Out) {
        let stop = match report.outcome {
            Outcome::Success => Stop::Said,
            Outcome::Cancelled | Outcome::Denied => Stop::Aborted(&report.summary),
            Outcome::Failed => Stop::Failed(&report.summary),
        };
        self.finish_run(event, stop, out);
    }

    fn finish_run(&mut self, event: &Event, stop: Stop<'_>, out: &mut Out) {
        let half_said = self.open.as_ref().is_some_and(|open| !open.is_taken() && !open.whole);
        self.close_as(if half_said { stop } else { Stop::Said }, out);
        self.skip_waiting(event, "the run ended first", out);
        // Their results may be among lost events.
        self.calls.retain(|_, used| !used.is_of_turn());
        self.questions.clear();
        self.end_turn(out);
        let unsaid = stop != Stop::Said && !half_said;
        // An imported run keeps exactly the messages of its file.
        let is_imported = event.origin.is_some();
        if self.run.is_some() && !is_imported && (unsaid || self.turn.open) {
            self.begin_message(event, out);
            self.end_message(stop, out);
        }
        self.turn = Turn::default();
        if std::mem::take(&mut self.busy) {
            ui::working("", event.seq, out);
        }
        if let Some(from) = self.run.take() {
            let messages = self.conversation.since(from).map(|entry| &*entry.json);
            out.tell("agent_end", |told| told.list("messages", messages).end());
        }
    }

    fn close_as(&mut self, stop: Stop<'_>, out: &mut Out) {
        if self.open.as_ref().is_some_and(Open::is_empty) {
            self.open = None;
            return self.deliver_deferred(out);
        }
        self.end_message(stop, out);
    }

    /// Closes the open message, even an empty one.
    fn end_message(&mut self, stop: Stop<'_>, out: &mut Out) {
        let Some(mut open) = self.open.take() else { return };
        let json = open.end(stop, out);
        let role = Role::Assistant { calls: open.calls };
        self.conversation.push(Entry {
            seq: open.since,
            part: 0,
            till: open.till,
            at: open.at,
            role,
            json: json.clone(),
            origin: open.origin.clone(),
        });
        self.turn.message = Some(json);
        self.turn.entry = Some((open.since, 0));
        self.end_turn(out);
        self.deliver_deferred(out);
    }

    fn deliver_deferred(&mut self, out: &mut Out) {
        for entry in std::mem::take(&mut self.deferred) {
            self.add(entry, out);
        }
    }

    fn begin_turn(&mut self, out: &mut Out) {
        if !std::mem::replace(&mut self.turn.open, true) {
            out.tell_plain("turn_start");
        }
    }

    fn hear(&mut self, event: &Event, text: &str, images: &[Image], out: &mut Out) {
        let json = user_message(text, images, event.at);
        let (seq, at, origin) = (event.seq, event.at, origin(event));
        self.add(Entry { seq, part: 0, till: seq, at, role: Role::User, json, origin }, out);
    }

    /// Emits results for the calls that have not started and now never will.
    fn skip_waiting(&mut self, event: &Event, why: &str, out: &mut Out) {
        let waiting = std::mem::take(&mut self.waiting);
        for (part, Waiting { id, tool, args }) in (1..).zip(waiting) {
            let text = format!("not executed: {why}");
            let result = ToolResult { id: &id, tool: &tool, text: &text, failed: true, details: NOTHING };
            result.tell_unused(&args, out);
            self.add_result(result.entry(event, part), self.turn.entry, out);
        }
        self.end_turn(out);
    }

    /// Adds the result of a call that the model requested.
    pub(super) fn add_result(&mut self, entry: Entry, wanted_by: Option<(Seq, u32)>, out: &mut Out) {
        out.tell_message(&entry.json);
        self.turn.results.push(entry.json.clone());
        self.conversation.push_result(wanted_by, entry);
    }

    fn count(&mut self, used: &Used) {
        let plain = used.input.saturating_sub(used.cache_read).saturating_sub(used.cache_write);
        let sums = [
            (&mut self.used.input, plain),
            (&mut self.used.output, used.output),
            (&mut self.used.cache_read, used.cache_read),
            (&mut self.used.cache_write, used.cache_write),
            (&mut self.used.cost, used.cost.unwrap_or(0)),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
        if used.input > 0 {
            self.context = Some(used.input.saturating_add(used.output));
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
const NOTHING: &[u8] = b"{\"durationMs\":0}";

impl ToolResult<'_> {
    /// Emits the end of the tool execution.
    pub(super) fn tell_end(&self, out: &mut Out) {
        out.tell("tool_execution_end", |event| {
            event
                .text("toolCallId", self.id)
                .text("toolName", self.tool)
                .with("result", |out| {
                    Object::new(out)
                        .with("content", |out| text_content(out, self.text))
                        .raw("details", self.details)
                        .end();
                })
                .flag("isError", self.failed)
                .end();
        });
    }

    /// Emits the start and the end of a call that was not executed.
    fn tell_unused(&self, args: &Json, out: &mut Out) {
        out.tell("tool_execution_start", |event| {
            event
                .text("toolCallId", self.id)
                .text("toolName", self.tool)
                .with("args", |out| arguments(out, args.as_str()))
                .end();
        });
        self.tell_end(out);
    }

    /// Builds the conversation entry of the result.
    pub(super) fn entry(&self, event: &Event, part: u32) -> Entry {
        let (seq, at, origin) = (event.seq, event.at, origin(event));
        let json = object(|message| {
            message
                .text("role", "toolResult")
                .text("toolCallId", self.id)
                .text("toolName", self.tool)
                .with("content", |out| text_content(out, self.text))
                .raw("details", self.details)
                .flag("isError", self.failed)
                .number("timestamp", at.0)
                .end();
        });
        Entry { seq, part, till: seq, at, role: Role::ToolResult, json, origin }
    }
}

fn user_message(text: &str, images: &[Image], at: Now) -> Arc<str> {
    object(|message| {
        message
            .text("role", "user")
            .with("content", |out| {
                out.push(b'[');
                Object::new(out).text("type", "text").text("text", text).end();
                for image in images {
                    out.push(b',');
                    Object::new(out)
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
