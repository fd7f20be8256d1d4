//! The tasks of the active run: the turn of its provider, its tools, and all their processes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tracing::{Instrument, debug_span};

use super::aside::{Asides, Halts};
use super::deciding;
use super::execute::{self, Job};
use super::memory::{Memory, Whole};
use super::modelling::{self, Asking, RulesOfRun};
use super::panic_report::IfBroken;
use super::place::{Around, LookedAround, Place, branch_of, cwd_of, home_of, place_of, reach};
use crate::config::settings::Settings;
use crate::kernel::effect::{Finish, Report, Turn, Voice};
use crate::kernel::event::{Ending, Fault, Intention, Purpose, Settlement};
use crate::kernel::id::{RunId, SessionId};
use crate::kernel::state::State;
use crate::protocol::push::decode::Environment;
use crate::provider::{Gone, Mint, Reported, Reports, RunAdmission, Screen, Starter, Whose, playbook};
use crate::runtime::grants;
use crate::runtime::mint;
use crate::runtime::models::Rules;
use crate::runtime::walls;
use crate::runtime::world::World;
use crate::sandbox::confine::Confinement;
use crate::sandbox::ground::{Ground, Reach};
use crate::sandbox::judge;
use crate::sandbox::{Room, SandboxProvider, Terms};
use crate::tools::{self, Addresses, Network};

const MINT: Mint = Mint { call: mint::call, gate: mint::gate, message: mint::assistant_message };

/// The tasks of a lane.
pub(super) struct Work {
    session: SessionId,
    world: Arc<World>,
    /// The channel of reports from tasks; absent in an idle session.
    way_back: Option<WayBack>,
    active: Option<Active>,
    /// The user commands.
    pub(super) asides: Asides,
    /// The compaction that a client requested.
    pub(super) compaction: Option<JoinHandle<()>>,
    closed: bool,
}

/// A tool call that is ready for execution.
pub(super) struct Use {
    pub(super) intention: Intention,
    pub(super) args: Whole<String>,
    /// The digest of what was approved.
    pub(super) bound: Option<String>,
}

type WayBack = (mpsc::Sender<Box<Reported>>, mpsc::Receiver<Box<Reported>>);

struct Active {
    run: RunId,
    /// The sandbox of its commands, once it is open.
    room: Option<Arc<dyn Room>>,
    tasks: JoinSet<Result<(), Gone>>,
    /// The configuration of the run, once its first turn has loaded it.
    rules: Arc<OnceLock<Rules>>,
    /// Interrupts the waits of its turn.
    halts: Arc<Halts>,
    /// The addresses that host names resolved to when their calls were decided.
    addresses: Arc<Addresses>,
    /// The state of the run at the circuit breaker of its model's server, once it has sent a request.
    admission: Option<Arc<RunAdmission>>,
}

impl Work {
    pub(super) const fn new(session: SessionId, world: Arc<World>) -> Self {
        let asides = Asides::new();
        Self { session, world, way_back: None, active: None, asides, compaction: None, closed: false }
    }

    /// Waits for the next report; forever if no task runs.
    pub(super) async fn reported(&mut self) -> Box<Reported> {
        let next = match &mut self.way_back {
            Some((_, inbox)) => inbox.recv().await,
            None => None,
        };
        match next {
            Some(reported) => reported,
            None => std::future::pending().await,
        }
    }

    /// Returns a report that has arrived already.
    pub(super) fn has_reported(&mut self) -> Option<Box<Reported>> {
        self.way_back.as_mut().and_then(|(_, inbox)| inbox.try_recv().ok())
    }

    /// Drops the report channel to save memory: without a run, nothing reports.
    pub(super) fn rest(&mut self) {
        self.way_back = None;
    }

    /// Starts a turn of the provider.
    pub(super) fn turn(
        &mut self,
        turn: Whole<Turn>,
        run: RunId,
        around: Around,
        memory: &Memory,
        state: &State,
    ) {
        let reports = self.reports(run.clone(), memory);
        let name = answerer(state);
        match (turn, self.world.providers.get(name.as_str())) {
            (Whole::Known(turn), Some(provider)) => {
                let screen = match screen(&run, &turn, around.rules, memory, state) {
                    Ok(screen) => screen,
                    Err(finish) => {
                        return self.spawn(run, broken(), async move { reports.finish(*finish).await });
                    }
                };
                let turning = provider.turn(turn, reports.screened(screen));
                self.spawn(run, broken(), turning);
            }
            (Whole::Known(turn), None) => {
                let (read, place) = (around.rules.clone(), self.place(&run, around, memory, state));
                let (starter, environment) = (memory.starter(&run), memory.environment(&run));
                let (rules, halts, admission) = {
                    let active = self.active(&run);
                    let admission =
                        active.admission.get_or_insert_with(|| Arc::new(RunAdmission::new(starter)));
                    (Arc::clone(&active.rules), Arc::clone(&active.halts), Arc::clone(admission))
                };
                let rules = RulesOfRun { known: rules, read };
                let asking = self.asking(&turn.voice, place, rules, halts, memory, state);
                let asking = Asking { admission, environment, ..asking };
                self.spawn(run, broken(), modelling::take_turn(asking, turn, reports));
            }
            (Whole::Forgotten, _) => {
                self.spawn(run, broken(), async move { reports.finish(forgotten()).await });
            }
        }
    }

    /// Loads the run configuration and opens the workspace, outside the event loop and with a deadline.
    pub(super) async fn look_around(
        &self,
        run: Option<&RunId>,
        environment: Option<&Environment>,
        state: &State,
    ) -> LookedAround {
        let active = self.active.as_ref().filter(|active| Some(&active.run) == run);
        let known = active.and_then(|active| active.rules.get()).cloned();
        let reach = reach(answerer(state) == playbook::NAME);
        LookedAround::of(&self.world, known, reach, environment, state).await
    }

    /// Requests the tool call of an acceptance check.
    pub(super) fn check(&mut self, run: RunId, index: u32, check: Whole<String>, memory: &Memory) {
        let reports = self.reports(run.clone(), memory);
        // A check whose original command is lost is requested as well: its execution reports the loss.
        let command = match check {
            Whole::Known(command) => command,
            Whole::Forgotten => crate::redact::MARKER.to_owned(),
        };
        let args = serde_json::json!({ "command": command }).to_string();
        let call = async move { reports.call(tools::EXEC, args, Purpose::Check(index), None).await };
        self.spawn(run, broken(), call);
    }

    /// Executes a tool call.
    pub(super) fn execute(
        &mut self,
        run: RunId,
        Use { intention, args, bound }: Use,
        around: Around,
        memory: &Memory,
        state: &State,
    ) {
        if self.closed {
            return;
        }
        let reports = self.reports(run.clone(), memory);
        let place = self.place(&run, around, memory, state);
        let job = Job { intention, args, bound, place, clock: self.world.clock };
        let broken = Report::Settled(Box::new(broken_call(&job.intention)));
        self.spawn(run, broken, execute::execute(job, reports));
    }

    /// Stores a granted rule of the session's repository; a failure is reported to the run.
    pub(super) fn remember(&mut self, rule: String, by: String, run: Option<RunId>, cwd: PathBuf) {
        let (grants, at) = (Arc::clone(&self.world.grants), self.world.clock.now());
        let files = self.world.files.clone();
        let way_back = run.map(|run| (run, self.sender()));
        tokio::spawn(async move {
            let place = cwd.clone();
            let keep = move || grants.add(&grants::repository(&cwd), rule, by, at);
            let failed = match files.run_in(&place, keep).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(why) => why.to_string(),
            };
            tracing::warn!(error = %failed, "cannot store a remembered approval");
            if let Some((run, sender)) = way_back {
                let (code, message) =
                    ("APPROVAL_NOT_KEPT".to_owned(), format!("the approval applies once only: {failed}"));
                let report = Report::Warned { code, message, detail: None };
                // The lane may have ended; then the report is not needed.
                let _ = sender.send(Box::new(Reported::new(Whose::Run(run), report))).await;
            }
        });
    }

    /// Stops all tasks and processes of a run, and reports when none is left.
    pub(super) fn stop(&mut self, run: RunId) {
        let reports = self.sender();
        let limit = Duration::from_millis(self.world.limits.session.stop_millis);
        let active = self.active.take_if(|active| active.run == run);
        if let Some(room) = active.as_ref().and_then(|active| active.room.as_ref()) {
            room.kill_now();
        }
        tokio::spawn(async move {
            let mut left = None;
            if let Some(mut active) = active {
                active.tasks.abort_all();
                if let Some(room) = active.room {
                    left = room.stop(limit).await.err().map(|left| left.to_string());
                }
            }
            let report = Report::Stopped { left };
            // The lane may have ended; then the report is not needed.
            let _ = reports.send(Box::new(Reported::new(Whose::Run(run), report))).await;
        });
    }

    /// Stops all tasks and processes and waits for their end; returns what could not be stopped. Nothing starts
    /// afterwards.
    ///
    /// Tasks end before processes: a result that a tool has reported by then is genuine, and a tool that is killed
    /// here reports nothing.
    pub(super) async fn end(&mut self) -> Option<String> {
        self.closed = true;
        let limit = Duration::from_millis(self.world.limits.session.stop_millis);
        // The processes are killed even if a task does not return in time.
        let _ = timeout(limit, self.end_tasks()).await;
        if let Some(room) = self.active.as_ref().and_then(|active| active.room.as_ref()) {
            room.kill_now();
        }
        let beside = self.end_beside().await;
        let Some(Active { run, room: Some(room), .. }) = self.active.take() else { return beside };
        let Err(left) = room.stop(limit).await else { return beside };
        tracing::warn!(session = %self.session, %run, %left, "processes could not be stopped");
        Some(left.to_string())
    }

    /// Aborts every task and waits until all have ended.
    async fn end_tasks(&mut self) {
        self.active.iter_mut().for_each(|active| active.tasks.abort_all());
        self.end_tasks_beside().await;
        if let Some(active) = &mut self.active {
            active.tasks.shutdown().await;
        }
    }

    /// Returns the input of a model turn.
    pub(super) fn asking(
        &self,
        voice: &Voice,
        place: Place,
        rules: RulesOfRun,
        halts: Arc<Halts>,
        memory: &Memory,
        state: &State,
    ) -> Asking {
        let opening = state.opening.as_ref();
        Asking {
            world: Arc::clone(&self.world),
            session: self.session.clone(),
            voice: voice.clone(),
            branch: branch_of(state),
            place,
            sandbox: walls::chosen(opening),
            rules,
            halts,
            admission: Arc::new(RunAdmission::new(Starter::Person)),
            environment: memory.latest_environment(),
            brought: memory.brought(),
            waiting: memory.waiting().to_vec(),
            hidden: memory.hidden().clone(),
        }
    }

    /// Returns the tool context of a run.
    fn place(&mut self, run: &RunId, around: Around, memory: &Memory, state: &State) -> Place {
        let (room, addresses) = {
            let active = self.active(run);
            (active.room.clone(), Arc::clone(&active.addresses))
        };
        let place =
            Place { addresses, ..self.place_of(memory.program_environment(Some(run)), around, room, state) };
        // A sandbox without an identified workspace is not reused once the workspace can be opened.
        if place.ground.is_ok() {
            self.active(run).room = Some(Arc::clone(&place.tree));
        }
        place
    }

    /// Returns a tool context with this environment, in the given sandbox or in a new one.
    ///
    /// A configuration that cannot be read allows nothing, and confines like the default one.
    pub(super) fn place_of(
        &self,
        environment: Option<Arc<Environment>>,
        Around { rules, ground }: Around,
        room: Option<Arc<dyn Room>>,
        state: &State,
    ) -> Place {
        let is_playbook = answerer(state) == playbook::NAME;
        let network = rules.as_ref().map_or(Network::Off, Rules::network);
        let settings = rules.map(|rules| rules.settings).unwrap_or_default();
        let writable = self.world.sandboxes.writable(&settings, home_of(environment.as_deref()));
        let tree = room.unwrap_or_else(|| {
            self.room(reach(is_playbook), ground.as_ref().ok(), &settings, state, environment.as_deref())
        });
        Place {
            writable,
            addresses: Arc::new(Addresses::of_system()),
            network: if is_playbook { Network::Off } else { network },
            tree,
            ground,
            cwd: cwd_of(state),
            environment,
            limits: self.world.limits,
        }
    }

    /// Opens a sandbox: commands of users are unconfined, those of a model are confined as the session says.
    fn room(
        &self,
        reach: Reach,
        ground: Option<&Ground>,
        settings: &Settings,
        state: &State,
        environment: Option<&Environment>,
    ) -> Arc<dyn Room> {
        let sandboxes = &self.world.sandboxes;
        match reach {
            Reach::Anywhere => sandboxes.local().open(Terms::User),
            Reach::Workspace => {
                let workspace = ground.map_or_else(|| place_of(state), |ground| ground.path().to_owned());
                let mut confinement = self.confinement(&workspace, settings, environment);
                confinement.workspace_id = ground.and_then(|ground| ground.file_id().ok());
                let terms = Terms::Model(Box::new(confinement));
                sandboxes.provider(walls::chosen(state.opening.as_ref())).open(terms)
            }
        }
    }

    /// Returns what the commands and tools of a model may access.
    fn confinement(&self, cwd: &Path, settings: &Settings, environment: Option<&Environment>) -> Confinement {
        let variable = |name: &str| environment?.variables().get(name).map(OsString::from);
        self.world.sandboxes.confinement(settings, cwd, &variable)
    }

    pub(super) fn sender(&mut self) -> mpsc::Sender<Box<Reported>> {
        let room = self.world.limits.reports;
        self.way_back.get_or_insert_with(|| mpsc::channel(room)).0.clone()
    }

    fn reports(&mut self, run: RunId, memory: &Memory) -> Reports {
        self.reports_of(Whose::Run(run), memory)
    }

    pub(super) fn reports_of(&mut self, whose: Whose, memory: &Memory) -> Reports {
        Reports::new(whose, self.sender(), memory.hidden().redactor(), MINT)
    }

    /// Returns whether no new task may start.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the shared services and the session id.
    pub(super) const fn around(&self) -> (&Arc<World>, &SessionId) {
        (&self.world, &self.session)
    }

    /// Returns the interrupts of a run's turn.
    pub(super) fn halts_of(&self, run: &RunId) -> Option<Arc<Halts>> {
        let active = self.active.as_ref().filter(|active| active.run == *run)?;
        Some(Arc::clone(&active.halts))
    }

    fn active(&mut self, run: &RunId) -> &mut Active {
        let stale = self.active.as_ref().is_some_and(|active| active.run != *run);
        if stale {
            self.active = None;
        }
        self.active.get_or_insert_with(|| Active {
            run: run.clone(),
            room: None,
            tasks: JoinSet::new(),
            rules: Arc::default(),
            halts: Arc::default(),
            addresses: Arc::new(Addresses::of_system()),
            admission: None,
        })
    }

    /// Returns a guard that sends a report if the task that holds it panics.
    pub(super) fn if_broken(&mut self, reported: Reported) -> IfBroken {
        IfBroken::new(self.sender(), reported)
    }

    /// Spawns a task of a run; `broken` is reported if it panics.
    fn spawn(
        &mut self,
        run: RunId,
        broken: Report,
        task: impl Future<Output = Result<(), Gone>> + Send + 'static,
    ) {
        if self.closed {
            return;
        }
        let if_broken = self.if_broken(Reported::new(Whose::Run(run.clone()), broken));
        let task = async move {
            let _if_broken = if_broken;
            task.await
        };
        let span = debug_span!("work", session = %self.session, %run);
        let active = self.active(&run);
        while active.tasks.try_join_next().is_some() {}
        active.tasks.spawn(task.instrument(span));
    }
}

fn broken() -> Report {
    let finish = Finish::for_good("INTERNAL_ERROR", "the daemon panicked in a turn of the run");
    Report::Finished(Box::new(finish))
}

pub(super) fn broken_call(intention: &Intention) -> Settlement {
    let message = "the daemon panicked while the tool was executed".to_owned();
    Settlement {
        call: intention.call.clone(),
        tool: intention.tool.clone(),
        purpose: intention.purpose,
        millis: 0,
        ending: Ending::Failed,
        exit_code: None,
        text: String::new(),
        fault: Some(Fault { kind: "INTERNAL_ERROR".to_owned(), retryable: false, message, detail: None }),
    }
}

/// Creates the screen that checks the steps of a playbook against the rules; fails if the configuration is invalid.
fn screen(
    run: &RunId,
    turn: &Turn,
    rules: Result<Rules, String>,
    memory: &Memory,
    state: &State,
) -> Result<Option<Screen>, Box<Finish>> {
    let rules = rules.map_err(|why| Box::new(Finish::for_good("INVALID_CONFIGURATION", why)))?;
    let environment = memory.program_environment(Some(run));
    let place = judge::Place::new(&place_of(state), home_of(environment.as_deref()));
    Ok(deciding::screen(&rules, &turn.rules, place.also_named(&cwd_of(state))))
}

/// Returns the provider: the active run keeps the one it started with.
fn answerer(state: &State) -> String {
    state.run.as_ref().map_or_else(|| state.voice().provider, |run| run.voice.provider.clone())
}

fn forgotten() -> Finish {
    let message =
        "the message contained a secret, which is not stored across a restart; send the message again";
    Finish::for_good("SECRET_NOT_KEPT", message)
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
    async fn the_result_of_a_tool_that_exits_while_the_work_is_ended_is_kept() {
        let mut limits = Limits::default();
        // A busy machine may need more time.
        limits.session.stop_millis = 60_000;
        let (daemon, _disk) = TestDaemon::on_test_disk_with(limits);
        let world = Arc::clone(daemon.server.hub().world());
        let mut work = Work::new(SessionId::from("s".to_owned()), world);
        let run = RunId::from("r".to_owned());
        let reports = work.reports(run.clone(), &Memory::default());
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
            reports.send(Report::Settled(Box::new(broken_call(&intention)))).await
        };
        work.spawn(run, broken(), task);
        begun.recv().unwrap();
        {
            let mut ending = pin!(work.end());
            let polled = ending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "it must wait for the task");
            exit.send(()).unwrap();
            assert_eq!(ending.await, None);
        }
        let reported = work.has_reported().expect("the result");
        assert!(matches!(reported.report, Report::Settled(_)), "{reported:?}");
        daemon.close().await;
    }
}
