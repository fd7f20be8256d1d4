//! Compactions and provider retries. A client may stop either, and neither outlives its run.

use super::Session;
use super::effects::Effects;
use crate::kernel::command::{Answer, Caller, Reply};
use crate::kernel::effect::{Compact, CompactionReport};
use crate::kernel::event::{Compaction, CompactionEnding, CompactionReason, EventKind};
use crate::kernel::id::Seq;
use crate::kernel::refusal::Refusal;
use crate::kernel::time::Now;

impl Session {
    /// Requests a summary from the provider, outside any run.
    pub(super) fn compact(
        &mut self,
        caller: &Caller,
        instructions: Option<String>,
        now: Now,
        fx: &mut Effects,
    ) -> Reply {
        self.entitled(self.roster.rights(caller).prompt)?;
        self.is_open()?;
        self.at_rest()?;
        let (reason, by) = (CompactionReason::Manual, Some(caller.source.clone()));
        self.record_for(None, EventKind::CompactionBegan { reason, by }, now, fx);
        let began = self.state.last_seq;
        let (context_from, voice) = (self.state.context_from, self.state.voice());
        fx.compact(Compact { began, instructions, context_from, last_seq: began, voice });
        Ok(Answer::CompactionBegan(began))
    }

    pub(super) fn stop_compaction(&mut self, caller: &Caller, now: Now, fx: &mut Effects) -> Reply {
        self.entitled(self.roster.rights(caller).control)?;
        if self.state.compaction.is_none() {
            return Err(Refusal::NoCompaction);
        }
        fx.stop_compaction(self.state.run.as_ref().map(|run| run.id.clone()));
        let message = Some(format!("stopped by {}", caller.source));
        self.compaction_over(CompactionEnding::Aborted, message, false, now, fx);
        self.begin_next(now, fx);
        Ok(Answer::CompactionStopped)
    }

    pub(super) fn compaction_reports(
        &mut self,
        began: Seq,
        report: CompactionReport,
        now: Now,
        fx: &mut Effects,
    ) {
        // An aborted compaction may still report; such a report is ignored.
        if self.state.compaction.is_none_or(|compaction| compaction.began != began) {
            return;
        }
        match report {
            CompactionReport::Used(taken) => self.record(EventKind::TurnTaken(taken), now, fx),
            CompactionReport::Done(compaction) => self.record(EventKind::Compacted(compaction), now, fx),
            CompactionReport::Failed { message } => {
                self.compaction_over(CompactionEnding::Failed, Some(message), false, now, fx);
            }
        }
        self.begin_next(now, fx);
    }

    /// Records that the active run needs a compaction.
    pub(super) fn run_compacts(&mut self, reason: CompactionReason, now: Now, fx: &mut Effects) {
        if self.state.compaction.is_none() {
            self.record(EventKind::CompactionBegan { reason, by: None }, now, fx);
        }
    }

    /// Records the summary that the active run needed, unless the compaction was aborted.
    pub(super) fn run_compacted(&mut self, compaction: Box<Compaction>, now: Now, fx: &mut Effects) {
        if self.state.compaction.is_some() {
            self.record(EventKind::Compacted(compaction), now, fx);
        }
    }

    pub(super) fn compaction_over(
        &mut self,
        ending: CompactionEnding,
        message: Option<String>,
        again: bool,
        now: Now,
        fx: &mut Effects,
    ) {
        if self.state.compaction.is_some() {
            self.record(EventKind::CompactionOver { ending, message, again }, now, fx);
        }
    }

    pub(super) fn stop_retry(&self, caller: &Caller, fx: &mut Effects) -> Reply {
        self.entitled(self.roster.rights(caller).control)?;
        let waiting = self.state.run.as_ref().filter(|run| run.retrying.is_some());
        fx.stop_retry(waiting.ok_or(Refusal::NoRetry)?.id.clone());
        Ok(Answer::RetryStopped)
    }

    pub(super) fn retry_over(
        &mut self,
        succeeded: bool,
        attempt: u32,
        message: Option<String>,
        now: Now,
        fx: &mut Effects,
    ) {
        if self.state.run.as_ref().is_some_and(|run| run.retrying.is_some()) {
            self.record(EventKind::RetryOver { succeeded, attempt, message }, now, fx);
        }
    }

    /// Ends a pending retry and a compaction in progress that nothing will continue.
    pub(super) fn leave_unfinished(&mut self, why: &str, now: Now, fx: &mut Effects) {
        if let Some(attempt) = self.state.run.as_ref().and_then(|run| run.retrying) {
            self.retry_over(false, attempt, Some(why.to_owned()), now, fx);
        }
        self.compaction_over(CompactionEnding::Aborted, Some(why.to_owned()), false, now, fx);
    }
}
