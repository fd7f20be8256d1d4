//! Decodes events of participants.

use super::parts::{id, owned};
use super::{EventDecoder, RecordError};
use crate::kernel::event::{EventKind, ParticipantEvent, PostedMessage};
use crate::kernel::participant::{Authentication, Participant, Rights};
use crate::record::wire::event::SessionEnded;
use crate::record::wire::json;
use crate::record::wire::participant::{
    MessagePosted, ParticipantApprovalGranted, ParticipantJoined, ParticipantLeft, ParticipantRolesChanged,
};
use crate::record::wire::word::{AuthenticationWord, RightWord};

impl EventDecoder<'_, '_> {
    /// Decodes an event of a participant; `None` if it is of another kind.
    pub(super) fn participant_event(&self) -> Result<Option<EventKind>, RecordError> {
        let event = match self.type_name {
            "participant_joined" => self.joined()?,
            "message_posted" => {
                let MessagePosted { kind, body, by, participant_id, ephemeral: _ } = self.payload()?;
                ParticipantEvent::Posted(Box::new(PostedMessage {
                    kind: kind.into_owned(),
                    body: json(&body),
                    by: by.into_owned(),
                    participant: participant_id.map(id),
                }))
            }
            "session_audited" => ParticipantEvent::Audited { by: self.payload::<SessionEnded<'_>>()?.by.into_owned() },
            "participant_left" => {
                let ParticipantLeft { participant_id, reason, by } = self.payload()?;
                let (participant, reason) = (id(participant_id), owned(reason));
                ParticipantEvent::Left { participant, reason, by: by.into_owned() }
            }
            "participant_roles_changed" => {
                let ParticipantRolesChanged { participant_id, roles, capabilities, by } = self.payload()?;
                ParticipantEvent::RolesChanged {
                    participant: id(participant_id),
                    roles: roles.into_iter().map(Into::into).collect(),
                    capabilities: rights(capabilities),
                    by: by.into_owned(),
                }
            }
            "participant_approval_granted" => {
                let ParticipantApprovalGranted { participant_id, granted, by } = self.payload()?;
                ParticipantEvent::ApprovalGranted { participant: id(participant_id), granted, by: by.into_owned() }
            }
            _ => return Ok(None),
        };
        Ok(Some(EventKind::Participant(event)))
    }

    fn joined(&self) -> Result<ParticipantEvent, RecordError> {
        let joined: ParticipantJoined<'_> = self.payload()?;
        let authentication = match joined.authentication {
            AuthenticationWord::LocalUser => Authentication::LocalUser,
            AuthenticationWord::Token => {
                let name = owned(joined.token).ok_or_else(|| self.field_error("token"))?;
                Authentication::Token { name }
            }
        };
        let participant = Participant {
            id: id(joined.participant_id),
            kind: joined.participant_kind.into(),
            name: joined.name.into_owned(),
            roles: joined.roles.into_iter().map(Into::into).collect(),
            capabilities: rights(joined.capabilities),
            authentication,
            approval_granted: joined.approval_granted,
        };
        Ok(ParticipantEvent::Joined { participant: Box::new(participant), by: joined.by.into_owned() })
    }
}

fn rights(words: Vec<RightWord>) -> Rights {
    words.into_iter().fold(Rights::EMPTY, |rights, word| rights.or(Rights::of(&[word.into()])))
}
