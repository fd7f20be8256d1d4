//! Lanes: the commands of each session that wait or run, in order of admission.
//!
//! A write runs when every earlier command of its lane has ended. A read runs concurrently with other reads and with
//! a running long write, and never before a write that was admitted earlier.

use std::collections::BTreeMap;

use super::super::id::SessionId;
use super::record::{CommandRecord, RowId};
use super::submission::{Scheduling, SubmissionId};

/// All lanes that are not empty.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<Option<SessionId>, BTreeMap<RowId, LaneEntry>>,
}

/// A command in its lane.
#[derive(Debug, Clone, Copy)]
struct LaneEntry {
    ticket: SubmissionId,
    scheduling: Scheduling,
    running: bool,
}

impl LaneEntry {
    /// Returns whether reads that were admitted after this command may run.
    const fn lets_reads_pass(self) -> bool {
        match self.scheduling {
            Scheduling::Read | Scheduling::Bypass => true,
            Scheduling::LongWrite => self.running,
            Scheduling::Write => false,
        }
    }
}

impl Lanes {
    /// Adds a command to its lane; a bypassing command belongs to none.
    pub(super) fn enter(&mut self, record: &CommandRecord, ticket: SubmissionId, scheduling: Scheduling) {
        if scheduling != Scheduling::Bypass {
            let entry = LaneEntry { ticket, scheduling, running: false };
            self.lanes.entry(record.session.clone()).or_default().insert(record.row, entry);
        }
    }

    /// Marks a command as running, and returns the reads that may start because of it.
    pub(super) fn start(&mut self, record: &CommandRecord) -> Vec<SubmissionId> {
        let Some(lane) = self.lanes.get_mut(&record.session) else { return Vec::new() };
        let Some(entry) = lane.get_mut(&record.row) else { return Vec::new() };
        entry.running = true;
        if entry.scheduling == Scheduling::LongWrite { runnable(lane) } else { Vec::new() }
    }

    /// Removes a command from its lane, and returns the commands that may start because of it.
    pub(super) fn leave(&mut self, record: &CommandRecord) -> Vec<SubmissionId> {
        let Some(lane) = self.lanes.get_mut(&record.session) else { return Vec::new() };
        let Some(left) = lane.remove(&record.row) else { return Vec::new() };
        if lane.is_empty() {
            self.lanes.remove(&record.session);
            return Vec::new();
        }
        if left.scheduling == Scheduling::Read {
            // Other reads did not wait for this one.
            return first_change(lane).into_iter().collect();
        }
        runnable(lane)
    }

    /// Returns whether a command may run now.
    pub(super) fn is_turn_of(&self, record: &CommandRecord, scheduling: Scheduling) -> bool {
        let Some(lane) = self.lanes.get(&record.session) else { return false };
        let mut before = lane.range(..record.row);
        match scheduling {
            Scheduling::Bypass => true,
            Scheduling::Read => before.all(|(_, entry)| entry.lets_reads_pass()),
            Scheduling::Write | Scheduling::LongWrite => before.next().is_none(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }
}

/// Returns the commands of a lane that may start.
fn runnable(lane: &BTreeMap<RowId, LaneEntry>) -> Vec<SubmissionId> {
    let mut tickets: Vec<SubmissionId> = first_change(lane).into_iter().collect();
    let reads = lane.values().take_while(|entry| entry.lets_reads_pass());
    tickets.extend(reads.filter(|entry| !entry.running).map(|entry| entry.ticket));
    tickets
}

/// Returns the first command of a lane if it is a write that has not started.
fn first_change(lane: &BTreeMap<RowId, LaneEntry>) -> Option<SubmissionId> {
    let (_, first) = lane.first_key_value()?;
    (first.scheduling != Scheduling::Read && !first.running).then_some(first.ticket)
}
