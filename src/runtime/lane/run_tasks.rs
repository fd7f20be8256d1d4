//! The tasks of the active run: the turn of its provider, its tools, and all their processes.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tracing::{Instrument, debug_span};

use super::call_policy::{self, ConfinedSteps};
use super::conversation::ConversationSource;
use super::execute::{self, ToolJob};
use super::model_turn::{self, ModelTurnInput, RunConfigSource};
use super::panic_report::{PanicReporter, panicked_call, turn_panicked};
use super::tool_context::{
    LoadedWorkspace, ToolContextBuilder, WorkspaceContext, branch_of, home_directory, path_reach, session_cwd,
    workspace_path,
};
use super::unredacted::{SentValue, Unredacted};
use super::user_command::{TurnInterrupts, UserCommands};
use crate::kernel::effect::{FinishReport, ModelChoice, Report, TurnRequest};
use crate::kernel::environment::Environment;
use crate::kernel::event::{Intention, Purpose};
use crate::kernel::id::{RunId, SessionId};
use crate::kernel::state::State;
use crate::provider::{
    IdSource, ReportEnvelope, ReportOwner, ReportSender, RunAdmission, SessionClosed, Starter, StepPolicy, TurnFuture,
};
use crate::runtime::confinement;
use crate::runtime::generate;
use crate::runtime::grants;
use crate::runtime::model_config::RunConfig;
use crate::runtime::services::Services;
use crate::sandbox::RunSandbox;
use crate::sandbox::risk;
use crate::tools::{self, PinnedAddresses};

const IDS: IdSource = IdSource { call: generate::call, gate: generate::gate, message: generate::assistant_message };

/// The tasks of a lane.
pub(super) struct RunTasks {
    session: SessionId,
    services: Arc<Services>,
    /// The channel of reports from tasks; absent in an idle session.
    report_channel: Option<ReportChannel>,
    active: Option<ActiveRun>,
    /// The user commands.
    pub(super) user_commands: UserCommands,
    /// The compaction that a client requested.
    pub(super) compaction: Option<JoinHandle<()>>,
    closed: bool,
}

/// A tool call that is ready for execution.
pub(super) struct PreparedCall {
    pub(super) intention: Intention,
    pub(super) args: SentValue<String>,
    /// The digest of what was approved.
    pub(super) approved_digest: Option<String>,
}

type ReportChannel = (mpsc::Sender<Box<ReportEnvelope>>, mpsc::Receiver<Box<ReportEnvelope>>);

struct ActiveRun {
    run: RunId,
    /// The sandbox of its commands, once it is open.
    sandbox: Option<Arc<dyn RunSandbox>>,
    tasks: JoinSet<Result<(), SessionClosed>>,
    /// The configuration of the run, once its first turn has loaded it.
    run_config: Arc<OnceLock<RunConfig>>,
    /// Interrupts the waits of its turn.
    interrupts: Arc<TurnInterrupts>,
    /// The addresses that host names resolved to when their calls were decided.
    addresses: Arc<PinnedAddresses>,
    /// The state of the run at the circuit breaker of its model's server, once it has sent a request.
    admission: Option<Arc<RunAdmission>>,
}

impl RunTasks {
    pub(super) const fn new(session: SessionId, services: Arc<Services>) -> Self {
        let user_commands = UserCommands::new();
        Self { session, services, report_channel: None, active: None, user_commands, compaction: None, closed: false }
    }

    /// Waits for the next report; forever if no task runs.
    pub(super) async fn next_report(&mut self) -> Box<ReportEnvelope> {
        let next = match &mut self.report_channel {
            Some((_, inbox)) => inbox.recv().await,
            None => None,
        };
        match next {
            Some(reported) => reported,
            None => std::future::pending().await,
        }
    }

    /// Returns a report that has arrived already.
    pub(super) fn try_next_report(&mut self) -> Option<Box<ReportEnvelope>> {
        self.report_channel.as_mut().and_then(|(_, inbox)| inbox.try_recv().ok())
    }

    /// Drops the report channel to save memory: without a run, nothing reports.
    pub(super) fn release_channel(&mut self) {
        self.report_channel = None;
    }

    /// Starts a turn of the provider.
    pub(super) fn start_turn(
        &mut self,
        turn: SentValue<TurnRequest>,
        run: RunId,
        conversation: ConversationSource,
        workspace_context: WorkspaceContext,
        unredacted: &Unredacted,
        state: &State,
    ) {
        let reports = self.run_reports(run.clone(), unredacted);
        let name = provider_name(state);
        match (turn, self.services.providers.get(name.as_str())) {
            (SentValue::Known(turn), Some(provider)) => {
                let policy = match self.playbook_policy(&run, &turn, workspace_context.run_config, unredacted, state) {
                    Ok(policy) => policy,
                    Err(finish) => {
                        return self.spawn(run, turn_panicked(), async move { reports.finish(*finish).await });
                    }
                };
                let turning: TurnFuture = match self.confined_steps(state) {
                    None => provider.turn(turn, reports.with_step_policy(policy)),
                    Some(asks) => {
                        let provider = Arc::clone(provider);
                        Box::pin(async move {
                            let policy = asks.policy(policy).await;
                            provider.turn(turn, reports.with_step_policy(Some(policy))).await
                        })
                    }
                };
                self.spawn(run, turn_panicked(), turning);
            }
            (SentValue::Known(turn), None) => {
                let read = workspace_context.run_config.clone();
                let tool_context = self.run_tool_context(&run, workspace_context, unredacted, state);
                let (starter, environment) = (unredacted.starter(&run), unredacted.environment(&run));
                let (run_config, interrupts, admission) = {
                    let active = self.active(&run);
                    let admission = active.admission.get_or_insert_with(|| Arc::new(RunAdmission::new(starter)));
                    (Arc::clone(&active.run_config), Arc::clone(&active.interrupts), Arc::clone(admission))
                };
                let run_config = RunConfigSource { cached: run_config, loaded: read };
                let input =
                    self.model_turn_input(&turn.model_choice, tool_context, run_config, interrupts, unredacted, state);
                let input = ModelTurnInput { admission, environment, ..input };
                self.spawn(run, turn_panicked(), model_turn::take_turn(input, turn, conversation, reports));
            }
            (SentValue::Lost, _) => {
                self.spawn(run, turn_panicked(), async move { reports.finish(secret_lost()).await });
            }
        }
    }

    /// Loads the run configuration and opens the workspace, outside the event loop and with a deadline.
    pub(super) async fn load_workspace(
        &self,
        run: Option<&RunId>,
        environment: Option<&Environment>,
        state: &State,
    ) -> LoadedWorkspace {
        let active = self.active.as_ref().filter(|active| Some(&active.run) == run);
        let known = active.and_then(|active| active.run_config.get()).cloned();
        let reach = path_reach(state, run);
        LoadedWorkspace::load(&self.services, known, reach, environment, state).await
    }

    /// Requests the tool call of an acceptance check.
    pub(super) fn request_check(
        &mut self,
        run: RunId,
        index: u32,
        check: SentValue<String>,
        unredacted: &Unredacted,
        state: &State,
    ) {
        let reports = self.run_reports(run.clone(), unredacted);
        // A check whose original command is lost is requested as well: its execution reports the loss.
        let command = match check {
            SentValue::Known(command) => command,
            SentValue::Lost => crate::redact::MARKER.to_owned(),
        };
        let args = serde_json::json!({ "command": command }).to_string();
        let asks = self.confined_steps(state);
        let call = async move {
            let reports = match asks {
                Some(asks) => reports.with_step_policy(Some(asks.policy(None).await)),
                None => reports,
            };
            reports.request_call(tools::EXEC, args, Purpose::Check(index), None).await
        };
        self.spawn(run, turn_panicked(), call);
    }

    /// Executes a tool call.
    pub(super) fn execute(
        &mut self,
        run: RunId,
        PreparedCall { intention, args, approved_digest }: PreparedCall,
        workspace_context: WorkspaceContext,
        unredacted: &Unredacted,
        state: &State,
    ) {
        if self.closed {
            return;
        }
        let reports = self.run_reports(run.clone(), unredacted);
        let tool_context = self.run_tool_context(&run, workspace_context, unredacted, state);
        let job = ToolJob { intention, args, approved_digest, tool_context, services: Arc::clone(&self.services) };
        let broken = Report::CallSettled(Box::new(panicked_call(&job.intention)));
        self.spawn(run, broken, execute::execute(job, reports));
    }

    /// Stores a granted rule of the session's repository; a failure is reported to the run.
    pub(super) fn store_grant(&mut self, rule: String, by: String, run: Option<RunId>, cwd: PathBuf) {
        let (grants, at) = (Arc::clone(&self.services.grants), self.services.clock.now());
        let files = self.services.files.clone();
        let way_back = run.map(|run| (run, self.sender()));
        tokio::spawn(async move {
            let tool_context = cwd.clone();
            let keep = move || grants.add(&grants::find_repository(&cwd), rule, by, at);
            let failed = match files.run_in(&tool_context, keep).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(why) => why.to_string(),
            };
            tracing::warn!(error = %failed, "cannot store a remembered approval");
            if let Some((run, sender)) = way_back {
                let (code, message) =
                    ("APPROVAL_NOT_STORED".to_owned(), format!("the approval applies once only: {failed}"));
                let report = Report::Warned { code, message, detail: None };
                // The lane may have ended; then the report is not needed.
                let _ = sender.send(Box::new(ReportEnvelope::new(ReportOwner::Run(run), report))).await;
            }
        });
    }

    /// Stops all tasks and processes of a run, and reports when none is left.
    pub(super) fn stop_run(&mut self, run: RunId) {
        let reports = self.sender();
        let limit = Duration::from_millis(self.services.limits.session.stop_millis);
        let active = self.active.take_if(|active| active.run == run);
        if let Some(sandbox) = active.as_ref().and_then(|active| active.sandbox.as_ref()) {
            sandbox.kill_now();
        }
        tokio::spawn(async move {
            let mut left = None;
            if let Some(mut active) = active {
                active.tasks.abort_all();
                if let Some(sandbox) = active.sandbox {
                    left = sandbox.stop(limit).await.err().map(|left| left.to_string());
                }
            }
            let report = Report::Stopped { survivors: left };
            // The lane may have ended; then the report is not needed.
            let _ = reports.send(Box::new(ReportEnvelope::new(ReportOwner::Run(run), report))).await;
        });
    }

    /// Stops all tasks and processes and waits for their end; returns what could not be stopped. Nothing starts
    /// afterwards.
    ///
    /// Tasks end before processes: a result that a tool has reported by then is genuine, and a tool that is killed
    /// here reports nothing.
    pub(super) async fn stop_all(&mut self) -> Option<String> {
        self.closed = true;
        let limit = Duration::from_millis(self.services.limits.session.stop_millis);
        // The processes are killed even if a task does not return in time.
        let _ = timeout(limit, self.abort_tasks()).await;
        if let Some(sandbox) = self.active.as_ref().and_then(|active| active.sandbox.as_ref()) {
            sandbox.kill_now();
        }
        let unstopped = self.stop_user_commands().await;
        let Some(ActiveRun { run, sandbox: Some(sandbox), .. }) = self.active.take() else { return unstopped };
        let Err(left) = sandbox.stop(limit).await else { return unstopped };
        tracing::warn!(session = %self.session, %run, %left, "processes could not be stopped");
        Some(left.to_string())
    }

    /// Aborts every task and waits until all have ended.
    async fn abort_tasks(&mut self) {
        self.active.iter_mut().for_each(|active| active.tasks.abort_all());
        self.abort_user_commands().await;
        if let Some(active) = &mut self.active {
            active.tasks.shutdown().await;
        }
    }

    /// Returns the input of a model turn.
    pub(super) fn model_turn_input(
        &self,
        model_choice: &ModelChoice,
        tool_context: ToolContextBuilder,
        run_config: RunConfigSource,
        interrupts: Arc<TurnInterrupts>,
        unredacted: &Unredacted,
        state: &State,
    ) -> ModelTurnInput {
        ModelTurnInput {
            services: Arc::clone(&self.services),
            session: self.session.clone(),
            model_choice: model_choice.clone(),
            branch: branch_of(state),
            tool_context,
            sandbox: confinement::session_choice(state.opening.as_ref()),
            run_config,
            interrupts,
            admission: Arc::new(RunAdmission::new(Starter::Person)),
            environment: unredacted.latest_environment(),
            environment_updates: unredacted.environment_updates(),
            pending_args: unredacted.pending_args().to_vec(),
            secrets: unredacted.secrets().clone(),
        }
    }

    /// Returns the tool context of a run.
    fn run_tool_context(
        &mut self,
        run: &RunId,
        workspace_context: WorkspaceContext,
        unredacted: &Unredacted,
        state: &State,
    ) -> ToolContextBuilder {
        let (sandbox, addresses) = {
            let active = self.active(run);
            (active.sandbox.clone(), Arc::clone(&active.addresses))
        };
        let tool_context = ToolContextBuilder {
            addresses,
            ..self.tool_context(Some(run), unredacted.program_environment(Some(run)), workspace_context, sandbox, state)
        };
        // A sandbox without an identified workspace is not reused once the workspace can be opened.
        if tool_context.workspace.is_ok() {
            self.active(run).sandbox = Some(Arc::clone(&tool_context.sandbox));
        }
        tool_context
    }

    pub(super) fn sender(&mut self) -> mpsc::Sender<Box<ReportEnvelope>> {
        let capacity = self.services.limits.reports;
        self.report_channel.get_or_insert_with(|| mpsc::channel(capacity)).0.clone()
    }

    fn run_reports(&mut self, run: RunId, unredacted: &Unredacted) -> ReportSender {
        self.reports_for(ReportOwner::Run(run), unredacted)
    }

    pub(super) fn reports_for(&mut self, owner: ReportOwner, unredacted: &Unredacted) -> ReportSender {
        ReportSender::new(owner, self.sender(), unredacted.secrets().redactor(), IDS)
    }

    /// Returns whether no new task may start.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the shared services and the session id.
    pub(super) const fn services_and_session(&self) -> (&Arc<Services>, &SessionId) {
        (&self.services, &self.session)
    }

    /// Returns the interrupts of a run's turn.
    pub(super) fn interrupts_of(&self, run: &RunId) -> Option<Arc<TurnInterrupts>> {
        let active = self.active.as_ref().filter(|active| active.run == *run)?;
        Some(Arc::clone(&active.interrupts))
    }

    fn active(&mut self, run: &RunId) -> &mut ActiveRun {
        let stale = self.active.as_ref().is_some_and(|active| active.run != *run);
        if stale {
            self.active = None;
        }
        self.active.get_or_insert_with(|| ActiveRun {
            run: run.clone(),
            sandbox: None,
            tasks: JoinSet::new(),
            run_config: Arc::default(),
            interrupts: Arc::default(),
            addresses: Arc::new(PinnedAddresses::with_system_resolver()),
            admission: None,
        })
    }

    /// Returns a guard that sends a report if the task that holds it panics.
    pub(super) fn panic_reporter(&mut self, reported: ReportEnvelope) -> PanicReporter {
        PanicReporter::new(self.sender(), reported)
    }

    /// Spawns a task of a run; `broken` is reported if it panics.
    fn spawn(
        &mut self,
        run: RunId,
        broken: Report,
        task: impl Future<Output = Result<(), SessionClosed>> + Send + 'static,
    ) {
        if self.closed {
            return;
        }
        let if_broken = self.panic_reporter(ReportEnvelope::new(ReportOwner::Run(run.clone()), broken));
        let task = async move {
            let _if_broken = if_broken;
            task.await
        };
        let span = debug_span!("work", session = %self.session, %run);
        let active = self.active(&run);
        while active.tasks.try_join_next().is_some() {}
        active.tasks.spawn(task.instrument(span));
    }

    /// Returns what makes the commands of a message ask, if somebody other than the owner has sent it.
    fn confined_steps(&self, state: &State) -> Option<ConfinedSteps> {
        state.run.as_ref().filter(|run| run.is_confined())?;
        Some(ConfinedSteps {
            services: Arc::clone(&self.services),
            sandbox: confinement::session_choice(state.opening.as_ref()),
            workspace: workspace_path(state),
        })
    }

    /// Creates the policy that checks the steps of a playbook against the rules; fails if the configuration is invalid.
    fn playbook_policy(
        &self,
        run: &RunId,
        turn: &TurnRequest,
        run_config: Result<RunConfig, String>,
        unredacted: &Unredacted,
        state: &State,
    ) -> Result<Option<StepPolicy>, Box<FinishReport>> {
        let run_config =
            run_config.map_err(|why| Box::new(FinishReport::permanent_failure("INVALID_CONFIGURATION", why)))?;
        let environment = unredacted.program_environment(Some(run));
        let path_context = risk::PathContext::new(&workspace_path(state), home_directory(environment.as_deref()));
        let path_context = path_context.with_alias(&session_cwd(state));
        Ok(call_policy::step_policy(&run_config, &turn.rules, path_context, self.services.tools.clone()))
    }
}

/// Returns the provider: the active run keeps the one it started with.
pub(super) fn provider_name(state: &State) -> String {
    state.run.as_ref().map_or_else(|| state.model_choice().provider, |run| run.model_choice.provider.clone())
}

fn secret_lost() -> FinishReport {
    let message = "the message contained a secret, which is not stored across a restart; send the message again";
    FinishReport::permanent_failure("SECRET_NOT_STORED", message)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc::channel;
    use std::task::{Context, Waker};

    use super::*;
    use crate::config::limits::Limits;
    use crate::kernel::id::{CallId, Json};
    use crate::runtime::test_daemon::TestDaemon;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_result_of_a_tool_that_exits_during_shutdown_is_kept() {
        let mut limits = Limits::default();
        // A busy machine may need more time.
        limits.session.stop_millis = 60_000;
        let (daemon, _disk) = TestDaemon::on_test_disk_with(limits);
        let services = Arc::clone(daemon.server.hub().services());
        let mut tasks = RunTasks::new(SessionId::from("s".to_owned()), services);
        let run = RunId::from("r".to_owned());
        let reports = tasks.run_reports(run.clone(), &Unredacted::default());
        let intention = Intention {
            call: CallId::from("c".to_owned()),
            tool: tools::EXEC.to_owned(),
            args: Json::new("{}".to_owned()),
            purpose: Purpose::Work,
        };
        let (begin, begun) = channel();
        let (exit, exited) = channel::<()>();
        let task = async move {
            begin.send(()).unwrap();
            // The task is running on its thread when it is aborted.
            exited.recv().unwrap();
            reports.send(Report::CallSettled(Box::new(panicked_call(&intention)))).await
        };
        tasks.spawn(run, turn_panicked(), task);
        begun.recv().unwrap();
        {
            let mut ending = pin!(tasks.stop_all());
            let polled = ending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "it must wait for the task");
            exit.send(()).unwrap();
            assert_eq!(ending.await, None);
        }
        let reported = tasks.try_next_report().expect("the result");
        assert!(matches!(reported.report, Report::CallSettled(_)), "{reported:?}");
        daemon.close().await;
    }
}
