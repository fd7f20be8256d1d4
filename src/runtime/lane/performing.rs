//! The effects that follow a commit: model turns, tool calls, and granted rules.

use std::pin::pin;
use std::sync::Arc;

use super::Lane;
use super::place::{Around, place_of};
use super::working::Use;
use crate::kernel::command::Command;
use crate::kernel::effect::Effect;
use crate::kernel::id::RunId;
use crate::kernel::session::Input;

impl Lane {
    /// Performs all effects that are ready.
    ///
    /// The session handles nothing else meanwhile, because the run configuration and the identity of the workspace
    /// must be known first. Both are loaded outside the event loop, with a deadline.
    pub(super) async fn perform_waiting(&mut self) {
        while let Some(effect) = self.doing.pop_front() {
            self.perform(effect).await;
        }
    }

    /// Returns whether a run is active and not being stopped.
    fn goes_on(&self, run: &RunId) -> bool {
        let active = self.session.state().run.as_ref();
        active.is_some_and(|active| active.id == *run && active.stopping.is_none())
    }

    /// Captures the environment of the owner's login shell if no client has sent an environment.
    ///
    /// Control inputs are handled meanwhile, so that a cancel does not wait for the shell. Returns whether the run
    /// continues.
    async fn has_environment(&mut self, run: Option<&RunId>) -> bool {
        if self.memory.has_environment(run) {
            return true;
        }
        let world = Arc::clone(&self.world);
        let mut capture = pin!(world.login_environment());
        while run.is_none_or(|run| self.goes_on(run)) {
            tokio::select! {
                biased;
                environment = &mut capture => {
                    self.memory.fall_back(run.cloned(), environment);
                    return true;
                }
                Some(input) = self.control.recv() => self.take(*input),
            }
        }
        false
    }

    /// Loads the workspace and the configuration of a run, and stores a new workspace identity.
    async fn look_around(&mut self, run: Option<&RunId>) -> Around {
        let environment = self.memory.program_environment(run);
        let looked = self.work.look_around(run, environment.as_deref(), self.session.state()).await;
        if let Some(found) = looked.noted {
            self.apply(Input::WorkspaceIdentified(Box::new(found)), None);
        }
        looked.around
    }

    /// Performs an effect, unless its run was stopped during the commit.
    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Turn(turn) if self.goes_on(&turn.run) => {
                let run = turn.run.clone();
                if !self.has_environment(Some(&run)).await {
                    return;
                }
                let around = self.look_around(Some(&run)).await;
                let turn = self.memory.whole_turn(*turn);
                self.work.turn(turn, run, around, &self.memory, self.session.state());
            }
            Effect::Check { run, index, criterion } if self.goes_on(&run) => {
                let check = self.memory.whole_check(self.session.state(), index, &criterion);
                self.work.check(run, index, check, &self.memory);
            }
            Effect::Execute { run, intention, bound } if self.goes_on(&run) => {
                if !self.has_environment(Some(&run)).await {
                    return;
                }
                let around = self.look_around(Some(&run)).await;
                let use_ = Use { args: self.memory.whole_args(&intention), intention: *intention, bound };
                self.work.execute(run, use_, around, &self.memory, self.session.state());
            }
            Effect::Remember { rule, by } => {
                let state = self.session.state();
                let run = state.run.as_ref().map(|run| run.id.clone());
                self.work.remember(rule, by, run, place_of(state));
            }
            Effect::Aside(intention) => {
                self.has_environment(None).await;
                let around = self.look_around(None).await;
                let args = self.memory.whole_args(&intention);
                let use_ = Use { args, intention: *intention, bound: None };
                self.work.aside(use_, around, &self.memory, self.session.state());
            }
            Effect::Compact(compact) => {
                let around = self.look_around(None).await;
                self.work.compact(*compact, around, &self.memory, self.session.state());
            }
            Effect::Turn(_)
            | Effect::Check { .. }
            | Effect::Execute { .. }
            | Effect::Reserve(_)
            | Effect::Persist(_)
            | Effect::Show(_)
            | Effect::ShowTo(..)
            | Effect::Subscribe { .. }
            | Effect::Unsubscribe(_)
            | Effect::Reply(..)
            | Effect::Stop(_)
            | Effect::StopAside(_)
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
        Command::Touch { .. } => "bump version",
        Command::Load => "load",
        Command::Reopen(_) => "reopen",
        Command::Adjust(_) => "adjust",
        Command::Aside(_) => "user command",
        Command::StopAside { .. } => "stop user command",
        Command::Compact { .. } => "compact",
        Command::StopCompaction => "stop compaction",
        Command::StopRetry => "stop retry",
        Command::Branch(_) => "branch",
        Command::Import(_) => "import",
    }
}
