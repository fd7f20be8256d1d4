//! What a session shows: a ring of encoded blocks that every listener reads at its own place.
//!
//! A block is encoded once and its bytes are shared. Nothing is queued for anybody: a listener that is slow falls out
//! of the ring and reads the journal, and the lane never notices. The lock is held to copy a few pointers, never while
//! anything is written or awaited.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::outbox::Outbox;
use crate::kernel::command::Rights;
use crate::kernel::id::{ParticipantId, Seq, SessionId};
use crate::kernel::ring::{Ring, Span, Tail};
use crate::protocol::push::record;

/// A run of events as the lines that listeners get.
#[derive(Debug, Clone)]
pub struct Block {
    /// The position of its first event.
    pub first: Seq,
    /// The position of its last event.
    pub last: Seq,
    /// Its lines.
    pub lines: Bytes,
}

impl Block {
    /// Returns the lines after `seen` and up to `until`.
    pub fn between(&self, seen: Seq, until: Seq) -> Bytes {
        self.lines.slice(between(&self.lines, (self.first, self.last), seen, until))
    }
}

/// Returns where the lines after `seen` and up to `until` are among those of the events from `first` to `last`.
pub(super) fn between(lines: &[u8], (first, last): (Seq, Seq), seen: Seq, until: Seq) -> Range<usize> {
    let start = if seen < first { 0 } else { offset_after(lines, seen) };
    let end = if until >= last { lines.len() } else { offset_after(lines, until) };
    start.min(end)..end
}

impl Span for Block {
    fn first(&self) -> Seq {
        self.first
    }

    fn last(&self) -> Seq {
        self.last
    }

    fn weight(&self) -> usize {
        // What stands around the bytes counts too, so that a stream of tiny blocks is bounded as well.
        self.lines.len() + 128
    }
}

/// The shared end of a session's events.
#[derive(Debug)]
pub struct Feed {
    session: SessionId,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    ring: Ring<Block>,
    listeners: Vec<Listener>,
}

/// Somebody who is woken when something is shown.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Where it listens.
    pub outbox: Arc<Outbox>,
    /// What it may do, for the next life of a session that broke under it.
    pub rights: Rights,
}

impl Feed {
    /// Makes a feed for the events after `newest`.
    pub fn new(session: SessionId, newest: Seq, ring_bytes: usize) -> Self {
        let ring = Ring::new(newest, ring_bytes);
        Self { session, inner: Mutex::new(Inner { ring, listeners: Vec::new() }) }
    }

    /// Returns the session whose events these are.
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    /// Shows a block to all listeners.
    pub fn show(&self, block: Block) {
        let listeners = {
            let mut inner = self.lock();
            inner.ring.push(block);
            inner.listeners.clone()
        };
        for listener in listeners {
            listener.outbox.wake();
        }
    }

    /// Returns what follows `seen`, at most about `limit` bytes.
    pub fn after(&self, seen: Seq, limit: usize) -> Tail<Block> {
        self.lock().ring.after(seen, limit)
    }

    /// Tells whether everything after `seen` is still here.
    pub fn holds_after(&self, seen: Seq) -> bool {
        self.lock().ring.holds_after(seen)
    }

    /// Returns the newest position that was shown.
    pub fn newest(&self) -> Seq {
        self.lock().ring.newest()
    }

    /// Wakes a listener from now on whenever something is shown.
    pub fn add(&self, listener: Listener) {
        let mut inner = self.lock();
        inner.listeners.retain(|known| known.outbox.id() != listener.outbox.id());
        inner.listeners.push(listener);
    }

    /// Returns who is woken.
    pub fn listeners(&self) -> Vec<Listener> {
        self.lock().listeners.clone()
    }

    /// Wakes a listener no longer.
    pub fn remove(&self, listener: ParticipantId) {
        self.lock().listeners.retain(|known| known.outbox.id() != listener);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns where the first line after `seen` begins; positions rise from line to line, so that halving finds it.
fn offset_after(lines: &[u8], seen: Seq) -> usize {
    let (mut low, mut high) = (0, lines.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let start = memchr::memrchr(b'\n', &lines[low..middle]).map_or(low, |at| low + at + 1);
        let end = memchr::memchr(b'\n', &lines[middle..high]).map_or(high, |at| middle + at + 1);
        if record::seq_of(&lines[start..end]).is_some_and(|seq| seq > seen) {
            high = start;
        } else {
            low = end;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_their_positions() {
        let seqs = [2_u64, 3, 7, 8, 9, 40];
        let line = |seq: &u64| format!("{{\"seq\":{seq},\"text\":\"{}\"}}\n", "x".repeat(*seq as usize * 5));
        let text: String = seqs.iter().map(line).collect();
        let ends = (Seq::new(2), Seq::new(40));
        for seen in 0..=41 {
            for until in seen..=41 {
                let found = between(text.as_bytes(), ends, Seq::new(seen), Seq::new(until));
                let wanted: String =
                    seqs.iter().filter(|seq| **seq > seen && **seq <= until).map(line).collect();
                assert_eq!(text[found], wanted, "after {seen} up to {until}");
            }
        }
        assert!(between(b"", ends, Seq::ZERO, Seq::new(9)).is_empty());
    }
}
