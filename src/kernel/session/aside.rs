//! User commands: tool calls made for the user, outside any run. They are started, reported and stopped, and never
//! started twice.

use super::Session;
use super::effects::Effects;
use super::running::unused;
use crate::kernel::command::{Answer, Aside, Caller, Reply};
use crate::kernel::effect::AsideReport;
use crate::kernel::event::{Ending, EventKind, Fault, Intention, Purpose};
use crate::kernel::id::CallId;
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

impl Session {
    pub(super) fn begin_aside(&mut self, caller: &Caller, aside: Aside, now: Now, fx: &mut Effects) -> Reply {
        self.entitled(self.roster.rights(caller).prompt)?;
        self.is_open()?;
        if self.state.asides.len() >= self.limits.asides {
            return Err(Refusal::TooManyAsides);
        }
        let Aside { call, tool, args, told } = aside;
        let purpose = Purpose::Aside { told };
        let intention = Intention { call: call.clone(), tool: tool.clone(), args, purpose };
        self.record_for(None, EventKind::CallIntended(Box::new(intention.clone())), now, fx);
        self.record_for(None, EventKind::CallStarted { call: call.clone(), tool }, now, fx);
        fx.aside(intention);
        Ok(Answer::AsideBegan(call))
    }

    /// Stops the processes of user commands; each call settles when the driver reports its end.
    pub(super) fn stop_asides(&self, caller: &Caller, call: Option<&CallId>, fx: &mut Effects) -> Reply {
        self.entitled(self.roster.rights(caller).control)?;
        let asked = |open: &&CallId| call.is_none_or(|call| call == *open);
        let stopped: Vec<_> = self.state.asides.keys().filter(asked).cloned().collect();
        if stopped.is_empty() {
            return Err(Refusal::NoAside);
        }
        for call in stopped {
            fx.stop_aside(call);
        }
        Ok(Answer::StoppingAside)
    }

    pub(super) fn aside_reports(&mut self, call: &CallId, report: AsideReport, now: Now, fx: &mut Effects) {
        // A settled call may still report; such a report is ignored.
        let Some(aside) = self.state.asides.get(call) else { return };
        let kind = match report {
            AsideReport::Output { stream, text } => {
                EventKind::CallOutput { call: call.clone(), stream, text }
            }
            AsideReport::Warned { code, message, detail } => EventKind::Warned { code, message, detail },
            AsideReport::Settled(mut settlement) => {
                settlement.purpose = aside.intention.purpose;
                settlement.call = call.clone();
                EventKind::CallSettled(settlement)
            }
        };
        self.record_for(None, kind, now, fx);
    }

    /// Settles the user commands that were running when the daemon stopped. Their results are unknown, and they are
    /// not started again.
    pub(super) fn cut_asides_off(&mut self, now: Now, fx: &mut Effects) {
        let open: Vec<_> = self.state.asides.values().map(|call| call.intention.clone()).collect();
        for intention in open {
            let message = "the daemon stopped before it ended".to_owned();
            let fault = Fault { kind: "cut".to_owned(), retryable: false, message, detail: None };
            let settlement = unused(&intention, Ending::Cut, fault);
            self.record_for(None, EventKind::CallSettled(Box::new(settlement)), now, fx);
        }
    }
}
