//! Why a command was not run, or not to its end: closed lists that each protocol words in its own way.

use std::sync::Arc;

use super::super::rate::TooFast;
use super::record::Kind;

/// Why a command was not admitted; nothing is announced of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookRefusal {
    /// Too many commands are under way.
    Busy {
        /// How many may be.
        limit: usize,
    },
    /// Too many commands came in too short a time.
    TooFast(TooFast),
    /// It depends on too many others.
    TooManyDependencies {
        /// How many it may depend on.
        limit: usize,
    },
    /// Nothing is admitted any more.
    ShuttingDown,
}

/// Why an admitted command failed by the book's own judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BookFault {
    /// Its id or key was used for something else. It is not remembered.
    Conflict {
        /// Which of the two.
        identity: Identity,
        /// The id or key.
        name: Arc<str>,
        /// What it was used for before.
        earlier: Kind,
        /// What it is used for in this command.
        asked: Kind,
    },
    /// Nothing is known of a command that it depends on.
    UnknownDependency {
        /// The id of that command.
        dependency: Arc<str>,
    },
    /// A command that it depends on failed.
    DependencyFailed {
        /// The id of that command.
        dependency: Arc<str>,
        /// The beginning of its error.
        error: Arc<str>,
    },
    /// A command that it depends on is not over and belongs to the same lane.
    SameLane {
        /// The id of that command.
        dependency: Arc<str>,
    },
    /// It depends on itself.
    SelfDependency {
        /// Its id.
        name: Arc<str>,
    },
    /// It waited too long for a command that it depends on.
    DependencyTimeout {
        /// The id of that command.
        dependency: Arc<str>,
        /// How long it waited.
        millis: u64,
    },
    /// It ran for too long.
    TimedOut {
        /// What it is called.
        name: Arc<str>,
        /// What it does.
        kind: Kind,
        /// How long it ran.
        millis: u64,
    },
    /// Its admission could not be kept, so that it was not run. It is not remembered.
    NotKept,
    /// The server ended before it did; whether it has done anything is not known.
    Interrupted,
}

/// By what a command was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// By its id.
    Id,
    /// By its key.
    Key,
}
