//! The way of a command to its session and back.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::bureau::Bureau;
use super::connection::{Peer, PeerEnvironment};
use super::files;
use super::seat::Seat;
use super::seats::Sitting;
use crate::kernel::command::{Answer, Command, Gap, Openness, Rights, Snapshot};
use crate::kernel::environment::Environment;
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::refusal::Refusal;
use crate::protocol::pi::error_text;
use crate::provider::Starter;
use crate::runtime::lane::{LaneClosed, LaneError, LaneReply, LaneRequest, ReplyGuard};

/// Why a command came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The session said no.
    Refused(Refusal),
    /// Anything else, in the words of its answer.
    Said(String),
}

impl Failure {
    pub(super) fn said(text: impl Into<String>) -> Self {
        Self::Said(text.into())
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused(Refusal::Stale { expected, actual: found }) => {
                error_text::version_mismatch(*expected, *found)
            }
            Self::Refused(refusal) => refusal.to_string(),
            Self::Said(text) => text.clone(),
        }
    }
}

impl From<LaneError> for Failure {
    fn from(trouble: LaneError) -> Self {
        Self::Said(trouble.to_string())
    }
}

/// What a session answered, and its version after that.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) version: u64,
}

impl Bureau {
    /// Returns the protocol's place at a session that takes messages.
    pub(super) async fn seat(self: &Arc<Self>, session: &SessionId, peer: &Peer) -> Result<Sitting, Failure> {
        if let Some(seat) = self.seats().get(session) {
            return Ok(seat);
        }
        let _one_at_a_time = self.seats().turn(session).await;
        if let Some(seat) = self.seats().get(session) {
            return Ok(seat);
        }
        let seat = self.take_seat(session.clone());
        match self.listen_in(&seat, peer).await {
            Ok(()) => {
                let sitting = Sitting::new(&seat);
                self.settle_in(&seat);
                Ok(sitting)
            }
            Err(failure) => {
                self.give_up(&seat).await;
                Err(failure)
            }
        }
    }

    /// Has a place hear everything that has happened, unless the session takes no more messages.
    async fn listen_in(&self, seat: &Arc<Seat>, peer: &Peer) -> Result<(), Failure> {
        let not_found = || Failure::Said(error_text::session_not_found(seat.session().as_str()));
        // Of one that has ended or was deleted nothing needs to be read.
        if let Answer::Described(found) = self.ask(seat, Command::Describe, None, peer).await?.answer
            && !is_loaded(&found)
        {
            return Err(not_found());
        }
        self.attach(seat, Seq::ZERO, peer).await?;
        let (snapshot, _) = self.describe(seat, None, peer).await?;
        // It may have ended meanwhile.
        if is_loaded(&snapshot) { Ok(()) } else { Err(not_found()) }
    }

    /// Makes a place that listens once it is attached.
    pub(super) fn take_seat(&self, session: SessionId) -> Arc<Seat> {
        let seat = Seat::new(session, self.server().next_participant_id());
        tokio::spawn(Arc::clone(&seat).listen(Arc::clone(self.server().hub())));
        seat
    }

    /// Has everybody find the place, and the session's file written from it.
    pub(super) fn settle_in(self: &Arc<Self>, seat: &Arc<Seat>) {
        self.seats().put(Arc::clone(seat));
        tokio::spawn(files::keep(Arc::clone(self), Arc::clone(seat)));
        let (bureau, seat) = (Arc::clone(self), Arc::clone(seat));
        tokio::spawn(async move {
            if seat.ended_by_others().await {
                bureau.seats().remove(seat.session());
                bureau.give_up(&seat).await;
            }
        });
    }

    /// Leaves a session.
    pub(super) async fn give_up(&self, seat: &Arc<Seat>) {
        seat.leave();
        if let Ok(Some(lane)) = self.server().hub().lane(seat.session()).await {
            lane.disconnected(seat.outbox().id());
        }
    }

    /// Listens from the first event that is there.
    pub(super) async fn attach_seat(&self, seat: &Arc<Seat>, peer: &Peer) -> Result<(), Failure> {
        self.attach(seat, Seq::ZERO, peer).await
    }

    async fn attach(&self, seat: &Arc<Seat>, seen: Seq, peer: &Peer) -> Result<(), Failure> {
        let command = Command::Attach { seen, rights: Rights::ALL };
        let answered = self.ask(seat, command, None, peer).await?;
        let Answer::Attached { replay, .. } = answered.answer else { return Ok(()) };
        match replay.gap {
            Gap::Lost { earliest } if earliest > seen.next() => {
                let before = Seq::new(earliest.number().saturating_sub(1));
                Box::pin(self.attach(seat, before, peer)).await
            }
            Gap::Lost { .. } | Gap::Foreign | Gap::None => Ok(()),
        }
    }

    /// Returns what the session is, with its version, once its story has been told that far.
    pub(super) async fn describe(
        &self,
        seat: &Arc<Seat>,
        if_version: Option<u64>,
        peer: &Peer,
    ) -> Result<(Box<Snapshot>, u64), Failure> {
        let Answered { answer, version } = self.ask(seat, Command::Describe, if_version, peer).await?;
        let Answer::Described(snapshot) = answer else { return Err(Failure::said(error_text::INTERNAL)) };
        seat.heard(snapshot.last_seq).await;
        Ok((snapshot, version))
    }

    /// Returns the environment of a peer's runs.
    pub(super) async fn environment(&self, peer: &Peer) -> Option<Environment> {
        match &peer.environment {
            PeerEnvironment::Sent(environment) => environment.clone(),
            PeerEnvironment::Login => {
                let login = self.server().hub().services().login_environment().await;
                Some(Arc::unwrap_or_clone(login))
            }
        }
    }

    /// Hands a command to its session and waits for the answer; one that was parked meanwhile is brought back.
    pub(super) async fn ask(
        &self,
        seat: &Arc<Seat>,
        command: Command,
        if_version: Option<u64>,
        peer: &Peer,
    ) -> Result<Answered, Failure> {
        let environment = if brings_environment(&command) { self.environment(peer).await } else { None };
        let (tell, told) = oneshot::channel();
        let respond = ReplyGuard::new(move |reply| {
            // Whoever asked may have run out of time.
            let _ = tell.send(reply);
        });
        let mut asked = Box::new(LaneRequest {
            caller: seat.caller(),
            command,
            reply_guard: respond,
            outbox: Arc::clone(seat.outbox()),
            environment,
            if_version,
            starter: Starter::Program,
        });
        for _ in 0..REVIVALS {
            let lane = self.server().hub().lane(seat.session()).await;
            let Some(lane) = lane.map_err(|error| Failure::Said(error.to_string()))? else {
                return Err(Failure::Said(match if_version {
                    Some(version) => error_text::no_session_at_version(seat.session().as_str(), version),
                    None => error_text::session_not_found(seat.session().as_str()),
                }));
            };
            match lane.send_request(asked) {
                Ok(()) => break,
                Err(LaneClosed(back)) => asked = back,
            }
        }
        match told.await.unwrap_or(Err(LaneError::Interrupted)) {
            Ok(LaneReply { result: Ok(answer), version }) => Ok(Answered { answer, version }),
            Ok(LaneReply { result: Err(refusal), .. }) => Err(Failure::Refused(refusal)),
            Err(trouble) => Err(trouble.into()),
        }
    }
}

/// Tells whether clients of the protocol see a session.
pub(super) fn is_loaded(snapshot: &Snapshot) -> bool {
    snapshot.open == Openness::Open && snapshot.adjusted.unloaded != Some(true)
}

/// Returns whether a command may need an environment: it begins work, or lets work go on that waits for one.
const fn brings_environment(command: &Command) -> bool {
    matches!(
        command,
        Command::Open(_)
            | Command::Reopen(_)
            | Command::Attach { .. }
            | Command::Resume { .. }
            | Command::Prompt(_)
            | Command::Queue(_)
            | Command::Steer(_)
            | Command::UserCommand(_)
            | Command::Compact { .. }
            | Command::Decide(_)
    )
}

/// How often a command follows its session out of memory and back.
const REVIVALS: usize = 8;
