//! The error texts of the protocol. Existing clients match them, so the wording is fixed.

use std::fmt::Display;

use crate::kernel::command_log::{AdmissionRefusal, CommandError, MatchedBy};
use crate::kernel::rate::RateExceeded;
use crate::kernel::refusal::Refusal;
use crate::protocol::operation_result::OperationError;

/// The line is not JSON.
pub const INVALID_JSON: &str = "Invalid JSON";
/// The frame is not a text frame.
pub const BINARY: &str = "Binary messages are not supported";

/// A field of the command is invalid.
pub fn invalid(field: impl Display, message: impl Display) -> String {
    format!("Validation failed: {field}: {message}")
}

/// The message exceeds the size limit.
pub fn too_long(bytes: u64, limit: usize) -> String {
    format!("Message too large: {bytes} bytes (max {limit})")
}

/// Formats why a command was not admitted.
pub fn refusal(refusal: &AdmissionRefusal) -> String {
    match refusal {
        AdmissionRefusal::Busy { .. } => "Server busy - too many concurrent commands. Please retry.".to_owned(),
        AdmissionRefusal::RateLimited(RateExceeded::Session(_)) => {
            "Rate limit exceeded for this session. Please retry later.".to_owned()
        }
        AdmissionRefusal::RateLimited(RateExceeded::Overall(_)) => {
            "Rate limit exceeded for the server. Please retry later.".to_owned()
        }
        AdmissionRefusal::TooManyDependencies { limit } => {
            invalid("dependsOn", format_args!("must have at most {limit} entries"))
        }
        AdmissionRefusal::ShuttingDown => "Server is shutting down".to_owned(),
    }
}

/// Formats why the command log failed a command.
pub fn command_error(error: &CommandError) -> String {
    match error {
        CommandError::Conflict { matched_by, name, earlier, requested } => {
            let word = match matched_by {
                MatchedBy::Id => "id",
                MatchedBy::Key => "idempotencyKey",
            };
            format!("Conflicting {word} '{name}': previously used for '{earlier}', now used for '{requested}'")
        }
        CommandError::UnknownDependency { dependency } => format!("Dependency '{dependency}' is unknown"),
        CommandError::DependencyFailed { dependency, error } => format!("Dependency '{dependency}' failed: {error}"),
        CommandError::SameLane { dependency } => {
            format!("Dependency '{dependency}' is queued in the same lane and cannot be awaited from this command")
        }
        CommandError::SelfDependency { name } => format!("Command '{name}' cannot depend on itself"),
        CommandError::DependencyTimeout { dependency, millis } => {
            format!("Dependency '{dependency}' timed out after {millis}ms")
        }
        CommandError::TimedOut { name: _, kind, millis } => format!("Command '{kind}' timed out after {millis}ms"),
        CommandError::Interrupted => "interrupted by restart".to_owned(),
    }
}

/// Formats why an operation failed.
pub fn operation_error(error: &OperationError) -> String {
    let fixed = match error {
        OperationError::SessionLimit => "Session limit reached",
        OperationError::RunActive => {
            "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message."
        }
        OperationError::ProviderCircuitOpen => "Circuit breaker open",
        OperationError::ShellCircuitOpen => "Bash circuit breaker open",
        OperationError::UnknownForkEntry => "Invalid entry ID for forking",
        OperationError::CompactionAborted => "Compaction was aborted",
        OperationError::CompactionFailed(reason) => reason.as_deref().unwrap_or("Compaction failed"),
        OperationError::UnreadableFile(reason) if reason.starts_with("sessionPath must be") => reason,
        OperationError::Internal => "Internal error",
        OperationError::Message(text) => text,
        OperationError::Refused(Refusal::Stale { expected, actual }) => {
            return format!("Session version mismatch: expected {expected}, got {actual}");
        }
        OperationError::Refused(refusal) => return refusal.to_string(),
        OperationError::SessionNotFound { session, version: None } => return format!("Session {session} not found"),
        OperationError::SessionNotFound { session, version: Some(version) } => {
            return format!("Session {session} not found for ifSessionVersion={version}");
        }
        OperationError::SessionExists(session) => return format!("Session {session} already exists"),
        OperationError::UnknownModel { provider, model } => return format!("Model not found: {provider}/{model}"),
        OperationError::MessageTooLong { limit, found } => {
            let problem = format!("must be at most {limit} characters when it is expanded, not {found}");
            return invalid("message", problem);
        }
        OperationError::ExportPathOutside => return invalid("outputPath", "must be inside the session's directory"),
        OperationError::QuestionSettled(request) => return format!("Request {request} already settled"),
        OperationError::QuestionOfOtherSession(request) => {
            return format!("Session ID mismatch for request {request}");
        }
        OperationError::UnknownQuestion(request) => return format!("No pending UI request with id {request}"),
        OperationError::FileNotAllowed { path, reason } => {
            return format!("{reason}: {path} is neither in ~/.pi/agent/sessions nor in a .pi/sessions");
        }
        OperationError::UnreadableFile(reason) => {
            return format!("sessionPath must be a session file that can be read: {reason}");
        }
    };
    fixed.to_owned()
}
