//! The execution policy of a command: scheduling, time limit, persistence of its outcome, effect on the session
//! version, and rate class.

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
    /// How success changes the session's version.
    pub version_effect: VersionEffect,
    /// The rate limit it counts against.
    pub rate_class: RateClass,
}

/// How the success of a command changes the version of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionEffect {
    /// No change: the command only reads.
    Unchanged,
    /// The version increases by one.
    Incremented,
    /// The version is created, starting at zero.
    Created,
    /// The version is removed with the session.
    Removed,
}

impl CommandPolicy {
    /// The policy of a command that changes state and waits for its turn in the lane.
    pub(super) const fn write(time_limit: Option<u64>, version_effect: VersionEffect) -> Self {
        let (scheduling, persistence, rate_class) = (Scheduling::Write, Persistence::Durable, RateClass::Ordinary);
        Self { scheduling, time_limit, persistence, version_effect, rate_class }
    }

    /// The policy of a command that stops or answers running work.
    ///
    /// Such a command does not wait for the disk and works while nothing can be written. Its effect is recorded in the
    /// events of its session, and the session itself refuses to grant anything while storage fails.
    pub(super) const fn control(millis: u64) -> Self {
        Self {
            scheduling: Scheduling::Bypass,
            time_limit: Some(millis),
            persistence: Persistence::Relaxed,
            version_effect: VersionEffect::Incremented,
            rate_class: RateClass::Control,
        }
    }
}
