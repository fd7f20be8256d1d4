//! Uses of tools: those that the model wants, checks of a run, and what is used for the user beside any run.

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

/// A use of a tool that is not settled.
#[derive(Debug)]
pub(super) struct Use {
    /// What it is called on the wire.
    id: String,
    tool: String,
    args: Json,
    part: Part,
    started: bool,
    /// The end of what it has printed.
    tail: String,
}

/// What a use of a tool has to do with the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The model wants it, in the message of that entry.
    Wanted(Option<(Seq, u32)>),
    /// It checks a run, and nobody is told what came of it.
    Check,
    /// It is the user's.
    Aside { told: bool },
    /// It stands for a question of the daemon's own.
    Question,
}

impl Use {
    /// Tells whether the turn is not over before it is settled.
    pub(super) const fn is_of_turn(&self) -> bool {
        matches!(self.part, Part::Wanted(_))
    }

    /// Tells what it has printed.
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
        // Cut seldom, so that many small pieces cost no more than one large.
        if self.tail.len() > 2 * TAIL {
            let from = self.tail.len() - TAIL;
            let from = (from..).find(|at| self.tail.is_char_boundary(*at)).unwrap_or(self.tail.len());
            self.tail.drain(..from);
        }
    }

    /// Stands for a use whose beginning is not known.
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
    /// Takes the intention to use a tool.
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

    /// Takes the start of a tool.
    pub(super) fn start_call(&mut self, call: &CallId, out: &mut Out) {
        let Some(used) = self.calls.get(call) else { return };
        // What the user has done beside the run does not end what the model is saying.
        if !matches!(used.part, Part::Aside { .. }) {
            self.close(out);
        }
        if let Some(used) = self.calls.get_mut(call) {
            used.tell_start(out);
        }
    }

    /// Takes a piece of what a tool prints.
    pub(super) fn print(&mut self, call: &CallId, text: &str, out: &mut Out) {
        let Some(used) = self.calls.get_mut(call) else { return };
        used.print(text);
        if out.listens() && used.part != Part::Question {
            out.held = Some(Held::Printed(call.clone()));
        }
    }

    /// Takes the end of a tool.
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

/// Says what came of a call, and what went wrong with it.
fn told(settlement: &Settlement) -> String {
    let wrong = match (&settlement.fault, settlement.ending) {
        (Some(Fault { kind, message, detail: Some(detail), .. }), _) => {
            format!("{kind}: {message}\n{detail}")
        }
        (Some(Fault { kind, message, detail: None, .. }), _) => format!("{kind}: {message}"),
        // What it printed says what went wrong.
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

/// Returns the command among the arguments of a shell.
fn command(args: &str) -> String {
    #[derive(Deserialize)]
    struct Args {
        command: String,
    }
    serde_json::from_str(args).map_or_else(|_| args.to_owned(), |args: Args| args.command)
}

/// The tool whose use stands for the question whether a run may use more than was said.
const RAISE_BUDGET: &str = "raise_budget";
/// How the line ends that stands where output was left out.
const LEFT_OUT: &str = " left out ...]\n";
/// How much of what a tool prints is told while it runs; at its end everything is.
const TAIL: usize = 16 * 1024;
