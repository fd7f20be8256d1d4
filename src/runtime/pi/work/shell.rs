//! Shell commands of the user: beside any run, behind the walls of the session, and never twice.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::{Done, Job, Result};
use crate::kernel::command::{Command, UserCommand};
use crate::kernel::id::{CallId, Json};
use crate::kernel::refusal::Refusal;
use crate::protocol::pi::encode::{self, BashResult};
use crate::protocol::pi::error_text;
use crate::protocol::pi::request::ContextInclusion;
use crate::provider::StepDecision;
use crate::provider::breaker::Admission;
use crate::runtime::generate;
use crate::runtime::lane;
use crate::runtime::pi::bureau::Bureau;
use crate::runtime::pi::connection::Peer;
use crate::runtime::pi::desk::Failure;
use crate::runtime::pi::seat::Seat;
use crate::sandbox::risk::PathContext;
use crate::tools;

impl Job {
    pub(super) async fn bash(&self, command: &str, telling: ContextInclusion) -> Result {
        let seat = self.seat().await?;
        self.hold_against_rules(&seat, command).await?;
        let Some(admission) = self.bureau.breaker().admit(seat.session(), Instant::now()) else {
            return Err(Failure::said(error_text::BASH_CIRCUIT_OPEN));
        };
        let call = generate::call();
        let args = Json::new(serde_json::json!({ "command": command }).to_string());
        let aside = UserCommand {
            call: call.clone(),
            tool: tools::EXEC.to_owned(),
            args,
            in_context: telling == ContextInclusion::Included,
        };
        seat.expect(call.clone());
        let mut watch = Watch::new(self, &seat, &call, admission);
        if let Err(failure) = self.ask(&seat, Command::UserCommand(Box::new(aside))).await {
            watch.is_over();
            return Err(failure);
        }
        let settled = seat.aside(&call).await;
        watch.is_over();
        let Some(settlement) = settled else {
            return Err(Failure::said(error_text::session_not_found(seat.session().as_str())));
        };
        let version = self.touch(&seat).await?;
        Ok(Done::at(encode::bash(&BashResult::of(&settlement)), version))
    }

    /// Refuses a command that a rule denies, and one that a rule asks about: nobody can be asked beside a run.
    async fn hold_against_rules(&self, seat: &Arc<Seat>, command: &str) -> Result<()> {
        let (snapshot, _) = self.describe(seat).await?;
        // Where its link leads by now is not where the session works.
        let workspace = Path::new(snapshot.workspace());
        let services = self.bureau.server().hub().services();
        let rules = services.model_config.run_config(workspace).await;
        let rules = rules.map_err(|error| Failure::said(format!("the configuration cannot be used: {error}")))?;
        let place = PathContext::new(workspace, Some(self.bureau.home()));
        let place = place.with_alias(Path::new(&snapshot.opening.cwd));
        let Some(policy) = lane::step_policy(&rules, &[], place, services.tools.clone()) else { return Ok(()) };
        let args = serde_json::json!({ "command": command }).to_string();
        match policy.check(tools::EXEC, &args) {
            StepDecision::Allow => Ok(()),
            StepDecision::Deny(fault) => Err(Failure::said(fault.message)),
            StepDecision::Ask(_) => Err(Failure::said(ASKED)),
        }
    }

    pub(super) async fn abort_bash(&self) -> Result {
        let seat = self.seat().await?;
        let version = match self.ask(&seat, Command::StopUserCommand { call: None }).await {
            // To stop one leaves no trace by itself: what is stopped settles later.
            Ok(_) => self.touch_stopped(&seat).await?,
            // There is nothing to stop, which is what was wanted.
            Err(Failure::Refused(Refusal::NoUserCommand)) => self.touch_unstopped(&seat).await?,
            Err(failure) => return Err(failure),
        };
        Ok(Done::at(encode::no_data(), version))
    }
}

/// Sees to it that a command for which nobody waits any more is ended, and that the breaker hears of it.
struct Watch {
    bureau: Arc<Bureau>,
    peer: Arc<Peer>,
    seat: Arc<Seat>,
    call: CallId,
    admission: Admission,
    over: bool,
}

impl Watch {
    fn new(job: &Job, seat: &Arc<Seat>, call: &CallId, admission: Admission) -> Self {
        let (bureau, peer) = (Arc::clone(&job.bureau), Arc::clone(&job.peer));
        Self { bureau, peer, seat: Arc::clone(seat), call: call.clone(), admission, over: false }
    }

    fn is_over(&mut self) {
        self.over = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.seat.forget(&self.call);
        self.bureau.breaker().ended(self.seat.session(), self.admission, !self.over, Instant::now());
        if !self.over {
            let (bureau, peer, seat) = (Arc::clone(&self.bureau), Arc::clone(&self.peer), Arc::clone(&self.seat));
            let command = Command::StopUserCommand { call: Some(self.call.clone()) };
            // It may have ended by itself, or never begun.
            tokio::spawn(async move { drop(bureau.ask(&seat, command, None, &peer).await) });
        }
    }
}

/// A command that a rule asks about.
const ASKED: &str = "a rule asks about this command; send it as a prompt, which can wait for an answer";
