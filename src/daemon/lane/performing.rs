//! What follows once a decision is kept: providers are asked, tools are used, rules are remembered.

use std::path::PathBuf;

use super::Lane;
use super::working::Use;
use crate::kernel::command::Command;
use crate::kernel::effect::Effect;
use crate::kernel::id::RunId;

impl Lane {
    /// Does what a run needs, unless the run was stopped while that was on its way to the disk.
    pub(super) fn perform(&mut self, effect: Effect) {
        let goes_on = |run: &RunId| {
            let active = self.session.state().run.as_ref();
            active.is_some_and(|active| active.id == *run && active.stopping.is_none())
        };
        match effect {
            Effect::Turn(turn) if goes_on(&turn.run) => {
                let run = turn.run.clone();
                let turn = self.memory.whole_turn(*turn);
                self.work.turn(turn, run, &self.memory, self.session.state());
            }
            Effect::Check { run, index, criterion } if goes_on(&run) => {
                let check = self.memory.whole_check(self.session.state(), index, &criterion);
                self.work.check(run, index, check, &self.memory);
            }
            Effect::Execute { run, intention, bound } if goes_on(&run) => {
                let use_ = Use { args: self.memory.whole_args(&intention), intention: *intention, bound };
                self.work.execute(run, use_, &self.memory, self.session.state());
            }
            Effect::Remember { rule, by } => {
                let state = self.session.state();
                let run = state.run.as_ref().map(|run| run.id.clone());
                let cwd = state.opening.as_ref().map_or_else(PathBuf::new, |opening| (&opening.cwd).into());
                self.work.remember(rule, by, run, cwd);
            }
            Effect::Aside(intention) => {
                let args = self.memory.whole_args(&intention);
                let use_ = Use { args, intention: *intention, bound: None };
                self.work.aside(use_, &self.memory, self.session.state());
            }
            Effect::Compact(compact) => {
                self.work.compact(*compact, &self.memory, self.session.state());
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
        Command::Detach => "detach",
        Command::Describe => "describe",
        Command::ListGates => "list gates",
        Command::Rename { .. } => "rename",
        Command::End => "end",
        Command::Touch { .. } => "touch",
        Command::Load => "load",
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
