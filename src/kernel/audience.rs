//! Audiences: who may see an event.
//!
//! An event for an audience is stored like any other, and a subscriber outside its audience never receives a byte of it:
//! it sees a gap in the sequence numbers. The owner of the daemon is no exception; it reads everything only through a
//! command that is itself recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::id::{Json, ParticipantId};
use super::participant::{Participant, Role};

/// Who may see an event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Audience {
    /// Everybody who may read the session.
    #[default]
    All,
    /// These participants.
    Participants(BTreeSet<ParticipantId>),
    /// The participants that hold a role when the event is delivered.
    Role(Role),
    /// An audience that a later version recorded: a JSON value. This version shows such an event to nobody else.
    Unknown(Json),
}

/// Who looks at the events of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Viewer {
    /// The owner of the daemon, as one reader among others.
    Owner,
    /// The owner of the daemon, who asked to see everything; that was recorded.
    Auditor,
    /// A participant with the roles that it has now.
    Participant {
        /// Its id.
        id: ParticipantId,
        /// Its roles.
        roles: BTreeSet<Role>,
    },
    /// Somebody who does not take part.
    Nobody,
}

impl Viewer {
    /// Returns the viewer behind a connection.
    pub fn new(participant: Option<&ParticipantId>, participants: &BTreeMap<ParticipantId, Participant>) -> Self {
        let Some(id) = participant else { return Self::Owner };
        let known = participants.get(id);
        known.map_or(Self::Nobody, |known| Self::Participant { id: id.clone(), roles: known.roles.clone() })
    }
}

impl Audience {
    /// Returns whether everybody may see the event.
    pub const fn is_public(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Returns whether a viewer may see the event.
    pub fn contains(&self, viewer: &Viewer) -> bool {
        match (self, viewer) {
            (_, Viewer::Nobody) => false,
            (Self::All, _) | (_, Viewer::Auditor) => true,
            (Self::Participants(_) | Self::Role(_), Viewer::Owner) | (Self::Unknown(_), _) => false,
            (Self::Participants(named), Viewer::Participant { id, .. }) => named.contains(id),
            (Self::Role(role), Viewer::Participant { roles, .. }) => roles.contains(role),
        }
    }
}
