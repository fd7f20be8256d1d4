//! The identity behind a connection: the owner of the daemon, or the holder of a token.
//!
//! It is derived from the connection alone. A client at the local socket, and one on the network whose user the system
//! has verified, is the owner. A token with the role of the owner stands for the owner. The holder of any other token is
//! a participant of its own, which every session admits, with the rights of the token's role.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::kernel::command::{Caller, Rights};
use crate::kernel::id::{ConnectionId, ParticipantId};
use crate::kernel::participant::{Authentication, Participant, ParticipantKind, Role};
use crate::token::{TokenRecord, TokenRole};

/// The identity behind a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    /// The owner of the daemon.
    Owner(Authentication),
    /// The holder of a token.
    Token(Arc<Participant>),
}

impl Identity {
    /// The owner at the local socket, or with a verified user id.
    pub(super) const LOCAL_OWNER: Self = Self::Owner(Authentication::LocalUser);

    /// Returns the identity of whoever has presented a token.
    pub(super) fn of_token(token: &TokenRecord) -> Self {
        let name = token.name.clone().unwrap_or_else(|| token.token_id.clone());
        let authentication = Authentication::Token { name: name.clone() };
        let roles: &[Role] = match token.role {
            TokenRole::Owner => return Self::Owner(authentication),
            TokenRole::Approver => &[Role::Driver, Role::Approver],
            TokenRole::Prompter => &[Role::Driver],
            TokenRole::Observer => &[Role::Observer],
        };
        Self::Token(Arc::new(Participant {
            // Names need not be unique, ids are.
            id: ParticipantId::new(token.token_id.clone()),
            kind: ParticipantKind::Human,
            name,
            roles: roles.iter().copied().collect::<BTreeSet<_>>(),
            capabilities: Rights::EMPTY,
            authentication,
            approval_granted: false,
        }))
    }

    /// Returns the upper bound of the rights of its connections.
    pub(super) fn rights(&self) -> Rights {
        match self {
            Self::Owner(_) => Rights::ALL,
            Self::Token(participant) => participant.rights(),
        }
    }

    /// Returns how it authenticated.
    pub(super) fn authentication(&self) -> &Authentication {
        match self {
            Self::Owner(authentication) => authentication,
            Self::Token(participant) => &participant.authentication,
        }
    }

    /// Returns the caller of the commands that it sends through a connection.
    pub(super) fn caller(&self, id: ConnectionId, source: String) -> Caller {
        match self {
            Self::Owner(_) => Caller::owner(id, source),
            Self::Token(participant) => Caller {
                id,
                source,
                participant: Some(participant.id.clone()),
                rights: participant.rights(),
                admission: Some(Arc::clone(participant)),
            },
        }
    }

    /// Returns an idempotency key as it is stored: the holders of tokens have keys of their own, so that none finds the
    /// session of another.
    pub(super) fn scoped_key(&self, key: String) -> String {
        match self {
            Self::Owner(_) => key,
            Self::Token(participant) => format!("{}:{key}", participant.id),
        }
    }
}
