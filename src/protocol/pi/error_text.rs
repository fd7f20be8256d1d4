//! The error texts of the protocol. Existing clients match them, so the wording is fixed.

use std::fmt::Display;

/// The line is not JSON.
pub const INVALID_JSON: &str = "Invalid JSON";
/// Too many commands are in flight.
pub const BUSY: &str = "Server busy - too many concurrent commands. Please retry.";
/// The server accepts no more commands.
pub const SHUTTING_DOWN: &str = "Server is shutting down";
/// No further session can be created.
pub const SESSION_LIMIT: &str = "Session limit reached";
/// The circuit breaker of the model's provider is open.
pub const CIRCUIT_OPEN: &str = "Circuit breaker open";
/// The circuit breaker of shell commands is open.
pub const BASH_CIRCUIT_OPEN: &str = "Bash circuit breaker open";
/// The file is outside the allowed session directories.
pub const PATH_NOT_ALLOWED: &str = "sessionPath must be under an allowed session directory";
/// The server stopped while the command was in flight.
pub const INTERRUPTED: &str = "interrupted by restart";
/// Rate limit of a session.
pub const RATE_LIMIT: &str = "Rate limit exceeded for this session. Please retry later.";
/// Rate limit of the server.
pub const GLOBAL_RATE_LIMIT: &str = "Rate limit exceeded for the server. Please retry later.";
/// The daemon failed internally.
pub const INTERNAL: &str = "Internal error";
/// The frame is not a text frame.
pub const BINARY: &str = "Binary messages are not supported";

/// What identified a command as a repetition of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchedBy {
    /// Its id.
    Id,
    /// Its idempotency key.
    Key,
}

/// The id or idempotency key belongs to a different command.
pub fn conflict(identity: MatchedBy, name: &str, before: &str, now: &str) -> String {
    let word = match identity {
        MatchedBy::Id => "id",
        MatchedBy::Key => "idempotencyKey",
    };
    format!("Conflicting {word} '{name}': previously used for '{before}', now used for '{now}'")
}

/// A field of the command is invalid.
pub fn invalid(field: impl Display, message: impl Display) -> String {
    format!("Validation failed: {field}: {message}")
}

/// The command type is unknown.
pub fn unknown_command(name: &str) -> String {
    invalid("type", format_args!("Unknown command type '{name}'"))
}

/// The session does not exist.
pub fn session_not_found(session: &str) -> String {
    format!("Session {session} not found")
}

/// The session exists already.
pub fn session_exists(session: &str) -> String {
    format!("Session {session} already exists")
}

/// The session does not exist, and the command requires a version of it.
pub fn no_session_at_version(session: &str, version: u64) -> String {
    format!("Session {session} not found for ifSessionVersion={version}")
}

/// The session is at a different version.
pub fn version_mismatch(expected: u64, found: u64) -> String {
    format!("Session version mismatch: expected {expected}, got {found}")
}

/// The dependency is unknown.
pub fn unknown_dependency(name: &str) -> String {
    format!("Dependency '{name}' is unknown")
}

/// The dependency failed.
pub fn failed_dependency(name: &str, error: &str) -> String {
    format!("Dependency '{name}' failed: {error}")
}

/// The dependency is queued in the same lane, where the command cannot wait for it.
pub fn same_lane_dependency(name: &str) -> String {
    format!("Dependency '{name}' is queued in the same lane and cannot be awaited from this command")
}

/// The command depends on itself.
pub fn self_dependency(name: &str) -> String {
    format!("Command '{name}' cannot depend on itself")
}

/// The dependency timed out.
pub fn dependency_timeout(name: &str, millis: u64) -> String {
    format!("Dependency '{name}' timed out after {millis}ms")
}

/// The command timed out.
pub fn timed_out(command: &str, millis: u64) -> String {
    format!("Command '{command}' timed out after {millis}ms")
}

/// No pending UI request has that id.
pub fn no_such_request(request: &str) -> String {
    format!("No pending UI request with id {request}")
}

/// The UI request is settled.
pub fn request_settled(request: &str) -> String {
    format!("Request {request} already settled")
}

/// The UI request belongs to another session.
pub fn request_of_other_session(request: &str) -> String {
    format!("Session ID mismatch for request {request}")
}

/// The message exceeds the size limit.
pub fn too_long(bytes: u64, limit: usize) -> String {
    format!("Message too large: {bytes} bytes (max {limit})")
}
