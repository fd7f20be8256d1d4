//! The daemon's handle of all processes of one run.
//!
//! Each step has its own supervisor, which outlives the step while background processes of the step run. Nothing here
//! signals a process: the supervisors own the processes, receive the request to kill them, and report when none
//! remains.

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

/// The threads that access the file system while a step is prepared.
static FILES: LazyLock<FileTasks> = LazyLock::new(|| FileTasks::new(32, Duration::from_secs(10)));

/// All processes of one run; handles can be cloned, and dropping the last one kills all processes.
#[derive(Clone)]
pub struct RunTree {
    trunk: Arc<Trunk>,
}

impl RunTree {
    /// Creates a run of the user's own commands, without processes.
    pub fn new(local: Local) -> Self {
        Self::on(local, Terms::User)
    }

    /// Creates a run without processes.
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

    /// Runs one step and returns when its shell has exited and its output has been forwarded.
    ///
    /// Output is sent to `out` as it arrives; while `out` is full the step blocks. Background processes of an
    /// unconfined step keep running, with their output discarded, until the run is stopped; those of a confined step
    /// are killed when the step ends. Dropping the future kills the step and every process it started.
    pub async fn run(&self, step: Step, out: mpsc::Sender<Chunk>) -> Result<StepEnd, StepError> {
        self.run_and_look(step, out).await.map(|(end, _)| end)
    }

    /// Runs one step, and also returns the confinement layers that were in force.
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

    /// Kills all processes of this run and waits until none remains, for at most `limit`.
    ///
    /// It can be called at any time, from any task, and repeatedly. Running steps return [`StepEnd::Stopped`].
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

    /// Requests that all processes of this run are killed, without waiting; no later step is started.
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

/// The state that the handles of a run share.
struct Trunk {
    local: Local,
    terms: Terms,
    stopped: watch::Sender<bool>,
    kept: Mutex<Vec<Arc<Kept>>>,
    /// The run's temporary directory, created by the first step that needs it.
    scratch: Mutex<Option<Arc<Scratch>>>,
    /// The private caches of the workspace, opened by the first step that needs them.
    caches: Mutex<Option<CacheStore>>,
}

/// Environment variables.
type Variables = Vec<(OsString, OsString)>;

impl Trunk {
    /// Computes the confinement of a step, and removes variables from its environment that a confined step must not
    /// have.
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
        // The workspace may be on a mount that does not respond.
        let prepared = FILES.run_in(&confinement.workspace, move || {
            let variables = trunk.prepare(&mut walls)?;
            Ok((walls, variables))
        });
        let late = |why: NoAnswer| StepError::Walls {
            what: "the workspace does not respond",
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

    /// The workspace of a model's commands, confined or not, if its device and inode are known.
    fn workspace(&self) -> Option<(&Path, FileId)> {
        match &self.terms {
            Terms::User => None,
            Terms::Model(terms) => Some((&terms.workspace, terms.workspace_id?)),
        }
    }

    /// Collects what the confinement needs to know about files, and returns environment variables for the step. Blocks.
    fn prepare(&self, walls: &mut Walls) -> Result<Variables, StepError> {
        let Terms::Model(terms) = &self.terms else { return Ok(Vec::new()) };
        // A file that the step could not read anyway needs no mount.
        walls.hidden.extend(system_credentials().into_iter().filter(|path| os::may_read(path)));
        walls.opened.extend(repository::directories_outside(&terms.workspace, &terms.writable, &terms.homes));
        self.private_caches(terms, walls)
    }

    /// Sets up private copies of caches; returns the environment variables that point to them where no mount is
    /// possible.
    fn private_caches(&self, terms: &Confinement, walls: &mut Walls) -> Result<Variables, StepError> {
        let Some(root) = terms.cache_root.as_deref().filter(|_| !terms.caches.is_empty()) else {
            return Ok(Vec::new());
        };
        if !terms.workspace.is_dir() {
            // The supervisor reports why the workspace cannot be used.
            return Ok(Vec::new());
        }
        let what = "its private caches cannot be created";
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
        let what = "its temporary directory cannot be created";
        let made = made.map_err(|source| StepError::Walls { what, source: Some(source) })?;
        Ok(Arc::clone(scratch.insert(Arc::new(made))))
    }

    /// Returns the resources that a supervisor needs while it lives.
    fn company(&self, spawned: &Spawned) -> Company {
        let author = match self.terms {
            Terms::User => Author::User,
            Terms::Model(_) => Author::Model,
        };
        let entered = self.local.lineage().enter(spawned.pid, spawned.born, author);
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Company { _entered: entered, _scratch: scratch }
    }

    /// Tracks a supervisor, and drops those that have ended.
    fn hold(&self, new: &Arc<Kept>) {
        let mut kept = self.forget_gone();
        kept.push(Arc::clone(new));
        // A stop during the start of this supervisor did not reach it.
        if *self.stopped.borrow() {
            new.end();
        }
    }

    /// Drops the supervisors that have ended and returns the remaining ones.
    fn forget_gone(&self) -> MutexGuard<'_, Vec<Arc<Kept>>> {
        let mut kept = self.kept();
        kept.retain(|kept| !kept.is_gone());
        kept
    }

    fn end(&self) {
        // The flag is set first, so a step that ends by this kill is reported as stopped.
        self.stopped.send_replace(true);
        for kept in self.kept().iter() {
            kept.end();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Arc<Kept>>> {
        // Every statement leaves the list consistent, so a poisoned lock can be used.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        self.end();
    }
}
