//! The cache of idempotency keys: a repeated message gets the reply of the first one and is not executed again.
//!
//! It is bounded. Beyond its limit the oldest entries whose run has ended are evicted.

use std::collections::{BTreeMap, VecDeque};

use super::id::{Fingerprint, MessageId, RunId};
use super::refusal::Refusal;

/// The commands that share one key space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySpace {
    /// Messages that start a run, now or later.
    Prompt,
    /// Steering messages.
    Steer,
}

/// The stored facts about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntry {
    /// Digest of the command.
    pub fingerprint: Fingerprint,
    /// The run of the command.
    pub run: RunId,
}

/// A key in its key space.
pub type Key = (KeySpace, MessageId);

/// The bounded cache of idempotency keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdempotencyCache {
    entries: BTreeMap<Key, KeyEntry>,
    order: VecDeque<Key>,
}

impl IdempotencyCache {
    /// Builds a cache from entries in order of arrival.
    pub fn from_entries(entries: impl IntoIterator<Item = (Key, KeyEntry)>) -> Self {
        let mut ledger = Self::default();
        for (key, entry) in entries {
            ledger.insert(key, entry);
        }
        ledger
    }

    /// Inserts or replaces an entry; a known key keeps its place in the eviction order.
    pub fn insert(&mut self, key: Key, entry: KeyEntry) {
        if self.entries.insert(key.clone(), entry).is_none() {
            self.order.push_back(key);
        }
    }

    /// Removes a key, so that it may be used again.
    pub fn remove(&mut self, key: &Key) {
        if self.entries.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }

    /// Evicts the oldest entries beyond `limit`, except those whose run `is_live`.
    pub fn evict(&mut self, limit: usize, is_live: impl Fn(&RunId) -> bool) {
        let mut at = 0;
        while self.order.len() > limit && at < self.order.len() {
            let live = self.entries.get(&self.order[at]).is_some_and(|entry| is_live(&entry.run));
            if live {
                at += 1;
            } else if let Some(key) = self.order.remove(at) {
                self.entries.remove(&key);
            }
        }
    }

    /// Returns the run of a repeated command, `None` for a new one, and a refusal if the key belongs to another
    /// command.
    pub fn lookup(&self, key: &Key, fingerprint: Fingerprint) -> Result<Option<&RunId>, Refusal> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(entry) if entry.fingerprint == fingerprint => Ok(Some(&entry.run)),
            Some(_) => Err(Refusal::KeyConflict),
        }
    }

    /// Returns all entries in order of arrival.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &KeyEntry)> {
        self.order.iter().filter_map(|key| self.entries.get_key_value(key))
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
