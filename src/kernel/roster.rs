//! Who is attached to a session, and what each may do.
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
    /// Attaches a participant, or gives an attached one other rights.
    pub fn join(&mut self, who: ParticipantId, rights: Rights, limit: usize) -> Result<(), Refusal> {
        if !self.rights.contains_key(&who) && self.rights.len() >= limit {
            return Err(Refusal::TooManyParticipants);
        }
        self.rights.insert(who, rights);
        Ok(())
    }

    /// Lets a participant go.
    pub fn leave(&mut self, who: ParticipantId) {
        self.rights.remove(&who);
    }

    /// Tells whether a participant is attached.
    pub fn contains(&self, who: ParticipantId) -> bool {
        self.rights.contains_key(&who)
    }

    /// Returns what a caller may do: what its connection allows and its attachment does not take away.
    pub fn rights(&self, caller: &Caller) -> Rights {
        match self.rights.get(&caller.id) {
            Some(attached) => caller.rights.and(*attached),
            None => caller.rights,
        }
    }

    /// Returns what an attached participant may do.
    pub fn of(&self, who: ParticipantId) -> Option<Rights> {
        self.rights.get(&who).copied()
    }

    /// Tells whether nobody is attached.
    pub fn is_empty(&self) -> bool {
        self.rights.is_empty()
    }

    /// Returns how many are attached.
    pub fn len(&self) -> usize {
        self.rights.len()
    }
}
