//! View of a run that writes only the answer to standard output.
//!
//! Pure: it maps an event to text for each stream. The answer is the final message of a model, or the standard output
//! of a playbook's steps. The transcript and the standard error of steps go to standard error.

use super::console::Verbosity;
use super::final_message::FinalMessage;
use super::format::is_error;
use super::report::Denial;
use super::sanitize::{Sanitizer, sanitize};
use super::step_output::{StepOutput, Stream};
use super::view::View;
use crate::client::Event;
use crate::kernel::event::{EventKind, GateQuestion, NoticeEvent, RunEvent, RunOutcome, ToolEvent};

/// The source of a run's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerSource {
    /// The final message of a model.
    Model,
    /// The steps of a playbook.
    Steps,
}

/// The text of one event for each of the two streams.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamText {
    /// For standard output.
    pub(crate) out: String,
    /// For standard error.
    pub(crate) err: String,
}

/// How much standard error of a step is buffered if only failures are shown, in bytes.
const MAX_BUFFERED_STDERR: usize = 64 * 1024;

/// Turns the events of one run into its answer and its transcript.
#[derive(Debug)]
pub(crate) struct AnswerView {
    source: AnswerSource,
    verbosity: Verbosity,
    /// The transcript.
    view: View,
    steps: StepOutput,
    /// Removes control sequences from the two streams of steps.
    sanitizers: [Sanitizer; 2],
    /// The answer of a model.
    message: FinalMessage,
    /// Buffered standard error of the current step, if it is shown only on failure.
    buffered_stderr: String,
    /// Whether the last line of standard error is unfinished.
    open_line: bool,
}

impl AnswerView {
    /// Starts with `view` for the transcript; with [`Verbosity::Quiet`] it shows errors only.
    pub(crate) fn new(source: AnswerSource, verbosity: Verbosity, view: View) -> Self {
        Self {
            source,
            verbosity,
            view,
            steps: StepOutput::default(),
            sanitizers: [Sanitizer::default(), Sanitizer::default()],
            message: FinalMessage::default(),
            buffered_stderr: String::new(),
            open_line: false,
        }
    }

    /// Returns the text of one event; `denials` are the denied approvals of the run so far.
    pub(crate) fn event(&mut self, event: &Event, denials: &[Denial]) -> StreamText {
        match self.source {
            AnswerSource::Model => self.model_event(event, denials),
            AnswerSource::Steps => self.step_event(event, denials),
        }
    }

    /// Returns an approval in full, for standard error.
    pub(crate) fn full_approval(&mut self, question: &GateQuestion) -> String {
        self.view.full_approval(question)
    }

    fn model_event(&mut self, event: &Event, denials: &[Denial]) -> StreamText {
        let superseded = self.message.follow(event);
        if matches!(
            event.recorded(),
            Some(EventKind::Run(RunEvent::TextDelta { .. }) | EventKind::Run(RunEvent::TextDone { .. }))
        ) {
            return StreamText::default();
        }
        if matches!(event.recorded(), Some(EventKind::Run(RunEvent::Ended(_)))) && superseded.is_none() {
            let message = self.message.text();
            self.view.remember_message(message);
            let message = sanitize(message);
            let out = match message.trim_matches('\n') {
                "" => String::new(),
                answer => format!("{answer}\n"),
            };
            return StreamText { out, err: self.transcript(event, denials) };
        }
        // A message that is not the final one belongs to the transcript.
        let mut err = superseded.map_or_else(String::new, |message| self.assistant_message(&message));
        err += &self.transcript(event, denials);
        StreamText { out: String::new(), err }
    }

    fn assistant_message(&mut self, message: &str) -> String {
        let text = self.view.assistant_message(message);
        if self.verbosity == Verbosity::Quiet { String::new() } else { text }
    }

    fn step_event(&mut self, event: &Event, denials: &[Denial]) -> StreamText {
        let printed = self.steps.follow(event);
        let out = match printed {
            Some((Stream::Out, text)) => self.sanitizers[0].push(text),
            Some((Stream::Err, _)) | None => String::new(),
        };
        let mut err = match printed {
            Some((Stream::Err, text)) => {
                let text = self.sanitizers[1].push(text);
                self.step_stderr(text)
            }
            Some((Stream::Out, _)) | None => String::new(),
        };
        if let Some(EventKind::Tool(ToolEvent::Output { call, .. })) = event.recorded()
            && printed.is_some()
        {
            self.view.mark_printed(call.as_str());
            return StreamText { out, err };
        }
        if let Some(EventKind::Tool(ToolEvent::Settled(result))) = event.recorded() {
            if printed.is_some() {
                self.view.mark_printed(result.call.as_str());
            }
            let held = std::mem::take(&mut self.buffered_stderr);
            if is_error(result) && !held.is_empty() {
                self.open_line = !held.ends_with('\n');
                err += &held;
            }
            self.sanitizers = [Sanitizer::default(), Sanitizer::default()];
        }
        err += &self.transcript(event, denials);
        StreamText { out, err }
    }

    /// Returns standard error of a step, or buffers it until the step has failed.
    fn step_stderr(&mut self, text: String) -> String {
        if self.verbosity == Verbosity::Quiet {
            let free = MAX_BUFFERED_STDERR.saturating_sub(self.buffered_stderr.len());
            self.buffered_stderr.extend(text.chars().scan(free, |free, c| {
                *free = free.checked_sub(c.len_utf8())?;
                Some(c)
            }));
            return String::new();
        }
        if !text.is_empty() {
            self.open_line = !text.ends_with('\n');
        }
        text
    }

    /// Returns the transcript of an event; with [`Verbosity::Quiet`] only if the event is an error.
    fn transcript(&mut self, event: &Event, denials: &[Denial]) -> String {
        let mut text = if event.ends_run() { self.view.denials(denials) } else { String::new() };
        text += &self.view.event(event);
        let is_error = match event.recorded() {
            Some(EventKind::Run(RunEvent::Ended(report))) => report.outcome != RunOutcome::Success,
            kind => matches!(kind, Some(EventKind::Notice(NoticeEvent::Failed { .. }))),
        };
        if self.verbosity == Verbosity::Quiet {
            text = if is_error { text.trim_start_matches('\n').to_owned() } else { String::new() };
        }
        if !text.is_empty() && std::mem::take(&mut self.open_line) && !text.starts_with('\n') {
            text.insert(0, '\n');
        }
        text
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
