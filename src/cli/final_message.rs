//! The final message of a model, found among the events of its run.
//!
//! Pure. A message is the final one unless a tool call or another message of the user follows it.

use crate::client::Event;
use crate::kernel::event::is_turn_interrupted;

/// The message that a model is writing, or has written last.
#[derive(Debug, Default)]
pub(super) struct FinalMessage {
    text: String,
    complete: bool,
}

impl FinalMessage {
    /// Follows one event of the run; returns the message that is not the final one, where the event shows that.
    pub(super) fn follow(&mut self, event: &Event) -> Option<String> {
        match event.kind.as_str() {
            "assistant_token" => {
                if std::mem::take(&mut self.complete) {
                    // A second message in one turn belongs to the same answer.
                    self.text.push('\n');
                }
                self.text.push_str(event.text("text"));
                None
            }
            "assistant_done" => {
                self.complete = true;
                None
            }
            "run_recovered" => self.discard_incomplete(),
            "warning" if is_turn_interrupted(event.text("code")) => self.discard_incomplete(),
            "tool_call" if !event.is_acceptance_check() => Some(self.take()),
            "user_message" => Some(self.take()),
            "run_complete" if !self.complete => Some(self.take()),
            _ => None,
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
