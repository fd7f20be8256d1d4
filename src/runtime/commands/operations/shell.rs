//! Shell commands of the user: concurrent to any run, confined like the session's tools, and never executed twice.

use std::sync::Arc;
use std::time::Instant;

use super::{Execution, OperationReply, Result, StopTrace};
use crate::kernel::command::{Command, UserCommand};
use crate::kernel::id::{CallId, Json};
use crate::protocol::operation::ContextInclusion;
use crate::protocol::operation_result::{OperationError, OperationResult, ShellResult};
use crate::provider::breaker::BreakerAdmission;
use crate::runtime::commands::peer::Peer;
use crate::runtime::commands::service::CommandService;
use crate::runtime::commands::session_view::SessionView;
use crate::runtime::generate;
use crate::runtime::lane::{self, ChangePosition};
use crate::tools;

impl Execution {
    pub(super) async fn run_shell(&self, command: &str, context: ContextInclusion) -> Result {
        let view = self.view().await?;
        self.check_rules(&view, command).await?;
        let Some(admission) = self.service.breaker().admit(view.session(), Instant::now()) else {
            return Err(OperationError::ShellCircuitOpen);
        };
        let call = generate::call();
        let args = Json::new(serde_json::json!({ "command": command }).to_string());
        let user_command = UserCommand {
            call: call.clone(),
            tool: tools::EXEC.to_owned(),
            args,
            in_context: context == ContextInclusion::Included,
        };
        view.track_user_command(call.clone());
        let mut guard = UserCommandGuard::new(self, &view, &call, admission);
        let (command, if_version) = (Command::UserCommand(Box::new(user_command)), self.request.command.if_version);
        if let Err(error) = self.request_part(&view, command, if_version, ChangePosition::Step).await {
            guard.finish();
            return Err(error);
        }
        let settled = view.wait_for_user_command(&call).await;
        guard.finish();
        let Some(settlement) = settled else {
            return Err(OperationError::SessionNotFound { session: view.session().clone(), version: None });
        };
        let result = OperationResult::Shell(ShellResult::of(&settlement));
        let version = self.bump_version(&view, &result).await?;
        Ok(OperationReply::at(result, version))
    }

    async fn check_rules(&self, view: &Arc<SessionView>, command: &str) -> Result<()> {
        let (snapshot, _) = self.describe(view).await?;
        let services = self.service.server().hub().services();
        let checked = lane::check_user_command(services, &snapshot, self.service.home(), command).await;
        checked.map_err(OperationError::message)
    }

    pub(super) async fn stop_shell(&self) -> Result {
        // The command settles later.
        self.stop(Command::StopUserCommand { call: None }, StopTrace::None).await
    }
}

/// Stops a command that is not awaited any more, and reports its end to the circuit breaker.
struct UserCommandGuard {
    service: Arc<CommandService>,
    peer: Arc<Peer>,
    view: Arc<SessionView>,
    call: CallId,
    admission: BreakerAdmission,
    finished: bool,
}

impl UserCommandGuard {
    fn new(execution: &Execution, view: &Arc<SessionView>, call: &CallId, admission: BreakerAdmission) -> Self {
        let (service, peer) = (Arc::clone(&execution.service), Arc::clone(&execution.peer));
        Self { service, peer, view: Arc::clone(view), call: call.clone(), admission, finished: false }
    }

    fn finish(&mut self) {
        self.finished = true;
    }
}

impl Drop for UserCommandGuard {
    fn drop(&mut self) {
        self.view.untrack_user_command(&self.call);
        self.service.breaker().ended(self.view.session(), self.admission, !self.finished, Instant::now());
        if !self.finished {
            let (service, peer, view) = (Arc::clone(&self.service), Arc::clone(&self.peer), Arc::clone(&self.view));
            let command = Command::StopUserCommand { call: Some(self.call.clone()) };
            // It may have ended by itself, or never started.
            tokio::spawn(async move { drop(service.request(&view, command, None, &peer).await) });
        }
    }
}
