//! Participants: the people, agents and services that take part in a session, and the rights that each has.
//!
//! A participant is journaled when it joins. The owner of the daemon takes part in every session with all rights and
//! without an event. Rights are computed here and nowhere else, and `Command::policy` says which one a command needs. A
//! process that descends from a tool is no participant at all: its connection is refused before it can send a command.

use std::collections::BTreeSet;

use super::id::ParticipantId;

/// The identity of a participant. It is derived from the connection, never from what a message claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// Its id, unique among the participants of the session.
    pub id: ParticipantId,
    /// What it is.
    pub kind: ParticipantKind,
    /// A name for people.
    pub name: String,
    /// Its roles.
    pub roles: BTreeSet<Role>,
    /// Single rights beyond those of its roles.
    pub capabilities: Rights,
    /// How it authenticated.
    pub authentication: Authentication,
    /// Whether the owner has granted it the right to approve, by name. Only participants that are not human need it.
    pub approval_granted: bool,
}

/// What a participant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParticipantKind {
    /// A person.
    Human,
    /// A model with tools.
    Agent,
    /// Any other program.
    Service,
}

/// How a participant authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// It runs as the owner of the daemon, at the local socket or with a verified user id.
    LocalUser,
    /// It presented a token.
    Token {
        /// The name of the token.
        name: String,
    },
}

/// A role: a set of rights with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Only watches.
    Observer,
    /// Prompts the agent.
    Driver,
    /// Reviews what the agent does.
    Navigator,
    /// Prompts and reviews, to find faults.
    Adversary,
    /// Decides gates.
    Approver,
    /// Manages the session and its participants.
    Admin,
}

/// One right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum Right {
    /// Read the session.
    Read = 1,
    /// Start and queue runs, and compact the conversation.
    Prompt = 1 << 1,
    /// Send messages into the active run.
    Steer = 1 << 2,
    /// Vote on gates.
    Decide = 1 << 3,
    /// Cancel runs and stop other work.
    Interrupt = 1 << 4,
    /// Continue the conversation from an earlier point, here or in a child session.
    Fork = 1 << 5,
    /// Add what others may read.
    AddContext = 1 << 6,
    /// Add and remove participants, and change their roles.
    ManageParticipants = 1 << 7,
    /// End the session.
    EndSession = 1 << 8,
    /// Rename the session and change its settings.
    Configure = 1 << 9,
    /// Do what only the owner of the daemon may do.
    Own = 1 << 10,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 11] = [
        Self::Read,
        Self::Prompt,
        Self::Steer,
        Self::Decide,
        Self::Interrupt,
        Self::Fork,
        Self::AddContext,
        Self::ManageParticipants,
        Self::EndSession,
        Self::Configure,
        Self::Own,
    ];
}

/// A set of rights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rights(u16);

impl Rights {
    /// All rights: those of the owner.
    pub const ALL: Self = Self::of(&Right::ALL);
    /// The right to read.
    pub const READ_ONLY: Self = Self::of(&[Right::Read]);
    /// No right at all: somebody who does not take part.
    pub const EMPTY: Self = Self(0);
    /// The rights that a participant can have as capabilities.
    pub const CAPABILITIES: [Right; 7] = [
        Right::Prompt,
        Right::Decide,
        Right::Interrupt,
        Right::Fork,
        Right::AddContext,
        Right::ManageParticipants,
        Right::EndSession,
    ];

    /// Returns the set of some rights.
    pub const fn of(rights: &[Right]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < rights.len() {
            set |= rights[at] as u16;
            at += 1;
        }
        Self(set)
    }

    /// Returns the rights that both sides grant.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the rights that either side grants.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the set without one right.
    #[must_use]
    pub const fn without(self, right: Right) -> Self {
        Self(self.0 & !(right as u16))
    }

    /// Returns whether the set contains a right.
    pub const fn contains(self, right: Right) -> bool {
        self.0 & right as u16 != 0
    }

    /// Returns the rights of the set.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.contains(*right))
    }

    /// Returns whether the set contains every right of another one.
    pub const fn contains_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::fmt::Debug for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 6] =
        [Self::Observer, Self::Driver, Self::Navigator, Self::Adversary, Self::Approver, Self::Admin];

    /// Returns the rights of the role: the one table of roles and rights.
    pub const fn rights(self) -> Rights {
        use Right::{
            AddContext, Configure, Decide, EndSession, Fork, Interrupt, ManageParticipants, Prompt, Read, Steer,
        };
        match self {
            Self::Observer => Rights::READ_ONLY,
            Self::Driver => Rights::of(&[Read, Prompt, Steer, Interrupt, Fork, AddContext]),
            Self::Navigator => Rights::of(&[Read, Decide, Interrupt, Fork, AddContext]),
            Self::Adversary => Rights::of(&[Read, Prompt, Steer, Decide, Interrupt, Fork, AddContext]),
            Self::Approver => Rights::of(&[Read, Decide, Interrupt, AddContext]),
            Self::Admin => Rights::of(&[
                Read,
                Prompt,
                Steer,
                Decide,
                Interrupt,
                Fork,
                AddContext,
                ManageParticipants,
                EndSession,
                Configure,
            ]),
        }
    }
}

impl Participant {
    /// Returns the rights of the participant: those of its roles and its capabilities.
    ///
    /// One that is not human never manages participants, because it could add a voter of its own, and may decide only if
    /// the owner has granted that by name.
    pub fn rights(&self) -> Rights {
        let of_roles = self.roles.iter().fold(Rights::READ_ONLY, |rights, role| rights.or(role.rights()));
        let capabilities = self.capabilities.and(Rights::of(&Rights::CAPABILITIES));
        // Whoever may start a run may also send messages into it.
        let steers = if capabilities.contains(Right::Prompt) { Rights::of(&[Right::Steer]) } else { Rights::EMPTY };
        let rights = of_roles.or(capabilities).or(steers);
        match self.kind {
            ParticipantKind::Human => rights,
            ParticipantKind::Agent | ParticipantKind::Service => {
                let rights = rights.without(Right::ManageParticipants);
                if self.approval_granted { rights } else { rights.without(Right::Decide) }
            }
        }
    }

    /// Returns whether its votes may count at all: it is human, or the owner has granted it the right by name.
    pub const fn is_trusted_voter(&self) -> bool {
        match self.kind {
            ParticipantKind::Human => true,
            ParticipantKind::Agent | ParticipantKind::Service => self.approval_granted,
        }
    }
}

/// Whether a participant can be reached. It follows from the attached connections and is not journaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// A connection of it is attached.
    Online,
    /// No connection of it is attached.
    Offline,
}
