//! The fan-out of a session's events: a ring of blocks that every subscriber reads at its own position.
//!
//! A block holds the records of its events, and at most one further encoding for each protocol whose clients have read
//! it, made by the first of them and shared by all. Nothing is queued per subscriber: a slow one falls out of the
//! ring and reads the journal instead, without delaying the lane. The lock is held only to copy a few pointers, never
//! across I/O or an await.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tracing::warn;

use super::outbox::{EventForm, Outbox};
use crate::kernel::audience::Viewer;
use crate::kernel::event::Event;
use crate::kernel::id::{ConnectionId, Seq, SessionId};
use crate::kernel::ring::{Ring, Span, Tail};
use crate::kernel::roster::Attachment;
use crate::protocol::EncodingKey;
use crate::record;

/// Consecutive events of a session.
#[derive(Debug, Clone)]
pub struct Block {
    /// The position of its first event.
    pub first: Seq,
    /// The position of its last event.
    pub last: Seq,
    /// The records of its events, one line each.
    pub lines: Bytes,
    /// Whether an event of it has an audience.
    restricted: bool,
    other_forms: Arc<OtherForms>,
}

/// The forms of a block besides its records.
#[derive(Debug, Default)]
struct OtherForms {
    events: OnceLock<Box<[Event]>>,
    encodings: Mutex<Vec<(EncodingKey, Bytes)>>,
}

impl Block {
    /// Creates a block from the records of its events.
    pub fn new(first: Seq, last: Seq, lines: Bytes) -> Self {
        Self { first, last, lines, restricted: false, other_forms: Arc::default() }
    }

    /// Marks the block as one that not everybody may see whole.
    pub fn restricted(self) -> Self {
        Self { restricted: true, ..self }
    }

    /// Returns whether not everybody may see the block whole.
    pub const fn is_restricted(&self) -> bool {
        self.restricted
    }

    /// Adds the events, so that nobody needs to decode them.
    pub fn with_events(self, events: Vec<Event>) -> Self {
        // A new block has none.
        let _ = self.other_forms.events.set(events.into_boxed_slice());
        self
    }

    /// Returns the events; they are decoded once unless the block was created with them. An event that cannot be
    /// decoded is left out, with a warning.
    pub fn events(&self) -> &[Event] {
        self.other_forms.events.get_or_init(|| decode_lines(&self.lines).into_boxed_slice())
    }

    /// Returns the block in the encoding `key`, which `encode` makes from the events if nobody has before.
    pub fn encoding(&self, key: EncodingKey, encode: impl FnOnce(&[Event]) -> Vec<u8>) -> Bytes {
        let mut encodings = self.other_forms.encodings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = encodings.iter().find(|(known, _)| *known == key) {
            return bytes.clone();
        }
        let bytes = Bytes::from(encode(self.events()));
        encodings.push((key, bytes.clone()));
        bytes
    }

    /// Returns the lines of the events after `seen` and up to `until`.
    pub fn lines_between(&self, seen: Seq, until: Seq) -> Bytes {
        self.lines.slice(range_between(&self.lines, (self.first, self.last), seen, until))
    }
}

/// Returns the lines of the events that a viewer may see. A line whose audience cannot be decoded is left out.
pub(super) fn visible_lines(lines: &[u8], viewer: &Viewer) -> Vec<u8> {
    let may_see = |line: &&[u8]| {
        !record::names_audience(line) || record::decode_event(line).is_ok_and(|event| event.audience.contains(viewer))
    };
    lines.split_inclusive(|byte| *byte == b'\n').filter(may_see).flatten().copied().collect()
}

/// Decodes the records of events. One that cannot be decoded is left out, with a warning.
pub(super) fn decode_lines(lines: &[u8]) -> Vec<Event> {
    let decode = |line| match record::decode_event(line) {
        Ok(event) => Some(event),
        Err(error) => {
            warn!(%error, "cannot decode an event; subscribers do not receive it");
            None
        }
    };
    lines.split_inclusive(|byte| *byte == b'\n').filter_map(decode).collect()
}

/// Returns the range of the lines after `seen` and up to `until` within the lines of the events `first` to `last`.
pub(super) fn range_between(lines: &[u8], (first, last): (Seq, Seq), seen: Seq, until: Seq) -> Range<usize> {
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
        // The overhead of a block counts too, so that a stream of tiny blocks is bounded.
        self.lines.len() + 128
    }
}

/// The most recent events of a session, and its subscribers.
#[derive(Debug)]
pub struct Feed {
    session: SessionId,
    /// Whether the session has events that not everybody may see.
    restricted: AtomicBool,
    state: Mutex<FeedState>,
}

#[derive(Debug)]
struct FeedState {
    ring: Ring<Block>,
    subscribers: Vec<Subscriber>,
}

/// A connection that is woken when a block is published.
#[derive(Debug, Clone)]
pub struct Subscriber {
    /// The outbox of the connection.
    pub outbox: Arc<Outbox>,
    /// Its participant and its rights.
    pub attachment: Attachment,
    /// Who reads through it, with the roles of now.
    pub viewer: Viewer,
}

impl Feed {
    /// Creates a feed for the events after `newest`.
    pub fn new(session: SessionId, newest: Seq, ring_bytes: usize) -> Self {
        let ring = Ring::new(newest, ring_bytes);
        let state = Mutex::new(FeedState { ring, subscribers: Vec::new() });
        Self { session, restricted: AtomicBool::new(false), state }
    }

    /// Returns the session of the feed.
    pub const fn session(&self) -> &SessionId {
        &self.session
    }

    /// Adds a block to the ring and wakes all subscribers.
    pub fn publish(&self, block: Block) {
        let listeners = {
            let mut inner = self.lock();
            inner.ring.push(block);
            inner.subscribers.clone()
        };
        for listener in listeners {
            listener.outbox.wake();
        }
    }

    /// Returns the blocks after `seen`, at most about `limit` bytes.
    pub fn after(&self, seen: Seq, limit: usize) -> Tail<Block> {
        self.lock().ring.after(seen, limit)
    }

    /// Empties the ring: whoever subscribes next reads the journal.
    pub fn clear(&self) {
        self.lock().ring.clear();
    }

    /// Returns whether the ring still holds everything after `seen`.
    pub fn contains_after(&self, seen: Seq) -> bool {
        self.lock().ring.contains_after(seen)
    }

    /// Returns the newest published position.
    pub fn newest(&self) -> Seq {
        self.lock().ring.newest()
    }

    /// Wakes a connection from now on whenever a block is published.
    pub fn subscribe(&self, listener: Subscriber) {
        let mut inner = self.lock();
        inner.subscribers.retain(|known| known.outbox.id() != listener.outbox.id());
        inner.subscribers.push(listener);
    }

    /// Returns the subscribers.
    pub fn subscribers(&self) -> Vec<Subscriber> {
        self.lock().subscribers.clone()
    }

    /// Records that the session has events that not everybody may see.
    pub fn set_restricted(&self) {
        self.restricted.store(true, Ordering::Release);
    }

    /// Returns whether the session has events that not everybody may see.
    pub fn is_restricted(&self) -> bool {
        self.restricted.load(Ordering::Acquire)
    }

    /// Determines who reads through each connection again, after the participants have changed.
    pub fn set_viewers(&self, viewer: impl Fn(&Attachment) -> Viewer) {
        for known in &mut self.lock().subscribers {
            known.viewer = viewer(&known.attachment);
        }
    }

    /// Returns who reads through a connection.
    pub fn viewer(&self, connection: ConnectionId) -> Viewer {
        let inner = self.lock();
        let known = inner.subscribers.iter().find(|known| known.outbox.id() == connection);
        known.map_or(Viewer::Nobody, |known| known.viewer.clone())
    }

    /// Returns the outbox of a subscribed connection.
    pub fn outbox_of(&self, connection: ConnectionId) -> Option<Arc<Outbox>> {
        let inner = self.lock();
        let known = inner.subscribers.iter().find(|known| known.outbox.id() == connection);
        known.map(|known| Arc::clone(&known.outbox))
    }

    /// Returns whether a subscriber reads the events themselves and not their records.
    pub fn has_event_readers(&self) -> bool {
        self.lock().subscribers.iter().any(|known| known.outbox.event_form() == EventForm::Event)
    }

    /// Stops waking a connection.
    pub fn unsubscribe(&self, listener: ConnectionId) {
        let mut inner = self.lock();
        inner.subscribers.retain(|known| known.outbox.id() != listener);
        if inner.subscribers.is_empty() {
            inner.subscribers = Vec::new();
        }
    }

    fn lock(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the offset of the first line after `seen`. Positions increase from line to line, so a binary search finds
/// it.
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
    use crate::kernel::audience::Audience;
    use crate::kernel::event::{EventKind, NoticeEvent};
    use crate::kernel::time::Now;

    #[test]
    fn a_block_is_encoded_once_for_each_protocol() {
        let kind = EventKind::Notice(NoticeEvent::Warned { code: "W".into(), message: "m".into(), detail: None });
        let event = Event {
            seq: Seq::new(1),
            at: Now(1),
            run: None,
            version: None,
            origin: None,
            audience: Audience::All,
            kind,
        };
        let mut lines = Vec::new();
        record::event_line(&SessionId::from("s"), &event, &mut lines);
        let block = Block::new(event.seq, event.seq, lines.into());
        let other = block.clone();
        assert_eq!(block.events(), std::slice::from_ref(&event), "decoded from its record");
        let encode = |text: &'static str| move |events: &[Event]| format!("{text}{}", events.len()).into_bytes();
        assert_eq!(block.encoding(EncodingKey("a"), encode("a")), "a1");
        assert_eq!(other.encoding(EncodingKey("a"), encode("again")), "a1");
        assert_eq!(other.encoding(EncodingKey("b"), encode("b")), "b1");
        let kept = Block::new(event.seq, event.seq, Bytes::new()).with_events(vec![event.clone()]);
        assert_eq!(kept.events(), [event], "as given, and not decoded");
    }

    #[test]
    fn lines_are_found_by_their_positions() {
        let seqs = [2_u64, 3, 7, 8, 9, 40];
        let line = |seq: &u64| format!("{{\"seq\":{seq},\"text\":\"{}\"}}\n", "x".repeat(*seq as usize * 5));
        let text: String = seqs.iter().map(line).collect();
        let ends = (Seq::new(2), Seq::new(40));
        for seen in 0..=41 {
            for until in seen..=41 {
                let found = range_between(text.as_bytes(), ends, Seq::new(seen), Seq::new(until));
                let wanted: String = seqs.iter().filter(|seq| **seq > seen && **seq <= until).map(line).collect();
                assert_eq!(text[found], wanted, "after {seen} up to {until}");
            }
        }
        assert!(range_between(b"", ends, Seq::ZERO, Seq::new(9)).is_empty());
    }
}
