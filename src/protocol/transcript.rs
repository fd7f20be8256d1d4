//! The messages of a session, assembled from its events.

use super::reply::{MessageRow, Role};
use crate::kernel::event::{Event, EventKind, is_turn_interrupted};

/// Assembles messages from the events of a session, applied in order.
///
/// An assistant text becomes a message once it is complete. A truncated text is discarded, because the model repeats
/// it; so is the incomplete text of a run that ends.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    partial_text: String,
}

impl Transcript {
    /// Returns whether an assistant text is incomplete.
    pub const fn has_partial_text(&self) -> bool {
        !self.partial_text.is_empty()
    }

    /// Applies an event and returns the message that it completes.
    pub fn apply(&mut self, event: &Event) -> Option<MessageRow> {
        let (role, message, text) = match &event.kind {
            EventKind::RunStarted(message) => (Role::User, &message.message, message.text.clone()),
            EventKind::Steered(steering) => (Role::User, &steering.message, steering.text.clone()),
            EventKind::TextDelta { text } => {
                self.partial_text.push_str(text);
                return None;
            }
            EventKind::TextDone { message } => (Role::Assistant, message, std::mem::take(&mut self.partial_text)),
            EventKind::RunEnded(_) | EventKind::EventsLost { .. } | EventKind::RunRecovered { .. } => {
                self.partial_text.clear();
                return None;
            }
            EventKind::Warned { code, .. } if is_turn_interrupted(code) => {
                self.partial_text.clear();
                return None;
            }
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
            | EventKind::TurnUsage(_)
            | EventKind::CompactionStarted { .. }
            | EventKind::Compacted(_)
            | EventKind::CompactionFailed { .. }
            | EventKind::RetryStarted(_)
            | EventKind::RetryEnded { .. }
            | EventKind::CallIntended(_)
            | EventKind::CallStarted { .. }
            | EventKind::CallOutput { .. }
            | EventKind::CallSettled(_)
            | EventKind::GateOpened(_)
            | EventKind::GateVoted { .. }
            | EventKind::GateSettled(_)
            | EventKind::Warned { .. }
            | EventKind::Failed { .. }
            | EventKind::RunStopping { .. }
            | EventKind::Unknown(_) => return None,
        };
        let (message, run) = (message.clone(), event.run.clone());
        Some(MessageRow { seq: event.seq, at: event.at, role, message, run, text })
    }
}
