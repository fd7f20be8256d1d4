//! The connections attached to a session: the participant of each, and its rights.
//!
//! Connections come and go, so the roster is neither journaled nor restored.

use std::collections::BTreeMap;

use super::command::{Caller, Rights};
use super::id::{ConnectionId, ParticipantId};
use super::participant::Presence;
use super::refusal::Refusal;

/// The attached connections.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roster {
    attachments: BTreeMap<ConnectionId, Attachment>,
}

/// An attached connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// The participant that it belongs to; `None` means the owner of the daemon.
    pub participant: Option<ParticipantId>,
    /// The upper bound of its rights.
    pub rights: Rights,
    /// Whether the owner reads everything through it; that was recorded.
    pub audits: bool,
}

impl Roster {
    /// Attaches a connection, or changes the rights of an attached one.
    pub fn attach(&mut self, caller: &Caller, rights: Rights, limit: usize) -> Result<(), Refusal> {
        if !self.contains(caller.id) && self.attachments.len() >= limit {
            return Err(Refusal::TooManyAttached);
        }
        let participant = caller.participant.clone();
        self.attachments.insert(caller.id, Attachment { participant, rights, audits: false });
        Ok(())
    }

    /// Lets an attached connection of the owner read everything.
    pub fn set_audits(&mut self, who: ConnectionId) {
        if let Some(attached) = self.attachments.get_mut(&who) {
            attached.audits = true;
        }
    }

    /// Detaches a connection.
    pub fn detach(&mut self, who: ConnectionId) {
        self.attachments.remove(&who);
        if self.attachments.is_empty() {
            // A map that was not empty keeps a node.
            self.attachments = BTreeMap::new();
        }
    }

    /// Returns whether a connection is attached.
    pub fn contains(&self, who: ConnectionId) -> bool {
        self.attachments.contains_key(&who)
    }

    /// Returns the attachment of a connection.
    pub fn get(&self, who: ConnectionId) -> Option<&Attachment> {
        self.attachments.get(&who)
    }

    /// Returns the upper bound of a caller's rights: that of its connection, limited by its attachment.
    pub fn bound(&self, caller: &Caller) -> Rights {
        self.get(caller.id).map_or(caller.rights, |attached| caller.rights.and(attached.rights))
    }

    /// Returns the connections of a participant.
    pub fn connections_of<'a>(&'a self, participant: &'a ParticipantId) -> impl Iterator<Item = ConnectionId> + 'a {
        let of_it = |(_, attached): &(_, &'a Attachment)| attached.participant.as_ref() == Some(participant);
        self.attachments.iter().filter(of_it).map(|(id, _)| *id)
    }

    /// Returns whether a participant can be reached.
    pub fn presence(&self, participant: &ParticipantId) -> Presence {
        if self.connections_of(participant).next().is_some() { Presence::Online } else { Presence::Offline }
    }

    /// Returns whether no connection is attached.
    pub fn is_empty(&self) -> bool {
        self.attachments.is_empty()
    }

    /// Returns the number of attached connections.
    pub fn len(&self) -> usize {
        self.attachments.len()
    }
}
