//! Compactions that a client requests.

use super::{Execution, OperationReply, Result, StopTrace};
use crate::kernel::command::{Answer, Command};
use crate::kernel::event::CompactionFailure;
use crate::protocol::command_protocol::ConversationQuery;
use crate::protocol::operation_result::{OperationError, OperationResult};
use crate::runtime::commands::session_view::CompactionOutcome;

impl Execution {
    pub(super) async fn compact(&self, instructions: Option<&str>) -> Result {
        let view = self.view().await?;
        self.synchronize(&view).await;
        let command = Command::Compact { instructions: instructions.map(str::to_owned) };
        let Answer::CompactionStarted(began) = self.request(&view, command).await?.answer else {
            return Err(OperationError::Internal);
        };
        match view.wait_for_compaction(began).await {
            Some(CompactionOutcome::Completed) => {
                let version = self.bump_version(&view).await?;
                let summary = view.read(|projection| projection.query(ConversationQuery::Summary));
                Ok(OperationReply::at(OperationResult::Encoded(summary), version))
            }
            Some(CompactionOutcome::Failed { failure: CompactionFailure::Aborted, .. }) => {
                Err(OperationError::CompactionAborted)
            }
            Some(CompactionOutcome::Failed { failure: CompactionFailure::Failed, message }) => {
                Err(OperationError::CompactionFailed(message))
            }
            None => Err(OperationError::SessionNotFound { session: view.session().clone(), version: None }),
        }
    }

    pub(super) async fn stop_compaction(&self) -> Result {
        self.stop(Command::StopCompaction, StopTrace::Event).await
    }
}
