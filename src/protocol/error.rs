//! The errors that requests are refused with, and the mapping of kernel refusals to them.

use std::fmt;

use crate::kernel::refusal::Refusal;

/// The code of an error, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// The message has an unsupported protocol version.
    UnsupportedProtocolVersion,
    /// The request type is unknown.
    UnsupportedRequestType,
    /// The request is invalid.
    InvalidRequest,
    /// No session has that id.
    SessionNotFound,
    /// The client lacks the permission.
    AttachForbidden,
    /// A run is active.
    RunInProgress,
    /// No such run is active.
    NoActiveRun,
    /// The session has no such approval.
    ApprovalNotFound,
    /// The approval is settled.
    ApprovalExpired,
    /// The provider is not configured.
    ProviderNotConfigured,
    /// The user's or the project's configuration is invalid or unreadable.
    InvalidConfiguration,
    /// Tools cannot run.
    SandboxUnavailable,
    /// The disk is full.
    StorageFull,
    /// Storage failed; nothing can be persisted until the daemon restarts.
    StorageFailed,
    /// The daemon failed internally.
    InternalError,
}

impl Code {
    /// Every code, in the order of the specification.
    pub const ALL: [Self; 15] = [
        Self::UnsupportedProtocolVersion,
        Self::UnsupportedRequestType,
        Self::InvalidRequest,
        Self::SessionNotFound,
        Self::AttachForbidden,
        Self::RunInProgress,
        Self::NoActiveRun,
        Self::ApprovalNotFound,
        Self::ApprovalExpired,
        Self::ProviderNotConfigured,
        Self::InvalidConfiguration,
        Self::SandboxUnavailable,
        Self::StorageFull,
        Self::StorageFailed,
        Self::InternalError,
    ];

    /// Parses a code.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }

    /// Returns the code on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnsupportedProtocolVersion => "UNSUPPORTED_PROTOCOL_VERSION",
            Self::UnsupportedRequestType => "UNSUPPORTED_REQUEST_TYPE",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::SessionNotFound => "SESSION_NOT_FOUND",
            Self::AttachForbidden => "ATTACH_FORBIDDEN",
            Self::RunInProgress => "RUN_IN_PROGRESS",
            Self::NoActiveRun => "NO_ACTIVE_RUN",
            Self::ApprovalNotFound => "APPROVAL_NOT_FOUND",
            Self::ApprovalExpired => "APPROVAL_EXPIRED",
            Self::ProviderNotConfigured => "PROVIDER_NOT_CONFIGURED",
            Self::InvalidConfiguration => "INVALID_CONFIGURATION",
            Self::SandboxUnavailable => "SANDBOX_UNAVAILABLE",
            Self::StorageFull => "STORAGE_FULL",
            Self::StorageFailed => "STORAGE_FAILED",
            Self::InternalError => "INTERNAL_ERROR",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorBody {
    /// The error code, for programs.
    pub code: Code,
    /// The error message, for people.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Details.
    pub detail: Option<String>,
}

impl ErrorBody {
    /// Makes an error that a retry does not resolve.
    pub fn permanent(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: false, detail: None }
    }

    /// Makes an error that a later retry may resolve.
    pub fn transient(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: true, detail: None }
    }

    /// Adds details.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// Converts a refusal of the kernel.
pub fn from_refusal(refusal: Refusal) -> ErrorBody {
    let message = refusal.to_string();
    match refusal {
        Refusal::RunActive => ErrorBody::transient(Code::RunInProgress, message),
        Refusal::NoActiveRun => ErrorBody::permanent(Code::NoActiveRun, message),
        Refusal::UnknownGate => ErrorBody::permanent(Code::ApprovalNotFound, message),
        Refusal::GateClosed => ErrorBody::permanent(Code::ApprovalExpired, message),
        Refusal::UnknownChoice | Refusal::UnknownScope => ErrorBody::permanent(Code::InvalidRequest, message),
        Refusal::NotEligible => ErrorBody::permanent(Code::AttachForbidden, message),
        Refusal::GateExists => ErrorBody::permanent(Code::InvalidRequest, message),
        Refusal::TooManyGates => ErrorBody::transient(Code::InvalidRequest, message),
        Refusal::KeyConflict => ErrorBody::permanent(Code::InvalidRequest, message),
        Refusal::NotQueued => ErrorBody::permanent(Code::InvalidRequest, message),
        Refusal::QueueFull => ErrorBody::transient(Code::InvalidRequest, message),
        Refusal::TooManySteers => ErrorBody::permanent(Code::InvalidRequest, message),
        Refusal::TooManyAttached => ErrorBody::transient(Code::InvalidRequest, message),
        Refusal::NotPermitted => ErrorBody::permanent(Code::AttachForbidden, message),
        Refusal::UnknownParticipant | Refusal::ParticipantExists => ErrorBody::permanent(Code::InvalidRequest, message),
        Refusal::TooManyParticipants => ErrorBody::transient(Code::InvalidRequest, message),
        Refusal::SessionEnded => ErrorBody::permanent(Code::InvalidRequest, message),
        Refusal::AlreadyOpen => ErrorBody::permanent(Code::InvalidRequest, message),
        Refusal::Compacting => ErrorBody::transient(Code::RunInProgress, message),
        Refusal::NoCompaction | Refusal::NoUserCommand | Refusal::NoRetry => {
            ErrorBody::permanent(Code::NoActiveRun, message)
        }
        Refusal::TooManyUserCommands => ErrorBody::transient(Code::RunInProgress, message),
        Refusal::Stale { .. } | Refusal::UnknownPosition | Refusal::ImportTooLarge => {
            ErrorBody::permanent(Code::InvalidRequest, message)
        }
        Refusal::RuleWithoutScope | Refusal::InvalidRule | Refusal::SecretInRule | Refusal::RuleTooNarrow => {
            ErrorBody::permanent(Code::InvalidRequest, format!("payload.rule: {message}"))
        }
        Refusal::AnswerNeeded | Refusal::UnknownAnswer => ErrorBody::permanent(Code::InvalidRequest, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_as_itself() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(code));
        }
        assert_eq!(Code::parse("invalid_request"), None);
    }

    #[test]
    fn refusals_have_the_codes_of_the_protocol() {
        for (refusal, code, retryable) in [
            (Refusal::RunActive, Code::RunInProgress, true),
            (Refusal::NoActiveRun, Code::NoActiveRun, false),
            (Refusal::UnknownGate, Code::ApprovalNotFound, false),
            (Refusal::GateClosed, Code::ApprovalExpired, false),
            (Refusal::NotPermitted, Code::AttachForbidden, false),
            (Refusal::QueueFull, Code::InvalidRequest, true),
            (Refusal::KeyConflict, Code::InvalidRequest, false),
        ] {
            let body = from_refusal(refusal);
            assert_eq!((body.code, body.retryable), (code, retryable), "{refusal:?}");
            assert_eq!(body.message, refusal.to_string());
        }
    }
}
