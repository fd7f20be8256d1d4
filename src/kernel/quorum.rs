//! Quorums: whose votes a gate counts, and when they settle it.
//!
//! Voters are determined by a rule and not by a list, so that participants that join later count, and those that leave
//! or lose the right no longer do. The owner of the daemon counts as soon as it has voted: a gate never waits for it.

use std::collections::{BTreeMap, BTreeSet};

use super::event::Decision;
use super::gate::{Voter, is_eligible};
use super::id::ParticipantId;
use super::participant::{Participant, Right, Role};

/// The rule by which votes settle a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quorum {
    /// As many voters with the right to decide agree, either way. Zero counts as one.
    Any(u32),
    /// Every voter with the right to decide approves; one denial fails it.
    All,
    /// More than half of the voters with the right to decide approve.
    Majority,
    /// Each of these participants approves, whatever rights it has; one denial fails it.
    Specific(BTreeSet<ParticipantId>),
    /// As many participants with a role approve, whatever other rights they have. Zero counts as one.
    Role {
        /// The role.
        role: Role,
        /// The number of approvals.
        count: u32,
    },
}

/// The votes that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// The voters that approve.
    pub approvals: usize,
    /// The voters that deny.
    pub denials: usize,
    /// The voters that have not voted.
    pub undecided: usize,
}

impl Quorum {
    /// Returns whether one vote settles the gate.
    pub const fn is_single_vote(&self) -> bool {
        matches!(self, Self::Any(0 | 1))
    }

    /// Returns whether the gate names its voters, who then need no right to decide.
    pub const fn names_voters(&self) -> bool {
        matches!(self, Self::Specific(_) | Self::Role { .. })
    }

    /// Returns whether the votes of a voter count.
    ///
    /// A participant that is not human needs the grant of the owner, also where the gate names it.
    pub fn admits(&self, voter: &Voter, participants: &BTreeMap<ParticipantId, Participant>) -> bool {
        match voter {
            Voter::Owner => !self.names_voters(),
            Voter::Participant(id) => participants.get(id).is_some_and(|known| self.admits_participant(known)),
        }
    }

    fn admits_participant(&self, participant: &Participant) -> bool {
        participant.is_trusted_voter()
            && match self {
                Self::Any(_) | Self::All | Self::Majority => participant.rights().contains(Right::Decide),
                Self::Specific(named) => named.contains(&participant.id),
                Self::Role { role, count: _ } => participant.roles.contains(role),
            }
    }

    /// Counts the votes, of `eligible` participants alone if there is such a set.
    pub fn tally(
        &self,
        votes: &BTreeMap<Voter, Decision>,
        participants: &BTreeMap<ParticipantId, Participant>,
        eligible: Option<&BTreeSet<ParticipantId>>,
    ) -> Tally {
        let mut tally = Tally::default();
        let counts = |voter: &Voter| self.admits(voter, participants) && is_eligible(eligible, voter);
        for (_, decision) in votes.iter().filter(|(voter, _)| counts(voter)) {
            match decision {
                Decision::Approve => tally.approvals += 1,
                Decision::Deny => tally.denials += 1,
            }
        }
        tally.undecided = match self {
            // Somebody who is named and not here may still come.
            Self::Specific(named) => named.len() - tally.approvals - tally.denials,
            Self::Any(_) | Self::All | Self::Majority | Self::Role { .. } => {
                let waiting = |known: &&Participant| {
                    let voter = Voter::Participant(known.id.clone());
                    self.admits_participant(known) && is_eligible(eligible, &voter) && !votes.contains_key(&voter)
                };
                participants.values().filter(waiting).count()
            }
        };
        tally
    }

    /// Returns the decision that the counted votes make; `None` while the gate stays open.
    ///
    /// A gate fails when its quorum cannot be reached by the voters there are. A gate for any voters has no such limit
    /// and fails by as many denials as it needs approvals. Without eligible voters the gate stays open.
    pub fn evaluate(&self, tally: Tally) -> Option<Decision> {
        let Tally { approvals, denials, undecided } = tally;
        let eligible = approvals + denials + undecided;
        let (passes, fails) = match self {
            Self::Any(count) => {
                let count = (*count).max(1) as usize;
                (approvals >= count, denials >= count)
            }
            Self::All | Self::Specific(_) => (eligible > 0 && approvals == eligible, denials > 0),
            Self::Majority => (2 * approvals > eligible, denials > 0 && 2 * (approvals + undecided) <= eligible),
            Self::Role { role: _, count } => {
                let count = (*count).max(1) as usize;
                (approvals >= count, denials > 0 && approvals + undecided < count)
            }
        };
        match (passes, fails) {
            (true, _) => Some(Decision::Approve),
            (false, true) => Some(Decision::Deny),
            (false, false) => None,
        }
    }
}
