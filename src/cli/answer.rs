//! A run whose standard output is its answer and nothing else.
//!
//! Pure: an event goes in, the text for each stream comes out. The answer is the final message of a model, or what the steps of a
//! playbook wrote to standard output; the transcript and what steps wrote to standard error go to standard error.

use serde_json::Value;

use super::console::Volume;
use super::plain::{Plain, plain};
use super::report::Denial;
use super::step_output::{StepOutput, Stream};
use super::view::View;
use crate::client::Event;
use crate::kernel::event::TURN_CUT;

/// Where the answer of a run comes from.
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

/// How much of what a step writes to standard error is held back where only failures are shown.
const HELD_BYTES: usize = 64 * 1024;

/// Turns the events of one run into its answer and its transcript.
#[derive(Debug)]
pub(crate) struct AnswerView {
    source: AnswerSource,
    volume: Volume,
    /// The transcript.
    view: View,
    steps: StepOutput,
    /// Removes control sequences from the two streams of steps.
    plain: [Plain; 2],
    /// The message that a model is writing, or has written; it is the answer unless a tool call follows.
    message: String,
    /// Whether that message is complete.
    complete: bool,
    /// What the current step wrote to standard error, where that is shown only if it fails.
    held: String,
    /// Whether a step left a line of standard error open.
    open_line: bool,
}

impl AnswerView {
    /// Starts with `view` for the transcript; with [`Volume::Quiet`] it shows errors only.
    pub(crate) fn new(source: AnswerSource, volume: Volume, view: View) -> Self {
        Self {
            source,
            volume,
            view,
            steps: StepOutput::default(),
            plain: [Plain::default(), Plain::default()],
            message: String::new(),
            complete: false,
            held: String::new(),
            open_line: false,
        }
    }

    /// Returns the text of one event; `denials` are the approvals that the run was refused so far.
    pub(crate) fn event(&mut self, event: &Event, denials: &[Denial]) -> StreamText {
        match self.source {
            AnswerSource::Model => self.model_event(event, denials),
            AnswerSource::Steps => self.step_event(event, denials),
        }
    }

    /// Returns all of an approval request, for standard error.
    pub(crate) fn whole_question(&mut self, payload: &Value) -> String {
        self.view.whole_question(payload)
    }

    fn model_event(&mut self, event: &Event, denials: &[Denial]) -> StreamText {
        match event.kind.as_str() {
            "assistant_token" => {
                if std::mem::take(&mut self.complete) {
                    // A second message in one turn belongs to the same answer.
                    self.message.push('\n');
                }
                self.message.push_str(event.text("text"));
                StreamText::default()
            }
            "assistant_done" => {
                self.complete = true;
                StreamText::default()
            }
            "run_recovered" => self.discarding(event, denials),
            "warning" if event.text("code") == TURN_CUT => self.discarding(event, denials),
            "run_complete" if self.complete => {
                let message = std::mem::take(&mut self.message);
                self.view.remember_message(&message);
                let message = plain(&message);
                let out = match message.trim_matches('\n') {
                    "" => String::new(),
                    answer => format!("{answer}\n"),
                };
                StreamText { out, err: self.transcript(event, denials) }
            }
            "tool_call" if event.is_of_check() => {
                StreamText { out: String::new(), err: self.transcript(event, denials) }
            }
            "tool_call" | "user_message" | "run_complete" => {
                // The message was not the last one, so it belongs to the transcript.
                let err = self.spoken() + &self.transcript(event, denials);
                StreamText { out: String::new(), err }
            }
            _ => StreamText { out: String::new(), err: self.transcript(event, denials) },
        }
    }

    /// Drops a message that was cut off: the model writes it again.
    fn discarding(&mut self, event: &Event, denials: &[Denial]) -> StreamText {
        if !self.complete {
            self.message.clear();
        }
        StreamText { out: String::new(), err: self.transcript(event, denials) }
    }

    fn spoken(&mut self) -> String {
        let message = std::mem::take(&mut self.message);
        self.complete = false;
        let text = self.view.speech(&message);
        if self.volume == Volume::Quiet { String::new() } else { text }
    }

    fn step_event(&mut self, event: &Event, denials: &[Denial]) -> StreamText {
        let printed = self.steps.follow(event);
        let out = match printed {
            Some((Stream::Out, text)) => self.plain[0].piece(text),
            Some((Stream::Err, _)) | None => String::new(),
        };
        let mut err = match printed {
            Some((Stream::Err, text)) => {
                let text = self.plain[1].piece(text);
                self.step_error(text)
            }
            Some((Stream::Out, _)) | None => String::new(),
        };
        match event.kind.as_str() {
            "tool_output" if printed.is_some() => self.view.mark_printed(event.text("callId")),
            "tool_result" => {
                if printed.is_some() {
                    self.view.mark_printed(event.text("callId"));
                }
                let failed = event.payload.get("isError").and_then(Value::as_bool).unwrap_or_default();
                let held = std::mem::take(&mut self.held);
                if failed && !held.is_empty() {
                    self.open_line = !held.ends_with('\n');
                    err += &held;
                }
                self.plain = [Plain::default(), Plain::default()];
                err += &self.transcript(event, denials);
            }
            _ => err += &self.transcript(event, denials),
        }
        StreamText { out, err }
    }

    /// Returns what a step wrote to standard error, or holds it back until the step has failed.
    fn step_error(&mut self, text: String) -> String {
        if self.volume == Volume::Quiet {
            let room = HELD_BYTES.saturating_sub(self.held.len());
            self.held.extend(text.chars().scan(room, |room, c| {
                *room = room.checked_sub(c.len_utf8())?;
                Some(c)
            }));
            return String::new();
        }
        if !text.is_empty() {
            self.open_line = !text.ends_with('\n');
        }
        text
    }

    /// Returns the transcript of an event; where only errors are shown, whether it is one.
    fn transcript(&mut self, event: &Event, denials: &[Denial]) -> String {
        let is_end = event.kind == "run_complete";
        let mut text = if is_end { self.view.denials(denials) } else { String::new() };
        text += &self.view.event(event);
        let is_error = event.kind == "error" || is_end && event.text("outcome") != "success";
        if self.volume == Volume::Quiet {
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
