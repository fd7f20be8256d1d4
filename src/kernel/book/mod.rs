//! The book of commands: which are admitted, in which order they run, and what came of each.
//!
//! One book serves the whole server and every protocol whose commands have a life of their own: they are announced,
//! repeated under the same name without being run again, made to depend on each other and given a time limit. One
//! input and the time go in, an ordered list of effects comes out. What a command does and what its answer says the
//! book does not know.
//!
//! # What holds
//!
//! A command under one id or key runs at most once while the book remembers it, and every repetition gets the same
//! outcome, whether it comes before or after the end. A repetition under a name that is new makes that name known for
//! the same outcome. A failed outcome is an outcome; so is one whose time was over, and what such a command reports
//! later is ignored. A command whose name was used for something else is refused by a fault and not remembered.
//!
//! A lane is a session, or what concerns none. What changes something runs in the order of admission, alone in its lane
//! but for what overtakes, and its lane goes on when its outcome is written. What only reads waits for the changes that
//! came before it, except for a long one that is running. What overtakes runs at once. Commands depend on
//! commands that came before them, and a lane holds those that came before: nobody can wait for himself, by however
//! many steps.
//!
//! A command that nobody can refer to, because its sender gave it neither an id nor a key, is neither kept nor
//! remembered.

mod admitting;
mod effect;
mod fault;
mod flight;
mod lanes;
mod limits;
mod names;
pub mod record;
mod restoring;
mod settling;
mod shelf;
mod submission;

use std::collections::{BTreeMap, BTreeSet};

use super::rate::Rate;
use super::time::Now;

pub use effect::Effect;
pub use fault::{BookFault, BookRefusal, Identity};
pub use limits::BookLimits;
pub use record::{Body, Kind, Outcome, Record, Row, Settlement, Stored};
pub use submission::{Counting, Input, Keeping, Name, Order, Spell, Submission, Ticket};

use flight::Flight;
use lanes::Lanes;
use names::Names;
use shelf::Shelf;

/// The book.
#[derive(Debug)]
pub struct Book {
    limits: BookLimits,
    rate: Rate,
    /// The same for control commands.
    control_rate: Rate,
    /// What is under way.
    flights: BTreeMap<Ticket, Flight>,
    /// How many repetitions wait for the outcome of what is under way.
    followers: usize,
    /// What is over.
    shelf: Shelf,
    names: Names,
    lanes: Lanes,
    deadlines: BTreeSet<(Now, Ticket)>,
    next_row: u64,
    shutting_down: bool,
    refused_as_busy: u64,
}

/// How much a book holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BookCounts {
    /// Commands under way, and repetitions that wait for them.
    pub in_flight: usize,
    /// Outcomes that are remembered.
    pub outcomes: usize,
    /// Keys that are known, among them some whose time may be over.
    pub keys: usize,
    /// Lanes in which something runs or waits.
    pub lanes: usize,
    /// Commands that were refused because too many were under way.
    pub refused_as_busy: u64,
}

impl Book {
    /// Opens an empty book.
    pub fn new(limits: BookLimits) -> Self {
        Self {
            limits,
            rate: Rate::new(limits.rate),
            control_rate: Rate::new(limits.rate),
            flights: BTreeMap::new(),
            followers: 0,
            shelf: Shelf::default(),
            names: Names::default(),
            lanes: Lanes::default(),
            deadlines: BTreeSet::new(),
            next_row: 1,
            shutting_down: false,
            refused_as_busy: 0,
        }
    }

    /// Advances the book by one input.
    ///
    /// The effects are to be carried out in order. None of them has to be over before the next begins: what the book
    /// needs to hear of comes back as an input.
    #[must_use = "dropping effects loses answers and outcomes"]
    pub fn apply(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut fx = Vec::with_capacity(4);
        match input {
            Input::Submit(asked) => self.submit(*asked, now, &mut fx),
            Input::Kept(ticket) => self.kept(ticket, now, &mut fx),
            Input::NotKept(ticket) => self.not_kept(ticket, now, &mut fx),
            Input::Finished(ticket, outcome) => self.finished(ticket, outcome, now, &mut fx),
            Input::Settled(ticket) => self.settled(ticket, now, &mut fx),
            Input::NotSettled(ticket) => self.settled(ticket, now, &mut fx),
            Input::Deadline => self.expire(now, &mut fx),
            Input::Erased(session) => self.erase(&session),
            Input::ShuttingDown => self.shutting_down = true,
        }
        fx
    }

    /// Returns when [`Input::Deadline`] is due; `None` if nothing waits for a moment.
    pub fn next_deadline(&self) -> Option<Now> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns how much the book holds.
    pub fn counts(&self) -> BookCounts {
        BookCounts {
            in_flight: self.in_flight(),
            outcomes: self.shelf.len(),
            keys: self.names.keys(),
            lanes: self.lanes.len(),
            refused_as_busy: self.refused_as_busy,
        }
    }

    /// Returns how many ordinary commands count against the limit of the rate over all, and that limit.
    pub fn rate_used(&mut self, now: Now) -> (usize, usize) {
        (self.rate.used(now), self.limits.rate.overall)
    }

    fn in_flight(&self) -> usize {
        self.flights.len() + self.followers
    }

    fn take_row(&mut self) -> Row {
        let row = Row(self.next_row);
        self.next_row += 1;
        row
    }
}
