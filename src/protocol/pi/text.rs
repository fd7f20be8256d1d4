//! The sentences of failure, as existing clients look for them.

use std::fmt::Display;

/// A line that is no JSON.
pub const INVALID_JSON: &str = "Invalid JSON";
/// Too many commands are under way.
pub const BUSY: &str = "Server busy - too many concurrent commands. Please retry.";
/// The server takes nothing more.
pub const SHUTTING_DOWN: &str = "Server is shutting down";
/// No further session is taken.
pub const SESSION_LIMIT: &str = "Session limit reached";
/// The server that answers for the model fails too often.
pub const CIRCUIT_OPEN: &str = "Circuit breaker open";
/// Shell commands take too long too often.
pub const BASH_CIRCUIT_OPEN: &str = "Bash circuit breaker open";
/// A file outside of where session files may be.
pub const PATH_NOT_ALLOWED: &str = "sessionPath must be under an allowed session directory";
/// A command that was under way when the server stopped.
pub const INTERRUPTED: &str = "interrupted by restart";
/// Too many commands in the last minute, for one session.
pub const RATE_LIMIT: &str = "Rate limit exceeded for this session. Please retry later.";
/// Too many commands in the last minute, for the server.
pub const GLOBAL_RATE_LIMIT: &str = "Rate limit exceeded for the server. Please retry later.";
/// The daemon itself failed.
pub const INTERNAL: &str = "Internal error";
/// A frame that is no text.
pub const BINARY: &str = "Binary messages are not supported";

/// Which of a command's two names it is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Its id.
    Id,
    /// Its idempotency key.
    Key,
}

/// A command's name was used for another one.
pub fn conflict(identity: Identity, name: &str, before: &str, now: &str) -> String {
    let word = match identity {
        Identity::Id => "id",
        Identity::Key => "idempotencyKey",
    };
    format!("Conflicting {word} '{name}': previously used for '{before}', now used for '{now}'")
}

/// A command that cannot be what it says it is.
pub fn invalid(field: impl Display, message: impl Display) -> String {
    format!("Validation failed: {field}: {message}")
}

/// There is no such command.
pub fn unknown_command(name: &str) -> String {
    invalid("type", format_args!("Unknown command type '{name}'"))
}

/// There is no such session.
pub fn session_not_found(session: &str) -> String {
    format!("Session {session} not found")
}

/// The session exists.
pub fn session_exists(session: &str) -> String {
    format!("Session {session} already exists")
}

/// There is no such session, and it was to be at a version.
pub fn no_session_at_version(session: &str, version: u64) -> String {
    format!("Session {session} not found for ifSessionVersion={version}")
}

/// The session is at another version.
pub fn version_mismatch(expected: u64, found: u64) -> String {
    format!("Session version mismatch: expected {expected}, got {found}")
}

/// Nobody knows what a command waits for.
pub fn unknown_dependency(name: &str) -> String {
    format!("Dependency '{name}' is unknown")
}

/// What a command waited for failed.
pub fn failed_dependency(name: &str, error: &str) -> String {
    format!("Dependency '{name}' failed: {error}")
}

/// What a command would wait for stands in the same lane.
pub fn same_lane_dependency(name: &str) -> String {
    format!("Dependency '{name}' is queued in the same lane and cannot be awaited from this command")
}

/// A command waits for itself.
pub fn self_dependency(name: &str) -> String {
    format!("Command '{name}' cannot depend on itself")
}

/// What a command waited for took too long.
pub fn dependency_timeout(name: &str, millis: u64) -> String {
    format!("Dependency '{name}' timed out after {millis}ms")
}

/// A command took too long.
pub fn timed_out(command: &str, millis: u64) -> String {
    format!("Command '{command}' timed out after {millis}ms")
}

/// Nobody asks that.
pub fn no_such_request(request: &str) -> String {
    format!("No pending UI request with id {request}")
}

/// That was answered.
pub fn request_settled(request: &str) -> String {
    format!("Request {request} already settled")
}

/// That was asked in another session.
pub fn request_elsewhere(request: &str) -> String {
    format!("Session ID mismatch for request {request}")
}

/// A message that is too long to be read.
pub fn too_long(bytes: u64, limit: usize) -> String {
    format!("Message too large: {bytes} bytes (max {limit})")
}
