//! Compactions that a client requests.

use super::{Execution, OperationReply, Result, StopTrace};
use crate::kernel::command::{Answer, Command};
use crate::kernel::event::CompactionFailure;
use crate::protocol::command_protocol::ConversationQuery;
use crate::protocol::operation_result::{OperationError, OperationResult};
use crate::runtime::commands::session_view::CompactionOutcome;
use crate::runtime::lane::ChangePosition;

impl Execution {
    pub(super) async fn compact(&self, instructions: Option<&str>) -> Result {
        let view = self.view().await?;
        self.synchronize(&view).await;
        let command = Command::Compact { instructions: instructions.map(str::to_owned) };
        let if_version = self.request.command.if_version;
        let started = self.request_part(&view, command, if_version, ChangePosition::Step).await?;
        let Answer::CompactionStarted(began) = started.answer else {
            return Err(OperationError::Internal);
        };
        match view.wait_for_compaction(began).await {
            Some(CompactionOutcome::Completed) => {
                let result = OperationResult::Encoded(view.read(|it| it.query(ConversationQuery::Summary)));
                let version = self.bump_version(&view, &result).await?;
                Ok(OperationReply::at(result, version))
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
