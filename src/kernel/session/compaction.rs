//! Compactions and provider retries. A client may stop either, and neither outlives its run.

use super::Session;
use super::effects::Effects;
use crate::kernel::command::{Answer, Caller, Reply};
use crate::kernel::effect::{CompactionReport, CompactionRequest};
use crate::kernel::event::{Compaction, CompactionFailure, CompactionReason, ContextEvent, EventKind, RunEvent};
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
        self.ensure_open()?;
        self.ensure_idle()?;
        let (reason, by) = (CompactionReason::Manual, Some(caller.source.clone()));
        self.record_for(None, EventKind::Context(ContextEvent::CompactionStarted { reason, by }), now, fx);
        let start_seq = self.state.last_seq;
        let (context_from, model_choice) = (self.state.context_from, self.state.model_choice());
        fx.compact(CompactionRequest { start_seq, instructions, context_from, last_seq: start_seq, model_choice });
        Ok(Answer::CompactionStarted(start_seq))
    }

    pub(super) fn stop_compaction(&mut self, caller: &Caller, now: Now, fx: &mut Effects) -> Reply {
        if self.state.compaction.is_none() {
            return Err(Refusal::NoCompaction);
        }
        fx.stop_compaction(self.state.run.as_ref().map(|run| run.id.clone()));
        let message = Some(format!("stopped by {}", caller.source));
        self.fail_compaction(CompactionFailure::Aborted, message, false, now, fx);
        self.start_next_queued(now, fx);
        Ok(Answer::CompactionStopped)
    }

    pub(super) fn handle_compaction_report(
        &mut self,
        start_seq: Seq,
        report: CompactionReport,
        now: Now,
        fx: &mut Effects,
    ) {
        // An aborted compaction may still report; such a report is ignored.
        if self.state.compaction.is_none_or(|compaction| compaction.start_seq != start_seq) {
            return;
        }
        match report {
            CompactionReport::Usage(usage) => self.record(EventKind::Run(RunEvent::TurnUsage(usage)), now, fx),
            CompactionReport::Done(compaction) => {
                self.record(EventKind::Context(ContextEvent::Compacted(compaction)), now, fx)
            }
            CompactionReport::Failed { message } => {
                self.fail_compaction(CompactionFailure::Failed, Some(message), false, now, fx);
            }
        }
        self.start_next_queued(now, fx);
    }

    /// Records that the active run needs a compaction.
    pub(super) fn begin_run_compaction(&mut self, reason: CompactionReason, now: Now, fx: &mut Effects) {
        if self.state.compaction.is_none() {
            self.record(EventKind::Context(ContextEvent::CompactionStarted { reason, by: None }), now, fx);
        }
    }

    /// Records the summary that the active run needed, unless the compaction was aborted.
    pub(super) fn complete_run_compaction(&mut self, compaction: Box<Compaction>, now: Now, fx: &mut Effects) {
        if self.state.compaction.is_some() {
            self.record(EventKind::Context(ContextEvent::Compacted(compaction)), now, fx);
        }
    }

    pub(super) fn fail_compaction(
        &mut self,
        failure: CompactionFailure,
        message: Option<String>,
        will_retry: bool,
        now: Now,
        fx: &mut Effects,
    ) {
        if self.state.compaction.is_some() {
            self.record(EventKind::Context(ContextEvent::CompactionFailed { failure, message, will_retry }), now, fx);
        }
    }

    pub(super) fn stop_retry(&self, fx: &mut Effects) -> Reply {
        let waiting = self.state.run.as_ref().filter(|run| run.retry_attempt.is_some());
        fx.stop_retry(waiting.ok_or(Refusal::NoRetry)?.id.clone());
        Ok(Answer::RetryStopped)
    }

    pub(super) fn end_retry(
        &mut self,
        succeeded: bool,
        attempt: u32,
        message: Option<String>,
        now: Now,
        fx: &mut Effects,
    ) {
        if self.state.run.as_ref().is_some_and(|run| run.retry_attempt.is_some()) {
            self.record(EventKind::Run(RunEvent::RetryEnded { succeeded, attempt, message }), now, fx);
        }
    }

    /// Ends a pending retry and a compaction in progress that nothing will continue.
    pub(super) fn abort_pending(&mut self, why: &str, now: Now, fx: &mut Effects) {
        if let Some(attempt) = self.state.run.as_ref().and_then(|run| run.retry_attempt) {
            self.end_retry(false, attempt, Some(why.to_owned()), now, fx);
        }
        self.fail_compaction(CompactionFailure::Aborted, Some(why.to_owned()), false, now, fx);
    }
}
