//! Commands that are not answered yet, as the service keeps them.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::peer::Peer;
use crate::journal::Durability;
use crate::kernel::command_log::{CommandName, CommandOutcome, ErrorFormatter, Submission, SubmissionId};
use crate::protocol::command_protocol::{CommandLifecycle, CommandResponse, Notice};
use crate::protocol::intent::RequestTag;
use crate::protocol::operation::CommandRequest;
use crate::runtime::generate;
use crate::runtime::outbox::Outbox;

/// A command that is not answered yet.
pub(super) struct Pending {
    pub(super) request: Arc<SubmittedCommand>,
    pub(super) name: CommandName,
    pub(super) peer: Arc<Peer>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) task: TaskState,
    /// The notices that follow the response, for all connections.
    pub(super) notices: Vec<Notice>,
    /// How durably the outcome is stored before the response.
    pub(super) durability: Durability,
}

/// The task of a command.
#[derive(Debug)]
pub(super) enum TaskState {
    /// There is none, or not yet.
    None,
    /// It runs.
    Spawned(AbortHandle),
    /// The command was abandoned; a task that is spawned later is aborted.
    Abandoned,
}

impl TaskState {
    /// Records the task of a command, or aborts it if the command was abandoned.
    pub(super) fn spawned(&mut self, task: AbortHandle) {
        match self {
            Self::None | Self::Spawned(_) => *self = Self::Spawned(task),
            Self::Abandoned => task.abort(),
        }
    }

    /// Aborts the task.
    pub(super) fn abandon(&mut self) {
        if let Self::Spawned(task) = std::mem::replace(self, Self::Abandoned) {
            task.abort();
        }
    }
}

/// A command with the parts that its response repeats.
pub(super) struct SubmittedCommand {
    pub(super) tag: RequestTag,
    pub(super) command: CommandRequest,
}

impl Pending {
    /// Returns the command as lifecycle events describe it.
    pub(super) fn lifecycle(&self) -> CommandLifecycle<'_> {
        let SubmittedCommand { tag, command } = &*self.request;
        CommandLifecycle {
            command_id: self.name.text(),
            command: &tag.kind_name,
            session: tag.session.as_ref(),
            depends_on: &command.depends_on,
            if_session_version: command.if_version,
            idempotency_key: command.idempotency_key.as_deref(),
        }
    }

    /// Returns the response with an outcome.
    pub(super) fn response<'a>(&'a self, outcome: &'a CommandOutcome, replayed: bool) -> CommandResponse<'a> {
        let tag = &self.request.tag;
        CommandResponse {
            id: tag.request_id.as_deref(),
            command: &tag.kind_name,
            success: outcome.success,
            body: body_of(outcome),
            session_version: outcome.version,
            replayed,
            timed_out: outcome.timed_out,
        }
    }
}

/// Returns the text of an outcome; empty if it was too large to keep.
pub(super) fn body_of(outcome: &CommandOutcome) -> &str {
    outcome.body.text().unwrap_or_default()
}

/// Returns the submission of a command to the log.
pub(super) fn submission(
    ticket: SubmissionId,
    request: &SubmittedCommand,
    name: CommandName,
    format_error: ErrorFormatter,
) -> Submission {
    let SubmittedCommand { tag, command } = request;
    let policy = command.operation.action().policy();
    Submission {
        ticket,
        name,
        key: command.idempotency_key.as_deref().map(Into::into),
        kind: tag.kind_name.clone().into(),
        session: tag.session.clone(),
        fingerprint: generate::fingerprint([command.canonical.as_str()]),
        depends_on: command.depends_on.iter().map(|id| id.as_str().into()).collect(),
        scheduling: policy.scheduling(),
        time_limit: command.time_limit,
        persistence: policy.persistence(),
        rate_class: policy.rate_class(),
        format_error,
    }
}
