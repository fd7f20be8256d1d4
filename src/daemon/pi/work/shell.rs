//! Shell commands of the user: beside any run, behind the walls of the session, and never twice.

use std::sync::Arc;

use super::{Done, Job, Result};
use crate::adapter::pi::ask::Telling;
use crate::adapter::pi::encode::{self, BashResult};
use crate::adapter::pi::text;
use crate::daemon::mint;
use crate::daemon::pi::bureau::Bureau;
use crate::daemon::pi::connection::Peer;
use crate::daemon::pi::desk::{Answered, Failure};
use crate::daemon::pi::seat::Seat;
use crate::kernel::command::{Aside, Command};
use crate::kernel::event::{Ending, Settlement};
use crate::kernel::id::{CallId, Json};
use crate::kernel::refusal::Refusal;
use crate::sandbox::tools;

impl Job {
    pub(super) async fn bash(&self, command: &str, telling: Telling) -> Result {
        let seat = self.seat().await?;
        if !self.bureau.breaker().admits(seat.session(), self.bureau.now()) {
            return Err(Failure::said(text::BASH_CIRCUIT_OPEN));
        }
        let call = mint::call();
        let args = Json::new(serde_json::json!({ "command": command }).to_string());
        let aside =
            Aside { call: call.clone(), tool: tools::EXEC.to_owned(), args, told: telling == Telling::Told };
        seat.expect(call.clone());
        let mut watch = Watch::new(self, &seat, &call);
        if let Err(failure) = self.ask(&seat, Command::Aside(Box::new(aside))).await {
            watch.is_over();
            return Err(failure);
        }
        let settled = seat.aside(&call).await;
        watch.is_over();
        let Some(settlement) = settled else {
            return Err(Failure::said(text::session_not_found(seat.session().as_str())));
        };
        let version = self.touch(&seat).await?;
        Ok(Done::at(encode::bash(&result(settlement)), version))
    }

    pub(super) async fn abort_bash(&self) -> Result {
        let seat = self.seat().await?;
        match self.ask(&seat, Command::StopAside { call: None }).await {
            // Where there is nothing to stop, it is as was wanted. What is stopped ends by itself, so that the success is
            // counted here either way.
            Ok(_) | Err(Failure::Refused(Refusal::NoAside)) => {}
            Err(failure) => return Err(failure),
        }
        let version = self.touch(&seat).await?;
        Ok(Done::at(encode::nothing(), version))
    }
}

/// Sees to it that a command for which nobody waits any more is ended, and that the breaker hears of it.
struct Watch {
    bureau: Arc<Bureau>,
    peer: Arc<Peer>,
    seat: Arc<Seat>,
    call: CallId,
    over: bool,
}

impl Watch {
    fn new(job: &Job, seat: &Arc<Seat>, call: &CallId) -> Self {
        let (bureau, peer) = (Arc::clone(&job.bureau), Arc::clone(&job.peer));
        Self { bureau, peer, seat: Arc::clone(seat), call: call.clone(), over: false }
    }

    fn is_over(&mut self) {
        self.over = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.seat.forget(&self.call);
        self.bureau.breaker().ended(self.seat.session(), !self.over, self.bureau.now());
        if !self.over {
            let (bureau, peer, seat) =
                (Arc::clone(&self.bureau), Arc::clone(&self.peer), Arc::clone(&self.seat));
            let command = Command::StopAside { call: Some(self.call.clone()) };
            // It may have ended by itself, or never begun.
            tokio::spawn(async move { drop(bureau.ask(&seat, command, None, &peer).await) });
        }
    }
}

fn result(settlement: Settlement) -> BashResult {
    let cancelled = settlement.ending == Ending::Cut;
    let output = match settlement.fault {
        Some(fault) if settlement.text.is_empty() => fault.message,
        Some(_) | None => settlement.text,
    };
    BashResult { exit_code: settlement.exit_code, output, cancelled }
}
