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
use crate::kernel::command_log::record::{OutcomeRecord, ReplyBody, RowId, quoted_id};
use crate::kernel::id::SessionId;

/// The collected writes, shared between callers and the writer.
#[derive(Default)]
pub(super) struct DeferredWrites {
    batch: Mutex<DeferredBatch>,
    /// The highest row of the previous epoch.
    last_previous_row: AtomicU64,
}

#[derive(Default)]
struct DeferredBatch {
    settled: BTreeMap<RowId, OutcomeRecord>,
    removed: Vec<RowId>,
    /// Whether the writer has been notified.
    writer_notified: bool,
}

/// The writes of one transaction.
enum Slice {
    Outcomes(Vec<OutcomeRecord>),
    Removals(Vec<RowId>),
}

/// The writes that the writer has taken and not yet written.
#[derive(Default)]
pub(super) struct PendingWrites {
    /// When the oldest collected write was added.
    since: Option<Instant>,
    settled: Vec<OutcomeRecord>,
    removed: Vec<RowId>,
}

impl DeferredWrites {
    /// Adds writes; returns whether the writer must be notified.
    pub(super) fn add(
        &self,
        settled: impl IntoIterator<Item = OutcomeRecord>,
        removed: impl IntoIterator<Item = RowId>,
    ) -> bool {
        let mut batch = self.lock();
        for settlement in settled {
            batch.settled.insert(settlement.record.row, settlement);
        }
        for row in removed {
            let is_new = row.0 > self.last_previous_row.load(Ordering::Relaxed);
            if batch.settled.remove(&row).is_none() || !is_new {
                batch.removed.push(row);
            }
        }
        !std::mem::replace(&mut batch.writer_notified, true)
    }

    /// Sets the highest row of the previous epoch. Rows up to it may be on disk without having been written in
    /// this one.
    pub(super) fn set_previous_rows(&self, row: RowId) {
        self.last_previous_row.store(row.0, Ordering::Relaxed);
    }

    fn take(&self) -> DeferredBatch {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, DeferredBatch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingWrites {
    fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.removed.is_empty()
    }

    fn next(&mut self) -> Slice {
        if self.settled.is_empty() {
            let rest = self.removed.len().saturating_sub(SLICE_ROWS);
            return Slice::Removals(self.removed.split_off(rest));
        }
        let rest = self.settled.len().saturating_sub(SLICE_ROWS);
        Slice::Outcomes(self.settled.split_off(rest))
    }

    fn put_back(&mut self, slice: Slice) {
        match slice {
            Slice::Outcomes(settled) => self.settled.extend(settled),
            Slice::Removals(rows) => self.removed.extend(rows),
        }
    }

    /// Takes over collected writes. Of the large answers only the newest fit in `max_bytes` bytes; a command whose
    /// answer was dropped runs again if it is repeated after a restart.
    fn take_over(&mut self, batch: DeferredBatch, max_bytes: usize) {
        let mut bytes_left = max_bytes;
        let mut newest: Vec<OutcomeRecord> = Vec::with_capacity(batch.settled.len());
        for settlement in batch.settled.into_values().rev() {
            let bytes = settlement.outcome.body.len();
            if bytes <= SMALL_ANSWER || bytes <= bytes_left {
                bytes_left = bytes_left.saturating_sub(bytes);
                newest.push(settlement);
            }
        }
        // The next slice is taken off the end, so the oldest outcomes are written first.
        self.settled.splice(0..0, newest);
        self.removed.extend(batch.removed);
    }
}

impl Writer {
    /// Starts the delay of deferred writes.
    pub(super) fn start_deferral(&mut self) {
        self.pending.since.get_or_insert_with(Instant::now);
    }

    /// Returns how long the deferred writes may still wait.
    pub(super) fn deferred_due(&self) -> Option<Duration> {
        // On a full disk collecting continues: an outcome that is removed meanwhile needs no space.
        let since = self.pending.since.filter(|_| !self.is_full());
        since.map(|since| self.options.deferred_delay.saturating_sub(since.elapsed()))
    }

    /// Returns whether a slice of the taken writes can be written.
    pub(super) fn has_pending_writes(&self) -> bool {
        !self.pending.is_empty() && !self.is_full() && !self.failed()
    }

    /// Writes a slice if the delay has passed.
    pub(super) fn write_deferred(&mut self) {
        if self.deferred_due() == Some(Duration::ZERO) {
            self.take_deferred();
        }
        if self.failed() {
            self.pending = PendingWrites::default();
        }
        if self.has_pending_writes() {
            self.write_deferred_slice();
        }
    }

    /// Writes everything before the journal closes.
    pub(super) fn flush_deferred(&mut self) {
        self.take_deferred();
        while self.has_pending_writes() {
            self.write_deferred_slice();
        }
    }

    /// Drops the deferred writes of a session.
    pub(super) fn drop_deferred(&mut self, session: &SessionId) {
        self.take_deferred();
        self.pending.settled.retain(|settlement| settlement.record.session.as_ref() != Some(session));
        let quoted = quoted_id(session);
        for settlement in &mut self.pending.settled {
            if settlement.outcome.body.text().is_some_and(|text| text.contains(&quoted)) {
                settlement.outcome.body = ReplyBody::Removed;
            }
        }
    }

    fn take_deferred(&mut self) {
        self.pending.since = None;
        let batch = self.deferred.take();
        self.pending.take_over(batch, self.options.deferred_bytes);
    }

    /// Writes outcomes, or removes rows when no outcome is left: no row is removed before it is written.
    fn write_deferred_slice(&mut self) {
        let slice = self.pending.next();
        let max_answer = self.options.answer_bytes;
        let outcome: Result<(), CommitError> = self.in_transaction(|connection, _| match &slice {
            Slice::Outcomes(settled) => {
                settled.iter().rev().try_for_each(|it| commands::settle(connection, it, max_answer))
            }
            Slice::Removals(rows) => rows.iter().try_for_each(|row| commands::remove(connection, *row)),
        });
        match outcome {
            Ok(()) => {}
            Err(CommitError::Full) => {
                self.set_full();
                self.pending.put_back(slice);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot write deferred command outcomes");
                self.note_sync_failure(&error);
                self.replace_if_corrupt(&error);
            }
        }
    }
}

/// How many rows one transaction writes.
const SLICE_ROWS: usize = 64;
/// The size up to which an answer is always written.
const SMALL_ANSWER: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kernel::command_log::record::{CommandOutcome, CommandRecord};
    use crate::kernel::id::Fingerprint;
    use crate::kernel::time::Now;

    #[test]
    fn the_oldest_outcomes_are_written_first_and_nothing_is_removed_before_it_is_written() {
        let deferred = DeferredWrites::default();
        let mut pending = PendingWrites::default();
        assert!(deferred.add((1..=100).map(settlement), []), "the writer is notified");
        assert!(!deferred.add((101..=110).map(settlement), []), "and notified once");
        pending.take_over(deferred.take(), usize::MAX);
        deferred.add((111..=120).map(settlement), (1..=3).chain([115]).map(RowId));
        pending.take_over(deferred.take(), usize::MAX);
        let (mut written, mut removed) = (Vec::new(), Vec::new());
        while !pending.is_empty() {
            match pending.next() {
                Slice::Outcomes(settled) => {
                    assert!(removed.is_empty() && settled.len() <= SLICE_ROWS);
                    written.extend(settled.iter().rev().map(|it| it.record.row.0));
                }
                Slice::Removals(rows) => removed.extend(rows.iter().map(|row| row.0)),
            }
        }
        assert_eq!(written, (1..=120).filter(|row| *row != 115).collect::<Vec<_>>());
        assert_eq!(removed, [1, 2, 3], "what was never written needs no removal");
    }

    fn settlement(row: u64) -> OutcomeRecord {
        let record = CommandRecord {
            row: RowId(row),
            id: None,
            key: None,
            kind: "work".into(),
            session: None,
            fingerprint: Fingerprint(1),
            admitted_at: Now(1),
        };
        OutcomeRecord { record: Arc::new(record), outcome: CommandOutcome::succeeded("r", None), at: Now(1) }
    }
}
