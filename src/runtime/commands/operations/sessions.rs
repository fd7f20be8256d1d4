//! Creation, deletion and listing of sessions, and the state of the server.

use std::sync::Arc;
use std::time::Duration;

use super::{Execution, OperationReply, Result};
use crate::journal::ReadError;
use crate::kernel::command::{Answer, Command, QueueEntry};
use crate::kernel::event::Adjustment;
use crate::kernel::id::SessionId;
use crate::kernel::refusal::Refusal;
use crate::protocol::command_protocol::Notice;
use crate::protocol::intent::StartSession;
use crate::protocol::operation_result::{Health, OperationError, OperationResult, ServiceMetrics, SessionInfo};
use crate::provider::breaker::BreakerState;
use crate::runtime::commands::metrics::CommandCounts;
use crate::runtime::commands::session_list::SessionSlot;
use crate::runtime::commands::session_requests::{SessionReply, is_loaded};
use crate::runtime::commands::session_view::SessionView;
use crate::runtime::commands::session_views::ViewLease;
use crate::runtime::generate;
use crate::runtime::lane::ChangePosition;

impl Execution {
    /// Lists the active sessions, and those of other protocols that are in memory.
    pub(super) async fn list_sessions(&self) -> Result {
        let mut rows: Vec<SessionInfo> = Vec::new();
        for entry in self.service.entries().await.map_err(unreadable)? {
            rows.push(self.service.listed_info(&entry).await);
        }
        rows.sort_by_key(|row| row.created_at);
        Ok(OperationReply::new(OperationResult::Sessions(rows), None))
    }

    pub(super) async fn create_session(&self, cwd: Option<&str>) -> Result {
        let id = self.request.tag.session.clone().unwrap_or_else(generate::session);
        let known = self.find(&id).await?;
        if known == SessionPresence::Exists {
            return Err(OperationError::SessionExists(id));
        }
        self.refuse_versions(&id)?;
        let cwd = cwd.unwrap_or(&self.peer.cwd);
        let view = match known {
            SessionPresence::Closed => self.open_replacement(&id, cwd).await?,
            SessionPresence::NeverExisted | SessionPresence::Exists => self.open(&id, cwd, None).await?,
        };
        let (snapshot, version) = self.service.describe(&view, None, &self.peer).await?;
        let info = Box::new(self.info(&view, &snapshot));
        let notices = vec![Notice::SessionCreated(info.clone())];
        Ok(OperationReply { result: OperationResult::Created(info), version: Some(version), notices })
    }

    /// Unloads a session: its file is written, and clients of this protocol do not see it any more.
    ///
    /// Everything in a session of this protocol is stopped first. For clients of other protocols nothing ends.
    pub(super) async fn unload_session(&self) -> Result {
        let view = self.view().await?;
        let (snapshot, _) = self.describe(&view).await?;
        if self.service.is_own(&snapshot) {
            self.stop_all(&view).await?;
        }
        self.synchronize(&view).await;
        self.unload(&view).await?;
        self.service.sessions().remove(view.session());
        self.service.views().remove(view.session());
        self.service.breaker().forget(view.session());
        self.service.release_view(&view).await;
        let notices = vec![Notice::SessionDeleted(view.session().clone())];
        Ok(OperationReply { result: OperationResult::Unloaded, version: None, notices })
    }

    pub(super) async fn subscribe(&self) -> Result {
        let view = self.view().await?;
        let (snapshot, version) = self.describe(&view).await?;
        self.subscribe_to(&view, self.label()?);
        Ok(OperationReply::at(OperationResult::Subscribed(Box::new(self.info(&view, &snapshot))), version))
    }

    pub(super) fn health(&self) -> Result {
        let services = self.service.server().hub().services();
        let mut issues = Vec::new();
        let open: Vec<_> = services
            .model_config
            .circuits()
            .into_iter()
            .filter(|circuit| circuit.state == BreakerState::Open)
            .collect();
        issues.extend(open.iter().map(|circuit| format!("the circuit of {} is open", circuit.provider)));
        let shell = self.service.breaker().report();
        if shell.open_sessions > 0 {
            issues.push(format!("shell commands are refused in {} sessions", shell.open_sessions));
        }
        if services.journal.is_full() {
            issues.push("the disk is full".to_owned());
        }
        if services.journal.has_failed() {
            issues.push("the journal could not be synced".to_owned());
        }
        let health = Health { issues, open_circuit: !open.is_empty(), open_shell_circuit: shell.open_sessions > 0 };
        Ok(OperationReply::new(OperationResult::Health(health), None))
    }

    pub(super) async fn metrics(&self) -> Result {
        let service = &self.service;
        let counts = service.read(|log| log.stats());
        let CommandCounts { executed, rejected } = service.metrics().counts();
        let (used, limit) = service.rate();
        let questions = service.views().open_questions();
        let sessions = service.entries().await.map_err(unreadable)?.len() as u64;
        let metrics = ServiceMetrics {
            sessions,
            connections: service.connected() as u64,
            executed,
            rejected,
            recent_commands: used,
            max_recent_commands: limit,
            in_flight: counts.in_flight as u64,
            max_in_flight: service.limits().log.in_flight as u64,
            outcomes: counts.outcomes as u64,
            max_outcomes: service.limits().log.outcomes as u64,
            idempotency_keys: counts.keys as u64,
            lanes: counts.lanes as u64,
            open_questions: questions,
            max_open_questions: service.limits().sessions as u64 * QUESTIONS,
            circuits: service.server().circuit_rows(),
            shell_circuits: service.breaker().report(),
        };
        Ok(OperationReply::new(OperationResult::Metrics(Box::new(metrics)), None))
    }

    /// Returns what is known of a session, without loading it.
    pub(super) async fn find(&self, id: &SessionId) -> Result<SessionPresence> {
        let hub = self.service.server().hub();
        Ok(match self.service.entry(id).await.map_err(unreadable)? {
            Some(entry) if entry.is_own() && !entry.is_loaded() => SessionPresence::Closed,
            // Deleting or ending a session of another protocol does not free its id.
            Some(_) => SessionPresence::Exists,
            // It may be about to be stored, or only its id is left.
            None => match hub.lane(id).await {
                Ok(None) => SessionPresence::NeverExisted,
                Ok(Some(_)) => SessionPresence::Exists,
                Err(error) => return Err(OperationError::message(error.to_string())),
            },
        })
    }

    /// Refuses a command that expects a version of a session that does not exist.
    pub(super) fn refuse_versions(&self, id: &SessionId) -> Result<()> {
        match self.request.command.if_version {
            Some(version) => Err(OperationError::SessionNotFound { session: id.clone(), version: Some(version) }),
            None => Ok(()),
        }
    }

    pub(super) fn refuse_too_many(&self) -> Result<()> {
        if self.service.sessions().len() < self.service.limits().sessions {
            return Ok(());
        }
        Err(self.too_many())
    }

    /// Reserves a slot among the active sessions; concurrent commands may reserve others.
    pub(super) fn reserve_slot(&self, id: &SessionId) -> Result<SessionSlot<'_>> {
        let slot = self.service.sessions().reserve_slot(id, self.service.limits().sessions);
        slot.ok_or_else(|| self.too_many())
    }

    fn too_many(&self) -> OperationError {
        self.service.metrics().session_refused();
        OperationError::SessionLimit
    }

    /// Subscribes the connection to a session, under the id that the client uses for it.
    pub(super) fn subscribe_to(&self, view: &SessionView, label: &SessionId) {
        view.subscribe(&self.outbox, label, &**self.service.protocol(), self.service.now());
    }

    /// Opens a session and subscribes the connection to it.
    pub(super) async fn open(&self, id: &SessionId, cwd: &str, name: Option<String>) -> Result<ViewLease> {
        // Concurrent requests for the session find this view and create none.
        let _one_at_a_time = self.service.views().lock_session(id).await;
        let slot = self.reserve_slot(id)?;
        let opening = self.service.server().create_named(id, self.start(cwd, name)).await;
        let opening = opening.map_err(|body| OperationError::message(body.message))?;
        let view = self.service.create_view(id.clone());
        self.subscribe_to(&view, id);
        let open = Command::Open(Box::new(opening));
        let opened = self.request_part(&view, open, None, ChangePosition::Last).await;
        if let Err(error) = opened {
            view.close();
            return Err(error);
        }
        let lease = ViewLease::new(&view);
        slot.keep();
        self.service.register_view(&view);
        Ok(lease)
    }

    /// Opens a deleted session again as a new one, and subscribes the connection to it.
    async fn open_replacement(&self, id: &SessionId, cwd: &str) -> Result<ViewLease> {
        let opening = self.service.server().prepare_opening(self.start(cwd, None)).await;
        let opening = opening.map_err(|body| OperationError::message(body.message))?;
        let command = Command::Reopen(Box::new(opening));
        self.reactivate(id, command).await
    }

    /// Stops everything in a session and waits for the end; queued messages are removed.
    pub(super) async fn stop_all(&self, view: &Arc<SessionView>) -> Result<()> {
        self.unqueue_all(view).await?;
        for command in [
            Command::StopCompaction,
            Command::StopUserCommand { call: None },
            Command::Cancel { run: None, reason: "session deleted".to_owned() },
        ] {
            match self.step(view, command).await {
                Ok(SessionReply { .. }) => {}
                Err(OperationError::Refused(Refusal::NoCompaction | Refusal::NoUserCommand | Refusal::NoActiveRun)) => {
                }
                Err(error) => return Err(error),
            }
        }
        let at_rest = view.wait_for(|projection| !projection.is_streaming());
        match tokio::time::timeout(STOP_TIMEOUT, at_rest).await {
            Ok(()) => Ok(()),
            Err(_) => Err(OperationError::message("what runs in the session could not be stopped in time")),
        }
    }

    async fn unqueue_all(&self, view: &Arc<SessionView>) -> Result<()> {
        let Answer::Queue(waiting) = self.step(view, Command::ListQueue).await?.answer else {
            return Err(OperationError::Internal);
        };
        for QueueEntry { message, .. } in waiting {
            match self.step(view, Command::Unqueue { message }).await {
                // It may have started meanwhile, and is stopped below.
                Ok(SessionReply { .. }) | Err(OperationError::Refused(Refusal::NotQueued)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes a session invisible to clients of the protocol; one of their own only while nothing is active in it.
    async fn unload(&self, view: &Arc<SessionView>) -> Result<()> {
        let (snapshot, version) = self.service.describe(view, None, &self.peer).await?;
        let own = self.service.is_own(&snapshot);
        if own && (snapshot.run.is_some() || snapshot.queued > 0) {
            return Err(OperationError::message(CHANGED));
        }
        let unloaded = Adjustment { unloaded: Some(true), ..Adjustment::default() };
        // A message of another client changes the version.
        let (command, at) = (Command::Adjust(Box::new(unloaded)), own.then_some(version));
        match self.request_part(view, command, at, ChangePosition::Last).await {
            Ok(SessionReply { .. }) => Ok(()),
            Err(OperationError::Refused(Refusal::Stale { .. })) => Err(OperationError::message(CHANGED)),
            Err(error) => Err(error),
        }
    }

    /// Loads a session again that was deleted or has ended.
    pub(super) async fn reopen(&self, id: &SessionId) -> Result<ViewLease> {
        self.reactivate(id, Command::Load).await
    }

    /// Makes a session active again with a command, and subscribes the connection to it.
    async fn reactivate(&self, id: &SessionId, command: Command) -> Result<ViewLease> {
        let _one_at_a_time = self.service.views().lock_session(id).await;
        let slot = self.reserve_slot(id)?;
        let view = self.service.create_view(id.clone());
        if let Err(error) = self.load(&view, command).await {
            self.service.release_view(&view).await;
            return Err(error);
        }
        self.subscribe_to(&view, id);
        let lease = ViewLease::new(&view);
        slot.keep();
        self.service.register_view(&view);
        Ok(lease)
    }

    async fn load(&self, view: &Arc<SessionView>, command: Command) -> Result<()> {
        self.service.attach_view(view, &self.peer).await?;
        let (snapshot, _) = self.service.describe(view, None, &self.peer).await?;
        // A session of another protocol stays theirs, also after it has ended or was deleted here.
        if is_loaded(&snapshot) || !self.service.is_own(&snapshot) {
            return Err(OperationError::SessionExists(view.session().clone()));
        }
        if matches!(command, Command::Reopen(_)) {
            let voided = self.service.server().revoke_token(view.session()).await;
            voided.map_err(|body| OperationError::message(body.message))?;
        }
        // A session that is loaded continues in a file, which is another change.
        let position = if matches!(command, Command::Load) { ChangePosition::Step } else { ChangePosition::Last };
        self.request_part(view, command, None, position).await?;
        self.service.describe(view, None, &self.peer).await?;
        Ok(())
    }

    /// Returns the parameters of a new session of the protocol.
    fn start(&self, cwd: &str, name: Option<String>) -> StartSession {
        StartSession {
            mode: self.service.protocol().name().to_owned(),
            provider: None,
            sandbox_provider: None,
            cwd: cwd.to_owned(),
            model: None,
            name,
            repo: None,
            metadata: None,
            environment: None,
            idempotency_key: None,
        }
    }
}

/// What is known of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionPresence {
    /// It does not exist.
    NeverExisted,
    /// A client of the protocol created it, and it was deleted or has ended.
    Closed,
    /// It exists, or belongs to another protocol.
    Exists,
}

fn unreadable(error: ReadError) -> OperationError {
    OperationError::message(format!("the sessions cannot be read: {error}"))
}

/// The error of a deletion that another client has overtaken.
const CHANGED: &str = "the session was changed while it was being deleted; delete it again";
/// The maximum number of open questions of a session, for the metrics.
const QUESTIONS: u64 = 8;
/// How long everything in a session may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
