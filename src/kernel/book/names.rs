//! An index from ids and keys to commands.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::super::id::SessionId;
use super::record::Record;
use super::shelf::Spot;
use super::submission::Ticket;

/// Where a command is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// It is in flight, or repeats one that is.
    Flying(Ticket),
    /// It has finished.
    Shelved(Spot),
}

/// The index of ids and keys. Each name refers to the command that used it last; unbinding a command leaves names
/// alone that refer to another.
#[derive(Debug, Default)]
pub(super) struct Names {
    ids: BTreeMap<Arc<str>, Place>,
    keys: BTreeMap<(Option<SessionId>, Arc<str>), Place>,
}

impl Names {
    pub(super) fn bind(&mut self, record: &Record, place: Place) {
        if let Some(id) = &record.id {
            self.ids.insert(Arc::clone(id), place);
        }
        if let Some(key) = &record.key {
            self.keys.insert((record.session.clone(), Arc::clone(key)), place);
        }
    }

    /// Redirects the names of a command from `from` to `to`.
    pub(super) fn rebind(&mut self, record: &Record, from: Place, to: Place) {
        if let Some(place) = record.id.as_ref().and_then(|id| self.ids.get_mut(id))
            && *place == from
        {
            *place = to;
        }
        if let Some(key) = &record.key
            && let Some(place) = self.keys.get_mut(&(record.session.clone(), Arc::clone(key)))
            && *place == from
        {
            *place = to;
        }
    }

    /// Removes the names of a command that refer to the given location.
    pub(super) fn unbind(&mut self, record: &Record, place: Place) {
        if let Some(id) = &record.id
            && let Entry::Occupied(known) = self.ids.entry(Arc::clone(id))
            && *known.get() == place
        {
            known.remove();
        }
        if let Some(key) = &record.key
            && let Entry::Occupied(known) = self.keys.entry((record.session.clone(), Arc::clone(key)))
            && *known.get() == place
        {
            known.remove();
        }
    }

    pub(super) fn id(&self, id: &str) -> Option<Place> {
        self.ids.get(id).copied()
    }

    pub(super) fn key(&self, session: Option<&SessionId>, key: &Arc<str>) -> Option<Place> {
        self.keys.get(&(session.cloned(), Arc::clone(key))).copied()
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }
}
