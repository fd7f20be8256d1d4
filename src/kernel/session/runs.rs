//! The active run: provider turns, tool calls, acceptance checks, and the end.
//!
//! The next step is always derived from the journaled state, so a restored run continues where it stopped.

use super::effects::Effects;
use super::{QueueState, Session};
use crate::kernel::command::SessionStatus;
use crate::kernel::effect::{CallRequest, FinishReport, Precondition, Report, TurnRequest};
use crate::kernel::event::{
    CallResult, CheckResult, CompactionFailure, EventKind, Intention, Message, NoticeEvent, Purpose, RecoveredPhase,
    RunEvent, RunOutcome, RunReport, STOPPED_WITH_DAEMON, ToolError, ToolEvent, ToolOutcome, TurnUsage,
};
use crate::kernel::id::{GateId, RunId};
use crate::kernel::state::{ActiveCall, CallStage, Run, State};
use crate::kernel::time::Now;

impl Session {
    /// Starts a run; the session must be idle.
    pub(super) fn start_run(&mut self, run: RunId, message: Message, now: Now, fx: &mut Effects) {
        self.finish = None;
        self.turn = None;
        self.record_for(Some(run), EventKind::Run(RunEvent::Started(Box::new(message))), now, fx);
        self.advance(fx);
    }

    pub(super) fn handle_report(&mut self, run: &RunId, report: Report, now: Now, fx: &mut Effects) {
        // A provider or tool of an earlier run may still report; such a report is ignored.
        let Some(active) = self.state.run.as_ref().filter(|active| active.id == *run) else { return };
        if let Report::Stopped { survivors: left } = report {
            return self.handle_stopped(left, now, fx);
        }
        if active.stopping.is_some() || self.is_superseded(active, &report) {
            return;
        }
        match report {
            Report::Status { source, phase, detail } => {
                self.record(EventKind::Notice(NoticeEvent::Status { source, phase, detail }), now, fx);
            }
            Report::ThinkingDelta(text) => self.record(EventKind::Run(RunEvent::ThinkingDelta { text }), now, fx),
            Report::TextDelta(text) => self.record(EventKind::Run(RunEvent::TextDelta { text }), now, fx),
            Report::TextDone(message) => self.record(EventKind::Run(RunEvent::TextDone { message }), now, fx),
            Report::TurnUsage(usage) => self.record_usage(*usage, now, fx),
            Report::CompactionStarted(reason) => self.begin_run_compaction(reason, now, fx),
            Report::Compacted(compaction) => self.complete_run_compaction(compaction, now, fx),
            Report::CompactionFailed { message, will_retry } => {
                self.fail_compaction(CompactionFailure::Failed, Some(message), will_retry, now, fx);
            }
            Report::RetryStarted(retry) => self.record(EventKind::Run(RunEvent::RetryStarted(retry)), now, fx),
            Report::RetryEnded { succeeded, attempt, message } => {
                self.end_retry(succeeded, attempt, message, now, fx);
            }
            Report::TurnDone => {
                self.turn = None;
                self.advance(fx);
            }
            Report::Warned { code, message, detail } => {
                self.record(EventKind::Notice(NoticeEvent::Warned { code, message, detail }), now, fx);
            }
            Report::CallRequested(request) => self.request_call(*request, now, fx),
            Report::CallOutput { call, stream, text } => {
                if active.calls.get(&call).is_some_and(|call| call.stage == CallStage::Started) {
                    self.record(EventKind::Tool(ToolEvent::Output { call, stream, text }), now, fx);
                }
            }
            Report::CallSettled(result) => self.handle_call_settled(*result, now, fx),
            Report::Finished(finish) => self.handle_finish(*finish, fx),
            Report::Stopped { survivors: _ } => {}
        }
    }

    /// Returns whether a report would start something that was decided before the latest steering message.
    ///
    /// The steering message comes first: the rest of the turn is discarded, and the provider gets another turn.
    fn is_superseded(&self, run: &Run, report: &Report) -> bool {
        let begins = match report {
            Report::TextDelta(_) | Report::TextDone(_) => !run.text_open,
            Report::CallRequested(request) => request.intention.purpose == Purpose::Work,
            Report::Status { .. }
            | Report::ThinkingDelta(_)
            | Report::TurnUsage(_)
            | Report::CompactionStarted(_)
            | Report::Compacted(_)
            | Report::CompactionFailed { .. }
            | Report::RetryStarted(_)
            | Report::RetryEnded { .. }
            | Report::TurnDone
            | Report::Warned { .. }
            | Report::CallOutput { .. }
            | Report::CallSettled(_)
            | Report::Finished(_)
            | Report::Stopped { .. } => false,
        };
        begins && self.has_unseen_steering(run)
    }

    /// Returns whether a steering message has arrived since the provider got its turn.
    fn has_unseen_steering(&self, run: &Run) -> bool {
        self.turn.is_some_and(|delivered| run.steers.len() > delivered)
    }

    fn record_usage(&mut self, mut usage: TurnUsage, now: Now, fx: &mut Effects) {
        if self.state.run.as_ref().is_some_and(|run| self.has_unseen_steering(run)) {
            usage.pending.clear();
        }
        self.record(EventKind::Run(RunEvent::TurnUsage(Box::new(usage))), now, fx);
    }

    /// Continues a run that a restart interrupted.
    pub(super) fn recover(&mut self, gates: Vec<GateId>, now: Now, fx: &mut Effects) {
        self.abort_user_commands(now, fx);
        self.abort_pending(DAEMON_RESTARTED, now, fx);
        let Some(run) = &self.state.run else { return self.start_next_queued(now, fx) };
        let has_gate =
            |call: &ActiveCall| self.state.run_gates().any(|gate| gate.question.call() == Some(&call.intention.call));
        let unknown: Vec<_> = run
            .calls
            .values()
            .filter(|call| call.stage == CallStage::Started && !has_gate(call))
            .map(|call| call.intention.clone())
            .collect();
        let phase = match (&run.stopping, unknown.is_empty(), !self.state.awaits_gate()) {
            (Some(_), _, _) => RecoveredPhase::Stopping,
            (None, false, _) => RecoveredPhase::Unknown,
            (None, true, false) => RecoveredPhase::Waiting,
            (None, true, true) => RecoveredPhase::Working,
        };
        let ready: Vec<_> = run
            .calls
            .values()
            .filter(|call| call.stage == CallStage::Intended && !has_gate(call))
            .map(|call| call.intention.clone())
            .collect();
        let history_damaged = run.history_damaged;
        self.record(EventKind::Run(RunEvent::Recovered { phase }), now, fx);
        if phase == RecoveredPhase::Stopping {
            // All processes of the run died with the daemon.
            return self.handle_stopped(None, now, fx);
        }
        if history_damaged {
            // Actions of the run may be among the lost events, so continuing could repeat one.
            return self.stop(RunOutcome::Failed, "events_lost".to_owned(), "recovery", now, fx);
        }
        for (intention, gate) in unknown.into_iter().zip(gates) {
            self.open_unknown_call_gate(gate, intention, now, fx);
        }
        for intention in ready {
            self.start_call(intention, now, fx);
        }
        self.advance(fx);
    }

    /// Requests the next step, unless one is in progress.
    pub(super) fn advance(&mut self, fx: &mut Effects) {
        let Some(run) = &self.state.run else { return };
        if run.stopping.is_some() || self.turn.is_some() || !run.calls.is_empty() {
            return;
        }
        let Some(finish) = &self.finish else {
            self.turn = Some(run.steers.len());
            return fx.request_turn(next_turn(run, &self.state));
        };
        let next = run.criteria.get(run.checks.len());
        match next.filter(|_| finish.outcome == RunOutcome::Success) {
            Some(criterion) => {
                let index = u32::try_from(run.checks.len()).unwrap_or(u32::MAX);
                fx.run_check(run.id.clone(), index, criterion.clone());
            }
            // The run ends after its background processes have ended.
            None => fx.stop_run(run.id.clone()),
        }
    }

    pub(super) fn start_call(&mut self, intention: Intention, now: Now, fx: &mut Effects) {
        let Some(run) = self.state.run.as_ref().map(|run| run.id.clone()) else { return };
        let (call, tool) = (intention.call.clone(), intention.tool.clone());
        let calls = self.state.run.as_ref().map(|run| &run.calls);
        let approved_digest = calls.and_then(|calls| calls.get(&call)?.approved_digest.clone());
        self.record(EventKind::Tool(ToolEvent::Started { call, tool }), now, fx);
        fx.execute(run, intention, approved_digest);
    }

    /// Stops all processes of the run; the run ends when the driver reports that they are gone.
    pub(super) fn stop(&mut self, outcome: RunOutcome, reason: String, by: &str, now: Now, fx: &mut Effects) {
        let Some(run) = self.state.run.as_ref().filter(|run| run.stopping.is_none()) else { return };
        fx.stop_run(run.id.clone());
        self.deny_open_gates(now, fx);
        self.abort_pending(RUN_STOPPED, now, fx);
        self.record(EventKind::Run(RunEvent::Stopping { outcome, reason, by: by.to_owned() }), now, fx);
    }

    /// Reports that the journal cannot store events, and stops a working run. A run that waits at a gate can still be
    /// ended by a decision.
    pub(super) fn handle_storage_failure(&mut self, code: String, message: String, now: Now, fx: &mut Effects) {
        let reason = code.to_ascii_lowercase();
        for call in self.state.user_commands.keys() {
            fx.stop_user_command(call.clone());
        }
        if self.state.compaction.is_some() {
            fx.stop_compaction(self.state.run.as_ref().map(|run| run.id.clone()));
        }
        self.record(EventKind::Notice(NoticeEvent::Failed { code, message, retryable: false, detail: None }), now, fx);
        if !self.state.awaits_gate() {
            self.stop(RunOutcome::Failed, reason, "storage", now, fx);
        }
    }

    /// Settles every call whose tool the daemon ended at shutdown, so that the restarted daemon need not ask about
    /// it.
    ///
    /// The run continues after the restart and its provider is informed, unless the provider finishes it
    /// ([`Self::finish_at_shutdown`]).
    pub(super) fn handle_shutdown(&mut self, left: Option<&str>, now: Now, fx: &mut Effects) {
        let state = &self.state;
        let has_gate =
            |call: &ActiveCall| state.run_gates().any(|gate| gate.question.call() == Some(&call.intention.call));
        let calls = self.state.run.iter().filter(|run| run.stopping.is_none());
        let calls = calls.flat_map(|run| run.calls.values());
        let calls = calls.filter(|call| call.stage == CallStage::Started && !has_gate(call));
        let ended: Vec<_> = calls.map(|call| shutdown_result(&call.intention, left)).collect();
        let own: Vec<_> =
            self.state.user_commands.values().map(|call| shutdown_result(&call.intention, left)).collect();
        for result in ended {
            self.record(EventKind::Tool(ToolEvent::Settled(Box::new(result))), now, fx);
        }
        for result in own {
            self.record_for(None, EventKind::Tool(ToolEvent::Settled(Box::new(result))), now, fx);
        }
    }

    /// Finishes the run as its provider decided, after all of its tools have ended.
    pub(super) fn finish_at_shutdown(&mut self, finish: FinishReport, now: Now, fx: &mut Effects) {
        if self.next_turn().is_some() {
            // A queued message starts its run after the restart.
            self.pause_queue();
            self.finish = Some(finish);
            self.finish_run(now, fx);
        }
    }

    fn request_call(&mut self, request: CallRequest, now: Now, fx: &mut Effects) {
        let CallRequest { intention, precondition } = request;
        // A provider that has finished starts no more calls.
        if intention.purpose == Purpose::Work && self.finish.is_some() {
            return;
        }
        self.record(EventKind::Tool(ToolEvent::Intended(Box::new(intention.clone()))), now, fx);
        match precondition {
            Precondition::Ask(ask) => self.open_gate(intention.call, *ask, now, fx),
            Precondition::Refuse(error) => {
                let result = unexecuted_result(&intention, ToolOutcome::Failed, *error);
                self.record(EventKind::Tool(ToolEvent::Settled(Box::new(result))), now, fx);
                self.advance(fx);
            }
            Precondition::Nothing => self.start_call(intention, now, fx),
        }
    }

    fn handle_call_settled(&mut self, result: CallResult, now: Now, fx: &mut Effects) {
        let started = |run: &Run| run.calls.get(&result.call).is_some_and(|call| call.stage == CallStage::Started);
        if self.state.run.as_deref().is_some_and(started) {
            self.record(EventKind::Tool(ToolEvent::Settled(Box::new(result))), now, fx);
            self.advance(fx);
        }
    }

    fn handle_finish(&mut self, finish: FinishReport, fx: &mut Effects) {
        let Some(delivered) = self.turn.take() else { return };
        // A message that arrived while the provider was finishing still needs an answer: the provider gets another
        // turn.
        if self.state.run.as_ref().is_some_and(|run| run.steers.len() <= delivered) {
            self.finish = Some(finish);
        }
        self.advance(fx);
    }

    fn handle_stopped(&mut self, left: Option<String>, now: Now, fx: &mut Effects) {
        let Some(run) = &self.state.run else { return };
        if run.stopping.is_none() && self.finish.is_none() {
            return;
        }
        let cut: Vec<_> = run.calls.values().map(aborted_result).collect();
        if let Some(detail) = left {
            let message = "some processes of the run could not be ended".to_owned();
            let kind = EventKind::Notice(NoticeEvent::Warned {
                code: "PROCESS_STILL_RUNNING".to_owned(),
                message,
                detail: Some(detail),
            });
            self.record(kind, now, fx);
        }
        for result in cut {
            self.record(EventKind::Tool(ToolEvent::Settled(Box::new(result))), now, fx);
        }
        self.finish_run(now, fx);
    }

    fn finish_run(&mut self, now: Now, fx: &mut Effects) {
        let finish = self.finish.take();
        self.abort_pending(RUN_ENDED, now, fx);
        let Some(run) = &self.state.run else { return };
        let report = match (&run.stopping, finish.clone()) {
            (Some(stopping), _) => {
                run_report(run, stopping.outcome, Some(stopping.reason.clone()), stopped_summary(run))
            }
            (None, Some(finish)) => final_report(run, finish),
            (None, None) => return,
        };
        if let Some(error) = finish.and_then(|finish| finish.error) {
            let (code, message, retryable, detail) = (error.kind, error.message, error.retryable, error.detail);
            self.record(EventKind::Notice(NoticeEvent::Failed { code, message, retryable, detail }), now, fx);
        }
        self.record(EventKind::Run(RunEvent::Ended(Box::new(report))), now, fx);
        self.start_next_queued(now, fx);
    }

    pub(super) fn start_next_queued(&mut self, now: Now, fx: &mut Effects) {
        if self.state.open == SessionStatus::Open
            && self.queue == QueueState::Running
            && self.ensure_idle().is_ok()
            && let Some(next) = self.state.queue.front().cloned()
        {
            self.start_run(next.run, next.message, now, fx);
        }
    }
}

pub(super) fn next_turn(run: &Run, state: &State) -> TurnRequest {
    TurnRequest {
        run: run.id.clone(),
        text: run.text.clone(),
        message: run.message.clone(),
        steers: run.steers.clone(),
        steps_done: run.steps_done,
        last_call: run.last_call.clone(),
        checks_started: !run.checks.is_empty(),
        budget: run.budget,
        rules: run.rules.clone(),
        spent: run.spent,
        needs_environment: run.needs_environment,
        context_from: state.context_from,
        last_seq: state.last_seq,
        granted: state.granted.iter().chain(&run.granted).cloned().collect(),
        model_choice: run.model_choice.clone(),
    }
}

/// Combines the provider's outcome with the results of the acceptance checks.
fn final_report(run: &Run, finish: FinishReport) -> RunReport {
    let all_passed = run.checks.len() == run.criteria.len() && run.checks.iter().all(|check| check.passed);
    if finish.outcome == RunOutcome::Success && !all_passed {
        let failed = failed_checks(&run.checks);
        let reason = Some("acceptance".to_owned());
        let mut report = run_report(run, RunOutcome::Failed, reason, format!("acceptance failed: {failed}"));
        report.exit_code = ACCEPTANCE_FAILED;
        return report;
    }
    run_report(run, finish.outcome, finish.reason, finish.summary)
}

fn run_report(run: &Run, outcome: RunOutcome, reason: Option<String>, summary: String) -> RunReport {
    RunReport {
        outcome,
        reason,
        summary,
        checks: run.checks.clone(),
        checks_requested: u32::try_from(run.criteria.len()).unwrap_or(u32::MAX),
        exit_code: exit_code(outcome),
    }
}

fn failed_checks(checks: &[CheckResult]) -> String {
    let failed: Vec<_> = checks.iter().filter(|check| !check.passed).map(|check| check.id.as_str()).collect();
    failed.join(", ")
}

const ACCEPTANCE_FAILED: u8 = 4;
/// Why a retry or compaction of a stopped run ended.
const RUN_STOPPED: &str = "the run was stopped";
/// Why a retry or compaction ended that the provider did not report on.
const RUN_ENDED: &str = "the run is over";
/// Why a retry or compaction ended that was in progress when the daemon stopped.
const DAEMON_RESTARTED: &str = "the daemon stopped before it ended";

const fn exit_code(outcome: RunOutcome) -> u8 {
    match outcome {
        RunOutcome::Success => 0,
        RunOutcome::Failed => 1,
        RunOutcome::Cancelled => 2,
        RunOutcome::Denied => 3,
    }
}

fn stopped_summary(run: &Run) -> String {
    let Some(stopping) = &run.stopping else { return String::new() };
    let verb = match stopping.outcome {
        RunOutcome::Success => "ended",
        RunOutcome::Failed => "stopped",
        RunOutcome::Cancelled => "cancelled",
        RunOutcome::Denied => "denied",
    };
    format!("{verb} by {}", stopping.by)
}

fn aborted_result(call: &ActiveCall) -> CallResult {
    let message = match call.stage {
        CallStage::Intended => "the run ended before the call was started",
        CallStage::Started => "the call was aborted because its run ended",
    };
    let (kind, message) = ("cut".to_owned(), message.to_owned());
    unexecuted_result(
        &call.intention,
        ToolOutcome::Aborted,
        ToolError { kind, retryable: false, message, detail: None },
    )
}

fn shutdown_result(intention: &Intention, left: Option<&str>) -> CallResult {
    let message = "stopped: the daemon was shutting down and ended the call".to_owned();
    let detail = left.map(|left| format!("some of its processes could not be ended: {left}"));
    let error = ToolError { kind: STOPPED_WITH_DAEMON.to_owned(), retryable: true, message, detail };
    unexecuted_result(intention, ToolOutcome::Aborted, error)
}

/// Returns the result of a call that did not run, or did not run to its end.
pub(super) fn unexecuted_result(intention: &Intention, ending: ToolOutcome, error: ToolError) -> CallResult {
    CallResult {
        call: intention.call.clone(),
        tool: intention.tool.clone(),
        purpose: intention.purpose,
        millis: 0,
        outcome: ending,
        exit_code: None,
        text: String::new(),
        error: Some(error),
        diff: None,
    }
}
