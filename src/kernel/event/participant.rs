//! Events of participants.

use std::collections::BTreeSet;

use crate::kernel::id::{Json, ParticipantId};
use crate::kernel::participant::{Participant, Rights, Role};

/// An event of a participant. The owner of the daemon takes part without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParticipantEvent {
    /// A participant joined the session.
    Joined {
        /// The participant.
        participant: Box<Participant>,
        /// Who admitted it.
        by: String,
    },
    /// A participant left the session, or was removed from it.
    Left {
        /// The participant.
        participant: ParticipantId,
        /// Why, for people.
        reason: Option<String>,
        /// Who made it leave.
        by: String,
    },
    /// The roles and capabilities of a participant changed.
    RolesChanged {
        /// The participant.
        participant: ParticipantId,
        /// Its roles from here on.
        roles: BTreeSet<Role>,
        /// Its capabilities from here on.
        capabilities: Rights,
        /// Who changed them.
        by: String,
    },
    /// A message was posted to the audience of the event.
    Posted(Box<PostedMessage>),
    /// The owner of the daemon started to read everything, also what is not for the owner.
    Audited {
        /// Who reads it.
        by: String,
    },
    /// The owner granted a participant the right to approve by name, or revoked it.
    ApprovalGranted {
        /// The participant.
        participant: ParticipantId,
        /// Whether it has the right from here on.
        granted: bool,
        /// Who granted or revoked it.
        by: String,
    },
}

/// A message of a participant to others, which no model receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostedMessage {
    /// A machine-readable kind, chosen by the sender.
    pub kind: String,
    /// Its content: a JSON value, redacted.
    pub body: Json,
    /// The source of the message.
    pub by: String,
    /// The participant that sent it; `None` means the owner of the daemon.
    pub participant: Option<ParticipantId>,
}
