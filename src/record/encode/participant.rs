//! Encodes events of participants.

use super::EventHead;
use crate::kernel::event::{ParticipantEvent, PostedMessage};
use crate::kernel::participant::{Authentication, Participant, Rights, Role};
use crate::record::wire::event::SessionEnded;
use crate::record::wire::participant::{
    MessagePosted, ParticipantApprovalGranted, ParticipantJoined, ParticipantLeft, ParticipantRolesChanged,
};
use crate::record::wire::word::{AuthenticationWord, RightWord, RoleWord};
use crate::record::wire::{raw, some_text, text};

/// Writes an event of a participant.
pub(super) fn write(head: &EventHead<'_>, event: &ParticipantEvent, out: &mut Vec<u8>) {
    match event {
        ParticipantEvent::Joined { participant, by } => {
            head.write_payload("participant_joined", out, &joined(participant, by));
        }
        ParticipantEvent::Posted(message) => {
            head.write_payload("message_posted", out, &message_posted(message, false));
        }
        ParticipantEvent::Audited { by } => {
            head.write_payload("session_audited", out, &SessionEnded { by: text(by) });
        }
        ParticipantEvent::Left { participant, reason, by } => {
            let (participant_id, reason) = (text(participant.as_str()), some_text(reason.as_ref()));
            head.write_payload("participant_left", out, &ParticipantLeft { participant_id, reason, by: text(by) });
        }
        ParticipantEvent::RolesChanged { participant, roles, capabilities, by } => {
            let changed = ParticipantRolesChanged {
                participant_id: text(participant.as_str()),
                roles: role_words(roles),
                capabilities: right_words(*capabilities),
                by: text(by),
            };
            head.write_payload("participant_roles_changed", out, &changed);
        }
        ParticipantEvent::ApprovalGranted { participant, granted, by } => {
            let (participant_id, granted) = (text(participant.as_str()), *granted);
            let granted = ParticipantApprovalGranted { participant_id, granted, by: text(by) };
            head.write_payload("participant_approval_granted", out, &granted);
        }
    }
}

/// Encodes a posted message.
pub(crate) fn message_posted(message: &PostedMessage, ephemeral: bool) -> MessagePosted<'_> {
    MessagePosted {
        kind: text(&message.kind),
        body: raw(&message.body),
        by: text(&message.by),
        participant_id: message.participant.as_ref().map(|participant| text(participant.as_str())),
        ephemeral,
    }
}

fn joined<'a>(participant: &'a Participant, by: &'a str) -> ParticipantJoined<'a> {
    let (authentication, token) = match &participant.authentication {
        Authentication::LocalUser => (AuthenticationWord::LocalUser, None),
        Authentication::Token { name } => (AuthenticationWord::Token, Some(text(name))),
    };
    ParticipantJoined {
        participant_id: text(participant.id.as_str()),
        participant_kind: participant.kind.into(),
        name: text(&participant.name),
        roles: role_words(&participant.roles),
        capabilities: right_words(participant.capabilities),
        authentication,
        token,
        approval_granted: participant.approval_granted,
        by: text(by),
    }
}

fn role_words<'a>(roles: impl IntoIterator<Item = &'a Role>) -> Vec<RoleWord> {
    roles.into_iter().map(|role| (*role).into()).collect()
}

fn right_words(rights: Rights) -> Vec<RightWord> {
    rights.iter().map(Into::into).collect()
}
