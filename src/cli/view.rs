//! Renders events as text.
//!
//! Pure: it maps an event to the text to print. Untrusted text is sanitized. Unknown events print nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::card::{Extent, card, indented, painted, shortened};
use super::console::{Palette, Style};
use super::ids;
use super::phrase::{choices, ending, field, invocation, lost, recovered, refused_by};
use super::plain::{Plain, exact_line, plain, plain_line};
use super::report::Denial;
use super::returned::readable;
use crate::client::Event;
use crate::kernel::event::TURN_CUT;
use crate::kernel::gate::POLICY;

/// Which user messages are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    /// All of them.
    Messages,
    /// None, except steering: the message was just typed.
    Nothing,
}

/// Whether reasoning of the model is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thoughts {
    /// Yes.
    Shown,
    /// No.
    Hidden,
}

/// Renders the events of a session in order.
#[derive(Debug)]
pub(crate) struct View {
    palette: Palette,
    echo: Echo,
    thoughts: Thoughts,
    /// The source of the unfinished line; none at the start of a line.
    open_line: Option<Voice>,
    speech: Plain,
    calls: BTreeMap<String, Call>,
    /// The last tool invocation that was printed; an approval of it follows directly.
    called: String,
    /// The call whose heading was printed last.
    heading: String,
    /// The first line of the last message, which a summary often repeats.
    said: String,
    saying: bool,
    /// The last error of the run, which its summary often repeats.
    error: String,
    /// Whether the acceptance checks were printed one by one.
    checked: bool,
}

/// The source of an unfinished line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Voice {
    Assistant,
    Thought,
    Tool(String),
}

/// An active tool call.
#[derive(Debug, Default)]
struct Call {
    title: String,
    streams: BTreeMap<String, Plain>,
    printed: bool,
}

/// The maximum number of lines of a result that was not streamed.
const RESULT_LINES: usize = 40;
/// How much of a message is compared with the summary, in bytes.
const LINE_BYTES: usize = 4096;
/// The tool name of the daemon's own request to raise a budget; it is not a call of the model.
const RAISE_BUDGET: &str = "raise_budget";

impl View {
    /// Starts at the start of a line.
    pub(crate) fn new(palette: Palette, echo: Echo, thoughts: Thoughts) -> Self {
        Self {
            palette,
            echo,
            thoughts,
            open_line: None,
            speech: Plain::default(),
            calls: BTreeMap::new(),
            called: String::new(),
            heading: String::new(),
            said: String::new(),
            saying: false,
            error: String::new(),
            checked: false,
        }
    }

    /// Returns the text of one event.
    pub(crate) fn event(&mut self, event: &Event) -> String {
        match event.kind.as_str() {
            "assistant_token" => {
                self.remember(event.text("text"));
                self.speak(event.text("text"), Voice::Assistant)
            }
            "thinking_token" => match self.thoughts {
                Thoughts::Shown => self.speak(event.text("text"), Voice::Thought),
                Thoughts::Hidden => String::new(),
            },
            "assistant_done" => {
                self.saying = false;
                self.end_line()
            }
            "user_message" => self.message(event),
            "message_queued" => {
                self.line(Style::Faint, &format!("queued: {}", plain_line(event.text("text"))))
            }
            "message_unqueued" => {
                self.line(Style::Faint, &format!("unqueued: {}", plain_line(event.text("messageId"))))
            }
            "tool_call" => self.call(event),
            "tool_output" => self.output(event),
            "tool_result" => self.result(event),
            "approval_required" => self.question(&event.payload),
            "approval_vote" => self.verdict(event, "voted"),
            "approval_received" => self.verdict(event, "decided"),
            "warning" => {
                self.saying &= event.text("code") != TURN_CUT;
                self.trouble(event, Style::Attention, "warning")
            }
            // Only provider status is printed, such as loading a model; other activity has events of its own.
            "status" if event.text("source") == "provider" => {
                let (phase, detail) = (plain_line(event.text("phase")), plain_line(event.text("detail")));
                self.line(Style::Faint, &format!("{phase} ({detail})"))
            }
            "error" => {
                self.error = event.text("message").to_owned();
                self.trouble(event, Style::Bad, "error")
            }
            "run_recovered" => {
                self.saying = false;
                self.line(Style::Attention, &recovered(event.text("found")))
            }
            "events_lost" => self.line(Style::Attention, &lost(&event.payload)),
            "run_complete" => self.complete(&event.payload),
            "session_snapshot" => self.snapshot(&event.payload),
            "session_renamed" => {
                self.line(Style::Faint, &format!("renamed to {}", plain_line(event.text("name"))))
            }
            "session_ended" => self.line(Style::Faint, "the session was ended"),
            _ => String::new(),
        }
    }

    /// Returns the line break that ends an unfinished line.
    pub(crate) fn end_line(&mut self) -> String {
        match self.open_line.take() {
            Some(_) => "\n".to_owned(),
            None => String::new(),
        }
    }

    /// Renders a pending approval.
    pub(crate) fn question(&mut self, payload: &Value) -> String {
        let mut text = self.end_line();
        let title = exact_line(&field(payload, "title"));
        let id = plain_line(ids::short(&field(payload, "approvalId")));
        text += &self.palette.paint(Style::Attention, &format!("? {title}"));
        text += &format!(" ({id})\n");
        text += &card(payload, &std::mem::take(&mut self.called), self.palette, Extent::USUAL);
        let choices = choices(payload);
        if !choices.is_empty() {
            text += &format!("  choices: {}\n", plain_line(&choices.join(", ")));
        }
        text
    }

    /// Renders an approval without truncation.
    pub(crate) fn whole_question(&mut self, payload: &Value) -> String {
        self.end_line() + &card(payload, "", self.palette, Extent::WHOLE)
    }

    /// Renders a complete message of the assistant.
    pub(crate) fn speech(&mut self, message: &str) -> String {
        self.saying = false;
        self.remember(message);
        self.saying = false;
        self.speak(message, Voice::Assistant) + &self.end_line()
    }

    /// Records a message that is printed elsewhere, so that the summary does not repeat it.
    pub(crate) fn remember_message(&mut self, message: &str) {
        self.saying = false;
        self.remember(message);
    }

    /// Records that the output of a tool call is printed elsewhere, so that its result does not repeat it.
    pub(crate) fn mark_printed(&mut self, call: &str) {
        self.calls.entry(call.to_owned()).or_default().printed = true;
    }

    /// Renders the denied approvals.
    pub(crate) fn denials(&mut self, denials: &[Denial]) -> String {
        let mut text = String::new();
        for denial in denials {
            let (id, summary) = (plain_line(ids::short(&denial.id)), plain_line(&denial.summary));
            let why = refused_by(&denial.by, &denial.reason);
            text += &self.line(Style::Bad, &format!("not approved: {summary} ({id}, {why})"));
        }
        text
    }

    fn speak(&mut self, piece: &str, voice: Voice) -> String {
        let mut text = self.change_voice(&voice);
        let shown = self.speech.piece(piece);
        self.open_line = if shown.is_empty() { self.open_line.take() } else { after(&shown, voice.clone()) };
        text += &match voice {
            Voice::Thought => self.palette.paint(Style::Faint, &shown),
            Voice::Assistant | Voice::Tool(_) => shown,
        };
        text
    }

    /// Keeps the first line of the current message.
    fn remember(&mut self, piece: &str) {
        if !std::mem::replace(&mut self.saying, true) {
            self.said.clear();
        }
        if self.said.len() < LINE_BYTES && !self.said.trim_start().contains('\n') {
            self.said.push_str(piece);
        }
    }

    /// Ends the unfinished line if it has another source.
    fn change_voice(&mut self, voice: &Voice) -> String {
        match &self.open_line {
            Some(open) if open != voice => self.end_line(),
            Some(_) | None => String::new(),
        }
    }

    fn line(&mut self, style: Style, line: &str) -> String {
        format!("{}{}\n", self.end_line(), self.palette.paint(style, line))
    }

    fn message(&mut self, event: &Event) -> String {
        let steered = event.text("delivery") == "steer";
        if self.echo == Echo::Nothing && !steered {
            return String::new();
        }
        let mut text = self.end_line();
        for line in plain(event.text("text")).lines() {
            text += &self.palette.paint(Style::Strong, &format!("> {line}"));
            text.push('\n');
        }
        text
    }

    fn call(&mut self, event: &Event) -> String {
        let (prompt, words) = invocation(&event.payload);
        let title = format!("{prompt}{}", plain_line(&words));
        event.text("callId").clone_into(&mut self.heading);
        self.calls.insert(self.heading.clone(), Call { title, ..Call::default() });
        if event.text("toolName") == RAISE_BUDGET {
            // The approval has all details.
            return self.end_line();
        }
        let check = if event.is_of_check() {
            self.checked = true;
            let index = event.payload.get("check").and_then(Value::as_u64).unwrap_or_default();
            format!("check {}: ", index.saturating_add(1))
        } else {
            String::new()
        };
        let mut text = self.end_line();
        self.called.clone_from(&words);
        for (index, line) in plain(&words).lines().enumerate() {
            let mark = if index == 0 { format!("{check}{prompt}") } else { "  ".to_owned() };
            text += &self.palette.paint(Style::Strong, &format!("{mark}{line}"));
            text.push('\n');
        }
        text
    }

    fn output(&mut self, event: &Event) -> String {
        self.called.clear();
        let id = event.text("callId").to_owned();
        let voice = Voice::Tool(id.clone());
        let mut text = self.change_voice(&voice);
        let call = self.calls.entry(id).or_default();
        call.printed = true;
        let shown =
            call.streams.entry(event.text("stream").to_owned()).or_default().piece(event.text("text"));
        let mut at_start = self.open_line.is_none();
        for line in shown.split_inclusive('\n') {
            if at_start && line != "\n" {
                text += "  ";
            }
            text += line;
            at_start = line.ends_with('\n');
        }
        self.open_line = if at_start { None } else { Some(voice) };
        text
    }

    fn result(&mut self, event: &Event) -> String {
        let mut text = self.end_line();
        if event.text("toolName") == RAISE_BUDGET {
            return text;
        }
        let call = self.calls.remove(event.text("callId")).unwrap_or_default();
        if self.heading != event.text("callId") && !call.title.is_empty() {
            // Several calls ran in parallel, so the result needs the heading of its call.
            text += &format!("{}\n", self.palette.paint(Style::Strong, &call.title));
            event.text("callId").clone_into(&mut self.heading);
        }
        if !call.printed {
            text += &self.returned(event);
        }
        let (style, words) = ending(event);
        text += "  ";
        text += &self.palette.paint(style, &words);
        text.push('\n');
        text
    }

    fn returned(&self, event: &Event) -> String {
        if event.payload.get("noOutput").and_then(Value::as_bool).unwrap_or_default() {
            return String::new();
        }
        let text = event.text("text");
        let fault = event.payload.get("structuredError").map(|fault| field(fault, "message"));
        if fault.is_some_and(|fault| fault.trim() == text.trim()) {
            return String::new();
        }
        match event.text("toolName") {
            "sandbox_git_diff" => painted(text, RESULT_LINES, self.palette),
            "sandbox_read_file" | "sandbox_exec" => shortened(&plain(text), RESULT_LINES),
            _ => shortened(&plain(&readable(text)), RESULT_LINES),
        }
    }

    fn verdict(&mut self, event: &Event, settled: &str) -> String {
        let decision = match (event.text("decision"), settled) {
            ("approve", "decided") => "approved",
            ("approve", _) => "one vote to approve",
            (_, "decided") => "denied",
            (_, _) => "one vote to deny",
        };
        let mut words = decision.to_owned();
        let choice = plain_line(event.text("choice"));
        if !choice.is_empty() {
            words += &format!(" ({choice})");
        }
        words += match event.text("scope") {
            "run" => " for this run",
            "session" => " for this session",
            "always" => " always in this repository",
            _ => "",
        };
        words += &match event.text("by") {
            "timeout" => " because the approval timed out".to_owned(),
            "cancel" => " because the run was cancelled".to_owned(),
            POLICY => " by the policy of the run".to_owned(),
            by => format!(" by {}", plain_line(by)),
        };
        let comment = plain_line(event.text("comment"));
        if !comment.is_empty() {
            words += &format!(": {comment}");
        }
        let style = if decision.ends_with("approved") { Style::Good } else { Style::Bad };
        self.line(style, &words)
    }

    fn trouble(&mut self, event: &Event, style: Style, word: &str) -> String {
        let mut words = format!("{word}: {}", plain_line(event.text("message")));
        let detail = plain_line(event.text("detail"));
        if !detail.is_empty() {
            words += &format!(" ({detail})");
        }
        self.line(style, &words)
    }

    /// Renders the end of a run.
    pub(crate) fn complete(&mut self, payload: &Value) -> String {
        let mut text = self.end_line();
        let checks = payload.pointer("/acceptance/results").and_then(Value::as_array);
        if !std::mem::take(&mut self.checked) {
            checks.into_iter().flatten().for_each(|check| text += &self.check(check));
        }
        let error = std::mem::take(&mut self.error);
        let outcome = plain_line(&field(payload, "outcome"));
        let style = if outcome == "success" { Style::Good } else { Style::Bad };
        text += &self.palette.paint(style, &outcome);
        let reason = plain_line(&field(payload, "reason"));
        let summary = plain_line(&field(payload, "summary"));
        if let Some(rest) = summary.strip_prefix(&outcome) {
            text += rest;
        } else {
            if !reason.is_empty() {
                text += &format!(" ({reason})");
            }
            let said = plain_line(self.said.trim().lines().next().unwrap_or_default());
            // The summary of a model's run is the start of its last message.
            if !summary.is_empty() && summary != plain_line(&error) && !said.starts_with(&summary) {
                text += &format!(": {summary}");
            }
        }
        text.push('\n');
        text
    }

    fn check(&self, check: &Value) -> String {
        let passed = check.get("passed").and_then(Value::as_bool).unwrap_or_default();
        let (style, word) = if passed { (Style::Good, "passed") } else { (Style::Bad, "failed") };
        let code = match check.get("exitCode").and_then(Value::as_i64) {
            Some(code) if !passed => format!(" (exit {code})"),
            Some(_) | None => String::new(),
        };
        let id = plain_line(&field(check, "id"));
        format!("check {id}: {}{code}\n", self.palette.paint(style, word))
    }

    fn snapshot(&mut self, payload: &Value) -> String {
        let state = plain_line(&field(payload, "state"));
        let mut text = self.line(Style::Faint, &format!("earlier events are lost; the session is {state}"));
        let last = plain(&field(payload, "lastAssistantText"));
        if !last.is_empty() {
            text += &indented(&last);
        }
        if let Some(pending) = payload.get("pendingApproval").filter(|pending| pending.is_object()) {
            text += &self.question(pending);
        }
        text
    }
}

fn after(shown: &str, voice: Voice) -> Option<Voice> {
    if shown.ends_with('\n') { None } else { Some(voice) }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
