//! The effects that follow a commit: model turns, tool calls, and granted rules.

use std::pin::pin;
use std::sync::Arc;

use super::Lane;
use super::run_tasks::PreparedCall;
use super::tool_context::{WorkspaceContext, workspace_path};
use crate::kernel::effect::{Effect, TurnRequest};
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
                input = self.inbox.next_control() => self.handle_input(input),
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

    /// Prepares the conversation of a turn of a model, or of a compaction, whose effect is decided.
    pub(super) fn prepare_conversation(&mut self, effect: &Effect) {
        let newest = self.session.state().last_seq;
        if let Effect::RequestTurn(turn) = effect {
            // The built-in providers read the message alone.
            if !self.services.providers.contains_key(turn.model_choice.provider.as_str()) {
                self.conversation.prepare((&**turn).into(), newest);
            }
        } else if let Effect::Compact(compact) = effect {
            self.conversation.prepare((&**compact).into(), newest);
        }
    }

    async fn start_turn(&mut self, turn: TurnRequest) {
        let run = turn.run.clone();
        let conversation = self.conversation.take((&turn).into());
        if !self.ensure_environment(Some(&run)).await {
            return;
        }
        let workspace_context = self.load_workspace(Some(&run)).await;
        let turn = self.unredacted.original_turn(turn);
        let (unredacted, state) = (&self.unredacted, self.session.state());
        self.run_tasks.start_turn(turn, run, conversation, workspace_context, unredacted, state);
    }

    /// Performs an effect, unless its run was stopped during the commit.
    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::RequestTurn(turn) if self.is_running(&turn.run) => self.start_turn(*turn).await,
            Effect::RunCheck { run, index, criterion } if self.is_running(&run) => {
                let check = self.unredacted.original_check(self.session.state(), index, &criterion);
                self.run_tasks.request_check(run, index, check, &self.unredacted, self.session.state());
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
                let run = self.session.state().run.as_ref().map(|run| run.id.clone());
                self.run_tasks.store_grant(rule, by, run, workspace_path(self.session.state()));
            }
            Effect::ExecuteUserCommand(intention) => {
                self.ensure_environment(None).await;
                let workspace_context = self.load_workspace(None).await;
                let args = self.unredacted.original_args(&intention);
                let call = PreparedCall { args, intention: *intention, approved_digest: None };
                self.run_tasks.start_user_command(call, workspace_context, &self.unredacted, self.session.state());
            }
            Effect::Compact(compact) => {
                let conversation = self.conversation.take((&*compact).into());
                let workspace_context = self.load_workspace(None).await;
                let (unredacted, state) = (&self.unredacted, self.session.state());
                self.run_tasks.start_compaction(*compact, conversation, workspace_context, unredacted, state);
            }
            Effect::RequestTurn(_)
            | Effect::RunCheck { .. }
            | Effect::Execute { .. }
            | Effect::Reserve(_)
            | Effect::Persist(_)
            | Effect::Emit(_)
            | Effect::EmitTo(..)
            | Effect::Tell { .. }
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
