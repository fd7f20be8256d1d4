//! What the active run has under way: the provider's turn, tools, and all processes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{Instrument, debug_span};

use super::aside::{Asides, Halts};
use super::deciding;
use super::execute::{self, Job};
use super::memory::{Memory, Whole};
use super::modelling::{self, Asking};
use super::place::Place;
use crate::adapter::push::decode::Environment;
use crate::config::file::ConfigError;
use crate::config::settings::Settings;
use crate::daemon::grants;
use crate::daemon::mint;
use crate::daemon::models::Rules;
use crate::daemon::walls;
use crate::daemon::world::World;
use crate::kernel::effect::{Finish, Report, Turn, Voice};
use crate::kernel::event::{Ending, Fault, Intention, Opening, Purpose, Settlement};
use crate::kernel::id::{Json, RunId, SessionId};
use crate::kernel::state::State;
use crate::provider::{Gone, Mint, Reported, Reports, Screen, Whose, playbook};
use crate::sandbox::ground::Reach;
use crate::sandbox::tools::{self, Network};
use crate::sandbox::{Room, SandboxProvider, Terms};

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
    pub(super) fn turn(&mut self, turn: Whole<Turn>, run: RunId, memory: &Memory, state: &State) {
        let reports = self.reports(run.clone(), memory);
        let name = answerer(state);
        match (turn, self.world.providers.get(name.as_str())) {
            (Whole::Known(turn), Some(provider)) => {
                let screen = match self.screen(&run, &turn, memory, state) {
                    Ok(screen) => screen,
                    Err(finish) => {
                        return self.spawn(run, broken(), async move { reports.finish(*finish).await });
                    }
                };
                let turning = provider.turn(turn, reports.screened(screen));
                self.spawn(run, broken(), turning);
            }
            (Whole::Known(turn), None) => {
                let place = self.place(&run, memory, state);
                let (rules, halts) = {
                    let active = self.active(&run);
                    (Arc::clone(&active.rules), Arc::clone(&active.halts))
                };
                let asking = self.asking(&turn.voice, place, rules, halts, memory, state);
                self.spawn(run, broken(), modelling::take_turn(asking, turn, reports));
            }
            (Whole::Forgotten, _) => {
                self.spawn(run, broken(), async move { reports.finish(forgotten()).await });
            }
        }
    }

    /// Holds what a playbook wants against the rules; without a configuration that can be read it does nothing.
    fn screen(
        &self,
        run: &RunId,
        turn: &Turn,
        memory: &Memory,
        state: &State,
    ) -> Result<Option<Screen>, Box<Finish>> {
        let cwd = state.opening.as_ref().map_or_else(PathBuf::new, |opening| PathBuf::from(&opening.cwd));
        let unreadable =
            |error: ConfigError| Box::new(Finish::for_good("INVALID_CONFIGURATION", error.to_string()));
        let rules = self.world.house.rules_in(&cwd).map_err(unreadable)?;
        let environment = memory.environment(run);
        let home = environment.as_ref().and_then(|environment| environment.variables().get("HOME"));
        Ok(deciding::screen(&rules, &turn.rules, &cwd, home.map(Path::new)))
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
        memory: &Memory,
        state: &State,
    ) {
        if self.closed {
            return;
        }
        let reports = self.reports(run.clone(), memory);
        let place = self.place(&run, memory, state);
        let job = Job { intention, args, bound, place, clock: self.world.clock };
        let broken = Report::Settled(Box::new(broken_call(&job.intention)));
        self.spawn(run, broken, execute::execute(job, reports));
    }

    /// Remembers what may go ahead unasked in the repository of the session; a run hears if that fails.
    pub(super) fn remember(&mut self, rule: String, by: String, run: Option<RunId>, cwd: PathBuf) {
        let (grants, at) = (Arc::clone(&self.world.grants), self.world.clock.now());
        let way_back = run.map(|run| (run, self.sender()));
        tokio::spawn(async move {
            let keep = move || grants.add(&grants::repository(&cwd), rule, by, at);
            let failed = match tokio::task::spawn_blocking(keep).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the daemon failed while it was written down".to_owned(),
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

    /// Ends everything at once; nothing is started any more.
    pub(super) fn kill(&mut self) {
        self.closed = true;
        self.kill_beside();
        if let Some(active) = &mut self.active {
            if let Some(room) = &active.room {
                room.kill_now();
            }
            active.tasks.abort_all();
        }
    }

    /// Ends everything and waits until nothing is left.
    pub(super) async fn end(&mut self) {
        self.kill();
        self.end_beside().await;
        let Some(Active { run, room: Some(room), .. }) = self.active.take() else { return };
        let limit = Duration::from_millis(self.world.limits.session.stop_millis);
        if let Err(left) = room.stop(limit).await {
            tracing::warn!(session = %self.session, %run, %left, "processes are left");
        }
    }

    /// Who is asked where a model answers.
    pub(super) fn asking(
        &self,
        voice: &Voice,
        place: Place,
        rules: Arc<OnceLock<Rules>>,
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
            brought: memory.brought(),
            waiting: memory.waiting().to_vec(),
            hidden: memory.hidden().clone(),
        }
    }

    /// Where the tools of a run work.
    fn place(&mut self, run: &RunId, memory: &Memory, state: &State) -> Place {
        let (known, room) = {
            let active = self.active(run);
            (active.rules.get().cloned(), active.room.clone())
        };
        let place = self.place_of(memory.environment(run), known, room, state);
        self.active(run).room = Some(Arc::clone(&place.tree));
        place
    }

    /// Where tools work for somebody who has this environment, in a room of their own unless there is one.
    ///
    /// A configuration that cannot be read allows nothing, and confines as one that says nothing.
    pub(super) fn place_of(
        &self,
        environment: Option<Arc<Environment>>,
        known: Option<Rules>,
        room: Option<Arc<dyn Room>>,
        state: &State,
    ) -> Place {
        let opening = state.opening.as_ref();
        // A playbook is its user's own words, which may name any path; a model's stay in the workspace.
        let is_playbook = answerer(state) == playbook::NAME;
        let reach = if is_playbook { Reach::Anywhere } else { Reach::Workspace };
        let cwd = opening.map_or_else(PathBuf::new, |opening| PathBuf::from(&opening.cwd));
        let rules = known.or_else(|| self.world.house.rules_in(&cwd).ok());
        let network = rules.as_ref().map_or(Network::Off, Rules::network);
        let settings = rules.map(|rules| rules.settings).unwrap_or_default();
        let tree = room.unwrap_or_else(|| self.room(reach, &cwd, &settings, opening, environment.as_deref()));
        Place {
            network: if is_playbook { Network::Off } else { network },
            tree,
            reach,
            cwd,
            environment,
            limits: self.world.limits,
        }
    }

    /// Opens a room for commands: the user's own are free, a model's are confined as its session says.
    fn room(
        &self,
        reach: Reach,
        cwd: &Path,
        settings: &Settings,
        opening: Option<&Opening>,
        environment: Option<&Environment>,
    ) -> Arc<dyn Room> {
        let sandboxes = &self.world.sandboxes;
        match reach {
            Reach::Anywhere => sandboxes.local().open(Terms::User),
            Reach::Workspace => {
                let home = environment.and_then(|environment| environment.variables().get("HOME"));
                let terms = sandboxes.terms(settings, cwd, home.map(Path::new));
                sandboxes.provider(walls::chosen(opening)).open(terms)
            }
        }
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
        })
    }

    /// Sees to it that something is reported if the task that holds this panics.
    pub(super) fn if_broken(&mut self, reported: Reported) -> IfBroken {
        IfBroken { reports: self.sender(), reported: Some(Box::new(reported)) }
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

/// Reports for a task that panics, so that nobody waits for it.
pub(super) struct IfBroken {
    reports: mpsc::Sender<Box<Reported>>,
    reported: Option<Box<Reported>>,
}

impl Drop for IfBroken {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(reported) = self.reported.take()
        {
            let reports = self.reports.clone();
            // The lane may have ended; then nobody needs to know.
            tokio::spawn(async move { drop(reports.send(reported).await) });
        }
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
