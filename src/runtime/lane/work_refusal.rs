//! What the lane refuses before the session sees it: invalid answers and rules, and steps that would run as the owner's.

use super::Lane;
use super::run_tasks::provider_name;
use crate::kernel::command::{Caller, Command, Right};
use crate::kernel::refusal::Refusal;
use crate::provider::playbook;

impl Lane {
    /// Returns why a command is refused before the session sees it.
    pub(super) fn request_refusal(&self, caller: &Caller, command: &Command) -> Option<Refusal> {
        let invalid = self.is_invalid_answer(command).then_some(Refusal::UnknownAnswer);
        let refusal = invalid.or_else(|| self.rule_refusal(command));
        refusal.or_else(|| self.steer_refusal(caller, command))
    }

    /// Returns the refusal of a message into a playbook that runs as its owner sent it, without asking and unconfined.
    /// Only the owner may add steps to it.
    fn steer_refusal(&self, caller: &Caller, command: &Command) -> Option<Refusal> {
        let state = self.session.state();
        let runs_as_owner =
            provider_name(state) == playbook::NAME && state.run.as_ref().is_some_and(|run| !run.is_confined());
        let adds_steps = matches!(command, Command::Steer(_)) && runs_as_owner;
        (adds_steps && !caller.rights.contains(Right::Own)).then_some(Refusal::NotPermitted)
    }
}
