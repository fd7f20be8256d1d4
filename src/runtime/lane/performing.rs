//! What follows once a decision is kept: providers are asked, tools are used, rules are remembered.

use super::Lane;
use super::place::{Around, place_of};
use super::working::Use;
use crate::kernel::command::Command;
use crate::kernel::effect::Effect;
use crate::kernel::id::RunId;
use crate::kernel::session::Input;

impl Lane {
    /// Does everything that is allowed by now.
    ///
    /// Nothing else of the session goes on meanwhile: what a project says, and whether the workspace is the one it was, has to be
    /// known first. Both are looked up off the loop and with a deadline.
    pub(super) async fn perform_waiting(&mut self) {
        while let Some(effect) = self.doing.pop_front() {
            self.perform(effect).await;
        }
    }

    /// Tells whether a run is active and not being stopped.
    fn goes_on(&self, run: &RunId) -> bool {
        let active = self.session.state().run.as_ref();
        active.is_some_and(|active| active.id == *run && active.stopping.is_none())
    }

    /// Looks up what holds for a run or beside it, and notes which directory it works in.
    async fn look_around(&mut self, run: Option<&RunId>) -> Around {
        let environment = match run {
            Some(run) => self.memory.environment(run),
            None => self.memory.latest_environment(),
        };
        let looked = self.work.look_around(run, environment.as_deref(), self.session.state()).await;
        if let Some(found) = looked.noted {
            self.apply(Input::WorkspaceIdentified(Box::new(found)), None);
        }
        looked.around
    }

    /// Does what a run needs, unless the run was stopped while that was on its way to the disk.
    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Turn(turn) if self.goes_on(&turn.run) => {
                let run = turn.run.clone();
                let around = self.look_around(Some(&run)).await;
                let turn = self.memory.whole_turn(*turn);
                self.work.turn(turn, run, around, &self.memory, self.session.state());
            }
            Effect::Check { run, index, criterion } if self.goes_on(&run) => {
                let check = self.memory.whole_check(self.session.state(), index, &criterion);
                self.work.check(run, index, check, &self.memory);
            }
            Effect::Execute { run, intention, bound } if self.goes_on(&run) => {
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

/// Names a command in a log.
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
        Command::Touch { .. } => "touch",
        Command::Load => "load",
        Command::Reopen(_) => "reopen",
        Command::Adjust(_) => "adjust",
        Command::Aside(_) => "aside",
        Command::StopAside { .. } => "stop aside",
        Command::Compact { .. } => "compact",
        Command::StopCompaction => "stop compaction",
        Command::StopRetry => "stop retry",
        Command::Branch(_) => "branch",
        Command::Import(_) => "import",
    }
}
