//! The reasons to refuse a command. A refusal is a reply, not an error.

use std::fmt;

/// Why a command was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// A run is active already.
    RunActive,
    /// There is no such active run.
    NoActiveRun,
    /// The session never opened that gate.
    UnknownGate,
    /// The gate is settled or has expired.
    GateClosed,
    /// The gate does not offer that option.
    UnknownChoice,
    /// The gate does not offer that approval scope.
    UnknownScope,
    /// The idempotency key was used for another message.
    KeyConflict,
    /// No message with that id is queued.
    NotQueued,
    /// The queue is full.
    QueueFull,
    /// The run accepts no more steering messages.
    TooManySteers,
    /// Too many participants are attached.
    TooManyParticipants,
    /// The participant lacks the right for the command.
    NotPermitted,
    /// The session accepts no more messages.
    SessionEnded,
    /// The session exists already.
    AlreadyOpen,
    /// The session has another version than the caller expects.
    Stale {
        /// The expected version.
        expected: u64,
        /// The actual version.
        actual: u64,
    },
    /// A compaction is in progress.
    Compacting,
    /// No compaction is in progress.
    NoCompaction,
    /// No such user command is running.
    NoUserCommand,
    /// Too many user commands are running.
    TooManyUserCommands,
    /// No retry is pending.
    NoRetry,
    /// The position is not part of the session's stored history.
    UnknownPosition,
    /// The import exceeds the limits.
    ImportTooLarge,
    /// The gate has a form, and the approval submits none.
    AnswerNeeded,
    /// The gate does not accept the submitted form.
    UnknownAnswer,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Stale { expected, actual: found } => {
                return write!(f, "the session is at version {found}, not {expected}");
            }
            Self::RunActive => "a run is active in this session",
            Self::NoActiveRun => "no such run is active in this session",
            Self::UnknownGate => "no such approval in this session",
            Self::GateClosed => "the approval is settled or has expired",
            Self::UnknownChoice => "the approval does not offer that choice",
            Self::UnknownScope => "the approval does not offer that scope",
            Self::KeyConflict => "the message id was used for another message",
            Self::NotQueued => "no such message is queued in this session",
            Self::QueueFull => "too many messages are queued in this session",
            Self::TooManySteers => "the run takes no more steering messages",
            Self::TooManyParticipants => "too many clients are attached to this session",
            Self::NotPermitted => "this client may only watch the session",
            Self::SessionEnded => "the session has ended",
            Self::AlreadyOpen => "the session exists already",
            Self::Compacting => "a compaction is in progress in this session",
            Self::NoCompaction => "no compaction is in progress in this session",
            Self::NoUserCommand => "no such user command is running in this session",
            Self::TooManyUserCommands => "too many user commands are running in this session",
            Self::NoRetry => "no retry is pending in this session",
            Self::UnknownPosition => "the position is not part of this session's history",
            Self::ImportTooLarge => "the import is too large",
            Self::AnswerNeeded => "the question requires an answer",
            Self::UnknownAnswer => "the question does not accept that answer",
        };
        f.write_str(text)
    }
}
