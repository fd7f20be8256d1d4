//! The execution of started commands: at once if they wait for nothing, else in a task of their own.
//!
//! A task costs a wake-up, and a query of a session that has not changed waits for nothing. Commands that may compute
//! for long get a task in any case, so that the connection reads further requests meanwhile.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::operations::{self, Execution, ExecutionResult};
use super::service::CommandService;
use crate::kernel::command_log::SubmissionId;
use crate::protocol::operation::Operation;
use crate::protocol::operation_result::OperationError;

/// A command that the log has started.
pub(super) struct StartedCommand {
    pub(super) ticket: SubmissionId,
    pub(super) execution: Execution,
}

type Work = Pin<Box<dyn Future<Output = ExecutionResult> + Send>>;

/// Executes commands, and those that start because they have finished.
pub(super) fn execute_all(service: &Arc<CommandService>, started: Vec<StartedCommand>) {
    let mut started = VecDeque::from(started);
    while let Some(StartedCommand { ticket, execution }) = started.pop_front() {
        let is_short = is_short(&execution.request.command.operation);
        let mut work: Work = Box::pin(operations::execute(execution));
        let finished = if is_short { poll_once(service, &mut work) } else { None };
        match finished {
            Some(result) => started.extend(service.finish_execution(ticket, result)),
            None => spawn(service, ticket, work),
        }
    }
}

/// Returns the result of a command that waits for nothing. A panic is a failure of the command alone.
fn poll_once(service: &CommandService, work: &mut Work) -> Option<ExecutionResult> {
    // Its task polls it again, which registers the waker of that task.
    let mut context = Context::from_waker(Waker::noop());
    match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(&mut context))) {
        Ok(Poll::Ready(result)) => Some(result),
        Ok(Poll::Pending) => None,
        Err(_) => Some(internal_error(service)),
    }
}

fn spawn(service: &Arc<CommandService>, ticket: SubmissionId, work: Work) {
    let mut guard = ExecutionGuard { service: Arc::clone(service), ticket, result: None };
    let task = tokio::spawn(async move {
        let result = work.await;
        guard.set(result);
    });
    service.record_task(ticket, task.abort_handle());
}

/// Returns whether a command computes little before it waits for something.
const fn is_short(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Health
            | Operation::Describe
            | Operation::ContextUsage
            | Operation::Prompt { .. }
            | Operation::Steer(_)
            | Operation::Queue(_)
            | Operation::Cancel
            | Operation::Answer { .. }
            | Operation::Rename { .. }
    )
}

fn internal_error(service: &CommandService) -> ExecutionResult {
    ExecutionResult::failed(service.error_text(&OperationError::Internal))
}

/// Reports the end of an execution; dropped before that, it reports an internal error.
struct ExecutionGuard {
    service: Arc<CommandService>,
    ticket: SubmissionId,
    result: Option<ExecutionResult>,
}

impl ExecutionGuard {
    fn set(&mut self, result: ExecutionResult) {
        self.result = Some(result);
    }
}

impl Drop for ExecutionGuard {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| internal_error(&self.service));
        let started = self.service.finish_execution(self.ticket, result);
        execute_all(&self.service, started);
    }
}
