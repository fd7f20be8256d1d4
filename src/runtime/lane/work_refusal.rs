//! What the lane refuses before the session sees it: invalid answers and rules, and work that would start without a gate
//! for somebody who is not the owner.

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
        refusal.or_else(|| self.unconfirmed_work_refusal(caller, command))
    }

    /// Returns the refusal of a message that makes the daemon run commands as the owner without a gate: the steps of a
    /// playbook, and acceptance checks. Like the owner's own commands they need the owner's right.
    fn unconfirmed_work_refusal(&self, caller: &Caller, command: &Command) -> Option<Refusal> {
        if caller.rights.contains(Right::Own) {
            return None;
        }
        let is_playbook = || provider_name(self.session.state()) == playbook::NAME;
        let runs_unconfirmed = if let Command::Prompt(prompt) | Command::Queue(prompt) = command {
            !prompt.criteria.is_empty() || is_playbook()
        } else {
            matches!(command, Command::Steer(_)) && is_playbook()
        };
        runs_unconfirmed.then_some(Refusal::NotPermitted)
    }
}
