//! The participants attached to a session and their rights.
//!
//! Participants come and go with their connections, so the roster is neither journaled nor restored.

use std::collections::BTreeMap;

use super::command::{Caller, Rights};
use super::id::ParticipantId;
use super::refusal::Refusal;

/// The attached participants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roster {
    rights: BTreeMap<ParticipantId, Rights>,
}

impl Roster {
    /// Attaches a participant, or changes the rights of an attached one.
    pub fn join(&mut self, who: ParticipantId, rights: Rights, limit: usize) -> Result<(), Refusal> {
        if !self.rights.contains_key(&who) && self.rights.len() >= limit {
            return Err(Refusal::TooManyParticipants);
        }
        self.rights.insert(who, rights);
        Ok(())
    }

    /// Detaches a participant.
    pub fn leave(&mut self, who: ParticipantId) {
        self.rights.remove(&who);
    }

    /// Returns whether a participant is attached.
    pub fn contains(&self, who: ParticipantId) -> bool {
        self.rights.contains_key(&who)
    }

    /// Returns the rights of a caller: those of its connection, limited by those of its attachment.
    pub fn rights(&self, caller: &Caller) -> Rights {
        match self.rights.get(&caller.id) {
            Some(attached) => caller.rights.and(*attached),
            None => caller.rights,
        }
    }

    /// Returns the rights of an attached participant.
    pub fn attached_rights(&self, who: ParticipantId) -> Option<Rights> {
        self.rights.get(&who).copied()
    }

    /// Returns whether no participant is attached.
    pub fn is_empty(&self) -> bool {
        self.rights.is_empty()
    }

    /// Returns the number of attached participants.
    pub fn len(&self) -> usize {
        self.rights.len()
    }
}
