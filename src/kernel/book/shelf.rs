//! The bounded cache of finished commands.
//!
//! Beyond its limit the oldest outcome is evicted. Large reply bodies share a limit of their own: beyond it the
//! oldest bodies are dropped, and the remaining outcomes still prevent a repeated execution.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::id::SessionId;
use super::super::time::Now;
use super::limits::BookLimits;
use super::record::{Body, Outcome, Record, mention};

/// A slot in the cache; slots are ordered by when the commands ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot(u64);

/// A finished command.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) record: Arc<Record>,
    pub(super) outcome: Outcome,
    pub(super) at: Now,
}

/// The cache of finished commands.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    done: BTreeMap<Spot, Done>,
    next: u64,
    /// The slots with a large body, and its size.
    large: BTreeMap<Spot, usize>,
    large_bytes: usize,
}

impl Shelf {
    /// Adds a command as the newest.
    pub(super) fn put(&mut self, done: Done, limits: &BookLimits) -> Spot {
        let spot = Spot(self.next);
        self.next += 1;
        let bytes = done.outcome.body.len();
        self.done.insert(spot, done);
        if bytes > limits.body_bytes {
            self.large.insert(spot, bytes);
            self.large_bytes += bytes;
            self.shrink(limits.large_bytes);
        }
        spot
    }

    /// Evicts the oldest command if there are more than `most`.
    pub(super) fn pop_beyond(&mut self, most: usize) -> Option<(Spot, Done)> {
        if self.done.len() <= most {
            return None;
        }
        let (spot, done) = self.done.pop_first()?;
        self.unweigh(spot);
        Some((spot, done))
    }

    /// Removes all commands of a session, and the reply bodies of other commands that mention it.
    pub(super) fn erase(&mut self, session: &SessionId) -> Vec<(Spot, Done)> {
        let own = |done: &Done| done.record.session.as_ref() == Some(session);
        let mut emptied: Vec<Spot> =
            self.done.iter().filter(|(_, done)| own(done)).map(|(spot, _)| *spot).collect();
        let erased = emptied.iter().filter_map(|spot| Some((*spot, self.done.remove(spot)?))).collect();
        let words = mention(session);
        for (spot, done) in &mut self.done {
            if done.outcome.body.text().is_some_and(|text| text.contains(&words)) {
                done.outcome.body = Body::Gone;
                emptied.push(*spot);
            }
        }
        for spot in emptied {
            self.unweigh(spot);
        }
        erased
    }

    pub(super) fn get(&self, spot: Spot) -> Option<&Done> {
        self.done.get(&spot)
    }

    pub(super) fn len(&self) -> usize {
        self.done.len()
    }

    fn shrink(&mut self, most: usize) {
        while self.large_bytes > most {
            let Some((spot, bytes)) = self.large.pop_first() else { return };
            self.large_bytes -= bytes;
            if let Some(done) = self.done.get_mut(&spot) {
                done.outcome.body = Body::TooLarge(bytes as u64);
            }
        }
    }

    fn unweigh(&mut self, spot: Spot) {
        if let Some(bytes) = self.large.remove(&spot) {
            self.large_bytes -= bytes;
        }
    }
}
