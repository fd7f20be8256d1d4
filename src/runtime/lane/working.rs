//! What the active run has under way: the provider's turn, tools, and all processes.

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
use super::place::{Around, LookedAround, Place, cwd_of, home_of, place_of, reach};
use crate::config::settings::Settings;
use crate::kernel::effect::{Finish, Report, Turn, Voice};
use crate::kernel::event::{Ending, Fault, Intention, Purpose, Settlement};
use crate::kernel::id::{Json, RunId, SessionId};
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

/// The work of a lane.
pub(super) struct Work {
    session: SessionId,
    world: Arc<World>,
    /// The way back from whatever is under way; there is none in a session that rests.
    way_back: Option<WayBack>,
    active: Option<Active>,
    /// Tools that are used for the user.
    pub(super) asides: Asides,
    /// The summary that somebody asked for.
    pub(super) compaction: Option<JoinHandle<()>>,
    closed: bool,
}

/// A use of a tool that may begin.
pub(super) struct Use {
    pub(super) intention: Intention,
    pub(super) args: Whole<String>,
    /// What exactly was approved, as a digest.
    pub(super) bound: Option<String>,
}

type WayBack = (mpsc::Sender<Box<Reported>>, mpsc::Receiver<Box<Reported>>);

struct Active {
    run: RunId,
    /// Where its commands run, once there is one.
    room: Option<Arc<dyn Room>>,
    tasks: JoinSet<Result<(), Gone>>,
    /// What holds for the run, once its first turn has looked.
    rules: Arc<OnceLock<Rules>>,
    /// How its turn is told to stop waiting.
    halts: Arc<Halts>,
    /// What names of machines led to when it was decided about them.
    addresses: Arc<Addresses>,
    /// How it stands with the circuit breaker of its model's server, once it has asked.
    admission: Option<Arc<RunAdmission>>,
}

impl Work {
    pub(super) const fn new(session: SessionId, world: Arc<World>) -> Self {
        let asides = Asides::new();
        Self { session, world, way_back: None, active: None, asides, compaction: None, closed: false }
    }

    /// Waits for the next report; for ever when nothing is under way.
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

    /// Gives the memory of the way back free: without a run, nobody has anything to report.
    pub(super) fn rest(&mut self) {
        self.way_back = None;
    }

    /// Gives the provider its turn.
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
                let read = around.rules.clone();
                let place = self.place(&run, around, memory, state);
                let starter = memory.starter(&run);
                let (rules, halts, admission) = {
                    let active = self.active(&run);
                    let admission =
                        active.admission.get_or_insert_with(|| Arc::new(RunAdmission::new(starter)));
                    (Arc::clone(&active.rules), Arc::clone(&active.halts), Arc::clone(admission))
                };
                let rules = RulesOfRun { known: rules, read };
                let asking = self.asking(&turn.voice, place, rules, halts, memory, state);
                let asking = Asking { admission, ..asking };
                self.spawn(run, broken(), modelling::take_turn(asking, turn, reports));
            }
            (Whole::Forgotten, _) => {
                self.spawn(run, broken(), async move { reports.finish(forgotten()).await });
            }
        }
    }

    /// Looks at what the project says and opens the workspace, off the loop and with a deadline.
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

    /// Intends the tool call of an acceptance check.
    pub(super) fn check(&mut self, run: RunId, index: u32, check: Whole<String>, memory: &Memory) {
        let reports = self.reports(run.clone(), memory);
        // A check that was forgotten is intended all the same: its execution then says so.
        let command = match check {
            Whole::Known(command) => command,
            Whole::Forgotten => crate::redact::MARKER.to_owned(),
        };
        let args = serde_json::json!({ "command": command }).to_string();
        let call = async move { reports.call(tools::EXEC, args, Purpose::Check(index), None).await };
        self.spawn(run, broken(), call);
    }

    /// Uses a tool.
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

    /// Remembers what may go ahead unasked in the repository of the session; a run hears if that fails.
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
            tracing::warn!(error = %failed, "an approval cannot be remembered");
            if let Some((run, sender)) = way_back {
                let (code, message) =
                    ("APPROVAL_NOT_KEPT".to_owned(), format!("it holds once only: {failed}"));
                let report = Report::Warned { code, message, detail: None };
                // The lane may have ended; then nobody needs to know.
                let _ = sender.send(Box::new(Reported::new(Whose::Run(run), report))).await;
            }
        });
    }

    /// Ends everything of a run at once, and reports when nothing is left.
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
            // The lane may have ended; then nobody needs to know.
            let _ = reports.send(Box::new(Reported::new(Whose::Run(run), report))).await;
        });
    }

    /// Ends everything and waits until nothing is left; returns what could not be ended. Nothing is started any more.
    ///
    /// The tasks end before the processes: what a tool has reported by then is its own result, and one that is killed
    /// here reports nothing.
    pub(super) async fn end(&mut self) -> Option<String> {
        self.closed = true;
        let limit = Duration::from_millis(self.world.limits.session.stop_millis);
        // The processes are killed also if a task does not return in time.
        let _ = timeout(limit, self.end_tasks()).await;
        if let Some(room) = self.active.as_ref().and_then(|active| active.room.as_ref()) {
            room.kill_now();
        }
        let beside = self.end_beside().await;
        let Some(Active { run, room: Some(room), .. }) = self.active.take() else { return beside };
        let Err(left) = room.stop(limit).await else { return beside };
        tracing::warn!(session = %self.session, %run, %left, "processes are left");
        Some(left.to_string())
    }

    /// Aborts every task and waits until none runs any more.
    async fn end_tasks(&mut self) {
        self.active.iter_mut().for_each(|active| active.tasks.abort_all());
        self.end_tasks_beside().await;
        if let Some(active) = &mut self.active {
            active.tasks.shutdown().await;
        }
    }

    /// Who is asked where a model answers.
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
            branch: opening.and_then(|opening| branch(opening.repo.as_ref()?)),
            place,
            sandbox: walls::chosen(opening),
            rules,
            halts,
            admission: Arc::new(RunAdmission::new(Starter::Person)),
            brought: memory.brought(),
            waiting: memory.waiting().to_vec(),
            hidden: memory.hidden().clone(),
        }
    }

    /// Where the tools of a run work.
    fn place(&mut self, run: &RunId, around: Around, memory: &Memory, state: &State) -> Place {
        let (room, addresses) = {
            let active = self.active(run);
            (active.room.clone(), Arc::clone(&active.addresses))
        };
        let place = Place { addresses, ..self.place_of(memory.environment(run), around, room, state) };
        // One that was made without a workspace to compare with is not kept for a time when there is one.
        if place.ground.is_ok() {
            self.active(run).room = Some(Arc::clone(&place.tree));
        }
        place
    }

    /// Where tools work for somebody who has this environment, in a room of their own unless there is one.
    ///
    /// A configuration that cannot be read allows nothing, and confines as one that says nothing.
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

    /// Opens a room for commands: the user's own are free, a model's are confined as its session says.
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

    /// What the commands and tools of a model may reach.
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

    /// Tells whether nothing is begun any more.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the world and the session.
    pub(super) const fn around(&self) -> (&Arc<World>, &SessionId) {
        (&self.world, &self.session)
    }

    /// Returns how the turn of a run is told to stop waiting.
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

    /// Sees to it that something is reported if the task that holds this panics.
    pub(super) fn if_broken(&mut self, reported: Reported) -> IfBroken {
        IfBroken::new(self.sender(), reported)
    }

    /// Does something for a run; `broken` is reported if it panics.
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
    let finish = Finish::for_good("INTERNAL_ERROR", "the daemon failed in a turn of the run");
    Report::Finished(Box::new(finish))
}

pub(super) fn broken_call(intention: &Intention) -> Settlement {
    let message = "the daemon failed while the tool was used".to_owned();
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

/// Holds what a playbook wants against the rules; without a configuration that can be read it does nothing.
fn screen(
    run: &RunId,
    turn: &Turn,
    rules: Result<Rules, String>,
    memory: &Memory,
    state: &State,
) -> Result<Option<Screen>, Box<Finish>> {
    let rules = rules.map_err(|why| Box::new(Finish::for_good("INVALID_CONFIGURATION", why)))?;
    let environment = memory.environment(run);
    let place = judge::Place::new(&place_of(state), home_of(environment.as_deref()));
    Ok(deciding::screen(&rules, &turn.rules, place.also_named(&cwd_of(state))))
}

/// Returns who answers: in the active run whoever did when it began.
fn answerer(state: &State) -> String {
    state.run.as_ref().map_or_else(|| state.voice().provider, |run| run.voice.provider.clone())
}

/// Reads the branch from what a client said of its repository.
fn branch(repo: &Json) -> Option<String> {
    let repo: serde_json::Value = serde_json::from_str(repo.as_str()).ok()?;
    repo.get("currentBranch")?.as_str().map(str::to_owned)
}

fn forgotten() -> Finish {
    let message = "the message held a secret, which is not kept over a restart; send it again";
    Finish::for_good("SECRET_NOT_KEPT", message)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc::channel;
    use std::task::{Context, Waker};

    use super::*;
    use crate::config::limits::Limits;
    use crate::kernel::id::CallId;
    use crate::runtime::test_daemon::TestDaemon;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_result_of_a_tool_that_exits_while_the_work_is_ended_is_kept() {
        let mut limits = Limits::default();
        // A busy machine may take its time.
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
            // The task is at work on its thread when it is aborted.
            exited.recv().unwrap();
            reports.send(Report::Settled(Box::new(broken_call(&intention)))).await
        };
        work.spawn(run, broken(), task);
        begun.recv().unwrap();
        {
            let mut ending = pin!(work.end());
            let polled = ending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "it does not wait for the task");
            exit.send(()).unwrap();
            assert_eq!(ending.await, None);
        }
        let reported = work.has_reported().expect("the result");
        assert!(matches!(reported.report, Report::Settled(_)), "{reported:?}");
        daemon.close().await;
    }
}
