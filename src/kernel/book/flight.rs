//! A command in flight.

use std::sync::Arc;

use super::super::time::Now;
use super::record::{Outcome, Record};
use super::submission::{Keeping, Order, Spell, Submission, Ticket};

/// A command between its admission and its end.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) record: Arc<Record>,
    /// Its name, which may be generated.
    pub(super) name: Arc<str>,
    pub(super) order: Order,
    pub(super) time_limit: Option<u64>,
    pub(super) keeping: Keeping,
    pub(super) spell: Spell,
    pub(super) state: State,
    /// Whether its admission is on disk, or need not be.
    pub(super) kept: bool,
    /// Whether its outcome is stored and cached.
    pub(super) remembered: bool,
    /// The dependencies that have not finished.
    pub(super) awaited: Vec<Awaited>,
    /// The commands that depend on it.
    pub(super) dependents: Vec<Ticket>,
    /// The submissions that repeat it and wait for its outcome.
    pub(super) followers: Vec<Follower>,
    /// Its entry in the set of deadlines.
    pub(super) deadline: Option<Now>,
}

/// The state of a command in flight.
#[derive(Debug)]
pub(super) enum State {
    /// It waits for its turn, for a dependency, or for its admission to be persisted.
    Waiting,
    /// It is being executed.
    Running,
    /// It has ended, and its outcome is being written.
    Settling { outcome: Outcome, replayed: bool, at: Now },
}

/// A command that another depends on.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) ticket: Ticket,
    /// The id by which the dependent command names it.
    pub(super) id: Arc<str>,
}

/// A repetition of a command in flight.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) ticket: Ticket,
    pub(super) name: Arc<str>,
    /// Its record, if some of its names are new.
    pub(super) record: Option<Arc<Record>>,
}

impl Flight {
    /// Creates a command that was just admitted.
    pub(super) fn new(asked: &Submission, record: Arc<Record>, awaited: Vec<Awaited>) -> Self {
        let remembered = record.id.is_some() || record.key.is_some();
        Self {
            name: Arc::clone(asked.name.text()),
            order: asked.order,
            time_limit: asked.time_limit,
            keeping: asked.keeping,
            spell: asked.spell,
            state: State::Waiting,
            // Without an id or a key nobody could ask for a stored admission.
            kept: asked.keeping == Keeping::Light || !remembered,
            remembered,
            record,
            awaited,
            dependents: Vec::new(),
            followers: Vec::new(),
            deadline: None,
        }
    }

    /// Creates a repetition, under a new name, of a finished command. It never runs and belongs to no lane.
    pub(super) fn repetition(name: Arc<str>, record: Arc<Record>, keeping: Keeping, spell: Spell) -> Self {
        Self {
            record,
            name,
            order: Order::Overtakes,
            time_limit: None,
            keeping,
            spell,
            state: State::Waiting,
            kept: true,
            remembered: true,
            awaited: Vec::new(),
            dependents: Vec::new(),
            followers: Vec::new(),
            deadline: None,
        }
    }

    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    pub(super) const fn is_running(&self) -> bool {
        matches!(self.state, State::Running)
    }

    pub(super) const fn is_settling(&self) -> bool {
        matches!(self.state, State::Settling { .. })
    }
}
