//! Tool calls: those that the model requested, the acceptance checks of a run, and user commands outside any run.

use super::event_sink::{EventSink, PendingDelta};
use super::message_json::{ToolResult, announced_call_id, bash_execution, write_arguments};
use super::object_writer::{ObjectWriter, write_text_content};
use super::{CompleteMessage, Projection};
use crate::kernel::event::{CallResult, Event, Intention, Purpose};
use crate::kernel::gate::RAISE_BUDGET;
use crate::kernel::id::{CallId, Json};

/// The state of a tool call that has no result yet.
#[derive(Debug)]
pub(super) struct ToolCallState {
    /// Its id on the wire.
    id: String,
    tool: String,
    args: Json,
    role: CallRole,
    started: bool,
    /// The last part of its output.
    tail: String,
}

/// The role of a tool call in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallRole {
    /// The model requested it.
    Requested,
    /// It is an acceptance check, whose result is not part of the conversation.
    Check,
    /// It is a user command.
    UserCommand { in_context: bool },
    /// It represents a question of the daemon, not a tool.
    Question,
}

impl ToolCallState {
    /// Returns whether the turn waits for its result.
    pub(super) const fn belongs_to_turn(&self) -> bool {
        matches!(self.role, CallRole::Requested)
    }

    /// Emits its recent output.
    pub(super) fn emit_output(&self, out: &mut EventSink) {
        out.emit("tool_execution_update", |event| {
            self.write_identity(event)
                .with("partialResult", |out| {
                    ObjectWriter::new(out)
                        .with("content", |out| write_text_content(out, &self.tail))
                        .raw("details", b"{}")
                        .end();
                })
                .end();
        });
    }

    fn emit_start(&mut self, out: &mut EventSink) {
        self.started = true;
        if self.role != CallRole::Question {
            out.emit("tool_execution_start", |event| self.write_identity(event).end());
        }
    }

    fn write_identity<'a>(&self, event: ObjectWriter<'a>) -> ObjectWriter<'a> {
        event
            .text("toolCallId", &self.id)
            .text("toolName", &self.tool)
            .with("args", |out| write_arguments(out, &self.args))
    }

    fn append_output(&mut self, text: &str) {
        self.tail.push_str(text);
        // Truncating only at twice the limit keeps the cost of many small writes linear.
        if self.tail.len() > 2 * TAIL_BYTES {
            let from = self.tail.ceil_char_boundary(self.tail.len() - TAIL_BYTES);
            self.tail.drain(..from);
        }
    }

    /// Makes the state of a call whose start event is missing.
    fn unknown(settlement: &CallResult) -> Self {
        let part = match settlement.purpose {
            Purpose::Work if settlement.tool == RAISE_BUDGET => CallRole::Question,
            Purpose::Work => CallRole::Requested,
            Purpose::Check(_) => CallRole::Check,
            Purpose::UserCommand { in_context } => CallRole::UserCommand { in_context },
        };
        Self::new(settlement.call.as_str(), &settlement.tool, Json::new("{}"), part)
    }

    fn new(id: &str, tool: &str, args: Json, role: CallRole) -> Self {
        Self { id: id.to_owned(), tool: tool.to_owned(), args, role, started: false, tail: String::new() }
    }
}

impl Projection {
    /// Handles the request of a tool call.
    pub(super) fn request_call(&mut self, event: &Event, intention: &Intention, out: &mut EventSink) {
        let Intention { call, tool, args, purpose } = intention;
        let mut id = call.as_str().to_owned();
        let role = match purpose {
            Purpose::Work if tool == RAISE_BUDGET => CallRole::Question,
            Purpose::Work => {
                let requested = self.conversation.unsettled_call(call);
                let announced =
                    requested.and_then(|(message, call)| Some((message, call.announcement.as_ref()?.index)));
                match (announced, requested) {
                    (Some((message, index)), _) => id = announced_call_id(message, index),
                    (None, Some((message, _))) => {
                        self.begin_message(event, message, out).add_call(&id, tool, args, out)
                    }
                    (None, None) => {}
                }
                CallRole::Requested
            }
            Purpose::Check(_) => CallRole::Check,
            Purpose::UserCommand { in_context } => CallRole::UserCommand { in_context: *in_context },
        };
        self.calls.insert(call.clone(), ToolCallState::new(&id, tool, args.clone(), role));
    }

    /// Handles the start of a tool call.
    pub(super) fn start_call(&mut self, call: &CallId, out: &mut EventSink) {
        if let Some(state) = self.calls.get_mut(call) {
            state.emit_start(out);
        }
    }

    /// Handles an output chunk of a tool call.
    pub(super) fn append_output(&mut self, call: &CallId, text: &str, out: &mut EventSink) {
        let Some(state) = self.calls.get_mut(call) else { return };
        state.append_output(text);
        if out.is_recording() && state.role != CallRole::Question {
            out.pending = Some(PendingDelta::Output(call.clone()));
        }
    }

    /// Handles the result of a tool call.
    pub(super) fn settle_call(&mut self, event: &Event, settlement: &CallResult, out: &mut EventSink) {
        let known = self.calls.remove(&settlement.call);
        let mut state = known.unwrap_or_else(|| ToolCallState::unknown(settlement));
        if state.role == CallRole::Question {
            return;
        }
        if !state.started {
            state.emit_start(out);
        }
        let result = ToolResult::new(&state.id, &state.tool, settlement);
        out.emit("tool_execution_end", |event| result.write_end(event));
        match state.role {
            CallRole::Requested => {
                self.add_result(result.message(event.at), out);
                self.end_turn(out);
            }
            CallRole::UserCommand { in_context } => {
                let message = bash_execution(&state.args, settlement, in_context, event.at);
                self.add_message(CompleteMessage::UserCommand(message), out);
            }
            CallRole::Check | CallRole::Question => {}
        }
    }
}

/// Bytes of recent output that updates carry; the final result carries all of it.
const TAIL_BYTES: usize = 16 * 1024;
