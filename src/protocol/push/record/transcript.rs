//! The messages of a session, assembled from its events.

use crate::kernel::event::{Event, EventKind, TURN_CUT};
use crate::protocol::push::encode::{MessageRow, Role};

/// Assembles messages from the events of a session, applied in order.
///
/// An assistant text becomes a message once it is complete. A truncated text is discarded, because the model repeats
/// it; so is the incomplete text of a run that ends.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    saying: String,
}

impl Transcript {
    /// Returns whether an assistant text is incomplete.
    pub const fn is_saying(&self) -> bool {
        !self.saying.is_empty()
    }

    /// Applies an event and returns the message that it completes.
    pub fn take(&mut self, event: &Event) -> Option<MessageRow> {
        let (role, message, text) = match &event.kind {
            EventKind::RunStarted(message) => (Role::User, &message.message, message.text.clone()),
            EventKind::Steered(steering) => (Role::User, &steering.message, steering.text.clone()),
            EventKind::Said { text } => {
                self.saying.push_str(text);
                return None;
            }
            EventKind::SayingDone { message } => (Role::Assistant, message, std::mem::take(&mut self.saying)),
            EventKind::RunEnded(_) | EventKind::Lost { .. } | EventKind::RunRecovered { .. } => {
                self.saying.clear();
                return None;
            }
            EventKind::Warned { code, .. } if code == TURN_CUT => {
                self.saying.clear();
                return None;
            }
            EventKind::SessionOpened(_)
            | EventKind::SessionRenamed { .. }
            | EventKind::SessionEnded { .. }
            | EventKind::Touched { .. }
            | EventKind::Loaded { .. }
            | EventKind::Adjusted { .. }
            | EventKind::Branched { .. }
            | EventKind::MessageQueued(_)
            | EventKind::MessageUnqueued { .. }
            | EventKind::Status { .. }
            | EventKind::Thought { .. }
            | EventKind::TurnTaken(_)
            | EventKind::CompactionBegan { .. }
            | EventKind::Compacted(_)
            | EventKind::CompactionOver { .. }
            | EventKind::RetryBegan(_)
            | EventKind::RetryOver { .. }
            | EventKind::CallIntended(_)
            | EventKind::CallStarted { .. }
            | EventKind::CallOutput { .. }
            | EventKind::CallSettled(_)
            | EventKind::GateOpened(_)
            | EventKind::GateVoted { .. }
            | EventKind::GateSettled(_)
            | EventKind::Warned { .. }
            | EventKind::Failed { .. }
            | EventKind::Stopping { .. } => return None,
        };
        let (message, run) = (message.clone(), event.run.clone());
        Some(MessageRow { seq: event.seq, at: event.at, role, message, run, text })
    }
}
