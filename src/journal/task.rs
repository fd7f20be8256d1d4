//! The tasks of the writer, and how each is refused.

use tokio::sync::oneshot;

use super::chores::Chore;
use super::commands::Keeping;
use super::error::{CommitError, MergeError};
use super::mend::Plan;
use super::record::{Batch, Loss};
use crate::kernel::id::SessionId;
use crate::kernel::time::Now;

/// Receives the result of a batch.
pub(super) type Reply = oneshot::Sender<Result<(), CommitError>>;

/// A request to the writer.
pub(super) enum Task {
    Commit(Box<Batch>, Reply),
    KeepCommands(Keeping),
    /// Deferred writes are waiting that no caller waits for.
    WriteBehind,
    Chore(Box<dyn Chore>),
    Mend {
        session: SessionId,
        plan: Box<Plan>,
        at: Now,
        reply: oneshot::Sender<Result<Vec<Loss>, CommitError>>,
    },
    Rescue {
        generation: u64,
        reply: Reply,
    },
    Delete {
        session: SessionId,
        reply: oneshot::Sender<Result<(), MergeError>>,
    },
    Close(Reply),
}

/// Answers the caller of a task that is not accepted.
pub(super) fn refuse(task: Task, error: CommitError) {
    match task {
        Task::Commit(_, reply) | Task::Rescue { reply, .. } | Task::Close(reply) => {
            drop(reply.send(Err(error)))
        }
        Task::KeepCommands(keeping) => drop(keeping.reply.send(Err(error))),
        Task::WriteBehind => {}
        Task::Chore(chore) => chore.end(Err(MergeError::Commit(error))),
        Task::Mend { reply, .. } => drop(reply.send(Err(error))),
        Task::Delete { reply, .. } => drop(reply.send(Err(MergeError::Commit(error)))),
    }
}
