//! Forks: what a session gives to a fork of it, and how a fork starts.

use super::Session;
use super::effects::Effects;
use crate::kernel::audience::Viewer;
use crate::kernel::command::{Answer, Caller, Reply};
use crate::kernel::event::{Event, EventKind, RunEvent, RunOutcome, RunReport, SessionEvent};
use crate::kernel::fork::{Fork, ForkPoint};
use crate::kernel::id::Seq;
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

/// The reason with which the run of the parent ends in a fork from the middle of it.
const FORKED: &str = "forked";

impl Session {
    /// Returns what a fork starts with, without a change of the session.
    pub(super) fn prepare_fork(&self, caller: &Caller, at: Option<Seq>) -> Reply {
        let newest = self.state.last_seq;
        let at = at.unwrap_or(newest);
        if at > newest || (at > Seq::ZERO && at < self.gaps.floor) {
            return Err(Refusal::UnknownPosition);
        }
        let viewer = Viewer::new(caller.participant.as_ref(), &self.state.participants);
        Ok(Answer::ForkPrepared(Box::new(ForkPoint { at, viewer, snapshot: self.snapshot() })))
    }

    /// Starts the session as a fork. It inherits messages and their results, and nothing that is active.
    pub(super) fn open_fork(&mut self, caller: &Caller, fork: Fork, now: Now, fx: &mut Effects) -> Reply {
        if self.state.opening.is_some() {
            return Err(Refusal::AlreadyOpen);
        }
        let Fork { opening, inherited, settings, version } = fork;
        let at = opening.forked_at.unwrap_or_default();
        let is_ordered = inherited.is_sorted_by(|one, next| one.seq < next.seq);
        let first = self.issued.next();
        if !is_ordered || inherited.iter().any(|event| event.seq <= first || event.seq > at) {
            return Err(Refusal::UnknownPosition);
        }
        self.next_version = Some(version);
        self.record(EventKind::Session(SessionEvent::Opened(Box::new(opening))), now, fx);
        for event in inherited {
            self.issue_up_to(event.seq, fx);
            self.record_event(Event { version: None, ..event }, fx);
        }
        // Its own events follow the point of the fork.
        self.issue_up_to(at, fx);
        if let Some(run) = self.state.run.as_ref().map(|run| run.id.clone()) {
            let report = RunReport {
                outcome: RunOutcome::Cancelled,
                reason: Some(FORKED.to_owned()),
                summary: "the session was forked before the run ended".to_owned(),
                checks: Vec::new(),
                checks_requested: 0,
                exit_code: 0,
            };
            // Like that of an import, the end adds no message.
            let origin = Some(String::new());
            self.record_from(Some(run), EventKind::Run(RunEvent::Ended(Box::new(report))), now, origin, fx);
        }
        if self.state.adjusted != settings {
            self.adjust(caller, Box::new(settings), now, fx)?;
        }
        Ok(Answer::Opened(self.state.phase()))
    }
}
