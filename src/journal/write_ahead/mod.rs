//! The write-ahead file: streamed events on their way to the database.
//!
//! A commit takes a fifth of a millisecond, on another thread. To publish a piece of a streamed answer or of tool
//! output sooner, its events are appended to a small preallocated file with one write, which the kernel keeps when
//! the process ends, and stay in memory. The writer stores them in the database with the next batch of their
//! session, or all together when the file holds enough or after a while: a stream becomes a few large blocks
//! instead of a row and a commit for each token. Until then reads add them from memory. The next start stores what
//! a killed process left. The file is not synced: a power loss loses what the database had not synced.
//!
//! Appending never waits for a lock. A batch that cannot be appended, because the file is full, in use by another
//! thread, slow or broken, is published after its commit.
//!
//! The file has two regions. Appends go to one while the content of the other is being stored; a stored region is
//! overwritten with zeros, so that the file holds nothing that was deleted from the database.

mod flush;
mod record;
mod replay;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::files::{RawFile, StorageEnv};
use super::high_water_marks::EpochId;
use super::record::{Batch, Block, Options};
use super::{WRITE_AHEAD, os};
use crate::kernel::id::{Seq, SessionId};
use record::Cursor;

pub(super) use replay::{PreviousEpoch, replay};

/// The write-ahead file of a journal, and the events that are in it and not in the database.
pub(super) struct WriteAhead {
    file: Box<dyn RawFile>,
    epoch: u64,
    region_bytes: usize,
    flush_bytes: usize,
    slow_write: Duration,
    /// Locked before `buffer`, and held while a record is written.
    position: Mutex<Position>,
    /// How many bytes of the current region are in use, readable without the lock.
    used: AtomicUsize,
    buffer: Mutex<Buffer>,
}

/// Where the next record is written.
#[derive(Default)]
struct Position {
    /// The current region, 0 or 1.
    region: usize,
    generation: u64,
    /// `None` while the current region is empty; its header is written with the first record.
    cursor: Option<Cursor>,
    /// How many bytes of the other region are in use.
    other_used: usize,
    /// The memory for encoding.
    scratch: Vec<u8>,
    /// Nothing is appended before this moment, because the last write was slow.
    resume_at: Option<Instant>,
    closed: bool,
}

/// The events that are not known to be in the database.
#[derive(Default)]
struct Buffer {
    sessions: BTreeMap<SessionId, Vec<Block>>,
    /// Whether the writer knows that there are events.
    writer_notified: bool,
    /// Whether the writer knows that a flush is due.
    due_notified: bool,
}

/// The size up to which a batch is appended. A larger one is worth a commit of its own.
const MAX_APPEND_BYTES: usize = 8 * 1024;
/// The size of the file in the versions that kept events in memory files, and here the key of those.
const EARLIER_KEY_BYTES: u64 = 32;
/// The maximum size of a block of joined events.
const MAX_JOINED_BYTES: usize = 64 * 1024;

impl WriteAhead {
    /// Creates the file, or empties the one of the previous epoch, which has been replayed.
    ///
    /// Returns `None` if that fails; all events are then published after their commit.
    pub(super) fn create(env: &StorageEnv, options: &Options, epoch: EpochId) -> Option<Arc<Self>> {
        let path = env.path(WRITE_AHEAD);
        let made = os::prepare(&path).and_then(|()| (env.open_file)(&path)).and_then(|file| {
            let size = 2 * options.region_bytes;
            let len = file.len()?;
            if len == EARLIER_KEY_BYTES {
                os::remove_earlier_slots(&env.dir);
            }
            // Real bytes: a sparse file would need space for every record.
            file.write_at(0, &vec![0; size])?;
            if len != size as u64 {
                file.set_len(size as u64)?;
                file.sync()?;
            }
            Ok(file)
        });
        let file = made
            .inspect_err(
                |error| tracing::warn!(%error, "there is no write-ahead file; streamed text waits for commits"),
            )
            .ok()?;
        Some(Arc::new(Self {
            file,
            epoch: epoch.number,
            region_bytes: options.region_bytes,
            flush_bytes: options.flush_bytes,
            slow_write: options.slow_write,
            position: Mutex::new(Position { generation: first_generation(epoch), ..Position::default() }),
            used: AtomicUsize::new(0),
            buffer: Mutex::default(),
        }))
    }

    /// Appends a batch that consists only of events after `after`; returns whether it did.
    pub(super) fn append(&self, batch: &Batch, after: Seq) -> bool {
        let block =
            batch.block.as_ref().filter(|block| batch.is_events_only() && block.bytes.len() <= MAX_APPEND_BYTES);
        let (Some(block), Ok(mut position)) = (block, self.position.try_lock()) else { return false };
        let appended = self.write_record(&mut position, &batch.session, after, block).is_some();
        if appended {
            // With the position locked: a flush must not leave the region between the write and this.
            self.buffer().sessions.entry(batch.session.clone()).or_default().push(block.clone());
        }
        appended
    }

    fn write_record(&self, position: &mut Position, session: &SessionId, after: Seq, block: &Block) -> Option<()> {
        let begun = Instant::now();
        if position.closed || position.resume_at.is_some_and(|at| begun < at) {
            return None;
        }
        position.scratch.clear();
        let start = position.cursor.map_or(0, |cursor| cursor.end);
        let cursor = match position.cursor {
            Some(cursor) => cursor,
            None => Cursor::begin(self.epoch, position.generation, &mut position.scratch),
        };
        let next = cursor.encode(session, after, block, &mut position.scratch)?;
        if next.end > self.region_bytes {
            return None;
        }
        let at = self.region_offset(position.region) + start as u64;
        let written = self.file.write_at(at, &position.scratch);
        // After an error the rest of the region may hold a part of the record, so it is not used.
        let next = if written.is_ok() { next } else { Cursor::at_end(self.region_bytes) };
        position.cursor = Some(next);
        self.used.store(next.end, Ordering::Relaxed);
        let now = Instant::now();
        position.resume_at = pause_after(now - begun, self.slow_write).map(|pause| now + pause);
        written.inspect_err(|error| tracing::warn!(%error, "cannot append to the write-ahead file")).ok()
    }

    /// Returns whether the writer must be notified, which it is then: that there are events, or that a flush is due.
    pub(super) fn must_notify_writer(&self) -> bool {
        let is_due = self.is_due();
        let mut buffer = self.buffer();
        let new = !buffer.writer_notified || (is_due && !buffer.due_notified);
        buffer.writer_notified = true;
        buffer.due_notified |= is_due;
        new
    }

    /// Returns whether enough of the current region is in use for a flush.
    fn is_due(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.flush_bytes
    }

    /// Returns the events of a session that are not known to be in the database, in order.
    ///
    /// A reader asks for them before it reads the database: what is missing here was stored before.
    pub(super) fn blocks_of(&self, session: &SessionId) -> Vec<Block> {
        self.buffer().sessions.get(session).cloned().unwrap_or_default()
    }

    /// Drops the events of a session up to `last`, which are stored now.
    pub(super) fn remove_stored(&self, session: &SessionId, last: Seq) {
        let mut buffer = self.buffer();
        if let Some(blocks) = buffer.sessions.get_mut(session) {
            blocks.retain(|block| block.last > last);
            if blocks.is_empty() {
                buffer.sessions.remove(session);
            }
        }
    }

    /// Drops the events of a session that is deleted. The next flush overwrites them in the file.
    pub(super) fn forget(&self, session: &SessionId) {
        self.buffer().sessions.remove(session);
    }

    /// Accepts no further events.
    pub(super) fn close(&self) {
        self.position().closed = true;
    }

    /// Makes the other region the current one, if it is empty, and returns all events that are to be stored.
    fn begin_flush(&self) -> Vec<(SessionId, Vec<Block>)> {
        let mut position = self.position();
        if let Some(cursor) = position.cursor.filter(|_| position.other_used == 0) {
            position.other_used = cursor.end;
            position.region = 1 - position.region;
            position.generation += 1;
            position.cursor = None;
            self.used.store(0, Ordering::Relaxed);
        }
        let mut buffer = self.buffer();
        (buffer.writer_notified, buffer.due_notified) = (false, false);
        buffer.sessions.iter().map(|(session, blocks)| (session.clone(), blocks.clone())).collect()
    }

    /// Empties the other region, all of which is stored.
    fn end_flush(&self) {
        let position = self.position();
        let (other, used) = (1 - position.region, position.other_used);
        drop(position);
        // Without the lock, because only the writer's thread uses the other region.
        let emptied = self.file.write_at(self.region_offset(other), &vec![0; used]);
        let mut position = self.position();
        position.other_used = 0;
        if let Err(error) = emptied {
            tracing::warn!(%error, "cannot empty the write-ahead file; it is not used until the daemon is restarted");
            position.closed = true;
        }
    }

    /// Returns whether the file holds no record.
    fn is_empty(&self) -> bool {
        let position = self.position();
        position.cursor.is_none() && position.other_used == 0
    }

    const fn region_offset(&self, region: usize) -> u64 {
        (region * self.region_bytes) as u64
    }

    fn position(&self) -> MutexGuard<'_, Position> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the first generation of an epoch.
fn first_generation(epoch: EpochId) -> u64 {
    u64::from(epoch.nonce) << u32::BITS
}

/// Returns whether a region with this number of an epoch and this generation was written in `epoch`.
fn is_of_epoch(number: u64, generation: u64, epoch: EpochId) -> bool {
    number == epoch.number && generation >> u32::BITS == u64::from(epoch.nonce)
}

/// Returns how long nothing is appended after a write that took so long.
///
/// Appending is done on threads that serve all sessions. On a slow file system it takes up at most a hundredth of
/// their time.
fn pause_after(took: Duration, slow: Duration) -> Option<Duration> {
    (took >= slow).then(|| took * 100)
}

/// Joins adjacent blocks into larger ones.
fn join(blocks: impl IntoIterator<Item = Block>) -> Vec<Block> {
    let mut joined: Vec<(Block, Vec<u8>)> = Vec::new();
    for block in blocks {
        match joined.last_mut() {
            Some((whole, bytes))
                if whole.last.next() == block.first
                    && bytes.last() == Some(&b'\n')
                    && bytes.len() + block.bytes.len() <= MAX_JOINED_BYTES =>
            {
                whole.last = block.last;
                whole.count = whole.count.saturating_add(block.count);
                bytes.extend_from_slice(&block.bytes);
            }
            Some(_) | None => joined.push((block.clone(), block.bytes.to_vec())),
        }
    }
    joined.into_iter().map(|(block, bytes)| Block { bytes: bytes.into(), ..block }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_blocks_are_joined_up_to_the_maximum_size() {
        let block = |first: u64, last: u64, bytes: &str| Block {
            first: Seq::new(first),
            last: Seq::new(last),
            count: u32::try_from(last - first + 1).unwrap(),
            bytes: bytes.to_owned().into(),
        };
        let long = format!("{}\n", "x".repeat(MAX_JOINED_BYTES - 4));
        let parts = [
            block(1, 1, "a\n"),
            block(2, 3, "b\nc\n"),
            block(5, 5, "behind a gap"),
            block(6, 6, "behind half a line\n"),
            block(7, 7, &long),
            block(8, 8, "d\n"),
            block(9, 9, "e\n"),
        ];
        let whole = [
            block(1, 3, "a\nb\nc\n"),
            parts[2].clone(),
            parts[3].clone(),
            block(7, 8, &format!("{long}d\n")),
            parts[6].clone(),
        ];
        assert_eq!(join(parts.to_vec()), whole);
    }

    #[test]
    fn a_region_belongs_to_the_epoch_with_its_number_and_its_nonce() {
        let epoch = EpochId { number: 5, nonce: u32::MAX };
        let first = first_generation(epoch);
        assert!(is_of_epoch(5, first, epoch) && is_of_epoch(5, first + 9, epoch));
        assert!(!is_of_epoch(6, first, epoch) && !is_of_epoch(5, first, EpochId { nonce: 0, ..epoch }));
        // Earlier versions began with generation zero, and their marks have zeros in place of the nonce.
        assert!(is_of_epoch(5, 9, EpochId { nonce: 0, ..epoch }) && !is_of_epoch(5, 9, epoch));
    }

    #[test]
    fn a_slow_write_is_followed_by_a_pause() {
        let slow = Duration::from_millis(20);
        assert_eq!(pause_after(Duration::from_millis(19), slow), None);
        assert_eq!(pause_after(Duration::from_millis(30), slow), Some(Duration::from_secs(3)));
    }
}
