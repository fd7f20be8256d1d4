//! Renders events as text.
//!
//! Pure: it maps an event to the text to print. Untrusted text is sanitized. Unknown events print nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::approval_view::{DisplayLimits, color_diff, indent, render, truncate_lines};
use super::console::{Palette, Style};
use super::format::{choices, denial_reason, field, invocation, loss_message, recovery_message, tool_outcome};
use super::ids;
use super::report::Denial;
use super::sanitize::{Sanitizer, escape_line, sanitize, sanitize_line};
use super::tool_results::format_result;
use crate::client::Event;
use crate::kernel::event::is_turn_interrupted;
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
pub(crate) enum Reasoning {
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
    reasoning: Reasoning,
    /// The source of the unfinished line; none at the start of a line.
    open_line: Option<LineSource>,
    sanitizer: Sanitizer,
    calls: BTreeMap<String, Call>,
    /// The last tool invocation that was printed; an approval of it follows directly.
    last_invocation: String,
    /// The call whose heading was printed last.
    heading: String,
    /// The first line of the last message, which a summary often repeats.
    message_line: String,
    message_open: bool,
    /// The last error of the run, which its summary often repeats.
    last_error: String,
    /// Whether the acceptance checks were printed one by one.
    checks_printed: bool,
}

/// The source of an unfinished line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LineSource {
    Assistant,
    Reasoning,
    Tool(String),
}

/// An active tool call.
#[derive(Debug, Default)]
struct Call {
    title: String,
    streams: BTreeMap<String, Sanitizer>,
    printed: bool,
}

/// The maximum number of lines of a result that was not streamed.
const RESULT_LINES: usize = 40;
/// How much of a message is compared with the summary, in bytes.
const MESSAGE_LINE_BYTES: usize = 4096;
/// The tool name of the daemon's own request to raise a budget; it is not a call of the model.
const RAISE_BUDGET: &str = "raise_budget";

impl View {
    /// Starts at the start of a line.
    pub(crate) fn new(palette: Palette, echo: Echo, reasoning: Reasoning) -> Self {
        Self {
            palette,
            echo,
            reasoning,
            open_line: None,
            sanitizer: Sanitizer::default(),
            calls: BTreeMap::new(),
            last_invocation: String::new(),
            heading: String::new(),
            message_line: String::new(),
            message_open: false,
            last_error: String::new(),
            checks_printed: false,
        }
    }

    /// Returns the text of one event.
    pub(crate) fn event(&mut self, event: &Event) -> String {
        match event.kind.as_str() {
            "assistant_token" => {
                self.remember_line(event.text("text"));
                self.append(event.text("text"), LineSource::Assistant)
            }
            "thinking_token" => match self.reasoning {
                Reasoning::Shown => self.append(event.text("text"), LineSource::Reasoning),
                Reasoning::Hidden => String::new(),
            },
            "assistant_done" => {
                self.message_open = false;
                self.end_line()
            }
            "user_message" => self.message(event),
            "message_queued" => self.line(Style::Faint, &format!("queued: {}", sanitize_line(event.text("text")))),
            "message_unqueued" => {
                self.line(Style::Faint, &format!("unqueued: {}", sanitize_line(event.text("messageId"))))
            }
            "tool_call" => self.call(event),
            "tool_output" => self.output(event),
            "tool_result" => self.result(event),
            "approval_required" => self.approval(&event.payload),
            "approval_vote" => self.decision(event, "voted"),
            "approval_received" => self.decision(event, "decided"),
            "warning" => {
                self.message_open &= !is_turn_interrupted(event.text("code"));
                self.problem(event, Style::Attention, "warning")
            }
            // Only provider status is printed, such as loading a model; other activity has events of its own.
            "status" if event.text("source") == "provider" => {
                let (phase, detail) = (sanitize_line(event.text("phase")), sanitize_line(event.text("detail")));
                self.line(Style::Faint, &format!("{phase} ({detail})"))
            }
            "error" => {
                self.last_error = event.text("message").to_owned();
                self.problem(event, Style::Bad, "error")
            }
            "run_recovered" => {
                self.message_open = false;
                self.line(Style::Attention, &recovery_message(event.text("found")))
            }
            "events_lost" => self.line(Style::Attention, &loss_message(&event.payload)),
            "run_complete" => self.complete(&event.payload),
            "session_snapshot" => self.snapshot(&event.payload),
            "session_renamed" => self.line(Style::Faint, &format!("renamed to {}", sanitize_line(event.text("name")))),
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
    pub(crate) fn approval(&mut self, payload: &Value) -> String {
        self.approval_within(payload, DisplayLimits::DEFAULT)
    }

    /// Renders a pending approval without truncation.
    pub(crate) fn whole_approval(&mut self, payload: &Value) -> String {
        self.approval_within(payload, DisplayLimits::UNLIMITED)
    }

    fn approval_within(&mut self, payload: &Value, limits: DisplayLimits) -> String {
        let mut text = self.end_line();
        let title = escape_line(&field(payload, "title"));
        let id = sanitize_line(ids::short(&field(payload, "approvalId")));
        text += &self.palette.paint(Style::Attention, &format!("? {title}"));
        text += &format!(" ({id})\n");
        text += &render(payload, &std::mem::take(&mut self.last_invocation), self.palette, limits);
        let choices = choices(payload);
        if !choices.is_empty() {
            text += &format!("  choices: {}\n", sanitize_line(&choices.join(", ")));
        }
        text
    }

    /// Renders the content of an approval, without its title and without truncation.
    pub(crate) fn full_approval(&mut self, payload: &Value) -> String {
        self.end_line() + &render(payload, "", self.palette, DisplayLimits::UNLIMITED)
    }

    /// Renders a complete message of the assistant.
    pub(crate) fn assistant_message(&mut self, message: &str) -> String {
        self.message_open = false;
        self.remember_line(message);
        self.message_open = false;
        self.append(message, LineSource::Assistant) + &self.end_line()
    }

    /// Records a message that is printed elsewhere, so that the summary does not repeat it.
    pub(crate) fn remember_message(&mut self, message: &str) {
        self.message_open = false;
        self.remember_line(message);
    }

    /// Records that the output of a tool call is printed elsewhere, so that its result does not repeat it.
    pub(crate) fn mark_printed(&mut self, call: &str) {
        self.calls.entry(call.to_owned()).or_default().printed = true;
    }

    /// Renders the denied approvals.
    pub(crate) fn denials(&mut self, denials: &[Denial]) -> String {
        let mut text = String::new();
        for denial in denials {
            let (id, summary) = (sanitize_line(ids::short(&denial.id)), sanitize_line(&denial.summary));
            let why = denial_reason(&denial.by, &denial.reason);
            text += &self.line(Style::Bad, &format!("not approved: {summary} ({id}, {why})"));
        }
        text
    }

    fn append(&mut self, piece: &str, source: LineSource) -> String {
        let mut text = self.switch_source(&source);
        let shown = self.sanitizer.push(piece);
        self.open_line = if shown.is_empty() { self.open_line.take() } else { source_after(&shown, source.clone()) };
        text += &match source {
            LineSource::Reasoning => self.palette.paint(Style::Faint, &shown),
            LineSource::Assistant | LineSource::Tool(_) => shown,
        };
        text
    }

    /// Keeps the first line of the current message.
    fn remember_line(&mut self, piece: &str) {
        if !std::mem::replace(&mut self.message_open, true) {
            self.message_line.clear();
        }
        if self.message_line.len() < MESSAGE_LINE_BYTES && !self.message_line.trim_start().contains('\n') {
            self.message_line.push_str(piece);
        }
    }

    /// Ends the unfinished line if it has another source.
    fn switch_source(&mut self, source: &LineSource) -> String {
        match &self.open_line {
            Some(open) if open != source => self.end_line(),
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
        for line in sanitize(event.text("text")).lines() {
            text += &self.palette.paint(Style::Strong, &format!("> {line}"));
            text.push('\n');
        }
        text
    }

    fn call(&mut self, event: &Event) -> String {
        let (prompt, words) = invocation(&event.payload);
        let title = format!("{prompt}{}", sanitize_line(&words));
        event.text("callId").clone_into(&mut self.heading);
        self.calls.insert(self.heading.clone(), Call { title, ..Call::default() });
        if event.text("toolName") == RAISE_BUDGET {
            // The approval has all details.
            return self.end_line();
        }
        let check = if event.is_acceptance_check() {
            self.checks_printed = true;
            let index = event.payload.get("check").and_then(Value::as_u64).unwrap_or_default();
            format!("check {}: ", index.saturating_add(1))
        } else {
            String::new()
        };
        let mut text = self.end_line();
        self.last_invocation.clone_from(&words);
        for (index, line) in sanitize(&words).lines().enumerate() {
            let mark = if index == 0 { format!("{check}{prompt}") } else { "  ".to_owned() };
            text += &self.palette.paint(Style::Strong, &format!("{mark}{line}"));
            text.push('\n');
        }
        text
    }

    fn output(&mut self, event: &Event) -> String {
        self.last_invocation.clear();
        let id = event.text("callId").to_owned();
        let source = LineSource::Tool(id.clone());
        let mut text = self.switch_source(&source);
        let call = self.calls.entry(id).or_default();
        call.printed = true;
        let shown = call.streams.entry(event.text("stream").to_owned()).or_default().push(event.text("text"));
        let mut at_start = self.open_line.is_none();
        for line in shown.split_inclusive('\n') {
            if at_start && line != "\n" {
                text += "  ";
            }
            text += line;
            at_start = line.ends_with('\n');
        }
        self.open_line = if at_start { None } else { Some(source) };
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
            text += &self.result_text(event);
        }
        let (style, words) = tool_outcome(event);
        text += "  ";
        text += &self.palette.paint(style, &words);
        text.push('\n');
        text
    }

    fn result_text(&self, event: &Event) -> String {
        if event.payload.get("noOutput").and_then(Value::as_bool).unwrap_or_default() {
            return String::new();
        }
        let text = event.text("text");
        let fault = event.payload.get("structuredError").map(|fault| field(fault, "message"));
        if fault.is_some_and(|fault| fault.trim() == text.trim()) {
            return String::new();
        }
        match event.text("toolName") {
            "sandbox_git_diff" => color_diff(text, RESULT_LINES, self.palette),
            "sandbox_read_file" | "sandbox_exec" => truncate_lines(&sanitize(text), RESULT_LINES),
            _ => truncate_lines(&sanitize(&format_result(text)), RESULT_LINES),
        }
    }

    fn decision(&mut self, event: &Event, settled: &str) -> String {
        let decision = match (event.text("decision"), settled) {
            ("approve", "decided") => "approved",
            ("approve", _) => "one vote to approve",
            (_, "decided") => "denied",
            (_, _) => "one vote to deny",
        };
        let mut words = decision.to_owned();
        let choice = sanitize_line(event.text("choice"));
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
            by => format!(" by {}", sanitize_line(by)),
        };
        let comment = sanitize_line(event.text("comment"));
        if !comment.is_empty() {
            words += &format!(": {comment}");
        }
        let style = if decision.ends_with("approved") { Style::Good } else { Style::Bad };
        self.line(style, &words)
    }

    fn problem(&mut self, event: &Event, style: Style, word: &str) -> String {
        let mut words = format!("{word}: {}", sanitize_line(event.text("message")));
        let detail = sanitize_line(event.text("detail"));
        if !detail.is_empty() {
            words += &format!(" ({detail})");
        }
        self.line(style, &words)
    }

    /// Renders the end of a run.
    pub(crate) fn complete(&mut self, payload: &Value) -> String {
        let mut text = self.end_line();
        let checks = payload.pointer("/acceptance/results").and_then(Value::as_array);
        if !std::mem::take(&mut self.checks_printed) {
            checks.into_iter().flatten().for_each(|check| text += &self.check(check));
        }
        let error = std::mem::take(&mut self.last_error);
        let outcome = sanitize_line(&field(payload, "outcome"));
        let style = if outcome == "success" { Style::Good } else { Style::Bad };
        text += &self.palette.paint(style, &outcome);
        let reason = sanitize_line(&field(payload, "reason"));
        let summary = sanitize_line(&field(payload, "summary"));
        if let Some(rest) = summary.strip_prefix(&outcome) {
            text += rest;
        } else {
            if !reason.is_empty() {
                text += &format!(" ({reason})");
            }
            let said = sanitize_line(self.message_line.trim().lines().next().unwrap_or_default());
            // The summary of a model's run is the start of its last message.
            if !summary.is_empty() && summary != sanitize_line(&error) && !said.starts_with(&summary) {
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
        let id = sanitize_line(&field(check, "id"));
        format!("check {id}: {}{code}\n", self.palette.paint(style, word))
    }

    fn snapshot(&mut self, payload: &Value) -> String {
        let state = sanitize_line(&field(payload, "state"));
        let mut text = self.line(Style::Faint, &format!("earlier events are lost; the session is {state}"));
        let last = sanitize(&field(payload, "lastAssistantText"));
        if !last.is_empty() {
            text += &indent(&last);
        }
        if let Some(pending) = payload.get("pendingApproval").filter(|pending| pending.is_object()) {
            text += &self.approval(pending);
        }
        text
    }
}

fn source_after(shown: &str, source: LineSource) -> Option<LineSource> {
    if shown.ends_with('\n') { None } else { Some(source) }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
