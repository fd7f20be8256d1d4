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

use super::conversation::ConversationSource;
use super::execute::{self, ToolJob};
use super::model_turn::{self, RunConfigSource};
use super::panic_report::panicked_call;
use super::run_tasks::{PreparedCall, RunTasks};
use super::tool_context::WorkspaceContext;
use super::unredacted::Unredacted;
use crate::kernel::effect::{CompactionReport, CompactionRequest, Report, UserCommandReport};
use crate::kernel::event::{CallResult, Intention, ToolError, ToolOutcome};
use crate::kernel::id::{CallId, RunId};
use crate::kernel::session::Input;
use crate::kernel::state::State;
use crate::provider::{ReportEnvelope, ReportOwner, ReportSender};
use crate::sandbox::RunSandbox;

/// Interrupts the waits of a turn.
#[derive(Debug)]
pub(super) struct TurnInterrupts {
    /// Interrupts a wait for the server before a retry.
    pub(super) retry: Notify,
    /// Interrupts a compaction.
    pub(super) compaction: Notify,
    /// The number of steering messages of the run; a new one interrupts the response of the model.
    steers: watch::Sender<usize>,
}

impl Default for TurnInterrupts {
    fn default() -> Self {
        Self { retry: Notify::new(), compaction: Notify::new(), steers: watch::Sender::new(0) }
    }
}

impl TurnInterrupts {
    /// Waits until the run has more than `handled` steering messages.
    pub(super) async fn wait_for_steer(&self, handled: usize) {
        // It cannot fail: the sender is held here.
        let _ = self.steers.subscribe().wait_for(|steers| *steers > handled).await;
    }
}

/// The user commands of a session.
#[derive(Default)]
pub(super) struct UserCommands {
    active: BTreeMap<CallId, ActiveUserCommand>,
    /// Commands that were cancelled before their start was on disk.
    cancelled: BTreeSet<CallId>,
}

impl UserCommands {
    pub(super) const fn new() -> Self {
        Self { active: BTreeMap::new(), cancelled: BTreeSet::new() }
    }
}

struct ActiveUserCommand {
    sandbox: Arc<dyn RunSandbox>,
    intention: Intention,
    /// Whether the command was cancelled.
    stopped: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl RunTasks {
    /// Starts a user command.
    pub(super) fn start_user_command(
        &mut self,
        PreparedCall { intention, args, approved_digest }: PreparedCall,
        workspace_context: WorkspaceContext,
        unredacted: &Unredacted,
        state: &State,
    ) {
        if self.is_closed() {
            return;
        }
        let owner = ReportOwner::UserCommand(intention.call.clone());
        if self.user_commands.cancelled.remove(&intention.call) {
            let reports = self.reports_for(owner, unredacted);
            let settled = Report::CallSettled(Box::new(aborted_result(&intention, None)));
            tokio::spawn(async move { reports.send(settled).await });
            return;
        }
        let tool_context =
            self.tool_context(None, unredacted.program_environment(None), workspace_context, None, state);
        let (sandbox, reports) = (Arc::clone(&tool_context.sandbox), self.reports_for(owner.clone(), unredacted));
        let broken = Report::CallSettled(Box::new(panicked_call(&intention)));
        let if_broken = self.panic_reporter(ReportEnvelope::new(owner, broken));
        let (services, session) = self.services_and_session();
        let span = debug_span!("user_command", %session, call = %intention.call);
        let services = Arc::clone(services);
        let job = ToolJob { intention: intention.clone(), args, approved_digest, tool_context, services };
        let stopped = Arc::new(AtomicBool::new(false));
        let using = run_user_command(job, reports, Arc::clone(&stopped));
        let task = tokio::spawn(
            async move {
                let _if_broken = if_broken;
                using.await;
            }
            .instrument(span),
        );
        self.user_commands
            .active
            .insert(intention.call.clone(), ActiveUserCommand { sandbox, intention, stopped, task });
    }

    /// Stops a user command with all its processes; the command reports its own result.
    pub(super) fn stop_user_command(&mut self, call: CallId) {
        let reports = self.sender();
        let limit = Duration::from_millis(self.services_and_session().0.limits.session.stop_millis);
        let Some(ActiveUserCommand { sandbox, intention, stopped, mut task }) = self.user_commands.active.remove(&call)
        else {
            // It is about to start, or is already being stopped.
            self.user_commands.cancelled.insert(call);
            return;
        };
        stopped.store(true, Ordering::Relaxed);
        sandbox.kill_now();
        tokio::spawn(async move {
            let left = sandbox.stop(limit).await.err().map(|left| left.to_string());
            // A tool without processes does not notice the stop.
            if timeout(limit, &mut task).await.is_err() {
                task.abort();
            }
            // If the command has reported its result, this report is ignored.
            let settlement = Box::new(aborted_result(&intention, left));
            let report = ReportEnvelope::new(ReportOwner::UserCommand(call), Report::CallSettled(settlement));
            let _ = reports.send(Box::new(report)).await;
        });
    }

    /// Removes a user command that has ended.
    pub(super) fn remove_user_command(&mut self, call: &CallId) {
        self.user_commands.active.remove(call);
        self.user_commands.cancelled.remove(call);
    }

    /// Starts a compaction of the conversation.
    pub(super) fn start_compaction(
        &mut self,
        compact: CompactionRequest,
        conversation: ConversationSource,
        workspace_context: WorkspaceContext,
        unredacted: &Unredacted,
        state: &State,
    ) {
        // It may have been stopped while its start was committed.
        let is_current = state.compaction.is_some_and(|compaction| compaction.start_seq == compact.start_seq);
        if self.is_closed() || !is_current {
            return;
        }
        let owner = ReportOwner::Compaction(compact.start_seq);
        let message = "the daemon panicked during the compaction".to_owned();
        let broken = Report::CompactionFailed { message, will_retry: false };
        let if_broken = self.panic_reporter(ReportEnvelope::new(owner.clone(), broken));
        let reports = self.reports_for(owner, unredacted);
        let rules = RunConfigSource { cached: Arc::default(), loaded: workspace_context.run_config.clone() };
        let tool_context = self.tool_context(None, unredacted.latest_environment(), workspace_context, None, state);
        let input =
            self.model_turn_input(&compact.model_choice, tool_context, rules, Arc::default(), unredacted, state);
        let span = debug_span!("compaction", session = %self.services_and_session().1);
        let making = async move {
            let _if_broken = if_broken;
            // The lane may have ended; then the report is not needed.
            let _ = model_turn::compact(input, compact, conversation, reports).await;
        };
        self.compaction = Some(tokio::spawn(making.instrument(span)));
    }

    /// Stops the compaction of a run, or the one that a client requested.
    pub(super) fn stop_compaction(&mut self, run: Option<&RunId>) {
        match run {
            Some(run) => {
                if let Some(interrupts) = self.interrupts_of(run) {
                    interrupts.compaction.notify_one();
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
        if let Some(interrupts) = self.interrupts_of(run) {
            interrupts.retry.notify_one();
        }
    }

    /// Interrupts the turn of a run, because it has a new steering message.
    pub(super) fn interrupt_for_steer(&self, run: &RunId, steers: usize) {
        if let Some(interrupts) = self.interrupts_of(run) {
            interrupts.steers.send_replace(steers);
        }
    }

    /// Aborts all tasks outside of runs and waits until those of user commands have ended.
    pub(super) async fn abort_user_commands(&mut self) {
        self.stop_compaction(None);
        for command in self.user_commands.active.values() {
            command.task.abort();
        }
        for command in self.user_commands.active.values_mut() {
            // It was aborted or has ended.
            let _ = (&mut command.task).await;
        }
    }

    /// Stops the processes of all user commands and waits for their end; returns what could not be stopped.
    pub(super) async fn stop_user_commands(&mut self) -> Option<String> {
        for command in self.user_commands.active.values() {
            command.sandbox.kill_now();
        }
        let mut unended = None;
        let limit = Duration::from_millis(self.services_and_session().0.limits.session.stop_millis);
        for (call, command) in std::mem::take(&mut self.user_commands.active) {
            if let Err(left) = command.sandbox.stop(limit).await {
                tracing::warn!(session = %self.services_and_session().1, %call, %left, "processes could not be stopped");
                unended = Some(left.to_string());
            }
        }
        unended
    }
}

/// Converts a report to an input of the session; `None` if it has no meaning there.
pub(super) fn to_input(owner: ReportOwner, report: Report) -> Option<Input> {
    Some(match (owner, report) {
        (ReportOwner::Run(run), report) => Input::Report { run, report },
        (ReportOwner::UserCommand(call), Report::CallOutput { stream, text, call: _ }) => {
            Input::UserCommandReport { call, report: UserCommandReport::Output { stream, text } }
        }
        (ReportOwner::UserCommand(call), Report::Warned { code, message, detail }) => {
            Input::UserCommandReport { call, report: UserCommandReport::Warned { code, message, detail } }
        }
        (ReportOwner::UserCommand(call), Report::CallSettled(settlement)) => {
            Input::UserCommandReport { call, report: UserCommandReport::Settled(settlement) }
        }
        (ReportOwner::Compaction(start_seq), Report::TurnUsage(usage)) => {
            Input::CompactionReport { start_seq, report: CompactionReport::Usage(usage) }
        }
        (ReportOwner::Compaction(start_seq), Report::Compacted(compaction)) => {
            Input::CompactionReport { start_seq, report: CompactionReport::Done(compaction) }
        }
        (ReportOwner::Compaction(start_seq), Report::CompactionFailed { message, will_retry: _ }) => {
            Input::CompactionReport { start_seq, report: CompactionReport::Failed { message } }
        }
        (ReportOwner::UserCommand(_) | ReportOwner::Compaction(_), _) => return None,
    })
}

/// Runs a user command and reports its result; a cancelled command is reported as aborted, whatever its result.
async fn run_user_command(job: ToolJob, reports: ReportSender, stopped: Arc<AtomicBool>) {
    let intention = job.intention.clone();
    // The lane may have ended; then the report is not needed.
    let Ok(settlement) = execute::run(job, &reports).await else { return };
    let settlement = if stopped.load(Ordering::Relaxed) {
        let CallResult { millis, text, .. } = settlement;
        CallResult { millis, text, ..aborted_result(&intention, None) }
    } else {
        settlement
    };
    let _ = reports.send(Report::CallSettled(Box::new(settlement))).await;
}

fn aborted_result(intention: &Intention, left: Option<String>) -> CallResult {
    let (kind, message) = ("cut".to_owned(), "it was stopped".to_owned());
    let detail = left.map(|left| format!("some of its processes could not be ended: {left}"));
    CallResult {
        call: intention.call.clone(),
        tool: intention.tool.clone(),
        purpose: intention.purpose,
        millis: 0,
        outcome: ToolOutcome::Aborted,
        exit_code: None,
        text: String::new(),
        error: Some(ToolError { kind, retryable: false, message, detail }),
        diff: None,
    }
}
