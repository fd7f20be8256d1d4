//! Audiences in a walk: which attached connection may see which event, compared with a model.

use super::*;
use pushd::kernel::audience::{Audience, Viewer};
use pushd::kernel::command::{Post, PostRetention, PrivateEvent};
use pushd::kernel::event::ParticipantEvent;
use pushd::kernel::participant::Role;

impl Walk {
    pub(super) fn post(&mut self) -> Command {
        let audience = match self.random.below(4) {
            0 => Audience::Participants((0..self.random.below(3)).map(|_| self.some_participant()).collect()),
            1..=2 => Audience::Role(self.random.pick(&Role::ALL).copied().unwrap_or(Role::Admin)),
            _ => Audience::All,
        };
        let retention = if self.random.one_in(3) { PostRetention::Ephemeral } else { PostRetention::Journaled };
        Command::Post(Box::new(Post { audience, kind: "note".into(), body: Json::new("\"psst\""), retention }))
    }

    /// A message that is not stored is in no journal.
    pub(super) fn check_told(&self, audience: &Audience, event: &PrivateEvent, what: &str) {
        let PrivateEvent::Posted { seq, .. } = event else { panic!("{event:?} told to {audience:?}, {what}") };
        assert!(!self.journal.iter().any(|stored| stored.seq == *seq), "it was stored, {what}");
    }

    /// Every attached connection sees exactly the events that the model lets it see, and only posted messages are
    /// restricted.
    pub(super) fn check_audiences(&self, what: &str) {
        let state = self.session.state();
        for event in self.journal.iter().filter(|event| event.audience != Audience::All) {
            assert!(matches!(event.kind, EventKind::Participant(ParticipantEvent::Posted(_))), "{what}");
            assert!(state.has_restricted_events, "{what}");
            for connection in (0..5).chain([9]).map(ConnectionId) {
                let Some(attached) = self.session.attachment(connection) else { continue };
                let expected = match (&attached.participant, &event.audience) {
                    _ if attached.audits => true,
                    (None, _) | (_, Audience::All | Audience::Unknown(_)) => false,
                    (Some(id), Audience::Participants(named)) => {
                        named.contains(id) && state.participants.contains_key(id)
                    }
                    (Some(id), Audience::Role(role)) => {
                        state.participants.get(id).is_some_and(|known| known.roles.contains(role))
                    }
                };
                let seen = event.audience.contains(&self.session.viewer(attached));
                assert_eq!(seen, expected, "{connection:?} and {event:?}, {what}");
                assert!(!attached.audits || self.was_audited(), "an audit without a record, {what}");
            }
            assert!(!event.audience.contains(&Viewer::Owner) && !event.audience.contains(&Viewer::Nobody), "{what}");
        }
    }

    fn was_audited(&self) -> bool {
        let audited = |event: &Event| matches!(event.kind, EventKind::Participant(ParticipantEvent::Audited { .. }));
        self.journal.iter().any(audited)
    }
}
