//! Why a command was not carried out: an answer, not an accident.

use std::fmt;

/// Why a command was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// A run is active already.
    RunActive,
    /// There is no such active run.
    NoActiveRun,
    /// The gate was never opened here.
    UnknownGate,
    /// The gate is settled.
    GateClosed,
    /// The gate does not offer that answer.
    UnknownChoice,
    /// The gate does not offer that a yes holds so long.
    UnknownScope,
    /// The key was used for something else.
    KeyConflict,
    /// No message of that id waits.
    NotQueued,
    /// Too much waits already.
    QueueFull,
    /// The run takes no more steering.
    TooManySteers,
    /// Too many listeners.
    TooManyParticipants,
    /// The participant may not do that.
    NotEntitled,
    /// The session takes no more messages.
    SessionEnded,
    /// The session exists already.
    AlreadyOpen,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RunActive => "a run is active in this session",
            Self::NoActiveRun => "no such run is active in this session",
            Self::UnknownGate => "no such approval in this session",
            Self::GateClosed => "the approval is settled or has expired",
            Self::UnknownChoice => "the approval does not offer that choice",
            Self::UnknownScope => "the approval does not offer that scope",
            Self::KeyConflict => "the message id was used for another message",
            Self::NotQueued => "no such message waits in this session",
            Self::QueueFull => "too many messages wait in this session",
            Self::TooManySteers => "the run takes no more steering messages",
            Self::TooManyParticipants => "too many clients are attached to this session",
            Self::NotEntitled => "this client may only watch the session",
            Self::SessionEnded => "the session has ended",
            Self::AlreadyOpen => "the session exists already",
        })
    }
}
