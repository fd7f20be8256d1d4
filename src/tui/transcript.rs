//! The conversation as lines: finished ones for the scrollback, and the text that still changes.
//!
//! Pure. It depends on the events alone, so that two clients of a session show the same. All text of models, tools and
//! repositories is sanitized before it becomes a line.

use std::collections::BTreeMap;

use ratatui::style::Style as LineStyle;
use ratatui::text::{Line, Span};

use super::call_log::CallLog;
use super::card_view::continuation;
use super::painted::{self, DIFF_LINES, QuestionExtent};
use super::row_log::RowLog;
use super::text::markdown::MarkdownStream;
use super::text::theme::Theme;
use super::text::wrap::{truncate, wrap_line};
use crate::display::approval_view::question_diff;
use crate::display::format::{decision_message, tool_outcome};
use crate::display::plan::{self, PlanStep};
use crate::display::sanitize::{Sanitizer, escape, escape_line, sanitize};
use crate::display::style::Style;
use crate::display::tool_results::format_result;
use crate::display::usage::elapsed;
use crate::kernel::event::{CallResult, Diff, GateDecision, GateQuestion, Intention, OutputStream, ToolOutcome};

/// The tool name of the daemon's own request to raise a budget; it is not a call of the model.
const RAISE_BUDGET: &str = "raise_budget";
/// How many lines of a message of the user are shown.
const MESSAGE_LINES: usize = 30;
/// How many lines of the output of a successful, and of a failed, command are shown.
const SUCCESS_LINES: usize = 3;
const FAILURE_LINES: usize = 12;
/// How many lines of a result that was not streamed are shown.
const RESULT_LINES: usize = 40;

/// The conversation.
#[derive(Debug)]
pub(crate) struct Transcript {
    theme: Theme,
    width: u16,
    /// Whether calls of the model show all of their output.
    pub(crate) full_output: bool,
    /// Whether reasoning is shown.
    pub(crate) shows_thinking: bool,
    /// The finished rows.
    pub(crate) rows: RowLog,
    open: Option<OpenText>,
    /// Lines about this client, which wait for the end of the open text.
    asides: Vec<(Style, String)>,
    /// The running calls, in the order of their ids.
    pub(crate) calls: BTreeMap<String, CallLog>,
    /// The call whose output was written last.
    heading: String,
    /// The last completed call, to show its output on request.
    last_call: Option<CallLog>,
    last_thought: String,
    last_block: Block,
    questions: BTreeMap<String, GateQuestion>,
}

/// Text that still arrives.
#[derive(Debug)]
enum OpenText {
    /// Of the assistant.
    Answer { stream: Box<MarkdownStream>, sanitizer: Sanitizer },
    /// Reasoning.
    Thinking { text: String, sanitizer: Sanitizer, since: u64, shown: usize },
}

/// The kind of the last lines, which decides about blank lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    None,
    Message,
    Answer,
    Entry,
}

impl Transcript {
    /// Starts empty.
    pub(crate) fn new(theme: Theme, width: u16, full_output: bool) -> Self {
        Self {
            theme,
            width,
            full_output,
            shows_thinking: false,
            rows: RowLog::default(),
            open: None,
            asides: Vec::new(),
            calls: BTreeMap::new(),
            heading: String::new(),
            last_call: None,
            last_thought: String::new(),
            last_block: Block::None,
            questions: BTreeMap::new(),
        }
    }

    /// Changes the width of later lines.
    pub(crate) const fn set_width(&mut self, width: u16) {
        self.width = width;
    }

    /// Returns the last of the rows that still change.
    pub(crate) fn tail(&self, max_rows: usize) -> Vec<Line<'static>> {
        match &self.open {
            Some(OpenText::Answer { stream, .. }) => stream.tail_rows(self.text_width(), max_rows),
            Some(OpenText::Thinking { text, shown, .. }) if self.shows_thinking => {
                let rest = text.get(*shown..).unwrap_or_default();
                let style = self.theme.faint;
                wrap_line(&Line::from(Span::styled(format!("  {rest}"), style)), self.text_width(), "  ")
            }
            Some(OpenText::Thinking { .. }) | None => Vec::new(),
        }
    }

    /// Adds a piece of the assistant's text.
    pub(crate) fn text(&mut self, piece: &str, at: u64) {
        if !matches!(self.open, Some(OpenText::Answer { .. })) {
            self.close(at);
            self.begin(Block::Answer);
            self.open = Some(OpenText::Answer {
                stream: Box::new(MarkdownStream::new(self.theme)),
                sanitizer: Sanitizer::default(),
            });
        }
        let width = self.text_width();
        if let Some(OpenText::Answer { stream, sanitizer }) = &mut self.open {
            stream.push(&sanitizer.push(piece));
            self.rows.extend(stream.take_finished(width));
        }
    }

    /// Adds a piece of the model's reasoning.
    pub(crate) fn thinking(&mut self, piece: &str, at: u64) {
        if !matches!(self.open, Some(OpenText::Thinking { .. })) {
            self.close(at);
            self.open =
                Some(OpenText::Thinking { text: String::new(), sanitizer: Sanitizer::default(), since: at, shown: 0 });
        }
        if let Some(OpenText::Thinking { text, sanitizer, .. }) = &mut self.open {
            let piece = sanitizer.push(piece);
            text.push_str(&piece);
        }
        self.print_thinking();
    }

    /// Shows or folds reasoning; the last one is shown again if none is open.
    pub(crate) fn toggle_thinking(&mut self) {
        self.shows_thinking = !self.shows_thinking;
        if self.open.is_none() && self.shows_thinking && !self.last_thought.is_empty() {
            let text = self.last_thought.clone();
            self.indented(&text, self.theme.faint);
        }
        self.print_thinking();
    }

    /// Completes the open text.
    pub(crate) fn close(&mut self, at: u64) {
        let width = self.text_width();
        match self.open.take() {
            Some(OpenText::Answer { mut stream, .. }) => self.rows.extend(stream.finish(width)),
            Some(OpenText::Thinking { text, since, shown, .. }) => {
                self.begin(Block::Entry);
                if self.shows_thinking {
                    let rest = text.get(shown..).unwrap_or_default().to_owned();
                    self.indented(&rest, self.theme.faint);
                }
                let time = elapsed(at.saturating_sub(since));
                let hint = if self.shows_thinking { "" } else { " (Ctrl-T shows it)" };
                self.line(self.theme.faint, &format!("∴ thought for {time}{hint}"));
                self.last_thought = text;
            }
            None => {}
        }
        for (style, text) in std::mem::take(&mut self.asides) {
            self.begin(Block::Entry);
            self.line(painted::style(&self.theme, style), &text);
        }
    }

    /// Adds a message of the user.
    pub(crate) fn message(&mut self, text: &str, at: u64) {
        self.close(at);
        self.begin(Block::Message);
        let text = sanitize(text);
        for (index, line) in text.lines().take(MESSAGE_LINES).enumerate() {
            let mark = if index == 0 { "> " } else { "  " };
            self.line(self.theme.strong, &format!("{mark}{line}"));
        }
        let left = text.lines().count().saturating_sub(MESSAGE_LINES);
        if left > 0 {
            self.line(self.theme.faint, &format!("  … {left} more lines"));
        }
        self.last_block = Block::Message;
    }

    /// Adds a line in a style; the text is sanitized.
    pub(crate) fn note(&mut self, style: Style, text: &str, at: u64) {
        self.close(at);
        self.begin(Block::Entry);
        self.line(painted::style(&self.theme, style), text);
    }

    /// Adds a line about this client. It does not divide an open text, which all clients show alike.
    pub(crate) fn aside(&mut self, style: Style, text: &str, at: u64) {
        self.asides.push((style, text.to_owned()));
        if self.open.is_none() {
            self.close(at);
        }
    }

    /// Adds lines as they are.
    pub(crate) fn lines(&mut self, lines: impl IntoIterator<Item = Line<'static>>) {
        let width = self.text_width();
        self.rows.extend(lines.into_iter().flat_map(|line| wrap_line(&line, width, "  ")));
    }

    /// Starts a tool call.
    pub(crate) fn call(&mut self, call: &Intention, at: u64) {
        self.close(at);
        if call.tool == RAISE_BUDGET {
            return;
        }
        let mut log = CallLog::new(call, at);
        log.is_streamed = (self.full_output && log.plan.is_none()) || log.is_of_user;
        let id = call.call.as_str().to_owned();
        self.calls.insert(id.clone(), log);
        if self.calls.get(&id).is_some_and(|log| log.is_streamed) {
            self.print_heading(&id);
        }
    }

    /// Adds output of a call.
    pub(crate) fn output(&mut self, id: &str, stream: OutputStream, text: &str) {
        let Some(log) = self.calls.get_mut(id) else { return };
        let done = log.output(stream, text);
        if log.is_streamed && !done.is_empty() {
            self.print_heading(id);
            for line in done {
                self.line(LineStyle::new(), &format!("  {line}"));
            }
        }
    }

    /// Completes a call.
    pub(crate) fn result(&mut self, result: &CallResult, at: u64) {
        self.close(at);
        let id = result.call.as_str();
        let Some(mut log) = self.calls.remove(id) else { return };
        if let Some(steps) = log.plan.take_if(|_| result.outcome == ToolOutcome::Succeeded) {
            return self.print_plan(&steps);
        }
        let rest = log.finish();
        let had_output = log.line_count() > 0;
        let text = result_text(result);
        let (style, words) = tool_outcome(result);
        let failed = style == Style::Bad;
        self.begin(Block::Entry);
        if log.is_streamed {
            self.calls.insert(id.to_owned(), log);
            self.print_heading(id);
            let Some(mut log) = self.calls.remove(id) else { return };
            rest.into_iter().for_each(|line| self.line(LineStyle::new(), &format!("  {line}")));
            if !had_output {
                log.set_result(&text);
                self.print_output(&log, RESULT_LINES);
            }
            self.print_diff(result.diff.as_ref(), &log.shown_diff);
            self.line(painted::style(&self.theme, style), &format!("  {words}"));
            self.last_call = Some(log);
            return;
        }
        log.set_result(&text);
        let mark = match result.outcome {
            ToolOutcome::Succeeded => Span::styled("✓ ", self.theme.good),
            ToolOutcome::Skipped => Span::styled("- ", self.theme.faint),
            ToolOutcome::Failed | ToolOutcome::Aborted => Span::styled("✗ ", self.theme.bad),
        };
        let outcome = Span::styled(format!(" · {words}"), painted::style(&self.theme, style));
        let room = self.text_width().saturating_sub(u16::try_from(outcome.width() + 2).unwrap_or(u16::MAX)).max(20);
        let title = truncate(&Line::from(Span::styled(log.title(), self.theme.strong)), room);
        let mut spans = vec![mark];
        spans.extend(title.spans);
        spans.push(outcome);
        self.lines([Line::from(spans)]);
        let is_command = result.exit_code.is_some();
        if failed {
            self.print_output(&log, FAILURE_LINES);
        } else if is_command {
            self.print_output(&log, SUCCESS_LINES);
        }
        self.print_diff(result.diff.as_ref(), &log.shown_diff);
        self.heading.clear();
        self.last_call = Some(log);
    }

    /// Shows all output from here on, with that of the running calls; without one, that of the last call.
    pub(crate) fn toggle_output(&mut self) {
        self.full_output = !self.full_output;
        if !self.full_output {
            return;
        }
        let running: Vec<String> =
            self.calls.iter().filter(|(_, log)| !log.is_streamed).map(|(id, _)| id.clone()).collect();
        for id in &running {
            self.print_heading(id);
            if let Some(mut log) = self.calls.remove(id) {
                log.is_streamed = true;
                self.print_output(&log, usize::MAX);
                self.calls.insert(id.clone(), log);
            }
        }
        if running.is_empty()
            && let Some(log) = self.last_call.take()
        {
            self.begin(Block::Entry);
            for line in log.title_lines() {
                self.line(self.theme.strong, &line);
            }
            self.print_output(&log, usize::MAX);
            self.last_call = Some(log);
        }
    }

    /// Remembers the question of an approval.
    pub(crate) fn question(&mut self, question: &GateQuestion, at: u64) {
        self.close(at);
        if let Some(log) = question.call().and_then(|call| self.calls.get_mut(call.as_str())) {
            log.shown_diff = question_diff(question);
        }
        self.questions.insert(question.gate.as_str().to_owned(), question.clone());
    }

    /// Adds the decision of an approval, with what was decided.
    pub(crate) fn decision(&mut self, decided: &GateDecision, at: u64) {
        self.close(at);
        self.begin(Block::Entry);
        if let Some(question) = self.questions.remove(decided.gate.as_str()) {
            self.print_question(&question, QuestionExtent::Screen);
        }
        let (style, words) = decision_message(decided);
        self.line(painted::style(&self.theme, style), &words);
    }

    /// Adds an approval without truncation.
    pub(crate) fn whole_question(&mut self, question: &GateQuestion) {
        self.begin(Block::Entry);
        self.print_question(question, QuestionExtent::Whole);
    }

    fn print_question(&mut self, question: &GateQuestion, extent: QuestionExtent) {
        self.line(self.theme.attention, &format!("? {}", escape_line(&question.title)));
        let width = self.text_width();
        let lines = painted::question(question, &self.theme, extent);
        self.rows.extend(lines.into_iter().flat_map(|line| wrap_line(&line, width, continuation(&line))));
    }

    fn print_plan(&mut self, steps: &[PlanStep]) {
        self.begin(Block::Entry);
        self.line(self.theme.strong, &plan::heading(steps));
        for step in steps {
            let line = Line::from(Span::styled(
                format!("  {} {}", step.status.mark(), step.text),
                painted::style(&self.theme, step.status.style()),
            ));
            self.rows.extend(wrap_line(&line, self.text_width(), "    "));
        }
        self.heading.clear();
    }

    fn print_heading(&mut self, id: &str) {
        if self.heading == id {
            return;
        }
        self.begin(Block::Entry);
        id.clone_into(&mut self.heading);
        let titles = self.calls.get(id).map(CallLog::title_lines).unwrap_or_default();
        for line in titles {
            self.line(self.theme.strong, &line);
        }
    }

    fn print_output(&mut self, log: &CallLog, count: usize) {
        let (lines, left) = log.last_lines(count);
        if left > 0 {
            self.line(self.theme.faint, &format!("  … {left} lines before (Ctrl-O shows output)"));
        }
        for line in lines {
            self.line(self.theme.faint, &format!("  {line}"));
        }
    }

    fn print_diff(&mut self, diff: Option<&Diff>, shown: &str) {
        let Some(diff) = diff.filter(|diff| diff.text != shown) else { return };
        let lines = painted::diff_lines(diff, &self.theme, Some(DIFF_LINES));
        self.lines(lines);
    }

    /// Writes complete lines of shown reasoning.
    fn print_thinking(&mut self) {
        if !self.shows_thinking {
            return;
        }
        let Some(OpenText::Thinking { text, shown, .. }) = &mut self.open else { return };
        let rest = text.get(*shown..).unwrap_or_default();
        let Some(end) = rest.rfind('\n') else { return };
        let done = rest[..end].to_owned();
        *shown += end + 1;
        self.indented(&done, self.theme.faint);
    }

    fn indented(&mut self, text: &str, style: LineStyle) {
        for line in text.lines() {
            self.line(style, &format!("  {line}"));
        }
    }

    /// Adds a line, wrapped; rows after the first are indented like it.
    fn line(&mut self, style: LineStyle, text: &str) {
        let indent = " ".repeat(text.len() - text.trim_start_matches(' ').len());
        let line = Line::from(Span::styled(text.replace('\t', "    "), style));
        let rows = wrap_line(&line, self.text_width(), &indent);
        self.rows.extend(rows);
    }

    /// Begins a block: messages and answers have a blank line before them.
    fn begin(&mut self, block: Block) {
        let needs_space = match (self.last_block, block) {
            (Block::None, _) | (Block::Entry, Block::Entry) => false,
            (_, Block::Message | Block::Answer | Block::Entry | Block::None) => true,
        };
        if needs_space {
            self.rows.push(Line::default());
            self.heading.clear();
        }
        self.last_block = block;
    }

    const fn text_width(&self) -> u16 {
        if self.width > 1 { self.width - 1 } else { 1 }
    }
}

/// Returns the text of a result as people read it.
fn result_text(result: &CallResult) -> String {
    let text = &result.text;
    if result.error.as_ref().is_some_and(|error| error.message.trim() == text.trim()) {
        return String::new();
    }
    match result.tool.as_str() {
        "sandbox_git_diff" => escape(text),
        "sandbox_read_file" | "sandbox_exec" => sanitize(text),
        _ => sanitize(&format_result(text)),
    }
}
