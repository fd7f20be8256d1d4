//! The final message of a model, found among the events of its run.
//!
//! Pure. A message is the final one unless a tool call or another message of the user follows it.

use crate::client::Event;
use crate::kernel::event::{EventKind, Purpose, is_turn_interrupted};

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
            EventKind::TextDelta { text } => {
                if std::mem::take(&mut self.complete) {
                    // A second message in one turn belongs to the same answer.
                    self.text.push('\n');
                }
                self.text.push_str(text);
                None
            }
            EventKind::TextDone { .. } => {
                self.complete = true;
                None
            }
            EventKind::RunRecovered { .. } => self.discard_incomplete(),
            EventKind::Warned { code, .. } if is_turn_interrupted(code) => self.discard_incomplete(),
            EventKind::CallIntended(call) if !matches!(call.purpose, Purpose::Check(_)) => Some(self.take()),
            EventKind::RunStarted(_) | EventKind::Steered(_) => Some(self.take()),
            EventKind::RunEnded(_) if !self.complete => Some(self.take()),
            EventKind::SessionOpened(_)
            | EventKind::SessionRenamed { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::VersionBumped { .. }
            | EventKind::Loaded { .. }
            | EventKind::Adjusted { .. }
            | EventKind::Branched { .. }
            | EventKind::MessageQueued(_)
            | EventKind::MessageUnqueued { .. }
            | EventKind::Status { .. }
            | EventKind::ThinkingDelta { .. }
            | EventKind::CompactionStarted { .. }
            | EventKind::Compacted(_)
            | EventKind::CompactionFailed { .. }
            | EventKind::RetryStarted(_)
            | EventKind::RetryEnded { .. }
            | EventKind::CallStarted { .. }
            | EventKind::CallOutput { .. }
            | EventKind::GateVoted { .. }
            | EventKind::Failed { .. }
            | EventKind::RunStopping { .. }
            | EventKind::EventsLost { .. }
            | EventKind::Unknown(_)
            | EventKind::TurnUsage(_)
            | EventKind::CallIntended(_)
            | EventKind::CallSettled(_)
            | EventKind::GateOpened(_)
            | EventKind::GateSettled(_)
            | EventKind::Warned { .. }
            | EventKind::RunEnded(_) => None,
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
