//! The command service: it drives the command log for the connections of a protocol.
//!
//! The log decides which commands are admitted, in which order they run, which are repetitions and which have timed out.
//! Its effects are carried out under its lock, which is never held across an await, so that all connections are notified
//! of commands in the order of the decisions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::error;

use super::executor::{self, StartedCommand};
use super::housekeeping;
use super::limits::CommandServiceLimits;
use super::metrics::CommandMetrics;
use super::operations::{Execution, ExecutionResult};
use super::peer::Peer;
use super::pending::{Pending, SubmittedCommand, TaskState, body_of, submission};
use super::session_list::SessionList;
use super::session_views::SessionViews;
use super::shell_breaker::ShellBreakers;
use super::store;
use crate::journal::{CommitError, Durability, Journal, ReadError};
use crate::kernel::command::Snapshot;
use crate::kernel::command_log::{CommandLog, CommandName, CommandOutcome, CommandRecord, Effect, Input, SubmissionId};
use crate::kernel::id::ConnectionId;
use crate::kernel::time::Now;
use crate::protocol::command_protocol::{CommandProtocol, LifecycleStage, Notice};
use crate::protocol::intent::RequestTag;
use crate::protocol::operation::{CommandRequest, Operation};
use crate::protocol::operation_result::OperationError;
use crate::runtime::outbox::Outbox;
use crate::runtime::server::Server;
use crate::runtime::session_files::{self, SessionFiles};

/// The command log and everything that the connections of the protocol share.
pub(in crate::runtime) struct CommandService {
    server: Arc<Server>,
    protocol: Arc<dyn CommandProtocol>,
    limits: CommandServiceLimits,
    home: PathBuf,
    /// The connections of the protocol, which receive notices.
    connections: Mutex<BTreeMap<ConnectionId, Arc<Outbox>>>,
    views: SessionViews,
    sessions: SessionList,
    metrics: CommandMetrics,
    breaker: ShellBreakers,
    /// The prefix of the names of commands that were sent without an id.
    started_at: u64,
    inner: Mutex<Inner>,
    /// Notified when the log has an earlier deadline than the one that is armed.
    earlier_deadline: Notify,
    /// Notified whenever a command is answered.
    answered: Notify,
}

struct Inner {
    log: CommandLog,
    pending: BTreeMap<SubmissionId, Pending>,
    tickets: u64,
    /// The commands that the log has started and that are not executed yet.
    started: Vec<StartedCommand>,
    /// The deadline for which the timer is armed.
    armed: Option<Now>,
}

impl CommandService {
    /// Opens the service of a protocol, with the stored outcomes.
    pub(in crate::runtime) async fn open(
        server: Arc<Server>,
        protocol: Arc<dyn CommandProtocol>,
    ) -> Result<Arc<Self>, ReadError> {
        let services = server.hub().services();
        let (limits, now) = (CommandServiceLimits::of(&services.limits), services.clock.now());
        let (log, effects) = store::restore(&services.journal, limits.log, protocol.error_formatter(), now).await?;
        // Subscribed before the list is read, so that no change in between is missed.
        let changes = services.session_changes.subscribe();
        let sessions = SessionList::restore(&services.journal, protocol.name()).await?;
        let (started_at, home) = (now.0, session_files::home());
        let inner = Inner { log, pending: BTreeMap::new(), tickets: 0, started: Vec::new(), armed: None };
        let service = Arc::new(Self {
            breaker: ShellBreakers::new(limits.shell),
            server,
            protocol,
            limits,
            home,
            connections: Mutex::default(),
            views: SessionViews::default(),
            sessions,
            metrics: CommandMetrics::default(),
            started_at,
            inner: Mutex::new(inner),
            earlier_deadline: Notify::new(),
            answered: Notify::new(),
        });
        {
            let mut inner = service.lock();
            for effect in effects {
                service.perform(&mut inner, effect);
            }
        }
        tokio::spawn(housekeeping::run_deadlines(Arc::clone(&service)));
        tokio::spawn(housekeeping::watch_deletions(Arc::clone(&service)));
        tokio::spawn(housekeeping::watch_session_changes(Arc::clone(&service), changes));
        tokio::spawn(housekeeping::watch_shutdown(Arc::clone(&service)));
        Ok(service)
    }

    pub(super) const fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(super) const fn protocol(&self) -> &Arc<dyn CommandProtocol> {
        &self.protocol
    }

    /// Returns the text of an error, as the protocol spells it.
    pub(super) fn error_text(&self, error: &OperationError) -> String {
        self.protocol.operation_error(error)
    }

    /// Returns whether a client of the protocol has created a session.
    pub(super) fn is_own(&self, snapshot: &Snapshot) -> bool {
        snapshot.opening.mode == self.protocol.name()
    }

    pub(super) const fn limits(&self) -> &CommandServiceLimits {
        &self.limits
    }

    pub(super) const fn views(&self) -> &SessionViews {
        &self.views
    }

    pub(super) const fn sessions(&self) -> &SessionList {
        &self.sessions
    }

    pub(in crate::runtime) const fn metrics(&self) -> &CommandMetrics {
        &self.metrics
    }

    pub(super) const fn breaker(&self) -> &ShellBreakers {
        &self.breaker
    }

    pub(super) fn now(&self) -> Now {
        self.server.hub().services().clock.now()
    }

    /// Returns the user's home directory.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the user's session files.
    pub(super) fn session_files(&self) -> &SessionFiles {
        &self.server.hub().services().session_files
    }

    /// Returns the number of commands in the last minute, and its limit.
    pub(super) fn rate(&self) -> (u64, u64) {
        let now = self.now();
        let (used, limit) = self.lock().log.rate_used(now);
        (used as u64, limit as u64)
    }

    /// Returns the number of connections.
    pub(super) fn connected(&self) -> usize {
        self.connections().len()
    }

    /// Returns the next deadline of the log, and arms it.
    pub(super) fn next_deadline(&self) -> Option<Now> {
        let mut inner = self.lock();
        inner.armed = inner.log.next_deadline();
        inner.armed
    }

    /// Waits until the log has an earlier deadline than the armed one.
    pub(super) async fn earlier_deadline(&self) {
        self.earlier_deadline.notified().await;
    }

    /// Sends a notice to all connections.
    pub(super) fn notify(&self, notice: &Notice) {
        self.broadcast(&self.protocol.notice(notice));
    }

    fn broadcast(&self, line: &Bytes) {
        for outbox in self.connections().values() {
            outbox.push_line(line.clone());
        }
    }

    /// Reads the command log.
    pub(super) fn read<T>(&self, read: impl FnOnce(&CommandLog) -> T) -> T {
        read(&self.lock().log)
    }

    /// Waits until the events that are published now are in the outboxes of their subscribers.
    pub(in crate::runtime) async fn wait_until_delivered(&self) {
        self.views.wait_until_current().await;
    }

    /// Waits until connections are closed.
    pub(super) async fn wait_for_disconnect(&self) {
        self.server.hub().services().disconnecting.wait().await;
    }

    /// Registers a connection, which receives the notices from now on.
    pub(in crate::runtime) fn connect(&self, outbox: &Arc<Outbox>) {
        self.connections().insert(outbox.id(), Arc::clone(outbox));
    }

    /// Removes a connection, and releases the views that have no other subscriber.
    pub(in crate::runtime) fn disconnect(self: &Arc<Self>, outbox: &Outbox) {
        self.connections().remove(&outbox.id());
        for view in self.views.unsubscribe(outbox.id()) {
            let service = Arc::clone(self);
            tokio::spawn(async move { service.release_view(&view).await });
        }
    }

    /// Waits until all commands of a connection are answered, or the connection is closed.
    pub(in crate::runtime) async fn all_answered(&self, outbox: &Outbox) {
        loop {
            let answered = self.answered.notified();
            let waits = |pending: &Pending| pending.outbox.id() == outbox.id();
            if outbox.is_closed() || !self.lock().pending.values().any(waits) {
                return;
            }
            answered.await;
        }
    }

    /// Submits a command.
    pub(in crate::runtime) fn submit(
        self: &Arc<Self>,
        tag: RequestTag,
        command: CommandRequest,
        peer: Arc<Peer>,
        outbox: Arc<Outbox>,
    ) {
        let mut inner = self.lock();
        inner.tickets += 1;
        let ticket = SubmissionId(inner.tickets);
        let name = match &tag.request_id {
            Some(id) => CommandName::Client(id.as_str().into()),
            None => CommandName::Generated(format!("anon:{}:{}", self.started_at, ticket.0).into()),
        };
        let request = Arc::new(SubmittedCommand { tag, command });
        let format_error = self.protocol.error_formatter();
        let mut submission = submission(ticket, &request, name.clone(), format_error);
        submission.time_limit = submission.time_limit.map(|usual| self.limits.command_millis.unwrap_or(usual));
        let (task, notices, durability) = (TaskState::None, Vec::new(), Durability::Written);
        inner.pending.insert(ticket, Pending { request, name, peer, outbox, task, notices, durability });
        let started = self.apply(&mut inner, Input::Submit(Box::new(submission)));
        drop(inner);
        executor::execute_all(self, started);
    }

    /// Passes an input to the log, and carries out the effects.
    pub(super) fn input(self: &Arc<Self>, input: Input) {
        let started = self.apply(&mut self.lock(), input);
        executor::execute_all(self, started);
    }

    /// Passes the result of a command to the log, and returns the commands that start.
    pub(super) fn finish_execution(
        self: &Arc<Self>,
        ticket: SubmissionId,
        result: ExecutionResult,
    ) -> Vec<StartedCommand> {
        let mut inner = self.lock();
        if let Some(pending) = inner.pending.get_mut(&ticket) {
            (pending.notices, pending.durability) = (result.notices, result.durability);
        }
        let input = if result.stored { Input::FinishedWithEffect } else { Input::Finished };
        self.apply(&mut inner, input(ticket, result.outcome))
    }

    /// Records the task of a command that could not be executed at once.
    pub(super) fn record_task(&self, ticket: SubmissionId, task: AbortHandle) {
        match self.lock().pending.get_mut(&ticket) {
            Some(pending) => pending.task.spawned(task),
            // It has timed out.
            None => task.abort(),
        }
    }

    /// Passes an input to the log, carries out the effects, and returns the commands that start. They are executed
    /// after the lock is released.
    #[must_use = "the commands have to be executed"]
    fn apply(self: &Arc<Self>, inner: &mut Inner, input: Input) -> Vec<StartedCommand> {
        let effects = inner.log.apply(input, self.now());
        for effect in effects {
            self.perform(inner, effect);
        }
        let next = inner.log.next_deadline();
        let earlier_deadline = match (next, inner.armed) {
            (Some(next), Some(armed)) => next < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if earlier_deadline {
            inner.armed = next;
            self.earlier_deadline.notify_one();
        }
        std::mem::take(&mut inner.started)
    }

    fn perform(self: &Arc<Self>, inner: &mut Inner, effect: Effect) {
        match effect {
            Effect::Refuse(ticket, refusal) => {
                if let Some(pending) = inner.pending.remove(&ticket) {
                    let operation = &pending.request.command.operation;
                    self.metrics.refused(&refusal, matches!(operation, Operation::Answer { .. }));
                    let outcome = CommandOutcome::failed(self.protocol.refusal(&refusal));
                    self.respond(&pending, &outcome, false);
                }
            }
            Effect::Accept(ticket) => self.announce(inner, ticket, LifecycleStage::Accepted),
            Effect::PersistAdmission(record) => store::persist_admission(self.journal(), record),
            Effect::Run { ticket, record } => {
                self.announce(inner, ticket, LifecycleStage::Started);
                self.run(inner, ticket, record);
            }
            Effect::Abandon(ticket) => {
                if let Some(pending) = inner.pending.get_mut(&ticket) {
                    pending.task.abandon();
                }
            }
            Effect::PersistOutcome(ticket, record) => {
                let durability = inner.pending.get(&ticket).map_or(Durability::Written, |pending| pending.durability);
                let stored = store::persist_outcome(self.journal(), record, &*self.protocol, durability);
                self.report_commit(ticket, stored);
            }
            Effect::PersistOutcomeLater(record) => {
                store::defer_outcome(self.journal(), record, &*self.protocol);
            }
            Effect::Finish { ticket, outcome, replayed } => self.finish(inner, ticket, &outcome, replayed),
            Effect::DeleteRecord(row) => store::delete_record(self.journal(), row),
        }
    }

    /// Passes the result of the commit of an outcome to the log.
    fn report_commit(
        self: &Arc<Self>,
        ticket: SubmissionId,
        stored: tokio::sync::oneshot::Receiver<Result<(), CommitError>>,
    ) {
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let input = match stored.await {
                Ok(Ok(())) => Input::OutcomePersisted(ticket),
                Ok(Err(error)) => {
                    error!(error = %error, "cannot store a command");
                    Input::OutcomeFailed(ticket)
                }
                Err(_) => Input::OutcomeFailed(ticket),
            };
            service.input(input);
        });
    }

    fn announce(&self, inner: &Inner, ticket: SubmissionId, step: LifecycleStage<'_>) {
        if let Some(pending) = inner.pending.get(&ticket) {
            self.broadcast(&self.protocol.lifecycle(&pending.lifecycle(), step));
        }
    }

    fn run(self: &Arc<Self>, inner: &mut Inner, ticket: SubmissionId, record: Option<Arc<CommandRecord>>) {
        let Some(pending) = inner.pending.get(&ticket) else { return };
        self.metrics.executed();
        let execution = Execution {
            service: Arc::clone(self),
            peer: Arc::clone(&pending.peer),
            outbox: Arc::clone(&pending.outbox),
            request: Arc::clone(&pending.request),
            record,
            stored: OnceLock::new(),
            unsynced: AtomicBool::new(false),
        };
        inner.started.push(StartedCommand { ticket, execution });
    }

    fn finish(&self, inner: &mut Inner, ticket: SubmissionId, outcome: &CommandOutcome, replayed: bool) {
        let Some(pending) = inner.pending.remove(&ticket) else { return };
        let error = (!outcome.success).then(|| body_of(outcome));
        let stage = LifecycleStage::Finished { error, session_version: outcome.version, replayed };
        self.broadcast(&self.protocol.lifecycle(&pending.lifecycle(), stage));
        self.respond(&pending, outcome, replayed);
        for notice in &pending.notices {
            self.notify(notice);
        }
    }

    /// Answers a command.
    fn respond(&self, pending: &Pending, outcome: &CommandOutcome, replayed: bool) {
        pending.outbox.push_line(self.protocol.response(&pending.response(outcome, replayed)));
        self.answered.notify_waiters();
    }

    pub(super) fn journal(&self) -> &Journal {
        &self.server.hub().services().journal
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Arc<Outbox>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
