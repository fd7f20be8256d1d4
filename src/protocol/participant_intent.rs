//! Requests about the participants of a session, their messages and their approvals.

use std::collections::BTreeSet;

use crate::kernel::command::{Post, Rights};
use crate::kernel::id::{Json, ParticipantId};
use crate::kernel::participant::{ParticipantKind, Role};
use crate::kernel::quorum::Quorum;

/// A request about participants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParticipantIntent {
    /// List the participants.
    List,
    /// Take part under a name of one's own; later requests of the connection to the session are the participant's.
    Join(Box<Join>),
    /// End the participation of the connection, or of another participant.
    Leave {
        /// The participant; `None` means the one as which the connection has joined.
        participant: Option<ParticipantId>,
        /// Why, for people.
        reason: Option<String>,
    },
    /// Replace the roles and capabilities of a participant.
    ChangeRoles {
        /// The participant.
        participant: ParticipantId,
        /// Its new roles.
        roles: BTreeSet<Role>,
        /// Its new capabilities.
        capabilities: Rights,
    },
    /// Grant a participant the right to approve by name, or revoke it.
    GrantApproval {
        /// The participant.
        participant: ParticipantId,
        /// Whether it has the right from here on.
        granted: bool,
    },
    /// Send a message to an audience, stored or not.
    Post(Box<Post>),
    /// Open an approval that belongs to no run.
    OpenGate(Box<OpenGate>),
}

/// Who takes part. How it authenticated comes from the connection, and its roles are limited by the connection's rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Its id, unique among the participants of the session.
    pub participant: ParticipantId,
    /// What it is.
    pub kind: ParticipantKind,
    /// A name for people.
    pub name: String,
    /// Its roles.
    pub roles: BTreeSet<Role>,
    /// Single rights beyond those of its roles.
    pub capabilities: Rights,
}

/// An approval that belongs to no run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenGate {
    /// A machine-readable kind, such as a merge or a review.
    pub kind: String,
    /// A title for people.
    pub title: String,
    /// The exact question.
    pub summary: String,
    /// What it is about: a JSON object.
    pub details: Json,
    /// The options, if there are more than approve and deny; else empty. The first approves and the last denies.
    pub choices: Vec<String>,
    /// The rule by which votes settle it.
    pub quorum: Quorum,
    /// The only participants whose votes count, beside that rule.
    pub eligible: Option<BTreeSet<ParticipantId>>,
    /// The timeout in milliseconds; `None` means the default of the daemon.
    pub timeout_millis: Option<u64>,
}
