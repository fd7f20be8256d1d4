//! The execution of commands.
//!
//! A command becomes commands of the kernel to its session, or a query of the session's projection. The kernel decides;
//! nothing here changes a session in another way.

mod branching;
mod compaction;
mod discovery;
mod expansion;
mod messages;
mod models;
mod queries;
mod sessions;
mod settings;
mod shell;
mod stored_sessions;

pub(super) use models::{shown_model, thinking_level};

use std::future::ready;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tracing::warn;

use super::file_sync::{self, FileGuard};
use super::peer::Peer;
use super::pending::SubmittedCommand;
use super::service::CommandService;
use super::session_requests::SessionReply;
use super::session_view::SessionView;
use super::session_views::ViewLease;
use super::store;
use crate::journal::Durability;
use crate::kernel::command::{AccessKind, Command, Snapshot};
use crate::kernel::command_log::{CommandOutcome, CommandRecord, ReplyBody};
use crate::kernel::id::SessionId;
use crate::kernel::refusal::Refusal;
use crate::protocol::command_protocol::Notice;
use crate::protocol::operation::Operation;
use crate::protocol::operation_result::{OperationError, OperationResult};
use crate::runtime::lane::{ChangePosition, CommandPart};
use crate::runtime::outbox::Outbox;

/// The execution of a command.
pub(super) struct Execution {
    pub(super) service: Arc<CommandService>,
    pub(super) peer: Arc<Peer>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) request: Arc<SubmittedCommand>,
    /// The identity under which the outcome is stored with the effect on the session.
    pub(super) record: Option<Arc<CommandRecord>>,
    /// The outcome, once it is stored that way.
    pub(super) stored: OnceLock<CommandOutcome>,
    /// Whether its last change is written and not synced.
    pub(super) unsynced: AtomicBool,
}

/// The result of an execution.
pub(super) struct ExecutionResult {
    pub(super) outcome: CommandOutcome,
    /// Whether the outcome is stored already.
    pub(super) stored: bool,
    /// How durably the outcome is stored before the response: a sync covers the changes before it.
    pub(super) durability: Durability,
    /// The notices that follow the response, for all connections.
    pub(super) notices: Vec<Notice>,
}

impl ExecutionResult {
    pub(super) fn failed(error: impl Into<Arc<str>>) -> Self {
        let (outcome, durability) = (CommandOutcome::failed(error), Durability::Written);
        Self { outcome, stored: false, durability, notices: Vec::new() }
    }
}

/// The result of an operation, the session's version, and the notices that follow the response.
pub(super) struct OperationReply {
    result: OperationResult,
    version: Option<u64>,
    notices: Vec<Notice>,
}

impl OperationReply {
    const fn new(result: OperationResult, version: Option<u64>) -> Self {
        Self { result, version, notices: Vec::new() }
    }

    const fn at(result: OperationResult, version: u64) -> Self {
        Self::new(result, Some(version))
    }
}

/// Whether a stop by itself leaves an event that increments the version of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopTrace {
    Event,
    None,
}

type Result<T = OperationReply> = std::result::Result<T, OperationError>;

/// Executes a command.
pub(super) async fn execute(execution: Execution) -> ExecutionResult {
    let protocol = execution.service.protocol();
    match execution.execute().await {
        Ok(OperationReply { result, version, notices }) => {
            let outcome = CommandOutcome::succeeded(protocol.result(&result), version);
            let unsynced = execution.unsynced.load(Ordering::Relaxed);
            let durability = if unsynced { Durability::Synced } else { Durability::Written };
            ExecutionResult { stored: execution.stored.get() == Some(&outcome), outcome, durability, notices }
        }
        Err(error) => ExecutionResult::failed(protocol.operation_error(&error)),
    }
}

impl Execution {
    /// Returns the work of the command. Each operation is boxed by itself: they differ widely in size.
    fn execute(&self) -> Pin<Box<dyn Future<Output = Result> + Send + '_>> {
        let right = self.request.command.operation.action().policy().right;
        if !self.peer.identity().rights().contains(right) {
            return Box::pin(ready(Err(OperationError::Refused(Refusal::NotPermitted))));
        }
        match &self.request.command.operation {
            Operation::ListSessions => Box::pin(self.list_sessions()),
            Operation::CreateSession { cwd } => Box::pin(self.create_session(cwd.as_deref())),
            Operation::UnloadSession => Box::pin(self.unload_session()),
            Operation::Subscribe => Box::pin(self.subscribe()),
            Operation::Metrics => Box::pin(self.metrics()),
            Operation::Health => Box::pin(ready(self.health())),
            Operation::ListStoredSessions => Box::pin(self.list_stored_sessions()),
            Operation::LoadSession { path } => Box::pin(self.load_session(path)),
            Operation::ListModels => Box::pin(self.models()),
            Operation::ListSlashCommands => Box::pin(self.slash_commands()),
            Operation::ListSkills => Box::pin(self.skills()),
            Operation::ListTools => Box::pin(self.tools()),
            Operation::ListSessionFiles => Box::pin(self.list_session_files()),
            Operation::Prompt { input, during_run } => Box::pin(self.prompt(input, *during_run)),
            Operation::Steer(input) => Box::pin(self.steer(input)),
            Operation::Queue(input) => Box::pin(self.queue(input)),
            Operation::Cancel => Box::pin(self.cancel()),
            Operation::Describe => Box::pin(self.describe_session()),
            Operation::Messages => Box::pin(self.messages()),
            Operation::SetModel { provider, model } => Box::pin(self.set_model(provider, model)),
            Operation::CycleModel { direction } => Box::pin(self.cycle_model(*direction)),
            Operation::SetThinking { level } => Box::pin(self.set_thinking(*level)),
            Operation::CycleThinking => Box::pin(self.cycle_thinking()),
            Operation::Rename { name } => Box::pin(self.rename(name)),
            Operation::Compact { instructions } => Box::pin(self.compact(instructions.as_deref())),
            Operation::StopCompaction => Box::pin(self.stop_compaction()),
            Operation::SetAutoCompaction { enabled } => Box::pin(self.set_auto_compaction(*enabled)),
            Operation::SetAutoRetry { enabled } => Box::pin(self.set_auto_retry(*enabled)),
            Operation::StopRetry => Box::pin(self.stop_retry()),
            Operation::RunShell { command, context } => Box::pin(self.run_shell(command, *context)),
            Operation::StopShell => Box::pin(self.stop_shell()),
            Operation::Statistics => Box::pin(self.statistics()),
            Operation::Export { path } => Box::pin(self.export(path.as_deref())),
            Operation::NewConversation { parent } => Box::pin(self.new_conversation(parent.as_deref())),
            Operation::SwitchFile { path } => Box::pin(self.switch_file(path)),
            Operation::Fork { entry } => Box::pin(self.fork(entry)),
            Operation::ForkMessages => Box::pin(self.fork_messages()),
            Operation::LastText => Box::pin(self.last_text()),
            Operation::ContextUsage => Box::pin(self.context_usage()),
            Operation::Answer { request, response } => Box::pin(self.answer(request, response)),
        }
    }

    /// Returns the session that the command names, by the id that the client uses for it.
    fn label(&self) -> Result<&SessionId> {
        // A command that needs a session is not decoded without one.
        self.request.tag.session.as_ref().ok_or(OperationError::Internal)
    }

    /// Returns the view of the session that the command names.
    async fn view(&self) -> Result<ViewLease> {
        let label = self.label()?;
        self.service.view(&self.peer.resolve(label), &self.peer).await.map_err(|mut error| {
            if let OperationError::SessionNotFound { version, session } = &mut error {
                (*version, *session) = (self.request.command.if_version, label.clone());
            }
            error
        })
    }

    /// Sends the only command that changes the session, at the version that the request names. A success without a result
    /// is the outcome.
    async fn request(&self, view: &Arc<SessionView>, command: Command) -> Result<SessionReply> {
        self.request_with(view, command, &OperationResult::None).await
    }

    /// The same, with the result of a success.
    async fn request_with(
        &self,
        view: &Arc<SessionView>,
        command: Command,
        result: &OperationResult,
    ) -> Result<SessionReply> {
        let position = self.outcome_with(result);
        self.request_part(view, command, self.request.command.if_version, position).await
    }

    /// Sends a command that others follow, at any version: the session was read at the version that the request names.
    async fn step(&self, view: &Arc<SessionView>, command: Command) -> Result<SessionReply> {
        self.request_part(view, command, None, ChangePosition::Step).await
    }

    /// Sends a command to the session as part of the operation.
    async fn request_part(
        &self,
        view: &Arc<SessionView>,
        command: Command,
        if_version: Option<u64>,
        position: ChangePosition,
    ) -> Result<SessionReply> {
        let (is_step, changes) = (matches!(position, ChangePosition::Step), command.policy().access);
        let part = self.record.clone().map(|record| CommandPart { record, position });
        let reply = self.service.request_for(view, command, if_version, &self.peer, part).await?;
        if changes != AccessKind::ReadOnly {
            self.unsynced.store(is_step, Ordering::Relaxed);
        }
        if let Some(outcome) = &reply.stored {
            let _ = self.stored.set(outcome.clone());
        }
        Ok(reply)
    }

    /// Returns the position of the change with which a result is stored; one that is large is stored by itself.
    fn outcome_with(&self, result: &OperationResult) -> ChangePosition {
        let text = self.service.protocol().result(result);
        match store::stored_body(text, true, &self.request.tag.kind_name, &**self.service.protocol()) {
            ReplyBody::Text(text) => ChangePosition::Outcome(text),
            ReplyBody::TooLarge(_) | ReplyBody::Removed => ChangePosition::Last,
        }
    }

    /// Returns the snapshot of the session, at the version that the request names.
    async fn describe(&self, view: &Arc<SessionView>) -> Result<(Arc<Snapshot>, u64)> {
        self.service.describe(view, self.request.command.if_version, &self.peer).await
    }

    /// Imports what other programs have written to the session's file; a file that cannot be read delays nothing.
    async fn synchronize(&self, view: &Arc<SessionView>) {
        let mut guard = view.lock_file().await;
        self.synchronize_in(view, &mut guard).await;
    }

    /// Imports under a lock that the caller holds.
    async fn synchronize_in(&self, view: &Arc<SessionView>, guard: &mut FileGuard<'_>) {
        if let Err(error) = file_sync::synchronize_in(&self.service, view, guard).await {
            warn!(session = %view.session(), %error, "cannot synchronize a session with its file");
        }
    }

    /// Increments the version after a success that changed nothing else, at any version.
    async fn bump_version(&self, view: &Arc<SessionView>, result: &OperationResult) -> Result<u64> {
        let command = Command::BumpVersion { change: self.request.tag.kind_name.clone() };
        Ok(self.request_part(view, command, None, self.outcome_with(result)).await?.version)
    }

    /// Stops something in the session. If there is nothing to stop, the session must be at the version that the request
    /// names.
    ///
    /// The version is incremented, unless an event of the stop does that or nothing can be stored: then the stop still
    /// takes effect and is not counted.
    async fn stop(&self, command: Command, trace: StopTrace) -> Result {
        let view = self.view().await?;
        let stopped = self.request(&view, command).await;
        let is_stored = self.service.server().storage_error().is_none();
        let version = match stopped {
            Ok(SessionReply { version, .. }) if trace == StopTrace::Event => version,
            Ok(_) if is_stored => self.bump_version(&view, &OperationResult::None).await?,
            Ok(_) => self.step(&view, Command::Describe).await?.version,
            Err(error) if !is_nothing_to_stop(&error) => return Err(error),
            Err(_) if is_stored => self.bump_expected_version(&view, &OperationResult::None).await?,
            Err(_) => self.request(&view, Command::Describe).await?.version,
        };
        Ok(OperationReply::at(OperationResult::None, version))
    }

    /// Increments the version if there was nothing to do; the session must be at the version that the request names.
    async fn bump_expected_version(&self, view: &Arc<SessionView>, result: &OperationResult) -> Result<u64> {
        let command = Command::BumpVersion { change: self.request.tag.kind_name.clone() };
        Ok(self.request_with(view, command, result).await?.version)
    }

    /// Sends a command that changes the session and has no result.
    async fn change(&self, command: Command) -> Result {
        let view = self.view().await?;
        let SessionReply { version, .. } = self.request(&view, command).await?;
        Ok(OperationReply::at(OperationResult::None, version))
    }
}

/// Returns whether a stop was refused because nothing is active, which is what it was to achieve.
const fn is_nothing_to_stop(error: &OperationError) -> bool {
    let OperationError::Refused(refusal) = error else { return false };
    matches!(refusal, Refusal::NoActiveRun | Refusal::NoRetry | Refusal::NoUserCommand | Refusal::NoCompaction)
}
