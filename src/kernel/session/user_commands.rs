//! User commands: tool calls made for the user, outside any run. They are started, reported and stopped, and never
//! started twice.

use super::Session;
use super::effects::Effects;
use super::runs::unexecuted_result;
use crate::kernel::command::{Answer, Reply, UserCommand};
use crate::kernel::effect::UserCommandReport;
use crate::kernel::event::{EventKind, Intention, NoticeEvent, Purpose, ToolError, ToolEvent, ToolOutcome};
use crate::kernel::id::CallId;
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

impl Session {
    pub(super) fn start_user_command(&mut self, user_command: UserCommand, now: Now, fx: &mut Effects) -> Reply {
        self.ensure_open()?;
        if self.state.user_commands.len() >= self.limits.user_commands {
            return Err(Refusal::TooManyUserCommands);
        }
        let UserCommand { call, tool, args, in_context } = user_command;
        let purpose = Purpose::UserCommand { in_context };
        let intention = Intention { call: call.clone(), tool: tool.clone(), args, purpose };
        self.record_for(None, EventKind::Tool(ToolEvent::Intended(Box::new(intention.clone()))), now, fx);
        self.record_for(None, EventKind::Tool(ToolEvent::Started { call: call.clone(), tool }), now, fx);
        fx.execute_user_command(intention);
        Ok(Answer::UserCommandStarted(call))
    }

    /// Stops the processes of user commands; each call settles when the driver reports its end.
    pub(super) fn stop_user_commands(&self, call: Option<&CallId>, fx: &mut Effects) -> Reply {
        let is_selected = |open: &&CallId| call.is_none_or(|call| call == *open);
        let stopped: Vec<_> = self.state.user_commands.keys().filter(is_selected).cloned().collect();
        if stopped.is_empty() {
            return Err(Refusal::NoUserCommand);
        }
        for call in stopped {
            fx.stop_user_command(call);
        }
        Ok(Answer::StoppingUserCommand)
    }

    pub(super) fn handle_user_command_report(
        &mut self,
        call: &CallId,
        report: UserCommandReport,
        now: Now,
        fx: &mut Effects,
    ) {
        // A settled call may still report; such a report is ignored.
        let Some(user_command) = self.state.user_commands.get(call) else { return };
        let kind = match report {
            UserCommandReport::Output { stream, text } => {
                EventKind::Tool(ToolEvent::Output { call: call.clone(), stream, text })
            }
            UserCommandReport::Warned { code, message, detail } => {
                EventKind::Notice(NoticeEvent::Warned { code, message, detail })
            }
            UserCommandReport::Settled(mut result) => {
                result.purpose = user_command.intention.purpose;
                result.call = call.clone();
                EventKind::Tool(ToolEvent::Settled(result))
            }
        };
        self.record_for(None, kind, now, fx);
    }

    /// Settles the user commands that were running when the daemon stopped. Their results are unknown, and they are
    /// not started again.
    pub(super) fn abort_user_commands(&mut self, now: Now, fx: &mut Effects) {
        let open: Vec<_> = self.state.user_commands.values().map(|call| call.intention.clone()).collect();
        for intention in open {
            let message = "the daemon stopped before it ended".to_owned();
            let error = ToolError { kind: "cut".to_owned(), retryable: false, message, detail: None };
            let result = unexecuted_result(&intention, ToolOutcome::Aborted, error);
            self.record_for(None, EventKind::Tool(ToolEvent::Settled(Box::new(result))), now, fx);
        }
    }
}
