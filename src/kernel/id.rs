//! Identifiers: opaque, cheap to clone, never inspected.
//!
//! The driver mints them, not the kernel, so that a test can replay a session exactly.

use std::fmt;
use std::sync::Arc;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Accepts any text as an id.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }
    };
}

name!(
    /// A long-lived conversation with its working directory.
    SessionId
);
name!(
    /// One execution cycle inside a session, started by a message.
    RunId
);
name!(
    /// A question that blocks a run until it is settled.
    GateId
);
name!(
    /// A message of a user or of the assistant; a user's message id is its idempotency key.
    MessageId
);
name!(
    /// One tool call.
    CallId
);
name!(
    /// A person, an agent or a service that takes part in a session, whatever connections it has.
    ParticipantId
);

/// The position of an event in its session: compared and advanced, never added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(u64);

impl Seq {
    /// The position before the first event.
    pub const ZERO: Self = Self(0);

    /// Creates a position from its number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, as journals and protocols write it.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the last position of a block of `size` numbers that follows this one.
    #[must_use]
    pub const fn end_of_block(self, size: u64) -> Self {
        Self(self.0.saturating_add(size))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One connected client; the driver gives each connection its own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A digest of everything that a command asks for, which distinguishes two commands with the same idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u128);

/// A JSON text that the kernel stores and never parses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json(Arc<str>);

impl Json {
    /// Wraps a text that the caller knows to be one compact JSON value.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
