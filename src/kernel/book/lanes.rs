//! Who takes turns with whom: for each lane, what waits for its turn and what has it, in the order of admission.
//!
//! What changes something runs when everything before it in its lane is over. What only reads runs beside other reads,
//! and beside a long command that is running; it never runs before a change that was admitted earlier.

use std::collections::BTreeMap;

use super::super::id::SessionId;
use super::record::{Record, Row};
use super::submission::{Order, Ticket};

/// All lanes in which there is something.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<Option<SessionId>, BTreeMap<Row, LaneEntry>>,
}

/// A command in its lane.
#[derive(Debug, Clone, Copy)]
struct LaneEntry {
    ticket: Ticket,
    order: Order,
    running: bool,
}

impl LaneEntry {
    /// Tells whether reads that were admitted after the command may run.
    const fn lets_reads_pass(self) -> bool {
        match self.order {
            Order::Reads | Order::Overtakes => true,
            Order::Long => self.running,
            Order::Waits => false,
        }
    }
}

impl Lanes {
    /// Adds a command to its lane; what overtakes belongs to none.
    pub(super) fn enter(&mut self, record: &Record, ticket: Ticket, order: Order) {
        if order != Order::Overtakes {
            let entry = LaneEntry { ticket, order, running: false };
            self.lanes.entry(record.session.clone()).or_default().insert(record.row, entry);
        }
    }

    /// Notes that a command runs, and returns the reads that may run because of it.
    pub(super) fn start(&mut self, record: &Record) -> Vec<Ticket> {
        let Some(lane) = self.lanes.get_mut(&record.session) else { return Vec::new() };
        let Some(entry) = lane.get_mut(&record.row) else { return Vec::new() };
        entry.running = true;
        if entry.order == Order::Long { runnable(lane) } else { Vec::new() }
    }

    /// Takes a command out of its lane and returns what may run because of that.
    pub(super) fn leave(&mut self, record: &Record) -> Vec<Ticket> {
        let Some(lane) = self.lanes.get_mut(&record.session) else { return Vec::new() };
        let Some(left) = lane.remove(&record.row) else { return Vec::new() };
        if lane.is_empty() {
            self.lanes.remove(&record.session);
            return Vec::new();
        }
        if left.order == Order::Reads {
            // Other reads did not wait for it.
            return first_change(lane).into_iter().collect();
        }
        runnable(lane)
    }

    /// Tells whether it is the turn of a command.
    pub(super) fn is_turn_of(&self, record: &Record, order: Order) -> bool {
        let Some(lane) = self.lanes.get(&record.session) else { return false };
        let mut before = lane.range(..record.row);
        match order {
            Order::Overtakes => true,
            Order::Reads => before.all(|(_, entry)| entry.lets_reads_pass()),
            Order::Waits | Order::Long => before.next().is_none(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }
}

/// Returns what may run in a lane and does not run yet.
fn runnable(lane: &BTreeMap<Row, LaneEntry>) -> Vec<Ticket> {
    let mut tickets: Vec<Ticket> = first_change(lane).into_iter().collect();
    let reads = lane.values().take_while(|entry| entry.lets_reads_pass());
    tickets.extend(reads.filter(|entry| !entry.running).map(|entry| entry.ticket));
    tickets
}

/// Returns the first command of a lane if it changes something and does not run yet.
fn first_change(lane: &BTreeMap<Row, LaneEntry>) -> Option<Ticket> {
    let (_, first) = lane.first_key_value()?;
    (first.order != Order::Reads && !first.running).then_some(first.ticket)
}
