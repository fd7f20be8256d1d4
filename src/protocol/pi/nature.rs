//! The execution policy of a command: scheduling, time limit, persistence of its outcome, effect on the session
//! version, and rate class.

pub use crate::kernel::book::{Counting, Keeping, Order};

/// The execution policy of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// How it is scheduled relative to the other commands of its lane.
    pub order: Order,
    /// The time limit in milliseconds; the command fails when it is exceeded.
    pub time_limit: Option<u64>,
    /// How its outcome is persisted.
    pub keeping: Keeping,
    /// How success changes the session's version.
    pub versioning: Versioning,
    /// The rate limit it counts against.
    pub counting: Counting,
}

/// How the success of a command changes the version of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// No change: the command only reads.
    Keeps,
    /// The version increases by one.
    Bumps,
    /// The version is created, starting at zero.
    Begins,
    /// The version is removed with the session.
    Ends,
}

impl Nature {
    /// The policy of a command that changes state and waits for its turn in the lane.
    pub(super) const fn work(time_limit: Option<u64>, versioning: Versioning) -> Self {
        let (order, keeping, counting) = (Order::Waits, Keeping::Durable, Counting::Counted);
        Self { order, time_limit, keeping, versioning, counting }
    }

    /// The policy of a command that stops or answers running work.
    ///
    /// Such a command does not wait for the disk and works while nothing can be written. Its effect is recorded in the
    /// events of its session, and the session itself refuses to grant anything while storage fails.
    pub(super) const fn control(millis: u64) -> Self {
        Self {
            order: Order::Overtakes,
            time_limit: Some(millis),
            keeping: Keeping::Light,
            versioning: Versioning::Bumps,
            counting: Counting::Control,
        }
    }
}
