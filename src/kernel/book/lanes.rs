//! Who takes turns with whom: for each lane, what waits for its turn and what has it, in the order of admission.

use std::collections::BTreeMap;

use super::super::id::SessionId;
use super::record::{Record, Row};
use super::submission::Ticket;

/// All lanes in which there is something.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<Option<SessionId>, BTreeMap<Row, Ticket>>,
}

impl Lanes {
    pub(super) fn enter(&mut self, record: &Record, ticket: Ticket) {
        self.lanes.entry(record.session.clone()).or_default().insert(record.row, ticket);
    }

    /// Takes a command out of its lane and returns whose turn it is if that has changed.
    pub(super) fn leave(&mut self, record: &Record) -> Option<Ticket> {
        let lane = self.lanes.get_mut(&record.session)?;
        let had_the_turn = lane.first_key_value().is_some_and(|(row, _)| *row == record.row);
        lane.remove(&record.row);
        let Some((_, first)) = lane.first_key_value() else {
            self.lanes.remove(&record.session);
            return None;
        };
        had_the_turn.then_some(*first)
    }

    /// Tells whether it is the turn of a command.
    pub(super) fn is_turn_of(&self, record: &Record) -> bool {
        let first = self.lanes.get(&record.session).and_then(BTreeMap::first_key_value);
        first.is_some_and(|(row, _)| *row == record.row)
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }
}
