//! The sink of the fold: it discards events during replay and records them while the session has subscribers.
//!
//! Deltas of one text within a batch are coalesced into one update. Every update repeats the whole message, so one
//! update per delta would cost a slow client the message once per word.

use super::object_writer::ObjectWriter;
use super::parts::PiEvent;
use crate::kernel::id::CallId;

/// Records or discards the events of a fold.
#[derive(Debug, Default)]
pub(super) struct EventSink {
    /// The recorded events; `None` while discarding.
    events: Option<Vec<PiEvent>>,
    pub(super) pending: Option<PendingDelta>,
}

/// A delta that is held back because the next event may extend it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PendingDelta {
    /// More text of the open message.
    Text(String),
    /// More output of a tool call.
    Output(CallId),
}

impl EventSink {
    /// Creates a sink that records events.
    pub(super) const fn recording() -> Self {
        Self { events: Some(Vec::new()), pending: None }
    }

    /// Creates a sink that discards events.
    pub(super) const fn discarding() -> Self {
        Self { events: None, pending: None }
    }

    /// Returns whether events are recorded.
    pub(super) const fn is_recording(&self) -> bool {
        self.events.is_some()
    }

    /// Emits an event; `write` adds the fields after its type.
    pub(super) fn emit(&mut self, name: &'static str, write: impl FnOnce(ObjectWriter<'_>)) {
        if let Some(events) = &mut self.events {
            let mut body = Vec::new();
            write(ObjectWriter::new(&mut body).text("type", name));
            events.push(PiEvent::new(name, body.into()));
        }
    }

    /// Emits an event without further fields.
    pub(super) fn emit_empty(&mut self, name: &'static str) {
        self.emit(name, |event| event.end());
    }

    /// Emits the start and the end of a complete message.
    pub(super) fn emit_message(&mut self, message: &str) {
        for name in ["message_start", "message_end"] {
            self.emit(name, |object| object.raw("message", message.as_bytes()).end());
        }
    }

    /// Returns the recorded events.
    pub(super) fn into_events(self) -> Vec<PiEvent> {
        self.events.unwrap_or_default()
    }
}
