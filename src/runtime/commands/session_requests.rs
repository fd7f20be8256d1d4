//! Commands to sessions: sent to the lane on behalf of a view, with the session loaded again if necessary.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::file_sync;
use super::peer::Peer;
use super::service::CommandService;
use super::session_view::SessionView;
use super::session_views::ViewLease;
use crate::kernel::command::{Answer, Caller, Command, Gap, Right, Rights, SessionStatus, Snapshot};
use crate::kernel::command_log::CommandOutcome;
use crate::kernel::environment::Environment;
use crate::kernel::id::{Seq, SessionId};
use crate::protocol::operation_result::OperationError;
use crate::provider::Starter;
use crate::runtime::lane::{CommandPart, LaneClosed, LaneError, LaneReply, LaneRequest, ReplyGuard};

/// The answer of a session, and its version after the command.
pub(super) struct SessionReply {
    pub(super) answer: Answer,
    pub(super) version: u64,
    /// The outcome of the command, if it is stored.
    pub(super) stored: Option<CommandOutcome>,
}

impl CommandService {
    /// Returns the view of a session that accepts messages; creates it if there is none.
    pub(super) async fn view(self: &Arc<Self>, session: &SessionId, peer: &Peer) -> Result<ViewLease, OperationError> {
        if let Some(view) = self.views().get(session) {
            return Ok(view);
        }
        // Boxed, because most commands find a view.
        Box::pin(self.open_view(session, peer)).await
    }

    async fn open_view(self: &Arc<Self>, session: &SessionId, peer: &Peer) -> Result<ViewLease, OperationError> {
        let _one_at_a_time = self.views().lock_session(session).await;
        if let Some(view) = self.views().get(session) {
            return Ok(view);
        }
        let view = self.create_view(session.clone());
        match self.load_view(&view, peer).await {
            Ok(()) => {
                let lease = ViewLease::new(&view);
                self.register_view(&view);
                Ok(lease)
            }
            Err(error) => {
                self.release_view(&view).await;
                Err(error)
            }
        }
    }

    /// Makes a view follow all events of its session, unless the session accepts no more messages.
    async fn load_view(&self, view: &Arc<SessionView>, peer: &Peer) -> Result<(), OperationError> {
        let not_found = || OperationError::SessionNotFound { session: view.session().clone(), version: None };
        // The events of an ended or unloaded session need not be read.
        if let Answer::Described(found) = self.request(view, Command::Describe, None, peer).await?.answer
            && !is_loaded(&found)
        {
            return Err(not_found());
        }
        self.attach_view(view, peer).await?;
        let (snapshot, _) = self.describe(view, None, peer).await?;
        // It may have ended meanwhile.
        if is_loaded(&snapshot) { Ok(()) } else { Err(not_found()) }
    }

    /// Creates a view, which follows its session once it is attached.
    pub(super) fn create_view(&self, session: SessionId) -> Arc<SessionView> {
        let view = SessionView::new(session, self.server().next_connection_id(), &**self.protocol());
        tokio::spawn(Arc::clone(&view).follow(Arc::clone(self.server().hub())));
        view
    }

    /// Registers a view and starts to keep the session's file up to date.
    pub(super) fn register_view(self: &Arc<Self>, view: &Arc<SessionView>) {
        self.views().put(Arc::clone(view));
        tokio::spawn(file_sync::keep_synchronized(Arc::clone(self), Arc::clone(view)));
        let (service, view) = (Arc::clone(self), Arc::clone(view));
        tokio::spawn(async move {
            if view.ended_by_others().await {
                service.views().remove(view.session());
                service.release_view(&view).await;
            }
        });
    }

    /// Closes a view and detaches it from its session.
    pub(super) async fn release_view(&self, view: &Arc<SessionView>) {
        view.close();
        if let Ok(Some(lane)) = self.server().hub().lane(view.session()).await {
            lane.disconnected(view.outbox().id());
        }
    }

    /// Attaches a view from the first event that exists.
    pub(super) async fn attach_view(&self, view: &Arc<SessionView>, peer: &Peer) -> Result<(), OperationError> {
        let mut seen = Seq::ZERO;
        loop {
            let command = Command::Attach { seen, rights: Rights::ALL };
            let Answer::Attached { replay, .. } = self.request(view, command, None, peer).await?.answer else {
                return Ok(());
            };
            match replay.gap {
                Gap::Lost { earliest } if earliest > seen.next() => {
                    seen = Seq::new(earliest.number().saturating_sub(1));
                }
                Gap::Lost { .. } | Gap::Foreign | Gap::None => return Ok(()),
            }
        }
    }

    /// Returns the snapshot and version of a session, once the view has observed all events up to it.
    pub(super) async fn describe(
        &self,
        view: &Arc<SessionView>,
        if_version: Option<u64>,
        peer: &Peer,
    ) -> Result<(Arc<Snapshot>, u64), OperationError> {
        let snapshot = match self.published_snapshot(view, if_version) {
            Some(snapshot) => snapshot,
            // Boxed, because most queries find a session that has not changed.
            None => Box::pin(self.request_snapshot(view, if_version, peer)).await?,
        };
        view.wait_until_observed(snapshot.last_seq).await;
        let version = snapshot.version;
        Ok((snapshot, version))
    }

    /// Returns the snapshot that the lane has published, if it is of the expected version.
    fn published_snapshot(&self, view: &SessionView, if_version: Option<u64>) -> Option<Arc<Snapshot>> {
        let hub = self.server().hub();
        // A lane notices the failure of the journal when it is asked.
        if hub.services().journal.has_failed() {
            return None;
        }
        let snapshot = hub.loaded_lane(view.session())?.snapshot()?;
        if_version.is_none_or(|expected| expected == snapshot.version).then_some(snapshot)
    }

    async fn request_snapshot(
        &self,
        view: &Arc<SessionView>,
        if_version: Option<u64>,
        peer: &Peer,
    ) -> Result<Arc<Snapshot>, OperationError> {
        let answer = self.request(view, Command::Describe, if_version, peer).await?.answer;
        if let Answer::Described(snapshot) = answer { Ok(snapshot.into()) } else { Err(OperationError::Internal) }
    }

    /// Returns the environment of a peer's runs.
    pub(super) async fn environment(&self, peer: &Peer) -> Option<Environment> {
        peer.environment(None, true, self.server().hub().services()).await
    }

    /// Sends a command to its session and waits for the answer; an unloaded session is loaded again.
    pub(super) async fn request(
        &self,
        view: &Arc<SessionView>,
        command: Command,
        if_version: Option<u64>,
        peer: &Peer,
    ) -> Result<SessionReply, OperationError> {
        self.request_for(view, command, if_version, peer, None).await
    }

    /// Sends a command to its session like [`Self::request`], as part of a command of the command log, which is stored
    /// together with the change of the session.
    pub(super) async fn request_for(
        &self,
        view: &Arc<SessionView>,
        command: Command,
        if_version: Option<u64>,
        peer: &Peer,
        part: Option<CommandPart>,
    ) -> Result<SessionReply, OperationError> {
        let environment = if command.policy().needs_environment { self.environment(peer).await } else { None };
        let (sender, receiver) = oneshot::channel();
        let respond = ReplyGuard::new(move |reply| {
            // The command may have timed out.
            let _ = sender.send(reply);
        });
        let mut request = Box::new(LaneRequest {
            caller: caller(view, &command, peer),
            command,
            reply_guard: respond,
            outbox: Arc::clone(view.outbox()),
            environment,
            if_version,
            starter: Starter::Program,
            part,
        });
        for _ in 0..MAX_RELOADS {
            let lane = self.server().hub().lane(view.session()).await;
            let Some(lane) = lane.map_err(|error| OperationError::Message(error.to_string()))? else {
                let session = view.session().clone();
                return Err(OperationError::SessionNotFound { session, version: if_version });
            };
            match lane.send_request(request) {
                Ok(()) => break,
                Err(LaneClosed(back)) => request = back,
            }
        }
        match receiver.await.unwrap_or(Err(LaneError::Interrupted)) {
            Ok(LaneReply { result: Ok(answer), version, stored }) => Ok(SessionReply { answer, version, stored }),
            Ok(LaneReply { result: Err(refusal), .. }) => Err(OperationError::Refused(refusal)),
            Err(error) => Err(OperationError::message(error.to_string())),
        }
    }
}

/// Returns the sender of a command: the peer for what it does in its own name.
///
/// The view itself reads the session, and does the bookkeeping of an operation that its peer has the right to.
fn caller(view: &SessionView, command: &Command, peer: &Peer) -> Caller {
    let own = view.caller();
    match command.policy().right {
        Right::Prompt | Right::Steer | Right::Decide | Right::Interrupt | Right::Fork => {
            peer.identity().caller(own.id, own.source)
        }
        Right::Read
        | Right::AddContext
        | Right::ManageParticipants
        | Right::EndSession
        | Right::Configure
        | Right::Own => own,
    }
}

/// Returns whether clients of the protocol see a session.
pub(super) fn is_loaded(snapshot: &Snapshot) -> bool {
    snapshot.open == SessionStatus::Open && snapshot.adjusted.unloaded != Some(true)
}

/// How often a command follows a session that is unloaded while the command is on its way.
const MAX_RELOADS: usize = 8;
