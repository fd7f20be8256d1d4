//! The execution policy of a command: scheduling, time limit, persistence of its outcome, and rate class.

pub use crate::kernel::command_log::{Persistence, RateClass, Scheduling};

/// The execution policy of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandPolicy {
    /// How it is scheduled relative to the other commands of its lane.
    pub scheduling: Scheduling,
    /// The time limit in milliseconds; the command fails when it is exceeded.
    pub time_limit: Option<u64>,
    /// How its outcome is persisted.
    pub persistence: Persistence,
    /// The rate limit it counts against.
    pub rate_class: RateClass,
}
