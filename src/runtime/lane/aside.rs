//! Tasks outside of runs: user commands, and compactions that a client requested.
//!
//! Each user command has a sandbox of its own: stopping one stops no other, and its background processes end with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{Instrument, debug_span};

use super::execute::{self, Job};
use super::memory::Memory;
use super::modelling::{self, RulesOfRun};
use super::place::Around;
use super::working::{Use, Work, broken_call};
use crate::kernel::effect::{AsideReport, Compact, CompactionReport, Report};
use crate::kernel::event::{Ending, Fault, Intention, Settlement};
use crate::kernel::id::{CallId, RunId};
use crate::kernel::session::Input;
use crate::kernel::state::State;
use crate::provider::{Reported, Reports, Whose};
use crate::sandbox::Room;

/// Interrupts the waits of a turn.
#[derive(Debug)]
pub(super) struct Halts {
    /// Interrupts a wait for the server before a retry.
    pub(super) retry: Notify,
    /// Interrupts a compaction.
    pub(super) compaction: Notify,
    /// The number of steering messages of the run; a new one interrupts the response of the model.
    steers: watch::Sender<usize>,
}

impl Default for Halts {
    fn default() -> Self {
        Self { retry: Notify::new(), compaction: Notify::new(), steers: watch::Sender::new(0) }
    }
}

impl Halts {
    /// Waits until the run has more than `heard` steering messages.
    pub(super) async fn steered(&self, heard: usize) {
        // It cannot fail: the sender is held here.
        let _ = self.steers.subscribe().wait_for(|steers| *steers > heard).await;
    }
}

/// The user commands of a session.
#[derive(Default)]
pub(super) struct Asides {
    used: BTreeMap<CallId, Beside>,
    /// Commands that were cancelled before their start was on disk.
    unwanted: BTreeSet<CallId>,
}

impl Asides {
    pub(super) const fn new() -> Self {
        Self { used: BTreeMap::new(), unwanted: BTreeSet::new() }
    }
}

struct Beside {
    room: Arc<dyn Room>,
    intention: Intention,
    /// Whether the command was cancelled.
    stopped: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Work {
    /// Starts a user command.
    pub(super) fn aside(
        &mut self,
        Use { intention, args, bound }: Use,
        around: Around,
        memory: &Memory,
        state: &State,
    ) {
        if self.is_closed() {
            return;
        }
        let whose = Whose::Aside(intention.call.clone());
        if self.asides.unwanted.remove(&intention.call) {
            let reports = self.reports_of(whose, memory);
            let settled = Report::Settled(Box::new(cut(&intention, None)));
            tokio::spawn(async move { reports.send(settled).await });
            return;
        }
        let place = self.place_of(memory.program_environment(None), around, None, state);
        let (room, reports) = (Arc::clone(&place.tree), self.reports_of(whose.clone(), memory));
        let broken = Report::Settled(Box::new(broken_call(&intention)));
        let if_broken = self.if_broken(Reported::new(whose, broken));
        let (world, session) = self.around();
        let span = debug_span!("aside", %session, call = %intention.call);
        let job = Job { intention: intention.clone(), args, bound, place, clock: world.clock };
        let stopped = Arc::new(AtomicBool::new(false));
        let using = use_it(job, reports, Arc::clone(&stopped));
        let task = tokio::spawn(
            async move {
                let _if_broken = if_broken;
                using.await;
            }
            .instrument(span),
        );
        self.asides.used.insert(intention.call.clone(), Beside { room, intention, stopped, task });
    }

    /// Stops a user command with all its processes; the command reports its own result.
    pub(super) fn stop_aside(&mut self, call: CallId) {
        let reports = self.sender();
        let limit = Duration::from_millis(self.around().0.limits.session.stop_millis);
        let Some(Beside { room, intention, stopped, mut task }) = self.asides.used.remove(&call) else {
            // It is about to start, or is already being stopped.
            self.asides.unwanted.insert(call);
            return;
        };
        stopped.store(true, Ordering::Relaxed);
        room.kill_now();
        tokio::spawn(async move {
            let left = room.stop(limit).await.err().map(|left| left.to_string());
            // A tool without processes does not notice the stop.
            if timeout(limit, &mut task).await.is_err() {
                task.abort();
            }
            // If the command has reported its result, this report is ignored.
            let settlement = Box::new(cut(&intention, left));
            let report = Reported::new(Whose::Aside(call), Report::Settled(settlement));
            let _ = reports.send(Box::new(report)).await;
        });
    }

    /// Removes a user command that has ended.
    pub(super) fn aside_over(&mut self, call: &CallId) {
        self.asides.used.remove(call);
        self.asides.unwanted.remove(call);
    }

    /// Starts a compaction of the conversation.
    pub(super) fn compact(&mut self, compact: Compact, around: Around, memory: &Memory, state: &State) {
        // It may have been stopped while its start was committed.
        let wanted = state.compaction.is_some_and(|compaction| compaction.began == compact.began);
        if self.is_closed() || !wanted {
            return;
        }
        let whose = Whose::Compaction(compact.began);
        let message = "the daemon panicked during the compaction".to_owned();
        let broken = Report::CompactionFailed { message, again: false };
        let if_broken = self.if_broken(Reported::new(whose.clone(), broken));
        let reports = self.reports_of(whose, memory);
        let rules = RulesOfRun { known: Arc::default(), read: around.rules.clone() };
        let place = self.place_of(memory.latest_environment(), around, None, state);
        let asking = self.asking(&compact.voice, place, rules, Arc::default(), memory, state);
        let span = debug_span!("compaction", session = %self.around().1);
        let making = async move {
            let _if_broken = if_broken;
            // The lane may have ended; then the report is not needed.
            let _ = modelling::compact(asking, compact, reports).await;
        };
        self.compaction = Some(tokio::spawn(making.instrument(span)));
    }

    /// Stops the compaction of a run, or the one that a client requested.
    pub(super) fn stop_compaction(&mut self, run: Option<&RunId>) {
        match run {
            Some(run) => {
                if let Some(halts) = self.halts_of(run) {
                    halts.compaction.notify_one();
                }
            }
            None => {
                if let Some(task) = self.compaction.take() {
                    task.abort();
                }
            }
        }
    }

    /// Stops the retries of a run's model request.
    pub(super) fn stop_retry(&mut self, run: &RunId) {
        if let Some(halts) = self.halts_of(run) {
            halts.retry.notify_one();
        }
    }

    /// Interrupts the turn of a run, because it has a new steering message.
    pub(super) fn steered(&self, run: &RunId, steers: usize) {
        if let Some(halts) = self.halts_of(run) {
            halts.steers.send_replace(steers);
        }
    }

    /// Aborts all tasks outside of runs and waits until those of user commands have ended.
    pub(super) async fn end_tasks_beside(&mut self) {
        self.stop_compaction(None);
        for beside in self.asides.used.values() {
            beside.task.abort();
        }
        for beside in self.asides.used.values_mut() {
            // It was aborted or has ended.
            let _ = (&mut beside.task).await;
        }
    }

    /// Stops the processes of all user commands and waits for their end; returns what could not be stopped.
    pub(super) async fn end_beside(&mut self) -> Option<String> {
        for beside in self.asides.used.values() {
            beside.room.kill_now();
        }
        let mut unended = None;
        let limit = Duration::from_millis(self.around().0.limits.session.stop_millis);
        for (call, beside) in std::mem::take(&mut self.asides.used) {
            if let Err(left) = beside.room.stop(limit).await {
                tracing::warn!(session = %self.around().1, %call, %left, "processes could not be stopped");
                unended = Some(left.to_string());
            }
        }
        unended
    }
}

/// Converts a report to an input of the session; `None` if it has no meaning there.
pub(super) fn input(whose: Whose, report: Report) -> Option<Input> {
    Some(match (whose, report) {
        (Whose::Run(run), report) => Input::Report { run, report },
        (Whose::Aside(call), Report::Output { stream, text, call: _ }) => {
            Input::AsideReport { call, report: AsideReport::Output { stream, text } }
        }
        (Whose::Aside(call), Report::Warned { code, message, detail }) => {
            Input::AsideReport { call, report: AsideReport::Warned { code, message, detail } }
        }
        (Whose::Aside(call), Report::Settled(settlement)) => {
            Input::AsideReport { call, report: AsideReport::Settled(settlement) }
        }
        (Whose::Compaction(began), Report::Taken(taken)) => {
            Input::CompactionReport { began, report: CompactionReport::Used(taken) }
        }
        (Whose::Compaction(began), Report::Compacted(compaction)) => {
            Input::CompactionReport { began, report: CompactionReport::Done(compaction) }
        }
        (Whose::Compaction(began), Report::CompactionFailed { message, again: _ }) => {
            Input::CompactionReport { began, report: CompactionReport::Failed { message } }
        }
        (Whose::Aside(_) | Whose::Compaction(_), _) => return None,
    })
}

/// Runs a user command and reports its result; a cancelled command is reported as aborted, whatever its result.
async fn use_it(job: Job, reports: Reports, stopped: Arc<AtomicBool>) {
    let intention = job.intention.clone();
    // The lane may have ended; then the report is not needed.
    let Ok(settlement) = execute::settle(job, &reports).await else { return };
    let settlement = if stopped.load(Ordering::Relaxed) {
        let Settlement { millis, text, .. } = settlement;
        Settlement { millis, text, ..cut(&intention, None) }
    } else {
        settlement
    };
    let _ = reports.send(Report::Settled(Box::new(settlement))).await;
}

fn cut(intention: &Intention, left: Option<String>) -> Settlement {
    let (kind, message) = ("cut".to_owned(), "it was stopped".to_owned());
    let detail = left.map(|left| format!("some of its processes could not be ended: {left}"));
    Settlement {
        call: intention.call.clone(),
        tool: intention.tool.clone(),
        purpose: intention.purpose,
        millis: 0,
        ending: Ending::Cut,
        exit_code: None,
        text: String::new(),
        fault: Some(Fault { kind, retryable: false, message, detail }),
    }
}
