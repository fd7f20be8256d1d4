//! Participants: who joins and leaves, and the one check of a caller's rights.

use std::collections::BTreeSet;

use super::Session;
use super::effects::Effects;
use crate::kernel::command::{
    AccessKind, Answer, Caller, Command, Post, PostRetention, PrivateEvent, Reply, Right, Rights,
};
use crate::kernel::event::{Decision, Event, EventKind, ParticipantEvent, PostedMessage};
use crate::kernel::id::{ParticipantId, Seq};
use crate::kernel::participant::{Participant, Role};
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

impl Session {
    /// Checks that a caller has a right.
    pub fn require(&self, caller: &Caller, right: Right) -> Result<(), Refusal> {
        if self.rights(caller).contains(right) { Ok(()) } else { Err(Refusal::NotPermitted) }
    }

    /// Returns the rights of a caller: those of its participant, limited by its connection.
    pub(super) fn rights(&self, caller: &Caller) -> Rights {
        let of_participant = match &caller.participant {
            None => Rights::ALL,
            // One that has left, or never joined, has none, unless the session admits it.
            Some(id) => {
                let known = self.state.participants.get(id).or(caller.admission.as_deref());
                known.map_or(Rights::EMPTY, Participant::rights)
            }
        };
        of_participant.and(self.roster.bound(caller))
    }

    /// Returns whether a command makes its sender a participant: it is not one yet, the owner has given it a token, and
    /// it does more than read.
    pub fn admits(&self, caller: &Caller, command: &Command) -> bool {
        let is_new = |participant: &Participant| !self.state.participants.contains_key(&participant.id);
        let policy = command.policy();
        let takes_part = policy.subscribes || policy.access != AccessKind::ReadOnly;
        takes_part && caller.admission.as_deref().is_some_and(is_new)
    }

    /// Records that the sender of a command takes part from here on.
    pub(super) fn admit(&mut self, caller: &Caller, now: Now, fx: &mut Effects) -> Result<(), Refusal> {
        let Some(admission) = &caller.admission else { return Ok(()) };
        if self.state.participants.len() >= self.limits.participants {
            return Err(Refusal::TooManyParticipants);
        }
        let (participant, by) = (Box::new(Participant::clone(admission)), caller.source.clone());
        self.record_participant(ParticipantEvent::Joined { participant, by }, now, fx);
        Ok(())
    }

    /// Admits a participant. Whoever holds the id already joins again without an event, with the roles it has.
    pub(super) fn join(&mut self, caller: &Caller, new: Box<Participant>, now: Now, fx: &mut Effects) -> Reply {
        self.ensure_open()?;
        if let Some(known) = self.state.participants.get(&new.id) {
            let is_holder = known.kind == new.kind && known.authentication == new.authentication;
            return if is_holder { Ok(Answer::ParticipantChanged) } else { Err(Refusal::ParticipantExists) };
        }
        if self.state.participants.len() >= self.limits.participants {
            return Err(Refusal::TooManyParticipants);
        }
        let capabilities = new.capabilities.and(Rights::of(&Rights::CAPABILITIES));
        // The right to approve is granted by its own command, by the owner alone.
        let mut participant = new;
        (participant.capabilities, participant.approval_granted) = (capabilities, false);
        self.require_all(caller, participant.rights())?;
        let by = caller.source.clone();
        self.record_participant(ParticipantEvent::Joined { participant, by }, now, fx);
        Ok(Answer::ParticipantChanged)
    }

    pub(super) fn leave(&mut self, caller: &Caller, reason: Option<String>, now: Now, fx: &mut Effects) -> Reply {
        // The owner takes part in every session.
        let participant = caller.participant.clone().ok_or(Refusal::UnknownParticipant)?;
        self.remove(caller, participant, reason, now, fx)
    }

    /// Records that a participant leaves, and detaches its connections.
    pub(super) fn remove(
        &mut self,
        caller: &Caller,
        participant: ParticipantId,
        reason: Option<String>,
        now: Now,
        fx: &mut Effects,
    ) -> Reply {
        self.find_participant(&participant)?;
        let connections: Vec<_> = self.roster.connections_of(&participant).collect();
        for connection in connections {
            self.roster.detach(connection);
            fx.unsubscribe(connection);
        }
        let by = caller.source.clone();
        self.record_participant(ParticipantEvent::Left { participant, reason, by }, now, fx);
        Ok(Answer::ParticipantChanged)
    }

    pub(super) fn change_roles(
        &mut self,
        caller: &Caller,
        participant: ParticipantId,
        roles: BTreeSet<Role>,
        capabilities: Rights,
        now: Now,
        fx: &mut Effects,
    ) -> Reply {
        let known = self.find_participant(&participant)?;
        let capabilities = capabilities.and(Rights::of(&Rights::CAPABILITIES));
        let changed = Participant { roles, capabilities, ..known.clone() };
        if changed != *known {
            self.require_all(caller, changed.rights())?;
            let (roles, by) = (changed.roles, caller.source.clone());
            let event = ParticipantEvent::RolesChanged { participant, roles, capabilities, by };
            self.record_participant(event, now, fx);
        }
        Ok(Answer::ParticipantChanged)
    }

    pub(super) fn grant_approval(
        &mut self,
        caller: &Caller,
        participant: ParticipantId,
        granted: bool,
        now: Now,
        fx: &mut Effects,
    ) -> Reply {
        if self.find_participant(&participant)?.approval_granted != granted {
            let by = caller.source.clone();
            self.record_participant(ParticipantEvent::ApprovalGranted { participant, granted, by }, now, fx);
        }
        Ok(Answer::ParticipantChanged)
    }

    pub(super) fn list_participants(&self) -> Answer {
        let entry = |known: &Participant| (known.clone(), self.roster.presence(&known.id));
        Answer::Participants(self.state.participants.values().map(entry).collect())
    }

    /// Sends a message to an audience: as an event, or to whoever is attached now.
    pub(super) fn post(&mut self, caller: &Caller, post: Post, now: Now, fx: &mut Effects) -> Answer {
        let Post { audience, kind, body, retention } = post;
        let (by, participant) = (caller.source.clone(), caller.participant.clone());
        let message = Box::new(PostedMessage { kind, body, by, participant });
        let seq = self.issue(fx);
        match retention {
            PostRetention::Ephemeral => fx.tell(audience, PrivateEvent::Posted { seq, at: now, message }),
            PostRetention::Journaled => {
                let kind = EventKind::Participant(ParticipantEvent::Posted(message));
                self.record_event(Event { seq, at: now, run: None, version: None, origin: None, audience, kind }, fx);
            }
        }
        Answer::Posted
    }

    /// Attaches the owner with access to events of every audience, and records the audit.
    ///
    /// A connection that audits the session already is not recorded again.
    pub(super) fn audit(&mut self, caller: &Caller, seen: Seq, now: Now, fx: &mut Effects) -> Reply {
        // The connection may be attached with fewer rights than its owner has.
        if !caller.is_owner() {
            return Err(Refusal::NotPermitted);
        }
        let is_recorded = self.roster.get(caller.id).is_some_and(|attached| attached.audits);
        let answer = self.attach(caller, seen, Rights::READ_ONLY, now, fx)?;
        self.roster.set_audits(caller.id);
        if !is_recorded {
            let by = caller.source.clone();
            self.record_for(None, EventKind::Participant(ParticipantEvent::Audited { by }), now, fx);
        }
        Ok(answer)
    }

    /// Checks that a caller has every one of some rights: nobody gives another more than it has itself.
    fn require_all(&self, caller: &Caller, rights: Rights) -> Result<(), Refusal> {
        if self.rights(caller).contains_all(rights) { Ok(()) } else { Err(Refusal::NotPermitted) }
    }

    fn find_participant(&self, id: &ParticipantId) -> Result<&Participant, Refusal> {
        self.state.participants.get(id).ok_or(Refusal::UnknownParticipant)
    }

    fn record_participant(&mut self, event: ParticipantEvent, now: Now, fx: &mut Effects) {
        self.record_for(None, EventKind::Participant(event), now, fx);
        // An approval needs a vote: whoever may only manage participants approves nothing by removing voters.
        self.settle_decided_gates(|_, decision| decision == Decision::Deny, now, fx);
    }
}
