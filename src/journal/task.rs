//! The tasks of the writer, and how each is refused.

use tokio::sync::oneshot;

use super::commands::CommandBatch;
use super::error::{CommitError, JobError};
use super::jobs::Job;
use super::record::{Batch, Loss};
use super::repair::RepairPlan;
use crate::kernel::id::SessionId;
use crate::kernel::time::Now;

/// Receives the result of a batch.
pub(super) type Reply = oneshot::Sender<Result<(), CommitError>>;

/// A request to the writer.
pub(super) enum Task {
    Commit(Box<Batch>, Reply),
    WriteCommands(CommandBatch),
    /// Deferred writes are waiting that no caller waits for.
    WriteDeferred,
    /// The write-ahead file holds events.
    ScheduleFlush,
    Job(Box<dyn Job>),
    Repair {
        session: SessionId,
        plan: Box<RepairPlan>,
        at: Now,
        reply: oneshot::Sender<Result<Vec<Loss>, CommitError>>,
    },
    Replace {
        generation: u64,
        reply: Reply,
    },
    Delete {
        session: SessionId,
        reply: oneshot::Sender<Result<(), JobError>>,
    },
    Close(Reply),
}

/// Answers the caller of a task that is not accepted.
pub(super) fn refuse(task: Task, error: CommitError) {
    match task {
        Task::Commit(_, reply) | Task::Replace { reply, .. } | Task::Close(reply) => drop(reply.send(Err(error))),
        Task::WriteCommands(batch) => drop(batch.reply.send(Err(error))),
        Task::WriteDeferred | Task::ScheduleFlush => {}
        Task::Job(job) => job.complete(Err(JobError::Commit(error))),
        Task::Repair { reply, .. } => drop(reply.send(Err(error))),
        Task::Delete { reply, .. } => drop(reply.send(Err(JobError::Commit(error)))),
    }
}
