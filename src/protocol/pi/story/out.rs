//! Where a story is told to: nowhere while it is only remembered, into a list of events while somebody listens.
//!
//! Pieces of one text that come in one batch are told as one update. Every update repeats the whole message, so what
//! has gathered while a client was busy would otherwise cost it the message once a word.

use super::parts::SessionEvent;
use super::write::Object;
use crate::kernel::id::CallId;

/// What is told.
#[derive(Debug, Default)]
pub(super) struct Out {
    /// None while nobody listens.
    told: Option<Vec<SessionEvent>>,
    pub(super) held: Option<Held>,
}

/// What is told once nothing more of it comes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// More of the text that the model is saying.
    Said(String),
    /// More of what a tool prints.
    Printed(CallId),
}

impl Out {
    /// Somebody listens.
    pub(super) const fn live() -> Self {
        Self { told: Some(Vec::new()), held: None }
    }

    /// Nobody does.
    pub(super) const fn silent() -> Self {
        Self { told: None, held: None }
    }

    /// Tells whether somebody listens.
    pub(super) const fn listens(&self) -> bool {
        self.told.is_some()
    }

    /// Tells an event; its type is written, the rest is for `write`.
    pub(super) fn tell(&mut self, name: &'static str, write: impl FnOnce(Object<'_>)) {
        if let Some(told) = &mut self.told {
            let mut body = Vec::new();
            write(Object::new(&mut body).text("type", name));
            told.push(SessionEvent::new(name, body.into()));
        }
    }

    /// Tells an event that has nothing but its type.
    pub(super) fn tell_plain(&mut self, name: &'static str) {
        self.tell(name, |event| event.end());
    }

    /// Tells of a message that is whole.
    pub(super) fn tell_message(&mut self, message: &str) {
        for name in ["message_start", "message_end"] {
            self.tell(name, |object| object.raw("message", message.as_bytes()).end());
        }
    }

    /// Returns everything that was told.
    pub(super) fn finish(self) -> Vec<SessionEvent> {
        self.told.unwrap_or_default()
    }
}
