//! A bounded buffer of recent events, for subscribers that keep up or reconnect soon.
//!
//! It never grows beyond its limit and never blocks. A subscriber whose position was evicted reads from the journal.

use std::collections::VecDeque;

use super::id::Seq;

/// An item that covers a range of positions.
pub trait Span {
    /// The first position.
    fn first(&self) -> Seq;
    /// The last position.
    fn last(&self) -> Seq;
    /// The cost of keeping it.
    fn weight(&self) -> usize;
}

/// Recent spans, oldest first.
#[derive(Debug)]
pub struct Ring<T> {
    spans: VecDeque<T>,
    weight: usize,
    limit: usize,
    /// The last position that was evicted.
    evicted_through: Seq,
}

/// The events that a subscriber at some position gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Tail<T> {
    /// The spans after its position, oldest first; the first may start before it.
    Spans(Vec<T>),
    /// Its position was evicted.
    Evicted,
}

impl<T: Span + Clone> Ring<T> {
    /// Creates a buffer for the events after `behind` that keeps spans of about `limit` total weight.
    pub const fn new(evicted_through: Seq, limit: usize) -> Self {
        Self { spans: VecDeque::new(), weight: 0, limit, evicted_through }
    }

    /// Adds the newest span and evicts the oldest beyond the limit.
    pub fn push(&mut self, span: T) {
        self.weight += span.weight();
        self.spans.push_back(span);
        while self.weight > self.limit && self.spans.len() > 1 {
            if let Some(old) = self.spans.pop_front() {
                self.weight -= old.weight();
                self.evicted_through = old.last();
            }
        }
    }

    /// Evicts everything and frees the memory.
    pub fn clear(&mut self) {
        self.evicted_through = self.newest();
        self.weight = 0;
        self.spans = VecDeque::new();
    }

    /// Returns the spans after `seen`, up to a total weight of about `limit`.
    pub fn after(&self, seen: Seq, limit: usize) -> Tail<T> {
        if !self.contains_after(seen) {
            return Tail::Evicted;
        }
        let start = self.spans.partition_point(|span| span.last() <= seen);
        let mut weight = 0;
        let mut spans = Vec::new();
        for span in self.spans.range(start..) {
            if weight > 0 && weight + span.weight() > limit {
                break;
            }
            weight += span.weight();
            spans.push(span.clone());
        }
        Tail::Spans(spans)
    }

    /// Returns whether all events after `seen` are still in the buffer.
    pub fn contains_after(&self, seen: Seq) -> bool {
        seen >= self.evicted_through
    }

    /// Returns the newest position that was added.
    pub fn newest(&self) -> Seq {
        self.spans.back().map_or(self.evicted_through, Span::last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Pair(u64, u64);

    impl Span for Pair {
        fn first(&self) -> Seq {
            Seq::new(self.0)
        }
        fn last(&self) -> Seq {
            Seq::new(self.1)
        }
        fn weight(&self) -> usize {
            10
        }
    }

    #[test]
    fn a_subscriber_gets_exactly_the_events_it_missed() {
        let ring = filled();
        assert_eq!(ring.after(Seq::new(4), 100), Tail::Spans(vec![Pair(5, 6), Pair(9, 9)]));
        assert_eq!(ring.after(Seq::new(5), 100), Tail::Spans(vec![Pair(5, 6), Pair(9, 9)]));
        assert_eq!(ring.after(Seq::new(8), 100), Tail::Spans(vec![Pair(9, 9)]));
        assert_eq!(ring.after(Seq::new(9), 100), Tail::Spans(vec![]));
    }

    #[test]
    fn a_cleared_buffer_continues_after_its_newest_position() {
        let mut ring = filled();
        ring.clear();
        assert_eq!((ring.newest(), ring.after(Seq::new(8), 100)), (Seq::new(9), Tail::Evicted));
        ring.push(Pair(10, 12));
        assert_eq!(ring.after(Seq::new(9), 100), Tail::Spans(vec![Pair(10, 12)]));
        assert_eq!(ring.weight, 10);
    }

    #[test]
    fn an_evicted_position_is_reported() {
        let ring = filled();
        assert_eq!(ring.after(Seq::new(1), 100), Tail::Evicted);
        assert_eq!(ring.after(Seq::new(2), 10), Tail::Spans(vec![Pair(3, 4)]));
        assert_eq!(ring.newest(), Seq::new(9));
    }

    fn filled() -> Ring<Pair> {
        let mut ring = Ring::new(Seq::ZERO, 30);
        for pair in [Pair(1, 2), Pair(3, 4), Pair(5, 6), Pair(9, 9)] {
            ring.push(pair);
        }
        ring
    }
}
