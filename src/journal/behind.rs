//! Deferred writes of commands: outcomes that no caller waits for, and rows to remove.
//!
//! They are collected for a while and then written in slices between the batches. An outcome that is removed soon
//! is therefore never written, and the others cost few transactions. A crash may lose them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::commands;
use super::error::CommitError;
use super::writer::Writer;
use crate::kernel::book::record::{Body, Row, Settlement, mention};
use crate::kernel::id::SessionId;

/// The collected writes, shared between callers and the writer.
#[derive(Default)]
pub(super) struct Behind {
    gathered: Mutex<Gathered>,
    /// The highest row of the previous epoch.
    left: AtomicU64,
}

#[derive(Default)]
struct Gathered {
    settled: BTreeMap<Row, Settlement>,
    forgotten: Vec<Row>,
    /// Whether the writer has been notified.
    told: bool,
}

/// The writes of one transaction.
enum Slice {
    Settled(Vec<Settlement>),
    Forgotten(Vec<Row>),
}

/// The writes that the writer has taken and not yet written.
#[derive(Default)]
pub(super) struct Pending {
    /// When the oldest collected write was added.
    since: Option<Instant>,
    settled: Vec<Settlement>,
    forgotten: Vec<Row>,
}

impl Behind {
    /// Adds writes; returns whether the writer must be notified.
    pub(super) fn add(
        &self,
        settled: impl IntoIterator<Item = Settlement>,
        forgotten: impl IntoIterator<Item = Row>,
    ) -> bool {
        let mut gathered = self.lock();
        for settlement in settled {
            gathered.settled.insert(settlement.record.row, settlement);
        }
        for row in forgotten {
            let is_new = row.0 > self.left.load(Ordering::Relaxed);
            if gathered.settled.remove(&row).is_none() || !is_new {
                gathered.forgotten.push(row);
            }
        }
        let told = std::mem::replace(&mut gathered.told, true);
        !told
    }

    /// Sets the highest row of the previous epoch. Rows up to it may be on disk without having been written in
    /// this one.
    pub(super) fn begin_above(&self, row: Row) {
        self.left.store(row.0, Ordering::Relaxed);
    }

    fn take(&self) -> Gathered {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.forgotten.is_empty()
    }

    fn next(&mut self) -> Slice {
        if self.settled.is_empty() {
            let rest = self.forgotten.len().saturating_sub(SLICE);
            return Slice::Forgotten(self.forgotten.split_off(rest));
        }
        let rest = self.settled.len().saturating_sub(SLICE);
        Slice::Settled(self.settled.split_off(rest))
    }

    fn put_back(&mut self, slice: Slice) {
        match slice {
            Slice::Settled(settled) => self.settled.extend(settled),
            Slice::Forgotten(rows) => self.forgotten.extend(rows),
        }
    }

    /// Takes over collected writes. Of the large answers only the newest fit in `most` bytes; a command whose
    /// answer was dropped runs again if it is repeated after a restart.
    fn fill(&mut self, gathered: Gathered, most: usize) {
        let mut room = most;
        let mut newest: Vec<Settlement> = Vec::with_capacity(gathered.settled.len());
        for settlement in gathered.settled.into_values().rev() {
            let bytes = settlement.outcome.body.len();
            if bytes <= SMALL || bytes <= room {
                room = room.saturating_sub(bytes);
                newest.push(settlement);
            }
        }
        // The next slice is taken off the end, so the oldest outcomes are written first.
        self.settled.splice(0..0, newest);
        self.forgotten.extend(gathered.forgotten);
    }
}

impl Writer {
    /// Starts the delay of deferred writes.
    pub(super) fn gather(&mut self) {
        self.pending.since.get_or_insert_with(Instant::now);
    }

    /// Returns how long the deferred writes may still wait.
    pub(super) fn behind_due(&self) -> Option<Duration> {
        // On a full disk collecting continues: an outcome that is removed meanwhile needs no space.
        let since = self.pending.since.filter(|_| !self.is_full());
        since.map(|since| self.options.write_behind.saturating_sub(since.elapsed()))
    }

    /// Returns whether a slice of the taken writes can be written.
    pub(super) fn is_behind(&self) -> bool {
        !self.pending.is_empty() && !self.is_full() && !self.failed()
    }

    /// Writes a slice if the delay has passed.
    pub(super) fn write_behind(&mut self) {
        if self.behind_due() == Some(Duration::ZERO) {
            self.take_behind();
        }
        if self.failed() {
            self.pending = Pending::default();
        }
        if self.is_behind() {
            self.write_slice();
        }
    }

    /// Writes everything before the journal closes.
    pub(super) fn catch_up(&mut self) {
        self.take_behind();
        while self.is_behind() {
            self.write_slice();
        }
    }

    /// Drops the deferred writes of a session.
    pub(super) fn leave_out(&mut self, session: &SessionId) {
        self.take_behind();
        self.pending.settled.retain(|settlement| settlement.record.session.as_ref() != Some(session));
        let words = mention(session);
        for settlement in &mut self.pending.settled {
            if settlement.outcome.body.text().is_some_and(|text| text.contains(&words)) {
                settlement.outcome.body = Body::Gone;
            }
        }
    }

    fn take_behind(&mut self) {
        self.pending.since = None;
        let gathered = self.behind.take();
        self.pending.fill(gathered, self.options.behind_bytes);
    }

    /// Writes outcomes, or removes rows when no outcome is left: no row is removed before it is written.
    fn write_slice(&mut self) {
        let slice = self.pending.next();
        let most = self.options.answer_bytes;
        let outcome: Result<(), CommitError> = self.in_transaction(|connection, _| match &slice {
            Slice::Settled(settled) => {
                settled.iter().rev().try_for_each(|it| commands::settle(connection, it, most))
            }
            Slice::Forgotten(rows) => rows.iter().try_for_each(|row| commands::forget(connection, *row)),
        });
        match outcome {
            Ok(()) => {}
            Err(CommitError::Full) => {
                self.became_full();
                self.pending.put_back(slice);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot write deferred command outcomes");
                self.note(&error);
                self.rescued(&error);
            }
        }
    }
}

/// How many rows one transaction writes.
const SLICE: usize = 64;
/// The size up to which an answer is always written.
const SMALL: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kernel::book::record::{Outcome, Record};
    use crate::kernel::id::Fingerprint;
    use crate::kernel::time::Now;

    #[test]
    fn the_oldest_outcomes_are_written_first_and_nothing_is_removed_before_it_is_written() {
        let behind = Behind::default();
        let mut pending = Pending::default();
        assert!(behind.add((1..=100).map(settlement), []), "the writer is notified");
        assert!(!behind.add((101..=110).map(settlement), []), "and notified once");
        pending.fill(behind.take(), usize::MAX);
        behind.add((111..=120).map(settlement), (1..=3).chain([115]).map(Row));
        pending.fill(behind.take(), usize::MAX);
        let (mut written, mut removed) = (Vec::new(), Vec::new());
        while !pending.is_empty() {
            match pending.next() {
                Slice::Settled(settled) => {
                    assert!(removed.is_empty() && settled.len() <= SLICE);
                    written.extend(settled.iter().rev().map(|it| it.record.row.0));
                }
                Slice::Forgotten(rows) => removed.extend(rows.iter().map(|row| row.0)),
            }
        }
        assert_eq!(written, (1..=120).filter(|row| *row != 115).collect::<Vec<_>>());
        assert_eq!(removed, [1, 2, 3], "what was never written needs no removal");
    }

    fn settlement(row: u64) -> Settlement {
        let record = Record {
            row: Row(row),
            id: None,
            key: None,
            kind: "work".into(),
            session: None,
            fingerprint: Fingerprint(1),
            admitted: Now(1),
        };
        Settlement { record: Arc::new(record), outcome: Outcome::done("r", None), at: Now(1) }
    }
}
