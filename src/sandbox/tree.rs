//! All processes of one run, seen from the daemon.
//!
//! Each step has its keeper; a keeper lives on after its step while background processes of it do. Nothing here
//! signals a process: the order to end goes to the keepers, who own the processes, and their word that nothing is
//! left is waited for.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::caches::CacheStore;
use super::confine::toolchain::Cache;
use super::confine::{Confinement, TEMP, Walls, Way, hint, system_credentials};
use super::ground::FileId;
use super::lineage::Author;
use super::local::Local;
use super::message::{self, Conditions, Standing};
use super::os::{self, Spawned};
use super::pending_checks::PendingCheck;
use super::provider::{Doing, Room, Terms};
use super::pump;
use super::repository;
use super::scratch::Scratch;
use super::step::{Chunk, Left, Step, StepEnd, StepError};
use super::supervised::{Company, GRACE, Kept, Unfinished};
use crate::bounded_io::{FileTasks, NoAnswer};

/// The threads on which steps are prepared that look at files.
static FILES: LazyLock<FileTasks> = LazyLock::new(|| FileTasks::new(32, Duration::from_secs(10)));

/// All processes of one run; handles are cloned, and when the last is dropped everything is ended.
#[derive(Clone)]
pub struct RunTree {
    trunk: Arc<Trunk>,
}

impl RunTree {
    /// A run of the user's own commands that has no process yet.
    pub fn new(local: Local) -> Self {
        Self::on(local, Terms::User)
    }

    /// A run that has no process yet.
    pub fn on(local: Local, terms: Terms) -> Self {
        let (stopped, kept) = (watch::Sender::new(false), Mutex::default());
        Self {
            trunk: Arc::new(Trunk {
                local,
                terms,
                stopped,
                kept,
                scratch: Mutex::default(),
                caches: Mutex::default(),
            }),
        }
    }

    /// Runs one step and returns when its shell has left and its output has been passed on.
    ///
    /// Output goes to `out` as it comes; while `out` is full the step waits. Background processes of a step without walls live
    /// on, unheard, until the run is stopped; those behind walls end with it. A future that is dropped ends its step, and
    /// everything it started.
    pub async fn run(&self, step: Step, out: mpsc::Sender<Chunk>) -> Result<StepEnd, StepError> {
        self.run_and_look(step, out).await.map(|(end, _)| end)
    }

    /// Runs one step, and says which walls stood around it.
    pub(super) async fn run_and_look(
        &self,
        mut step: Step,
        out: mpsc::Sender<Chunk>,
    ) -> Result<(StepEnd, Option<Standing>), StepError> {
        let mut stopped = self.trunk.stopped.subscribe();
        let walls = tokio::select! {
            biased;
            () = pump::set(&mut stopped) => return Ok((StepEnd::Stopped, None)),
            walls = self.trunk.walls(&mut step) => walls?,
        };
        let local = &self.trunk.local;
        let conditions = Conditions {
            cgroups: local.cgroups(),
            descriptors: local.descriptors(),
            workspace: self.trunk.workspace(),
            walls: walls.as_ref(),
        };
        let order = message::order(&step, conditions)?;
        let path = local.keeper();
        let spawned = local.spawner().spawn(path, step.outputs).await;
        let spawned = spawned.map_err(|source| StepError::Keeper { path: path.to_path_buf(), source })?;
        let company = self.trunk.company(&spawned);
        let (kept, outputs) = Kept::attend(spawned, company);
        let unfinished = Unfinished(&kept);
        self.trunk.hold(&kept);
        let end = tokio::select! {
            biased;
            () = pump::set(&mut stopped) => {
                kept.gone_within(GRACE).await;
                return Ok((StepEnd::Stopped, None));
            }
            end = kept.follow(&order, step.time_limit, outputs, &out) => end,
        };
        let end = end.map_err(|lost| lost.into_error(step.cwd))?;
        unfinished.settle();
        let standing = kept.seen.borrow().standing;
        Ok((end, standing))
    }

    /// Ends everything of this run and waits until nothing is left, for at most `limit`.
    ///
    /// It may be called at any time, from any task, and again. Steps that run return [`StepEnd::Stopped`].
    pub async fn stop(&self, limit: Duration) -> Result<(), Left> {
        self.kill_now();
        let kept = self.trunk.kept().clone();
        let all = async {
            for kept in &kept {
                kept.gone().await;
            }
        };
        let _late = timeout(limit, all).await;
        let left = self.trunk.forget_gone().iter().map(|kept| kept.pid).collect::<Vec<_>>();
        if left.is_empty() { Ok(()) } else { Err(Left { keepers: left }) }
    }

    /// Orders everything of this run to be ended, without waiting; no later step is started.
    pub fn kill_now(&self) {
        self.trunk.end();
    }
}

impl Room for RunTree {
    fn run(&self, step: Step, out: mpsc::Sender<Chunk>) -> Doing<'_, Result<StepEnd, StepError>> {
        Box::pin(Self::run(self, step, out))
    }

    fn hints<'a>(
        &'a self,
        command: &'a str,
        home: Option<&'a Path>,
        printed: &'a str,
    ) -> Doing<'a, Vec<String>> {
        Box::pin(async move {
            match (&self.trunk.terms, self.trunk.local.way().await) {
                (Terms::Model(confinement), Some(_)) => hint::notes(confinement, home, command, printed),
                (Terms::Model(_), None) | (Terms::User, _) => Vec::new(),
            }
        })
    }

    fn way(&self) -> Doing<'_, Option<Way>> {
        Box::pin(async {
            match self.trunk.terms {
                Terms::Model(_) => self.trunk.local.way().await,
                Terms::User => None,
            }
        })
    }

    fn begin_check(&self) -> PendingCheck {
        self.trunk.local.pending_checks().begin()
    }

    fn stop(&self, limit: Duration) -> Doing<'_, Result<(), Left>> {
        Box::pin(Self::stop(self, limit))
    }

    fn kill_now(&self) {
        Self::kill_now(self);
    }
}

/// What the handles of a run share.
struct Trunk {
    local: Local,
    terms: Terms,
    stopped: watch::Sender<bool>,
    kept: Mutex<Vec<Arc<Kept>>>,
    /// The run's own directory, once a step needs one.
    scratch: Mutex<Option<Arc<Scratch>>>,
    /// The private caches of the workspace, once a step needs them.
    caches: Mutex<Option<CacheStore>>,
}

/// Variables of an environment.
type Variables = Vec<(OsString, OsString)>;

impl Trunk {
    /// Says what is to stand around a step, and takes out of its environment what does not belong there.
    async fn walls(self: &Arc<Self>, step: &mut Step) -> Result<Option<Walls>, StepError> {
        let confinement = match &self.terms {
            Terms::User => return Ok(None),
            Terms::Model(_) if step.leave.outside => return Ok(None),
            Terms::Model(confinement) => confinement,
        };
        let Some(way) = self.local.way().await else { return Ok(None) };
        let scratch = self.scratch()?;
        let mut walls = confinement.walls(way, scratch.path(), &step.leave);
        let trunk = Arc::clone(self);
        // The workspace may lie on a mount that hangs.
        let prepared = FILES.run_in(&confinement.workspace, move || {
            let variables = trunk.prepare(&mut walls)?;
            Ok((walls, variables))
        });
        let late = |why: NoAnswer| StepError::Walls {
            what: "the workspace does not answer",
            source: Some(io::Error::other(why)),
        };
        let (walls, variables) = prepared.await.map_err(late)??;
        let temp = match way {
            Way::Bubblewrap | Way::Namespaces => Path::new(TEMP),
            Way::Rules => &walls.temp,
        };
        step.env = confinement.environment(&step.env, temp);
        step.env.retain(|(name, _)| !variables.iter().any(|(known, _)| known == name));
        step.env.extend(variables);
        Ok(Some(walls))
    }

    /// The workspace of a model's commands, confined or not, where it is known which directory that is.
    fn workspace(&self) -> Option<(&Path, FileId)> {
        match &self.terms {
            Terms::User => None,
            Terms::Model(terms) => Some((&terms.workspace, terms.workspace_id?)),
        }
    }

    /// Looks for what the confinement needs to know of files; it blocks, and returns variables for the step.
    fn prepare(&self, walls: &mut Walls) -> Result<Variables, StepError> {
        let Terms::Model(terms) = &self.terms else { return Ok(Vec::new()) };
        // What the step could not read anyway takes no mount.
        walls.hidden.extend(system_credentials().into_iter().filter(|path| os::may_read(path)));
        walls.opened.extend(repository::directories_outside(&terms.workspace, &terms.writable, &terms.homes));
        self.private_caches(terms, walls)
    }

    /// Gives a step private copies of caches; returns the variables that lead to them where nothing can be mounted.
    fn private_caches(&self, terms: &Confinement, walls: &mut Walls) -> Result<Variables, StepError> {
        let Some(root) = terms.cache_root.as_deref().filter(|_| !terms.caches.is_empty()) else {
            return Ok(Vec::new());
        };
        if !terms.workspace.is_dir() {
            // Who builds the view says what is wrong with it.
            return Ok(Vec::new());
        }
        let what = "its private caches cannot be made";
        let failed = |source| StepError::Walls { what, source: Some(source) };
        let mut store = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let store = match &*store {
            Some(store) => store,
            None => {
                self.local.sweep_caches_daily(root);
                store.insert(CacheStore::open(root, &terms.workspace).map_err(failed)?)
            }
        };
        walls.cache_store = store.path().to_owned();
        let is_written = |cache: &Cache| terms.writable.iter().any(|place| cache.path.starts_with(place));
        walls.caches = terms.caches.iter().filter(|cache| !is_written(cache)).cloned().collect();
        match walls.way {
            Way::Bubblewrap | Way::Namespaces => Ok(Vec::new()),
            Way::Rules => store.variables(&walls.caches).map_err(failed),
        }
    }

    fn scratch(&self) -> Result<Arc<Scratch>, StepError> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scratch) = &*scratch {
            return Ok(Arc::clone(scratch));
        }
        let made = Scratch::make(self.local.scratch_root(), self.local.remover());
        let what = "its temporary directory cannot be made";
        let made = made.map_err(|source| StepError::Walls { what, source: Some(source) })?;
        Ok(Arc::clone(scratch.insert(Arc::new(made))))
    }

    /// What a keeper keeps for as long as it lives.
    fn company(&self, spawned: &Spawned) -> Company {
        let author = match self.terms {
            Terms::User => Author::User,
            Terms::Model(_) => Author::Model,
        };
        let entered = self.local.lineage().enter(spawned.pid, spawned.born, author);
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Company { _entered: entered, _scratch: scratch }
    }

    /// Takes a keeper in, and forgets those which are gone.
    fn hold(&self, new: &Arc<Kept>) {
        let mut kept = self.forget_gone();
        kept.push(Arc::clone(new));
        // A stop that came while the keeper was started has not seen it.
        if *self.stopped.borrow() {
            new.end();
        }
    }

    /// Lets go of the keepers that are gone; the others are given back.
    fn forget_gone(&self) -> MutexGuard<'_, Vec<Arc<Kept>>> {
        let mut kept = self.kept();
        kept.retain(|kept| !kept.is_gone());
        kept
    }

    fn end(&self) {
        // The mark comes first: whoever sees a step end by our signal sees that we gave it.
        self.stopped.send_replace(true);
        for kept in self.kept().iter() {
            kept.end();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Arc<Kept>>> {
        // The list is whole between any two statements, so a panic elsewhere does not spoil it.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        self.end();
    }
}
