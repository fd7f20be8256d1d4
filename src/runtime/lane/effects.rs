//! The effects that follow a commit: model turns, tool calls, and granted rules.

use std::pin::pin;
use std::sync::Arc;

use super::Lane;
use super::run_tasks::PreparedCall;
use super::tool_context::{WorkspaceContext, workspace_path};
use crate::kernel::command::Command;
use crate::kernel::effect::Effect;
use crate::kernel::id::RunId;
use crate::kernel::session::Input;

impl Lane {
    /// Performs all effects that are ready.
    ///
    /// The session handles nothing else meanwhile, because the run configuration and the identity of the workspace
    /// must be known first. Both are loaded outside the event loop, with a deadline.
    pub(super) async fn perform_ready(&mut self) {
        while let Some(effect) = self.ready_effects.pop_front() {
            self.perform(effect).await;
        }
    }

    /// Returns whether a run is active and not being stopped.
    fn is_running(&self, run: &RunId) -> bool {
        let active = self.session.state().run.as_ref();
        active.is_some_and(|active| active.id == *run && active.stopping.is_none())
    }

    /// Captures the environment of the owner's login shell if no client has sent an environment.
    ///
    /// Control inputs are handled meanwhile, so that a cancel does not wait for the shell. Returns whether the run
    /// continues.
    async fn ensure_environment(&mut self, run: Option<&RunId>) -> bool {
        if self.unredacted.has_environment(run) {
            return true;
        }
        let services = Arc::clone(&self.services);
        let mut capture = pin!(services.login_environment());
        while run.is_none_or(|run| self.is_running(run)) {
            tokio::select! {
                biased;
                environment = &mut capture => {
                    self.unredacted.set_fallback_environment(run.cloned(), environment);
                    return true;
                }
                Some(input) = self.control.recv() => self.handle_input(*input),
            }
        }
        false
    }

    /// Loads the workspace and the configuration of a run, and stores a new workspace identity.
    async fn load_workspace(&mut self, run: Option<&RunId>) -> WorkspaceContext {
        let environment = self.unredacted.program_environment(run);
        let loaded = self.run_tasks.load_workspace(run, environment.as_deref(), self.session.state()).await;
        if let Some(found) = loaded.identity {
            self.apply(Input::WorkspaceIdentified(Box::new(found)), None);
        }
        loaded.context
    }

    /// Performs an effect, unless its run was stopped during the commit.
    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::RequestTurn(turn) if self.is_running(&turn.run) => {
                let run = turn.run.clone();
                if !self.ensure_environment(Some(&run)).await {
                    return;
                }
                let workspace_context = self.load_workspace(Some(&run)).await;
                let turn = self.unredacted.original_turn(*turn);
                self.run_tasks.start_turn(turn, run, workspace_context, &self.unredacted, self.session.state());
            }
            Effect::RunCheck { run, index, criterion } if self.is_running(&run) => {
                let check = self.unredacted.original_check(self.session.state(), index, &criterion);
                self.run_tasks.request_check(run, index, check, &self.unredacted);
            }
            Effect::Execute { run, intention, approved_digest } if self.is_running(&run) => {
                if !self.ensure_environment(Some(&run)).await {
                    return;
                }
                let workspace_context = self.load_workspace(Some(&run)).await;
                let call = PreparedCall {
                    args: self.unredacted.original_args(&intention),
                    intention: *intention,
                    approved_digest,
                };
                self.run_tasks.execute(run, call, workspace_context, &self.unredacted, self.session.state());
            }
            Effect::StoreGrant { rule, by } => {
                let state = self.session.state();
                let run = state.run.as_ref().map(|run| run.id.clone());
                self.run_tasks.store_grant(rule, by, run, workspace_path(state));
            }
            Effect::ExecuteUserCommand(intention) => {
                self.ensure_environment(None).await;
                let workspace_context = self.load_workspace(None).await;
                let args = self.unredacted.original_args(&intention);
                let call = PreparedCall { args, intention: *intention, approved_digest: None };
                self.run_tasks.start_user_command(call, workspace_context, &self.unredacted, self.session.state());
            }
            Effect::Compact(compact) => {
                let workspace_context = self.load_workspace(None).await;
                self.run_tasks.start_compaction(*compact, workspace_context, &self.unredacted, self.session.state());
            }
            Effect::RequestTurn(_)
            | Effect::RunCheck { .. }
            | Effect::Execute { .. }
            | Effect::Reserve(_)
            | Effect::Persist(_)
            | Effect::Emit(_)
            | Effect::EmitTo(..)
            | Effect::Subscribe { .. }
            | Effect::Unsubscribe(_)
            | Effect::Reply(..)
            | Effect::StopRun(_)
            | Effect::StopUserCommand(_)
            | Effect::StopCompaction(_)
            | Effect::StopRetry(_)
            | Effect::Checkpoint(_) => {}
        }
    }
}

/// Returns the name of a command for the log.
pub(super) const fn command_name(command: &Command) -> &'static str {
    match command {
        Command::Open(_) => "open",
        Command::Prompt(_) => "prompt",
        Command::Queue(_) => "queue",
        Command::Unqueue { .. } => "unqueue",
        Command::ListQueue => "list queue",
        Command::Steer(_) => "steer",
        Command::Decide(_) => "decide",
        Command::Cancel { .. } => "cancel",
        Command::Attach { .. } => "attach",
        Command::Resume { .. } => "resume",
        Command::Detach => "detach",
        Command::Describe => "describe",
        Command::ListGates => "list gates",
        Command::Rename { .. } => "rename",
        Command::End => "end",
        Command::BumpVersion { .. } => "bump version",
        Command::Load => "load",
        Command::Reopen(_) => "reopen",
        Command::Adjust(_) => "adjust",
        Command::UserCommand(_) => "user command",
        Command::StopUserCommand { .. } => "stop user command",
        Command::Compact { .. } => "compact",
        Command::StopCompaction => "stop compaction",
        Command::StopRetry => "stop retry",
        Command::Branch(_) => "branch",
        Command::Import(_) => "import",
    }
}
