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
    /// The gate does not count the votes of the sender.
    NotEligible,
    /// The session has had a gate with that id.
    GateExists,
    /// Too many gates are open.
    TooManyGates,
    /// The idempotency key was used for another message.
    KeyConflict,
    /// No message with that id is queued.
    NotQueued,
    /// The queue is full.
    QueueFull,
    /// The run accepts no more steering messages.
    TooManySteers,
    /// Too many connections are attached.
    TooManyAttached,
    /// The sender lacks the right for the command.
    NotPermitted,
    /// No participant has that id.
    UnknownParticipant,
    /// Another participant has that id.
    ParticipantExists,
    /// The session has too many participants.
    TooManyParticipants,
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
    /// A rule is granted for longer than once only.
    RuleWithoutScope,
    /// The rule is not an `allow` rule.
    InvalidRule,
    /// The rule contains a secret, which would be stored.
    SecretInRule,
    /// The rule does not cover the call.
    RuleTooNarrow,
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
            Self::NotEligible => "the approval is for other voters",
            Self::GateExists => "the approval id was used before",
            Self::TooManyGates => "too many approvals are pending in this session",
            Self::KeyConflict => "the message id was used for another message",
            Self::NotQueued => "no such message is queued in this session",
            Self::QueueFull => "too many messages are queued in this session",
            Self::TooManySteers => "the run takes no more steering messages",
            Self::TooManyAttached => "too many clients are attached to this session",
            Self::NotPermitted => "this client does not have the right to do that in this session",
            Self::UnknownParticipant => "no such participant in this session",
            Self::ParticipantExists => "another participant of this session has that id",
            Self::TooManyParticipants => "this session takes no more participants",
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
            Self::RuleWithoutScope => "a rule needs the scope run, session or always",
            Self::InvalidRule => "the rule is not an allow rule",
            Self::SecretInRule => "the rule contains a secret, which would be stored",
            Self::RuleTooNarrow => "the rule does not cover the call that is approved",
        };
        f.write_str(text)
    }
}
