//! The sink of the fold: it discards events during replay and records them while the session has subscribers.
//!
//! Deltas of one text within a batch are coalesced into one update. Every update repeats the whole message, so one
//! update per delta would cost a slow client the message once per word.

use super::parts::SessionEvent;
use super::write::Object;
use crate::kernel::id::CallId;

/// Records or discards the events of a fold.
#[derive(Debug, Default)]
pub(super) struct Out {
    /// The recorded events; `None` while discarding.
    told: Option<Vec<SessionEvent>>,
    pub(super) held: Option<Held>,
}

/// A delta that is held back because the next event may extend it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// More text of the open message.
    Said(String),
    /// More output of a tool call.
    Printed(CallId),
}

impl Out {
    /// Creates a sink that records events.
    pub(super) const fn live() -> Self {
        Self { told: Some(Vec::new()), held: None }
    }

    /// Creates a sink that discards events.
    pub(super) const fn silent() -> Self {
        Self { told: None, held: None }
    }

    /// Returns whether events are recorded.
    pub(super) const fn listens(&self) -> bool {
        self.told.is_some()
    }

    /// Emits an event; `write` adds the fields after its type.
    pub(super) fn tell(&mut self, name: &'static str, write: impl FnOnce(Object<'_>)) {
        if let Some(told) = &mut self.told {
            let mut body = Vec::new();
            write(Object::new(&mut body).text("type", name));
            told.push(SessionEvent::new(name, body.into()));
        }
    }

    /// Emits an event without further fields.
    pub(super) fn tell_plain(&mut self, name: &'static str) {
        self.tell(name, |event| event.end());
    }

    /// Emits the start and the end of a complete message.
    pub(super) fn tell_message(&mut self, message: &str) {
        for name in ["message_start", "message_end"] {
            self.tell(name, |object| object.raw("message", message.as_bytes()).end());
        }
    }

    /// Returns the recorded events.
    pub(super) fn finish(self) -> Vec<SessionEvent> {
        self.told.unwrap_or_default()
    }
}
