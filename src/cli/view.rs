//! Renders events as text.
//!
//! Pure: it maps an event to the text to print. Untrusted text is sanitized. Unknown events print nothing.

use std::collections::BTreeMap;

use super::approval_view::{
    DisplayLimits, color_diff, indent, question_diff, render, render_result_diff, truncate_lines,
};
use super::console::{Palette, Style};
use super::format::{
    check_message, decision_message, denial_reason, invocation, loss_message, outcome_name, participant_message,
    recovery_message, tool_outcome, vote_message,
};
use super::ids;
use super::plan;
use super::report::Denial;
use super::sanitize::{Sanitizer, escape, escape_line, sanitize, sanitize_line};
use super::tool_results::format_result;
use super::usage::UsageTotal;
use crate::client::{Event, EventContent, SessionSnapshot};
use crate::kernel::event::{
    CallResult, EventKind, GateEvent, GateQuestion, Intention, NoticeEvent, OutputStream, Purpose, RunEvent,
    RunOutcome, RunReport, SessionEvent, ToolEvent, ToolOutcome, is_turn_interrupted,
};

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
    /// Tokens and cost of the run.
    usage: UsageTotal,
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
    stdout: Sanitizer,
    stderr: Sanitizer,
    printed: bool,
    /// The plan that it shows once it has succeeded.
    plan: Option<Vec<plan::PlanStep>>,
    /// The diff that its approval showed.
    shown_diff: String,
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
            usage: UsageTotal::default(),
        }
    }

    /// Returns the text of one event.
    pub(crate) fn event(&mut self, event: &Event) -> String {
        match &event.content {
            EventContent::Recorded(kind) => self.recorded(kind, event.seq),
            EventContent::Gap { message, detail, .. } => {
                self.problem(Style::Attention, "warning", message, detail.as_deref())
            }
            EventContent::Snapshot(snapshot) => self.snapshot(snapshot),
            EventContent::Deleted => String::new(),
            EventContent::Unreadable { name } => {
                let name = sanitize_line(name);
                self.line(Style::Attention, &format!("warning: this version of push cannot read the event \"{name}\""))
            }
        }
    }

    fn recorded(&mut self, kind: &EventKind, seq: u64) -> String {
        match kind {
            EventKind::Run(RunEvent::TextDelta { text }) => {
                self.remember_line(text);
                self.append(text, LineSource::Assistant)
            }
            EventKind::Run(RunEvent::ThinkingDelta { text }) => match self.reasoning {
                Reasoning::Shown => self.append(text, LineSource::Reasoning),
                Reasoning::Hidden => String::new(),
            },
            EventKind::Run(RunEvent::TextDone { .. }) => {
                self.message_open = false;
                self.end_line()
            }
            EventKind::Run(RunEvent::Started(message)) => match self.echo {
                Echo::Messages => self.message(&message.text),
                Echo::Nothing => String::new(),
            },
            EventKind::Run(RunEvent::Steered(steering)) => self.message(&steering.text),
            EventKind::Tool(ToolEvent::Intended(call)) => self.call(call),
            EventKind::Tool(ToolEvent::Output { call, stream, text }) => self.output(call.as_str(), *stream, text),
            EventKind::Tool(ToolEvent::Settled(result)) => self.result(result),
            EventKind::Gate(GateEvent::Opened(question)) => self.approval(question),
            EventKind::Notice(NoticeEvent::Warned { code, message, detail }) => {
                self.message_open &= !is_turn_interrupted(code);
                self.problem(Style::Attention, "warning", message, detail.as_deref())
            }
            EventKind::Notice(NoticeEvent::Failed { message, detail, .. }) => {
                self.last_error.clone_from(message);
                self.problem(Style::Bad, "error", message, detail.as_deref())
            }
            EventKind::Run(RunEvent::Recovered { phase }) => {
                self.message_open = false;
                self.line(Style::Attention, &recovery_message(*phase))
            }
            EventKind::Notice(NoticeEvent::EventsLost { after, cause }) => {
                self.line(Style::Attention, &loss_message(*after, seq, *cause))
            }
            EventKind::Run(RunEvent::TurnUsage(turn)) => {
                self.usage.add(&turn.usage);
                String::new()
            }
            EventKind::Run(RunEvent::Ended(report)) => self.complete(report),
            EventKind::Gate(_)
            | EventKind::Run(_)
            | EventKind::Notice(_)
            | EventKind::Session(_)
            | EventKind::Context(_)
            | EventKind::Participant(_)
            | EventKind::Tool(ToolEvent::Started { .. }) => self.note(kind),
        }
    }

    /// Renders an event that is a single line; others print nothing.
    fn note(&mut self, kind: &EventKind) -> String {
        let faint = |note: String| (Style::Faint, note);
        let (style, note) = if let EventKind::Gate(GateEvent::Voted { decision, by, .. }) = kind {
            (Style::Bad, vote_message(*decision, by))
        } else if let EventKind::Gate(GateEvent::Settled(decision)) = kind {
            decision_message(decision)
        } else if let EventKind::Run(RunEvent::MessageQueued(queued)) = kind {
            faint(format!("queued: {}", sanitize_line(&queued.message.text)))
        } else if let EventKind::Run(RunEvent::MessageUnqueued { message, .. }) = kind {
            faint(format!("unqueued: {}", sanitize_line(message.as_str())))
        } else if let EventKind::Session(SessionEvent::Renamed { name }) = kind {
            faint(format!("renamed to {}", sanitize_line(name)))
        } else if let EventKind::Participant(event) = kind {
            faint(participant_message(event))
        } else if let EventKind::Session(SessionEvent::Ended { .. }) = kind {
            faint("the session was ended".to_owned())
        } else if let EventKind::Notice(NoticeEvent::Status { source, phase, detail }) = kind
            // Only provider status is printed, such as loading a model; other activity has events of its own.
            && source == "provider"
        {
            let detail = detail.as_deref().unwrap_or_default();
            faint(format!("{} ({})", sanitize_line(phase), sanitize_line(detail)))
        } else {
            return String::new();
        };
        self.line(style, &note)
    }

    /// Returns the line break that ends an unfinished line.
    pub(crate) fn end_line(&mut self) -> String {
        match self.open_line.take() {
            Some(_) => "\n".to_owned(),
            None => String::new(),
        }
    }

    /// Renders a pending approval.
    pub(crate) fn approval(&mut self, question: &GateQuestion) -> String {
        self.approval_within(question, DisplayLimits::DEFAULT)
    }

    /// Renders a pending approval without truncation.
    pub(crate) fn whole_approval(&mut self, question: &GateQuestion) -> String {
        self.approval_within(question, DisplayLimits::UNLIMITED)
    }

    fn approval_within(&mut self, question: &GateQuestion, limits: DisplayLimits) -> String {
        let mut text = self.end_line();
        if let Some(call) = question.call() {
            self.calls.entry(call.as_str().to_owned()).or_default().shown_diff = question_diff(question);
        }
        let title = escape_line(&question.title);
        let id = sanitize_line(ids::short(question.gate.as_str()));
        text += &self.palette.paint(Style::Attention, &format!("? {title}"));
        text += &format!(" ({id})\n");
        text += &render(question, &std::mem::take(&mut self.last_invocation), self.palette, limits);
        if !question.choices.is_empty() {
            text += &format!("  choices: {}\n", sanitize_line(&question.choices.join(", ")));
        }
        text
    }

    /// Renders the content of an approval, without its title and without truncation.
    pub(crate) fn full_approval(&mut self, question: &GateQuestion) -> String {
        self.end_line() + &render(question, "", self.palette, DisplayLimits::UNLIMITED)
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

    fn message(&mut self, message: &str) -> String {
        let mut text = self.end_line();
        for line in sanitize(message).lines() {
            text += &self.palette.paint(Style::Strong, &format!("> {line}"));
            text.push('\n');
        }
        text
    }

    fn call(&mut self, call: &Intention) -> String {
        let (prompt, words) = invocation(call);
        let title = format!("{prompt}{}", sanitize_line(&words));
        call.call.as_str().clone_into(&mut self.heading);
        let plan = plan::of_call(call);
        let is_shown_later = call.tool == RAISE_BUDGET || plan.is_some();
        self.calls.insert(self.heading.clone(), Call { title, plan, ..Call::default() });
        if is_shown_later {
            // The approval has all details of a budget, and the result has the plan, or the title of a call that fails.
            self.heading.clear();
            return self.end_line();
        }
        let check = match call.purpose {
            Purpose::Check(index) => {
                self.checks_printed = true;
                format!("check {}: ", index.saturating_add(1))
            }
            Purpose::Work | Purpose::UserCommand { .. } => String::new(),
        };
        let mut text = self.end_line();
        self.last_invocation.clone_from(&words);
        for (index, line) in escape(&words).lines().enumerate() {
            let mark = if index == 0 { format!("{check}{prompt}") } else { "  ".to_owned() };
            text += &self.palette.paint(Style::Strong, &format!("{mark}{line}"));
            text.push('\n');
        }
        text
    }

    fn output(&mut self, id: &str, stream: OutputStream, output: &str) -> String {
        self.last_invocation.clear();
        let source = LineSource::Tool(id.to_owned());
        let mut text = self.switch_source(&source);
        let call = self.calls.entry(id.to_owned()).or_default();
        call.printed = true;
        let sanitizer = match stream {
            OutputStream::Stdout => &mut call.stdout,
            OutputStream::Stderr => &mut call.stderr,
        };
        let shown = sanitizer.push(output);
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

    fn result(&mut self, result: &CallResult) -> String {
        let mut text = self.end_line();
        if result.tool == RAISE_BUDGET {
            return text;
        }
        let id = result.call.as_str();
        let mut call = self.calls.remove(id).unwrap_or_default();
        if let Some(steps) = call.plan.take_if(|_| result.outcome == ToolOutcome::Succeeded) {
            return text + &plan::render(&steps, self.palette);
        }
        if self.heading != id && !call.title.is_empty() {
            // Several calls ran in parallel, so the result needs the heading of its call.
            text += &format!("{}\n", self.palette.paint(Style::Strong, &call.title));
            id.clone_into(&mut self.heading);
        }
        if !call.printed {
            text += &self.result_text(result);
        }
        if let Some(diff) = result.diff.as_ref().filter(|diff| diff.text != call.shown_diff) {
            text += &render_result_diff(diff, RESULT_LINES, self.palette);
        }
        let (style, words) = tool_outcome(result);
        text + &format!("  {}\n", self.palette.paint(style, &words))
    }

    fn result_text(&self, result: &CallResult) -> String {
        let text = &result.text;
        if result.error.as_ref().is_some_and(|error| error.message.trim() == text.trim()) {
            return String::new();
        }
        match result.tool.as_str() {
            "sandbox_git_diff" => color_diff(text, RESULT_LINES, self.palette),
            "sandbox_read_file" | "sandbox_exec" => truncate_lines(&sanitize(text), RESULT_LINES),
            _ => truncate_lines(&sanitize(&format_result(text)), RESULT_LINES),
        }
    }

    fn problem(&mut self, style: Style, word: &str, message: &str, detail: Option<&str>) -> String {
        let mut words = format!("{word}: {}", sanitize_line(message));
        let detail = sanitize_line(detail.unwrap_or_default());
        if !detail.is_empty() {
            words += &format!(" ({detail})");
        }
        self.line(style, &words)
    }

    /// Renders the end of a run.
    pub(crate) fn complete(&mut self, report: &RunReport) -> String {
        let mut text = self.end_line();
        if !std::mem::take(&mut self.checks_printed) {
            report.checks.iter().for_each(|check| text += &check_message(check, self.palette));
        }
        let usage = std::mem::take(&mut self.usage);
        if !usage.is_empty() {
            text += &self.palette.paint(Style::Faint, &format!("usage: {}", usage.words()));
            text.push('\n');
        }
        let error = std::mem::take(&mut self.last_error);
        let outcome = outcome_name(report.outcome);
        let style = if report.outcome == RunOutcome::Success { Style::Good } else { Style::Bad };
        text += &self.palette.paint(style, outcome);
        let reason = sanitize_line(report.reason.as_deref().unwrap_or_default());
        let summary = sanitize_line(&report.summary);
        if let Some(rest) = summary.strip_prefix(outcome) {
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

    fn snapshot(&mut self, snapshot: &SessionSnapshot) -> String {
        let state = sanitize_line(snapshot.state.as_str());
        let mut text = self.line(Style::Faint, &format!("earlier events are lost; the session is {state}"));
        let last = sanitize(&snapshot.last_assistant_text);
        if !last.is_empty() {
            text += &indent(&last);
        }
        if let Some(pending) = &snapshot.pending_approval {
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
