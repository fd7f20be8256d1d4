//! Reasons why a command did not run, or not to its end. The enums are closed; each protocol formats them in its own
//! words.

use std::sync::Arc;

use super::super::rate::RateExceeded;
use super::record::Kind;

/// Why a command was not admitted; nothing is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionRefusal {
    /// Too many commands are in flight.
    Busy {
        /// The limit.
        limit: usize,
    },
    /// The rate limit was exceeded.
    RateLimited(RateExceeded),
    /// The command has too many dependencies.
    TooManyDependencies {
        /// The limit.
        limit: usize,
    },
    /// The server is shutting down and admits nothing.
    ShuttingDown,
}

/// Why the command log itself failed an admitted command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// Its id or key was used for another command. The failure is not stored.
    Conflict {
        /// Whether the id or the key matched.
        matched_by: MatchedBy,
        /// The id or key.
        name: Arc<str>,
        /// The kind of the earlier command.
        earlier: Kind,
        /// The kind of this command.
        requested: Kind,
    },
    /// A dependency is unknown.
    UnknownDependency {
        /// The id of the dependency.
        dependency: Arc<str>,
    },
    /// A dependency failed.
    DependencyFailed {
        /// The id of the dependency.
        dependency: Arc<str>,
        /// The beginning of its error.
        error: Arc<str>,
    },
    /// A dependency is still in flight in the same lane.
    SameLane {
        /// The id of the dependency.
        dependency: Arc<str>,
    },
    /// The command depends on itself.
    SelfDependency {
        /// Its id.
        name: Arc<str>,
    },
    /// The command waited too long for a dependency.
    DependencyTimeout {
        /// The id of the dependency.
        dependency: Arc<str>,
        /// The timeout, in milliseconds.
        millis: u64,
    },
    /// The command ran too long.
    TimedOut {
        /// The name of the command.
        name: Arc<str>,
        /// The kind of the command.
        kind: Kind,
        /// The time limit, in milliseconds.
        millis: u64,
    },
    /// The server stopped before the command ended; whether it had an effect is unknown.
    Interrupted,
}

/// The name by which a repeated command was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchedBy {
    /// Its id.
    Id,
    /// Its key.
    Key,
}
