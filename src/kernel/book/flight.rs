//! A command under way.

use std::sync::Arc;

use super::super::time::Now;
use super::record::{Outcome, Record};
use super::submission::{Keeping, Order, Spell, Submission, Ticket};

/// A command between its admission and its end.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) record: Arc<Record>,
    /// What it is called, also if nobody can refer to it.
    pub(super) name: Arc<str>,
    pub(super) order: Order,
    pub(super) time_limit: Option<u64>,
    pub(super) keeping: Keeping,
    pub(super) spell: Spell,
    pub(super) state: State,
    /// Whether it may run as far as the disk is concerned.
    pub(super) kept: bool,
    /// Whether its outcome is to be remembered.
    pub(super) remembered: bool,
    /// What it still depends on.
    pub(super) awaited: Vec<Awaited>,
    /// Who depends on it.
    pub(super) dependents: Vec<Ticket>,
    /// Who repeats it.
    pub(super) followers: Vec<Follower>,
    /// Where it stands among the deadlines.
    pub(super) deadline: Option<Now>,
}

/// How far a command is.
#[derive(Debug)]
pub(super) enum State {
    /// It waits for its turn, for what it depends on, or for the disk.
    Waiting,
    /// It is being executed.
    Running,
    /// It is over, and its outcome is being written.
    Settling { outcome: Outcome, replayed: bool, at: Now },
}

/// A command that another depends on.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) ticket: Ticket,
    /// The name by which it was asked for.
    pub(super) id: Arc<str>,
}

/// A repetition of a command under way.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) ticket: Ticket,
    pub(super) name: Arc<str>,
    /// Under which names it is the first to come, if there are any.
    pub(super) record: Option<Arc<Record>>,
}

impl Flight {
    /// A command that was just admitted.
    pub(super) fn new(asked: &Submission, record: Arc<Record>, awaited: Vec<Awaited>) -> Self {
        let remembered = record.id.is_some() || record.key.is_some();
        Self {
            name: Arc::clone(asked.name.text()),
            order: asked.order,
            time_limit: asked.time_limit,
            keeping: asked.keeping,
            spell: asked.spell,
            state: State::Waiting,
            // Nobody could ask for what is kept of a command without a name.
            kept: asked.keeping == Keeping::Light || !remembered,
            remembered,
            record,
            awaited,
            dependents: Vec::new(),
            followers: Vec::new(),
            deadline: None,
        }
    }

    /// A repetition under a new name of a command that is over; it never runs and belongs to no lane.
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
