//! How a command is treated: whom it waits for, for how long, how its outcome is kept, what it does to the version.

pub use crate::kernel::book::{Counting, Keeping, Order};

/// How a command is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// Whether it waits behind what runs in its lane.
    pub order: Order,
    /// After how many milliseconds it counts as failed.
    pub time_limit: Option<u64>,
    /// How its outcome is kept.
    pub keeping: Keeping,
    /// What its success does to the session's version.
    pub versioning: Versioning,
    /// Which rate budget it counts against.
    pub counting: Counting,
}

/// What the success of a command does to the version of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// Nothing: it only looks.
    Keeps,
    /// It rises by one.
    Bumps,
    /// There is one from here on, and it is zero.
    Begins,
    /// There is none any more.
    Ends,
}

impl Nature {
    /// What changes something and waits for its turn.
    pub(super) const fn work(time_limit: Option<u64>, versioning: Versioning) -> Self {
        let (order, keeping, counting) = (Order::Waits, Keeping::Durable, Counting::Counted);
        Self { order, time_limit, keeping, versioning, counting }
    }

    /// What stops or answers something that runs.
    ///
    /// It waits for no disk, and works when nothing can be written: what it does is in the events of its session, which
    /// refuses by itself what grants something then.
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
