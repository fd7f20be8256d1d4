//! One tool call: its title, the end of its output, and the lines that report it.
//!
//! Pure. The output is sanitized as it arrives; only its last lines are kept.

use std::collections::VecDeque;

use crate::display::format::invocation;
use crate::display::plan::{self, PlanStep};
use crate::display::sanitize::{Sanitizer, escape, sanitize, sanitize_line};
use crate::kernel::event::{Intention, OutputStream, Purpose};

/// How many lines of output are kept.
const KEPT_LINES: usize = 500;
/// How many bytes of a line are kept.
const LINE_BYTES: usize = 8 * 1024;

/// A tool call.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    /// The prompt before a shell command; empty for other tools.
    prompt: &'static str,
    /// The invocation, sanitized; it may have several lines.
    words: String,
    /// The number of the acceptance check, if it is one.
    check: Option<u32>,
    /// Whether it is a command of the user.
    pub(crate) is_of_user: bool,
    /// Whether its output is written as it arrives.
    pub(crate) is_streamed: bool,
    /// The plan that is shown in its place once it has succeeded.
    pub(crate) plan: Option<Vec<PlanStep>>,
    /// When it was requested.
    pub(crate) started_at: u64,
    /// The diff that its approval showed.
    pub(crate) shown_diff: String,
    stdout: Sanitizer,
    stderr: Sanitizer,
    /// The unfinished line.
    partial: String,
    lines: VecDeque<String>,
    /// How many lines were written.
    total: usize,
}

impl CallLog {
    /// Starts with the intent of a call.
    pub(crate) fn new(call: &Intention, started_at: u64) -> Self {
        let (prompt, words) = invocation(call);
        let (check, is_of_user) = match call.purpose {
            Purpose::Check(index) => (Some(index), false),
            Purpose::UserCommand { .. } => (None, true),
            Purpose::Work => (None, false),
        };
        let plan = plan::of_call(call);
        Self { prompt, words: escape(&words), check, is_of_user, plan, started_at, ..Self::default() }
    }

    /// Adds output and returns the completed lines.
    pub(crate) fn output(&mut self, stream: OutputStream, text: &str) -> Vec<String> {
        let sanitizer = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let shown = sanitizer.push(text);
        let mut done = Vec::new();
        for piece in shown.split_inclusive('\n') {
            if self.partial.len() < LINE_BYTES {
                self.partial.push_str(piece.strip_suffix('\n').unwrap_or(piece));
            }
            if piece.ends_with('\n') {
                let line = std::mem::take(&mut self.partial);
                self.keep(line.clone());
                done.push(line);
            }
        }
        done
    }

    /// Ends the output and returns the unfinished line.
    pub(crate) fn finish(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.partial);
        if line.is_empty() {
            return None;
        }
        self.keep(line.clone());
        Some(line)
    }

    /// Uses the text of a result as output, if there was none.
    pub(crate) fn set_result(&mut self, text: &str) {
        if self.total == 0 && self.partial.is_empty() {
            sanitize(text).lines().for_each(|line| self.keep(line.to_owned()));
        }
    }

    /// Returns the last lines, the unfinished one included, and how many are left out.
    pub(crate) fn last_lines(&self, count: usize) -> (Vec<String>, usize) {
        let mut lines: Vec<String> = self.lines.iter().cloned().collect();
        if !self.partial.is_empty() {
            lines.push(self.partial.clone());
        }
        let shown = lines.split_off(lines.len().saturating_sub(count));
        let total = self.total + usize::from(!self.partial.is_empty());
        (shown.clone(), total.saturating_sub(shown.len()))
    }

    /// Returns the line that is not complete.
    pub(crate) fn unfinished_line(&self) -> Option<&str> {
        (!self.partial.is_empty()).then_some(&self.partial)
    }

    /// Returns how many lines the output has.
    pub(crate) const fn line_count(&self) -> usize {
        self.total
    }

    /// Returns the invocation in one line.
    pub(crate) fn title(&self) -> String {
        format!("{}{}{}", self.check_words(), self.prompt, sanitize_line(&self.words))
    }

    /// Returns the invocation with all its lines.
    pub(crate) fn title_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.words.lines().map(str::to_owned).collect();
        if let Some(first) = lines.first_mut() {
            *first = format!("{}{}{first}", self.check_words(), self.prompt);
        }
        lines.iter_mut().skip(1).for_each(|line| line.insert_str(0, "  "));
        lines
    }

    fn check_words(&self) -> String {
        self.check.map(|index| format!("check {}: ", index.saturating_add(1))).unwrap_or_default()
    }

    fn keep(&mut self, line: String) {
        if self.lines.len() == KEPT_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.total += 1;
    }
}
