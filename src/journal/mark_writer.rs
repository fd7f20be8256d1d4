//! Updates of the high-water marks: changes are collected with each commit and written after that commit is synced.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::high_water_marks::{HighWaterMark, HighWaterMarks};
use super::record::Batch;
use crate::kernel::id::{Seq, SessionId};

/// The pending updates of the high-water marks.
pub(super) struct MarkWriter {
    marks: Arc<HighWaterMarks>,
    pending: BTreeMap<i64, PendingMark>,
    /// When the oldest unsynced mark was written.
    dirty: Option<Instant>,
}

struct PendingMark {
    session: SessionId,
    seq: Option<Seq>,
    reserved: Option<Seq>,
}

impl MarkWriter {
    pub(super) const fn new(marks: Arc<HighWaterMarks>) -> Self {
        Self { marks, pending: BTreeMap::new(), dirty: None }
    }

    /// Collects what a committed batch says about its session.
    pub(super) fn record(&mut self, key: i64, batch: &Batch) {
        let seq = batch.block.as_ref().map(|block| block.last);
        if seq.is_none() && batch.reserved_seq.is_none() && batch.create.is_none() {
            return;
        }
        let pending = self.pending.entry(key).or_insert_with(|| PendingMark {
            session: batch.session.clone(),
            seq: None,
            reserved: None,
        });
        pending.seq = seq.or(pending.seq);
        pending.reserved = batch.reserved_seq.or(pending.reserved);
    }

    /// Writes the marks of everything that is synced.
    pub(super) fn write_pending(&mut self) {
        if !self.marks.are_enabled() {
            return self.pending.clear();
        }
        for (key, pending) in std::mem::take(&mut self.pending) {
            if let Err(error) = write_pending_mark(&self.marks, key, &pending) {
                return self.disable(&error);
            }
            self.dirty.get_or_insert_with(Instant::now);
        }
    }

    /// Retires the mark of a session durably, before the session is deleted.
    pub(super) fn retire(&mut self, key: i64) {
        self.pending.remove(&key);
        if let Err(error) = self.marks.retire(key).and_then(|()| self.marks.sync()) {
            self.disable(&error);
        }
    }

    /// Returns how long the marks may stay unsynced.
    pub(super) fn sync_due(&self) -> Option<Duration> {
        self.dirty.map(|since| MAX_SYNC_DELAY.saturating_sub(since.elapsed()))
    }

    pub(super) fn sync_when_due(&mut self) {
        if self.sync_due().is_some_and(|due| due.is_zero()) {
            self.sync();
        }
    }

    pub(super) fn sync(&mut self) {
        if self.dirty.take().is_some()
            && let Err(error) = self.marks.sync()
        {
            self.disable(&error);
        }
    }

    pub(super) const fn marks(&self) -> &Arc<HighWaterMarks> {
        &self.marks
    }

    /// Disables the marks after an error: without them a truncated history may go undetected, which is logged, and
    /// the journal goes on.
    fn disable(&mut self, error: &io::Error) {
        self.dirty = None;
        if self.marks.disable() {
            tracing::warn!(%error, "cannot write the high-water marks; lost events may go undetected until the daemon is restarted");
        }
    }
}

/// Writes one mark; a value that did not change is read from the stored mark.
fn write_pending_mark(marks: &HighWaterMarks, key: i64, pending: &PendingMark) -> io::Result<()> {
    let (seq, reserved) = match (pending.seq, pending.reserved) {
        (Some(seq), Some(reserved)) => (seq, reserved),
        (seq, reserved) => {
            let known = match marks.read(key)? {
                Some(HighWaterMark::Synced { seq, reserved, .. }) => (seq, reserved),
                Some(HighWaterMark::Retired) | None => (Seq::ZERO, Seq::ZERO),
            };
            (seq.unwrap_or(known.0), reserved.unwrap_or(known.1))
        }
    };
    marks.write_mark(key, &pending.session, seq, reserved)
}

/// How long a mark may stay unsynced. After a power loss it lags at most that much.
const MAX_SYNC_DELAY: Duration = Duration::from_secs(1);
