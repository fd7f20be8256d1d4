//! The final message of a model, found among the events of its run.
//!
//! Pure. A message is the final one unless a tool call or another message of the user follows it.

use crate::client::Event;
use crate::kernel::event::{EventKind, NoticeEvent, Purpose, RunEvent, ToolEvent, is_turn_interrupted};

/// The message that a model is writing, or has written last.
#[derive(Debug, Default)]
pub(super) struct FinalMessage {
    text: String,
    complete: bool,
}

impl FinalMessage {
    /// Follows one event of the run; returns the message that is not the final one, where the event shows that.
    pub(super) fn follow(&mut self, event: &Event) -> Option<String> {
        match event.recorded()? {
            EventKind::Run(RunEvent::TextDelta { text }) => {
                if std::mem::take(&mut self.complete) {
                    // A second message in one turn belongs to the same answer.
                    self.text.push('\n');
                }
                self.text.push_str(text);
                None
            }
            EventKind::Run(RunEvent::TextDone { .. }) => {
                self.complete = true;
                None
            }
            EventKind::Run(RunEvent::Recovered { .. }) => self.discard_incomplete(),
            EventKind::Notice(NoticeEvent::Warned { code, .. }) if is_turn_interrupted(code) => {
                self.discard_incomplete()
            }
            EventKind::Tool(ToolEvent::Intended(call)) if !matches!(call.purpose, Purpose::Check(_)) => {
                Some(self.take())
            }
            EventKind::Run(RunEvent::Started(_)) | EventKind::Run(RunEvent::Steered(_)) => Some(self.take()),
            EventKind::Run(RunEvent::Ended(_)) if !self.complete => Some(self.take()),
            EventKind::Session(_)
            | EventKind::Context(_)
            | EventKind::Participant(_)
            | EventKind::Run(_)
            | EventKind::Notice(_)
            | EventKind::Tool(_)
            | EventKind::Gate(_) => None,
        }
    }

    /// Returns the message without line breaks around it; empty unless it is complete.
    pub(super) fn text(&self) -> &str {
        if self.complete { self.text.trim_matches('\n') } else { "" }
    }

    /// Drops a message that was cut off: the model writes it again.
    fn discard_incomplete(&mut self) -> Option<String> {
        if !self.complete {
            self.text.clear();
        }
        None
    }

    fn take(&mut self) -> String {
        self.complete = false;
        std::mem::take(&mut self.text)
    }
}
