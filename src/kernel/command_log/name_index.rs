//! An index from ids and keys to commands.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::super::id::SessionId;
use super::outcome_cache::OutcomeSlot;
use super::record::CommandRecord;
use super::submission::SubmissionId;

/// Where a command is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// It is in flight, or repeats one that is.
    Active(SubmissionId),
    /// It has finished.
    Finished(OutcomeSlot),
}

/// The index of ids and keys. Each name refers to the command that used it last; unbinding a command leaves names
/// alone that refer to another.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    ids: BTreeMap<Arc<str>, Location>,
    keys: BTreeMap<(Option<SessionId>, Arc<str>), Location>,
}

impl NameIndex {
    pub(super) fn bind(&mut self, record: &CommandRecord, location: Location) {
        if let Some(id) = &record.id {
            self.ids.insert(Arc::clone(id), location);
        }
        if let Some(key) = &record.key {
            self.keys.insert((record.session.clone(), Arc::clone(key)), location);
        }
    }

    /// Redirects the names of a command from `from` to `to`.
    pub(super) fn rebind(&mut self, record: &CommandRecord, from: Location, to: Location) {
        if let Some(location) = record.id.as_ref().and_then(|id| self.ids.get_mut(id))
            && *location == from
        {
            *location = to;
        }
        if let Some(key) = &record.key
            && let Some(location) = self.keys.get_mut(&(record.session.clone(), Arc::clone(key)))
            && *location == from
        {
            *location = to;
        }
    }

    /// Removes the names of a command that refer to the given location.
    pub(super) fn unbind(&mut self, record: &CommandRecord, location: Location) {
        if let Some(id) = &record.id
            && let Entry::Occupied(known) = self.ids.entry(Arc::clone(id))
            && *known.get() == location
        {
            known.remove();
        }
        if let Some(key) = &record.key
            && let Entry::Occupied(known) = self.keys.entry((record.session.clone(), Arc::clone(key)))
            && *known.get() == location
        {
            known.remove();
        }
    }

    pub(super) fn id(&self, id: &str) -> Option<Location> {
        self.ids.get(id).copied()
    }

    pub(super) fn key(&self, session: Option<&SessionId>, key: &Arc<str>) -> Option<Location> {
        self.keys.get(&(session.cloned(), Arc::clone(key))).copied()
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }
}
