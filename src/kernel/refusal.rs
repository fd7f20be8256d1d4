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
    /// The session is of another version than the caller believes.
    Stale {
        /// Which one the caller believes it to be.
        expected: u64,
        /// Which one it is.
        found: u64,
    },
    /// A summary of the conversation is being made.
    Compacting,
    /// No summary is being made.
    NoCompaction,
    /// No such tool is used for the user.
    NoAside,
    /// Too many tools are used for the user already.
    TooManyAsides,
    /// No provider is waited for.
    NoRetry,
    /// The conversation was never at that point.
    UnknownPosition,
    /// It is more than is taken in at once.
    TooMuch,
    /// The gate wants to be answered, not only approved.
    AnswerNeeded,
    /// The gate does not take that answer.
    UnknownAnswer,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Stale { expected, found } => {
                return write!(f, "the session is at version {found}, not {expected}");
            }
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
            Self::Compacting => "the conversation of this session is being summarised",
            Self::NoCompaction => "no summary is being made in this session",
            Self::NoAside => "no such command of the user runs in this session",
            Self::TooManyAsides => "too many commands of the user run in this session",
            Self::NoRetry => "no retry is waited for in this session",
            Self::UnknownPosition => "the conversation was never at that point",
            Self::TooMuch => "that is more than is taken in at once",
            Self::AnswerNeeded => "the question wants an answer",
            Self::UnknownAnswer => "the question does not take that answer",
        };
        f.write_str(text)
    }
}
