//! Tool calls: those that the model requested, the acceptance checks of a run, and user commands outside any run.

use serde::Deserialize;

use super::Projection;
use super::entry::{Entry, Role, origin};
use super::event_sink::{EventSink, PendingDelta};
use super::object_writer::{ObjectWriter, object, write_text_content};
use super::open_message::write_arguments;
use super::runs::ToolResult;
use crate::kernel::event::{CallResult, Event, Intention, Purpose, ToolError, ToolOutcome};
use crate::kernel::id::{CallId, Json, Seq};
use crate::protocol::pi::encode::BashResult;

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
    /// The model requested it, in the message of that entry.
    Requested(Option<(Seq, u32)>),
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
        matches!(self.role, CallRole::Requested(_))
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
            .with("args", |out| write_arguments(out, self.args.as_str()))
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
            Purpose::Work => CallRole::Requested(None),
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
        let part = match purpose {
            Purpose::Work if tool == RAISE_BUDGET => {
                self.close(out);
                CallRole::Question
            }
            Purpose::Work => match self.unstarted.pop_front() {
                Some(waiting) => {
                    id = waiting.id;
                    CallRole::Requested(self.turn.entry)
                }
                None => {
                    let open = self.begin_message(event, out);
                    open.add_call(&id, tool, args.as_str(), out);
                    CallRole::Requested(Some((open.first_seq, 0)))
                }
            },
            Purpose::Check(_) => {
                self.close(out);
                CallRole::Check
            }
            Purpose::UserCommand { in_context } => CallRole::UserCommand { in_context: *in_context },
        };
        self.calls.insert(call.clone(), ToolCallState::new(&id, tool, args.clone(), part));
    }

    /// Handles the start of a tool call.
    pub(super) fn start_call(&mut self, call: &CallId, out: &mut EventSink) {
        let Some(state) = self.calls.get(call) else { return };
        // A user command runs outside the run and does not end the open message.
        if !matches!(state.role, CallRole::UserCommand { .. }) {
            self.close(out);
        }
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
        let is_user_command = matches!(settlement.purpose, Purpose::UserCommand { .. });
        if !is_user_command {
            self.close(out);
        }
        let known = self.calls.remove(&settlement.call);
        let mut state = known.unwrap_or_else(|| ToolCallState::unknown(settlement));
        if state.role == CallRole::Question {
            return;
        }
        if !state.started {
            state.emit_start(out);
        }
        let text = result_text(settlement);
        let details = result_details(settlement);
        let failed = settlement.outcome != ToolOutcome::Succeeded;
        let (id, tool) = (&*state.id, &*state.tool);
        let result = ToolResult { id, tool, text: &text, failed, details: &details };
        result.emit_end(out);
        match state.role {
            CallRole::Requested(entry) => {
                self.add_result(result.entry(event, 0), entry, out);
                self.end_turn(out);
            }
            CallRole::UserCommand { in_context } => {
                self.add_entry(bash_execution(event, &state, settlement, in_context), out)
            }
            CallRole::Check | CallRole::Question => {}
        }
    }
}

/// Returns the text of a result, with its error.
fn result_text(settlement: &CallResult) -> String {
    let wrong = match (&settlement.error, settlement.outcome) {
        (Some(ToolError { kind, message, detail: Some(detail), .. }), _) => {
            format!("{kind}: {message}\n{detail}")
        }
        (Some(ToolError { kind, message, detail: None, .. }), _) => format!("{kind}: {message}"),
        // The output describes the failure.
        (None, ToolOutcome::Failed) if !settlement.text.is_empty() => return settlement.text.clone(),
        (None, ToolOutcome::Failed) => "it failed".to_owned(),
        (None, ToolOutcome::Skipped) => "the user skipped the call".to_owned(),
        (None, ToolOutcome::Aborted) => "it was interrupted".to_owned(),
        (None, ToolOutcome::Succeeded) => return settlement.text.clone(),
    };
    if settlement.text.is_empty() { wrong } else { format!("{wrong}\n{}", settlement.text) }
}

fn result_details(settlement: &CallResult) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::new(&mut out).number("durationMs", settlement.millis);
    if let Some(code) = settlement.exit_code {
        object = object.raw("exitCode", code.to_string().as_bytes());
    }
    if let Some(error) = &settlement.error {
        object = object.with("fault", |out| {
            ObjectWriter::new(out)
                .text("kind", &error.kind)
                .text("message", &error.message)
                .optional_text("detail", error.detail.as_deref())
                .flag("retryable", error.retryable)
                .end();
        });
    }
    object.end();
    out
}

fn bash_execution(event: &Event, state: &ToolCallState, settlement: &CallResult, in_context: bool) -> Entry {
    let BashResult { exit_code, output, cancelled } = BashResult::of(settlement);
    let json = object(|message| {
        let message = message
            .text("role", "bashExecution")
            .text("command", &command(state.args.as_str()))
            .text("output", &output);
        let message = match exit_code {
            Some(code) => message.raw("exitCode", code.to_string().as_bytes()),
            None => message.raw("exitCode", b"null"),
        };
        let message = message.flag("cancelled", cancelled).flag("truncated", output.contains(TRUNCATION_MARKER));
        let message = if in_context { message } else { message.flag("excludeFromContext", true) };
        message.number("timestamp", event.at.0).end();
    });
    let (seq, at, origin) = (event.seq, event.at, origin(event));
    Entry { seq, part: 0, last_seq: seq, at, role: Role::BashExecution, json, origin }
}

/// Returns the command from the arguments of a shell call.
fn command(args: &str) -> String {
    #[derive(Deserialize)]
    struct Args {
        command: String,
    }
    serde_json::from_str(args).map_or_else(|_| args.to_owned(), |args: Args| args.command)
}

/// The pseudo tool whose call represents the question whether a run may exceed its budget.
const RAISE_BUDGET: &str = "raise_budget";
/// The end of the marker line that replaces omitted output.
const TRUNCATION_MARKER: &str = " left out ...]\n";
/// Bytes of recent output that updates carry; the final result carries all of it.
const TAIL_BYTES: usize = 16 * 1024;
