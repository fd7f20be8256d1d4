//! The active run: provider turns, tool calls, acceptance checks, and the end.
//!
//! The next step is always derived from the journaled state, so a restored run continues where it stopped.

use super::effects::Effects;
use super::{Queue, Session};
use crate::kernel::command::Openness;
use crate::kernel::effect::{Before, CallRequest, Finish, Report, Turn};
use crate::kernel::event::{
    CheckResult, CompactionEnding, Ending, EventKind, Fault, Found, Intention, Message, Outcome, Purpose,
    RunReport, STOPPED_WITH_DAEMON, Settlement, Taken,
};
use crate::kernel::id::{GateId, RunId};
use crate::kernel::state::{Call, Run, Stage, State};
use crate::kernel::time::Now;

impl Session {
    /// Starts a run; the session must be idle.
    pub(super) fn begin(&mut self, run: RunId, message: Message, now: Now, fx: &mut Effects) {
        self.finish = None;
        self.turn = None;
        self.record_for(Some(run), EventKind::RunStarted(Box::new(message)), now, fx);
        self.advance(fx);
    }

    pub(super) fn report(&mut self, run: &RunId, report: Report, now: Now, fx: &mut Effects) {
        // A provider or tool of an earlier run may still report; such a report is ignored.
        let Some(active) = self.state.run.as_ref().filter(|active| active.id == *run) else { return };
        if let Report::Stopped { left } = report {
            return self.stopped(left, now, fx);
        }
        if active.stopping.is_some() || self.is_outdated(active, &report) {
            return;
        }
        match report {
            Report::Status { source, phase, detail } => {
                self.record(EventKind::Status { source, phase, detail }, now, fx);
            }
            Report::Thought(text) => self.record(EventKind::Thought { text }, now, fx),
            Report::Said(text) => self.record(EventKind::Said { text }, now, fx),
            Report::SayingDone(message) => self.record(EventKind::SayingDone { message }, now, fx),
            Report::Taken(taken) => self.taken(*taken, now, fx),
            Report::Compacting(reason) => self.run_compacts(reason, now, fx),
            Report::Compacted(compaction) => self.run_compacted(compaction, now, fx),
            Report::CompactionFailed { message, again } => {
                self.compaction_over(CompactionEnding::Failed, Some(message), again, now, fx);
            }
            Report::RetryBegan(retry) => self.record(EventKind::RetryBegan(retry), now, fx),
            Report::RetryOver { succeeded, attempt, message } => {
                self.retry_over(succeeded, attempt, message, now, fx);
            }
            Report::TurnDone => {
                self.turn = None;
                self.advance(fx);
            }
            Report::Warned { code, message, detail } => {
                self.record(EventKind::Warned { code, message, detail }, now, fx);
            }
            Report::Call(request) => self.intend(*request, now, fx),
            Report::Output { call, stream, text } => {
                if active.calls.get(&call).is_some_and(|call| call.stage == Stage::Started) {
                    self.record(EventKind::CallOutput { call, stream, text }, now, fx);
                }
            }
            Report::Settled(settlement) => self.settled(*settlement, now, fx),
            Report::Finished(finish) => self.finished(*finish, fx),
            Report::Stopped { left: _ } => {}
        }
    }

    /// Returns whether a report would start something that was decided before the latest steering message.
    ///
    /// The steering message comes first: the rest of the turn is discarded, and the provider gets another turn.
    fn is_outdated(&self, run: &Run, report: &Report) -> bool {
        let begins = match report {
            Report::Said(_) | Report::SayingDone(_) => !run.speaking,
            Report::Call(request) => request.intention.purpose == Purpose::Work,
            Report::Status { .. }
            | Report::Thought(_)
            | Report::Taken(_)
            | Report::Compacting(_)
            | Report::Compacted(_)
            | Report::CompactionFailed { .. }
            | Report::RetryBegan(_)
            | Report::RetryOver { .. }
            | Report::TurnDone
            | Report::Warned { .. }
            | Report::Output { .. }
            | Report::Settled(_)
            | Report::Finished(_)
            | Report::Stopped { .. } => false,
        };
        begins && self.has_more_to_hear(run)
    }

    /// Returns whether a steering message has arrived since the provider got its turn.
    fn has_more_to_hear(&self, run: &Run) -> bool {
        self.turn.is_some_and(|heard| run.steers.len() > heard)
    }

    fn taken(&mut self, mut taken: Taken, now: Now, fx: &mut Effects) {
        if self.state.run.as_ref().is_some_and(|run| self.has_more_to_hear(run)) {
            taken.pending.clear();
        }
        self.record(EventKind::TurnTaken(Box::new(taken)), now, fx);
    }

    /// Continues a run that a restart interrupted.
    pub(super) fn recover(&mut self, gates: Vec<GateId>, now: Now, fx: &mut Effects) {
        self.cut_asides_off(now, fx);
        self.leave_unfinished(RESTARTED, now, fx);
        let Some(run) = &self.state.run else { return self.begin_next(now, fx) };
        let asked =
            |call: &Call| self.state.gates.values().any(|gate| gate.question.call == call.intention.call);
        let unknown: Vec<_> = run
            .calls
            .values()
            .filter(|call| call.stage == Stage::Started && !asked(call))
            .map(|call| call.intention.clone())
            .collect();
        let found = match (&run.stopping, unknown.is_empty(), self.state.gates.is_empty()) {
            (Some(_), _, _) => Found::Stopping,
            (None, false, _) => Found::Unknown,
            (None, true, false) => Found::Waiting,
            (None, true, true) => Found::Working,
        };
        let ready: Vec<_> = run
            .calls
            .values()
            .filter(|call| call.stage == Stage::Intended && !asked(call))
            .map(|call| call.intention.clone())
            .collect();
        let torn = run.torn;
        self.record(EventKind::RunRecovered { found }, now, fx);
        if found == Found::Stopping {
            // All processes of the run died with the daemon.
            return self.stopped(None, now, fx);
        }
        if torn {
            // Actions of the run may be among the lost events, so continuing could repeat one.
            return self.stop(Outcome::Failed, "events_lost".to_owned(), "recovery", now, fx);
        }
        for (intention, gate) in unknown.into_iter().zip(gates) {
            self.ask_about_unknown(gate, intention, now, fx);
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
            return fx.turn(next_turn(run, &self.state));
        };
        let next = run.criteria.get(run.checks.len());
        match next.filter(|_| finish.outcome == Outcome::Success) {
            Some(criterion) => {
                let index = u32::try_from(run.checks.len()).unwrap_or(u32::MAX);
                fx.check(run.id.clone(), index, criterion.clone());
            }
            // The run ends after its background processes have ended.
            None => fx.stop(run.id.clone()),
        }
    }

    pub(super) fn start_call(&mut self, intention: Intention, now: Now, fx: &mut Effects) {
        let Some(run) = self.state.run.as_ref().map(|run| run.id.clone()) else { return };
        let (call, tool) = (intention.call.clone(), intention.tool.clone());
        let calls = self.state.run.as_ref().map(|run| &run.calls);
        let bound = calls.and_then(|calls| calls.get(&call)?.bound.clone());
        self.record(EventKind::CallStarted { call, tool }, now, fx);
        fx.execute(run, intention, bound);
    }

    /// Stops all processes of the run; the run ends when the driver reports that they are gone.
    pub(super) fn stop(&mut self, outcome: Outcome, reason: String, by: &str, now: Now, fx: &mut Effects) {
        let Some(run) = self.state.run.as_ref().filter(|run| run.stopping.is_none()) else { return };
        fx.stop(run.id.clone());
        self.deny_open_gates(now, fx);
        self.leave_unfinished(STOPPED, now, fx);
        self.record(EventKind::Stopping { outcome, reason, by: by.to_owned() }, now, fx);
    }

    /// Reports that the journal cannot store events, and stops a working run. A run that waits at a gate can still be
    /// ended by a decision.
    pub(super) fn unkept(&mut self, code: String, message: String, now: Now, fx: &mut Effects) {
        let reason = code.to_ascii_lowercase();
        for call in self.state.asides.keys() {
            fx.stop_aside(call.clone());
        }
        if self.state.compaction.is_some() {
            fx.stop_compaction(self.state.run.as_ref().map(|run| run.id.clone()));
        }
        self.record(EventKind::Failed { code, message, retryable: false, detail: None }, now, fx);
        if self.state.gates.is_empty() {
            self.stop(Outcome::Failed, reason, "storage", now, fx);
        }
    }

    /// Settles every call whose tool the daemon ended at shutdown, so that the restarted daemon need not ask about
    /// it.
    ///
    /// The run continues after the restart and its provider is informed, unless the provider finishes it
    /// ([`Self::finish_at_shutdown`]).
    pub(super) fn halt(&mut self, left: Option<&str>, now: Now, fx: &mut Effects) {
        let gates = &self.state.gates;
        let asked = |call: &Call| gates.values().any(|gate| gate.question.call == call.intention.call);
        let calls = self.state.run.iter().filter(|run| run.stopping.is_none());
        let calls = calls.flat_map(|run| run.calls.values());
        let calls = calls.filter(|call| call.stage == Stage::Started && !asked(call));
        let ended: Vec<_> = calls.map(|call| halted(&call.intention, left)).collect();
        let own: Vec<_> = self.state.asides.values().map(|call| halted(&call.intention, left)).collect();
        for settlement in ended {
            self.record(EventKind::CallSettled(Box::new(settlement)), now, fx);
        }
        for settlement in own {
            self.record_for(None, EventKind::CallSettled(Box::new(settlement)), now, fx);
        }
    }

    /// Finishes the run as its provider decided, after all of its tools have ended.
    pub(super) fn finish_at_stop(&mut self, finish: Finish, now: Now, fx: &mut Effects) {
        if self.next_turn().is_some() {
            // A queued message starts its run after the restart.
            self.hold();
            self.finish = Some(finish);
            self.finish_run(now, fx);
        }
    }

    fn intend(&mut self, request: CallRequest, now: Now, fx: &mut Effects) {
        let CallRequest { intention, before } = request;
        // A provider that has finished starts no more calls.
        if intention.purpose == Purpose::Work && self.finish.is_some() {
            return;
        }
        self.record(EventKind::CallIntended(Box::new(intention.clone())), now, fx);
        match before {
            Before::Ask(ask) => self.ask(intention.call, *ask, now, fx),
            Before::Refuse(fault) => {
                let settlement = unused(&intention, Ending::Failed, *fault);
                self.record(EventKind::CallSettled(Box::new(settlement)), now, fx);
                self.advance(fx);
            }
            Before::Nothing => self.start_call(intention, now, fx),
        }
    }

    fn settled(&mut self, settlement: Settlement, now: Now, fx: &mut Effects) {
        let started =
            |run: &Run| run.calls.get(&settlement.call).is_some_and(|call| call.stage == Stage::Started);
        if self.state.run.as_ref().is_some_and(started) {
            self.record(EventKind::CallSettled(Box::new(settlement)), now, fx);
            self.advance(fx);
        }
    }

    fn finished(&mut self, finish: Finish, fx: &mut Effects) {
        let Some(heard) = self.turn.take() else { return };
        // A message that arrived while the provider was finishing still needs an answer: the provider gets another
        // turn.
        if self.state.run.as_ref().is_some_and(|run| run.steers.len() <= heard) {
            self.finish = Some(finish);
        }
        self.advance(fx);
    }

    fn stopped(&mut self, left: Option<String>, now: Now, fx: &mut Effects) {
        let Some(run) = &self.state.run else { return };
        if run.stopping.is_none() && self.finish.is_none() {
            return;
        }
        let cut: Vec<_> = run.calls.values().map(cut_short).collect();
        if let Some(detail) = left {
            let message = "some processes of the run could not be ended".to_owned();
            let kind = EventKind::Warned { code: "PROCESS_LEFT".to_owned(), message, detail: Some(detail) };
            self.record(kind, now, fx);
        }
        for settlement in cut {
            self.record(EventKind::CallSettled(Box::new(settlement)), now, fx);
        }
        self.finish_run(now, fx);
    }

    fn finish_run(&mut self, now: Now, fx: &mut Effects) {
        let finish = self.finish.take();
        self.leave_unfinished(OVER, now, fx);
        let Some(run) = &self.state.run else { return };
        let report = match (&run.stopping, finish.clone()) {
            (Some(stopping), _) => {
                report(run, stopping.outcome, Some(stopping.reason.clone()), stopped_summary(run))
            }
            (None, Some(finish)) => judged(run, finish),
            (None, None) => return,
        };
        if let Some(fault) = finish.and_then(|finish| finish.fault) {
            let (code, message, retryable, detail) =
                (fault.kind, fault.message, fault.retryable, fault.detail);
            self.record(EventKind::Failed { code, message, retryable, detail }, now, fx);
        }
        self.record(EventKind::RunEnded(Box::new(report)), now, fx);
        self.begin_next(now, fx);
    }

    pub(super) fn begin_next(&mut self, now: Now, fx: &mut Effects) {
        if self.state.open == Openness::Open
            && self.queue == Queue::Moving
            && self.at_rest().is_ok()
            && let Some(next) = self.state.queue.front().cloned()
        {
            self.begin(next.run, next.message, now, fx);
        }
    }
}

pub(super) fn next_turn(run: &Run, state: &State) -> Turn {
    Turn {
        run: run.id.clone(),
        text: run.text.clone(),
        message: run.message.clone(),
        steers: run.steers.clone(),
        done: run.done,
        last: run.last.clone(),
        checking: !run.checks.is_empty(),
        budget: run.budget,
        rules: run.rules.clone(),
        spent: run.spent,
        needs_environment: run.needs_environment,
        context_from: state.context_from,
        last_seq: state.last_seq,
        granted: state.granted.iter().chain(&run.granted).cloned().collect(),
        voice: run.voice.clone(),
    }
}

/// Combines the provider's outcome with the results of the acceptance checks.
fn judged(run: &Run, finish: Finish) -> RunReport {
    let all_passed = run.checks.len() == run.criteria.len() && run.checks.iter().all(|check| check.passed);
    if finish.outcome == Outcome::Success && !all_passed {
        let failed = failed_checks(&run.checks);
        let reason = Some("acceptance".to_owned());
        let mut report = report(run, Outcome::Failed, reason, format!("acceptance failed: {failed}"));
        report.exit_code = ACCEPTANCE_FAILED;
        return report;
    }
    report(run, finish.outcome, finish.reason, finish.summary)
}

fn report(run: &Run, outcome: Outcome, reason: Option<String>, summary: String) -> RunReport {
    RunReport {
        outcome,
        reason,
        summary,
        checks: run.checks.clone(),
        checks_asked: u32::try_from(run.criteria.len()).unwrap_or(u32::MAX),
        exit_code: exit_code(outcome),
    }
}

fn failed_checks(checks: &[CheckResult]) -> String {
    let failed: Vec<_> = checks.iter().filter(|check| !check.passed).map(|check| check.id.as_str()).collect();
    failed.join(", ")
}

const ACCEPTANCE_FAILED: u8 = 4;
/// Why a retry or compaction of a stopped run ended.
const STOPPED: &str = "the run was stopped";
/// Why a retry or compaction ended that the provider did not report on.
const OVER: &str = "the run is over";
/// Why a retry or compaction ended that was in progress when the daemon stopped.
const RESTARTED: &str = "the daemon stopped before it ended";

const fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Success => 0,
        Outcome::Failed => 1,
        Outcome::Cancelled => 2,
        Outcome::Denied => 3,
    }
}

fn stopped_summary(run: &Run) -> String {
    let Some(stopping) = &run.stopping else { return String::new() };
    let verb = match stopping.outcome {
        Outcome::Success => "ended",
        Outcome::Failed => "stopped",
        Outcome::Cancelled => "cancelled",
        Outcome::Denied => "denied",
    };
    format!("{verb} by {}", stopping.by)
}

fn cut_short(call: &Call) -> Settlement {
    let message = match call.stage {
        Stage::Intended => "the run ended before it was started",
        Stage::Started => "it was ended with the run",
    };
    let (kind, message) = ("cut".to_owned(), message.to_owned());
    unused(&call.intention, Ending::Cut, Fault { kind, retryable: false, message, detail: None })
}

fn halted(intention: &Intention, left: Option<&str>) -> Settlement {
    let message = "stopped: the daemon was told to stop, and ended it".to_owned();
    let detail = left.map(|left| format!("some of its processes could not be ended: {left}"));
    let fault = Fault { kind: STOPPED_WITH_DAEMON.to_owned(), retryable: true, message, detail };
    unused(intention, Ending::Cut, fault)
}

/// Returns the result of a call that did not run, or did not run to its end.
pub(super) fn unused(intention: &Intention, ending: Ending, fault: Fault) -> Settlement {
    Settlement {
        call: intention.call.clone(),
        tool: intention.tool.clone(),
        purpose: intention.purpose,
        millis: 0,
        ending,
        exit_code: None,
        text: String::new(),
        fault: Some(fault),
    }
}
