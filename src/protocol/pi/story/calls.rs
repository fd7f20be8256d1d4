//! Tool calls: those that the model requested, the acceptance checks of a run, and user commands outside any run.

use serde::Deserialize;

use super::Story;
use super::entry::{Entry, Role, origin};
use super::open::arguments;
use super::out::{Held, Out};
use super::running::ToolResult;
use super::write::{Object, object, text_content};
use crate::kernel::event::{Ending, Event, Fault, Intention, Purpose, Settlement};
use crate::kernel::id::{CallId, Json, Seq};
use crate::protocol::pi::encode::BashResult;

/// The state of a tool call that has no result yet.
#[derive(Debug)]
pub(super) struct Use {
    /// Its id on the wire.
    id: String,
    tool: String,
    args: Json,
    part: Part,
    started: bool,
    /// The last part of its output.
    tail: String,
}

/// The role of a tool call in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The model requested it, in the message of that entry.
    Wanted(Option<(Seq, u32)>),
    /// It is an acceptance check, whose result is not part of the conversation.
    Check,
    /// It is a user command.
    Aside { told: bool },
    /// It represents a question of the daemon, not a tool.
    Question,
}

impl Use {
    /// Returns whether the turn waits for its result.
    pub(super) const fn is_of_turn(&self) -> bool {
        matches!(self.part, Part::Wanted(_))
    }

    /// Emits its recent output.
    pub(super) fn tell_output(&self, out: &mut Out) {
        out.tell("tool_execution_update", |event| {
            self.named(event)
                .with("partialResult", |out| {
                    Object::new(out)
                        .with("content", |out| text_content(out, &self.tail))
                        .raw("details", b"{}")
                        .end();
                })
                .end();
        });
    }

    fn tell_start(&mut self, out: &mut Out) {
        self.started = true;
        if self.part != Part::Question {
            out.tell("tool_execution_start", |event| self.named(event).end());
        }
    }

    fn named<'a>(&self, event: Object<'a>) -> Object<'a> {
        event
            .text("toolCallId", &self.id)
            .text("toolName", &self.tool)
            .with("args", |out| arguments(out, self.args.as_str()))
    }

    fn print(&mut self, text: &str) {
        self.tail.push_str(text);
        // Truncating only at twice the limit keeps the cost of many small writes linear.
        if self.tail.len() > 2 * TAIL {
            let from = self.tail.len() - TAIL;
            let from = (from..).find(|at| self.tail.is_char_boundary(*at)).unwrap_or(self.tail.len());
            self.tail.drain(..from);
        }
    }

    /// Makes the state of a call whose start event is missing.
    fn unknown(settlement: &Settlement) -> Self {
        let part = match settlement.purpose {
            Purpose::Work if settlement.tool == RAISE_BUDGET => Part::Question,
            Purpose::Work => Part::Wanted(None),
            Purpose::Check(_) => Part::Check,
            Purpose::Aside { told } => Part::Aside { told },
        };
        Self::new(settlement.call.as_str(), &settlement.tool, Json::new("{}"), part)
    }

    fn new(id: &str, tool: &str, args: Json, part: Part) -> Self {
        Self { id: id.to_owned(), tool: tool.to_owned(), args, part, started: false, tail: String::new() }
    }
}

impl Story {
    /// Handles the request of a tool call.
    pub(super) fn intend(&mut self, event: &Event, intention: &Intention, out: &mut Out) {
        let Intention { call, tool, args, purpose } = intention;
        let mut id = call.as_str().to_owned();
        let part = match purpose {
            Purpose::Work if tool == RAISE_BUDGET => {
                self.close(out);
                Part::Question
            }
            Purpose::Work => match self.waiting.pop_front() {
                Some(waiting) => {
                    id = waiting.id;
                    Part::Wanted(self.turn.entry)
                }
                None => {
                    let open = self.begin_message(event, out);
                    open.call(&id, tool, args.as_str(), out);
                    Part::Wanted(Some((open.since, 0)))
                }
            },
            Purpose::Check(_) => {
                self.close(out);
                Part::Check
            }
            Purpose::Aside { told } => Part::Aside { told: *told },
        };
        self.calls.insert(call.clone(), Use::new(&id, tool, args.clone(), part));
    }

    /// Handles the start of a tool call.
    pub(super) fn start_call(&mut self, call: &CallId, out: &mut Out) {
        let Some(used) = self.calls.get(call) else { return };
        // A user command runs outside the run and does not end the open message.
        if !matches!(used.part, Part::Aside { .. }) {
            self.close(out);
        }
        if let Some(used) = self.calls.get_mut(call) {
            used.tell_start(out);
        }
    }

    /// Handles an output chunk of a tool call.
    pub(super) fn print(&mut self, call: &CallId, text: &str, out: &mut Out) {
        let Some(used) = self.calls.get_mut(call) else { return };
        used.print(text);
        if out.listens() && used.part != Part::Question {
            out.held = Some(Held::Printed(call.clone()));
        }
    }

    /// Handles the result of a tool call.
    pub(super) fn settle(&mut self, event: &Event, settlement: &Settlement, out: &mut Out) {
        let aside = matches!(settlement.purpose, Purpose::Aside { .. });
        if !aside {
            self.close(out);
        }
        let known = self.calls.remove(&settlement.call);
        let mut used = known.unwrap_or_else(|| Use::unknown(settlement));
        if used.part == Part::Question {
            return;
        }
        if !used.started {
            used.tell_start(out);
        }
        let text = told(settlement);
        let details = details(settlement);
        let failed = settlement.ending != Ending::Done;
        let (id, tool) = (&*used.id, &*used.tool);
        let result = ToolResult { id, tool, text: &text, failed, details: &details };
        result.tell_end(out);
        match used.part {
            Part::Wanted(entry) => {
                self.add_result(result.entry(event, 0), entry, out);
                self.end_turn(out);
            }
            Part::Aside { told } => self.add(bash_execution(event, &used, settlement, told), out),
            Part::Check | Part::Question => {}
        }
    }
}

/// Returns the text of a result, with its error.
fn told(settlement: &Settlement) -> String {
    let wrong = match (&settlement.fault, settlement.ending) {
        (Some(Fault { kind, message, detail: Some(detail), .. }), _) => {
            format!("{kind}: {message}\n{detail}")
        }
        (Some(Fault { kind, message, detail: None, .. }), _) => format!("{kind}: {message}"),
        // The output describes the failure.
        (None, Ending::Failed) if !settlement.text.is_empty() => return settlement.text.clone(),
        (None, Ending::Failed) => "it failed".to_owned(),
        (None, Ending::Skipped) => "the user chose to go on without it".to_owned(),
        (None, Ending::Cut) => "it was cut short".to_owned(),
        (None, Ending::Done) => return settlement.text.clone(),
    };
    if settlement.text.is_empty() { wrong } else { format!("{wrong}\n{}", settlement.text) }
}

fn details(settlement: &Settlement) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = Object::new(&mut out).number("durationMs", settlement.millis);
    if let Some(code) = settlement.exit_code {
        object = object.raw("exitCode", code.to_string().as_bytes());
    }
    if let Some(fault) = &settlement.fault {
        object = object.with("fault", |out| {
            Object::new(out)
                .text("kind", &fault.kind)
                .text("message", &fault.message)
                .maybe("detail", fault.detail.as_deref())
                .flag("retryable", fault.retryable)
                .end();
        });
    }
    object.end();
    out
}

fn bash_execution(event: &Event, used: &Use, settlement: &Settlement, told: bool) -> Entry {
    let BashResult { exit_code, output, cancelled } = BashResult::of(settlement);
    let json = object(|message| {
        let message = message
            .text("role", "bashExecution")
            .text("command", &command(used.args.as_str()))
            .text("output", &output);
        let message = match exit_code {
            Some(code) => message.raw("exitCode", code.to_string().as_bytes()),
            None => message.raw("exitCode", b"null"),
        };
        let message = message.flag("cancelled", cancelled).flag("truncated", output.contains(LEFT_OUT));
        let message = if told { message } else { message.flag("excludeFromContext", true) };
        message.number("timestamp", event.at.0).end();
    });
    let (seq, at, origin) = (event.seq, event.at, origin(event));
    Entry { seq, part: 0, till: seq, at, role: Role::BashExecution, json, origin }
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
const LEFT_OUT: &str = " left out ...]\n";
/// Bytes of recent output that updates carry; the final result carries all of it.
const TAIL: usize = 16 * 1024;
