//! The memory of what was asked under which key, so that a repeated command is answered and not carried out again.
//!
//! It is bounded: past its limit the oldest entries whose run is over are forgotten.

use std::collections::{BTreeMap, VecDeque};

use super::id::{Fingerprint, MessageId, RunId};
use super::refusal::Refusal;

/// Which commands share one space of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Messages that begin a run, now or later.
    Prompt,
    /// Messages into a run.
    Steer,
}

/// What is remembered of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it asked for.
    pub fingerprint: Fingerprint,
    /// What came of it.
    pub run: RunId,
}

/// A key in its scope.
pub type Key = (Scope, MessageId);

/// The memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    entries: BTreeMap<Key, Entry>,
    order: VecDeque<Key>,
}

impl Ledger {
    /// Builds a ledger from entries in the order of their arrival.
    pub fn from_entries(entries: impl IntoIterator<Item = (Key, Entry)>) -> Self {
        let mut ledger = Self::default();
        for (key, entry) in entries {
            ledger.insert(key, entry);
        }
        ledger
    }

    /// Remembers `entry`, unless its key is known already.
    pub fn insert(&mut self, key: Key, entry: Entry) {
        if self.entries.insert(key.clone(), entry).is_none() {
            self.order.push_back(key);
        }
    }

    /// Forgets a key, so that it may be used again.
    pub fn remove(&mut self, key: &Key) {
        if self.entries.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }

    /// Forgets the oldest entries past `limit`, except those whose run `is_live`.
    pub fn trim(&mut self, limit: usize, is_live: impl Fn(&RunId) -> bool) {
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

    /// Returns the run of a repeated command, `None` for a new one, and a refusal when the key stands for another.
    pub fn recall(&self, key: &Key, fingerprint: Fingerprint) -> Result<Option<&RunId>, Refusal> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(entry) if entry.fingerprint == fingerprint => Ok(Some(&entry.run)),
            Some(_) => Err(Refusal::KeyConflict),
        }
    }

    /// Returns everything remembered, in the order of arrival.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.order.iter().filter_map(|key| self.entries.get_key_value(key))
    }

    /// Returns how many keys are remembered.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Tells whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
