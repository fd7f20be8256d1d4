//! Access of connections: the sessions that a client on the network may use, and the rights that requests need before
//! they reach a session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::identity::Identity;
use crate::kernel::command::{Caller, Command, Right};
use crate::kernel::id::{ConnectionId, ParticipantId, SessionId};
use crate::kernel::participant::Participant;
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::{Intent, Join, SessionIntent};

/// Who is behind a connection, the sessions that it may use, and the participant as which it has joined each of them.
#[derive(Debug)]
pub(super) struct SessionAccess {
    identity: Identity,
    /// Who sends the requests, where the connection has not joined under another name.
    caller: Caller,
    /// Whether each session needs its attach token first.
    needs_token: bool,
    sessions: Mutex<AccessibleSessions>,
}

#[derive(Debug, Default)]
struct AccessibleSessions {
    /// Those that the connection has started, or whose token it has presented.
    granted: BTreeSet<SessionId>,
    joined: BTreeMap<SessionId, ParticipantId>,
}

impl SessionAccess {
    /// Creates the access of a connection.
    pub(super) fn new(identity: Identity, connection: ConnectionId, source: &str, needs_token: bool) -> Self {
        let caller = identity.caller(connection, source.to_owned());
        Self { identity, caller, needs_token, sessions: Mutex::default() }
    }

    /// Grants access to a session that the connection has started, or whose token it has presented.
    pub(super) fn grant(&self, session: &SessionId) {
        if self.needs_token {
            self.lock().granted.insert(session.clone());
        }
    }

    /// Refuses a request that the connection has no right to, whatever session it names.
    pub(super) fn check_intent(&self, intent: &Intent) -> Result<(), ErrorBody> {
        let right = intent_right(intent);
        if !self.identity.rights().contains(right) {
            return Err(not_permitted(right));
        }
        if let Intent::ListApprovals { session: Some(session), .. } = intent { self.check(session) } else { Ok(()) }
    }

    /// Refuses a session that the connection may not use.
    pub(super) fn check(&self, session: &SessionId) -> Result<(), ErrorBody> {
        if self.contains(session) {
            return Ok(());
        }
        let message = "a client on the network attaches with the session's attachToken before anything else";
        Err(ErrorBody::permanent(Code::AttachForbidden, message))
    }

    /// Returns whether lists contain a session. The owner sees all of them there, though it may need a token to use one.
    pub(super) fn lists(&self, session: &SessionId) -> bool {
        self.caller.participant.is_none() || self.contains(session)
    }

    /// Returns who sends requests to no session.
    pub(super) const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns who sends requests to a session: the participant as which the connection has joined it, if any.
    pub(super) fn caller_in(&self, session: &SessionId) -> Caller {
        match self.lock().joined.get(session) {
            Some(joined) => Caller { participant: Some(joined.clone()), admission: None, ..self.caller.clone() },
            None => self.caller.clone(),
        }
    }

    /// Returns who sends a command. A participant joins with the rights of the connection, and the owner admits the
    /// holder of a token.
    pub(super) fn sender(&self, command: &Command, session: Option<&SessionId>) -> Caller {
        if matches!(command, Command::Join(_)) {
            return Caller::owner(self.caller.id, self.caller.source.clone());
        }
        session.map_or_else(|| self.caller.clone(), |session| self.caller_in(session))
    }

    /// Makes later requests of the connection to a session those of a participant that joins it, until
    /// [`Self::undo_join`].
    ///
    /// The holder of a token takes part as that, whatever it asks for.
    pub(super) fn prepare_join(&self, session: &SessionId, join: &mut Join) -> Result<(), ErrorBody> {
        if let Identity::Token(participant) = &self.identity {
            let Participant { id, kind, name, roles, capabilities, .. } = Participant::clone(participant);
            *join = Join { participant: id, kind, name, roles, capabilities };
            return Ok(());
        }
        if is_reserved(&join.participant) {
            let message = format!("the id {:?} is reserved", join.participant.as_str());
            return Err(ErrorBody::permanent(Code::InvalidRequest, message));
        }
        self.lock().joined.insert(session.clone(), join.participant.clone());
        Ok(())
    }

    /// Undoes what a join that failed has prepared.
    pub(super) fn undo_join(&self, session: &SessionId) {
        self.lock().joined.remove(session);
    }

    fn contains(&self, session: &SessionId) -> bool {
        !self.needs_token || self.lock().granted.contains(session)
    }

    fn lock(&self) -> MutexGuard<'_, AccessibleSessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether only the daemon gives an id to participants.
fn is_reserved(id: &ParticipantId) -> bool {
    matches!(id.as_str(), "" | "system" | "owner") || id.as_str().starts_with("tok_")
}

/// Refuses what a connection has no right to.
fn not_permitted(right: Right) -> ErrorBody {
    let message = match right {
        Right::Own => "only the owner may do that: a client at the local socket, or a token with the role owner",
        Right::Read
        | Right::Prompt
        | Right::Steer
        | Right::Decide
        | Right::Interrupt
        | Right::Fork
        | Right::AddContext
        | Right::ManageParticipants
        | Right::EndSession
        | Right::Configure => "the role of the token does not permit that",
    };
    ErrorBody::permanent(Code::AttachForbidden, message)
}

/// Returns the right that a request needs before it is handled. A request to a session that is a command needs none
/// here: its session decides.
const fn intent_right(intent: &Intent) -> Right {
    let session_decides =
        matches!(intent, Intent::Session { body, .. } if !matches!(body, SessionIntent::Delete { .. }));
    if session_decides { Right::Read } else { intent.action().policy().right }
}
