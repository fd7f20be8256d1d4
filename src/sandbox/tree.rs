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
use super::confinement::toolchain::Cache;
use super::confinement::{Confinement, ConfinementSpec, Mechanism, TEMP_DIR, hint, system_credentials};
use super::local::LocalSandbox;
use super::os::{self, SpawnedSupervisor};
use super::pending_checks::PendingCheck;
use super::process_origin::CommandAuthor;
use super::provider::{BoxFuture, ExecutionPolicy, RunSandbox};
use super::pump;
use super::repository;
use super::scratch::ScratchDir;
use super::step::{Chunk, Step, StepEnd, StepError, StopTimeoutError};
use super::supervisor_handle::{GRACE, StopGuard, SupervisorHandle, SupervisorResources};
use super::supervisor_protocol::{self, ActiveLayers, RequestOptions};
use super::workspace::FileId;
use crate::bounded_io::{FileTaskError, FileTasks};

/// The threads that access the file system while a step is prepared.
static FILE_TASKS: LazyLock<FileTasks> = LazyLock::new(|| FileTasks::new(32, Duration::from_secs(10)));

/// All processes of one run; handles can be cloned, and dropping the last one kills all processes.
#[derive(Clone)]
pub struct RunTree {
    state: Arc<RunTreeState>,
}

impl RunTree {
    /// Creates a run of the user's own commands, without processes.
    pub fn new(local: LocalSandbox) -> Self {
        Self::with_policy(local, ExecutionPolicy::User)
    }

    /// Creates a run without processes.
    pub fn with_policy(local: LocalSandbox, terms: ExecutionPolicy) -> Self {
        let (stopped, supervisor) = (watch::Sender::new(false), Mutex::default());
        Self {
            state: Arc::new(RunTreeState {
                local,
                policy: terms,
                stopped,
                supervisors: supervisor,
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
        self.run_with_layers(step, out).await.map(|(end, _)| end)
    }

    /// Runs one step, and also returns the confinement layers that were in force.
    pub(super) async fn run_with_layers(
        &self,
        mut step: Step,
        out: mpsc::Sender<Chunk>,
    ) -> Result<(StepEnd, Option<ActiveLayers>), StepError> {
        let mut stopped = self.state.stopped.subscribe();
        let spec = tokio::select! {
            biased;
            () = pump::wait_until_set(&mut stopped) => return Ok((StepEnd::Stopped, None)),
            spec = self.state.confinement_spec(&mut step) => spec?,
        };
        let local = &self.state.local;
        let conditions = RequestOptions {
            cgroup_parent: local.cgroup_parent(),
            descriptor_limit: local.descriptor_limit(),
            workspace: self.state.workspace(),
            confinement: spec.as_ref(),
        };
        let order = supervisor_protocol::encode_request(&step, conditions)?;
        let path = local.supervisor_program();
        let spawned = local.spawner().spawn(path, step.output_mode).await;
        let spawned = spawned.map_err(|source| StepError::SupervisorSpawn { path: path.to_path_buf(), source })?;
        let resources = self.state.supervisor_resources(&spawned);
        let (supervisor, outputs) = SupervisorHandle::monitor(spawned, resources);
        let unfinished = StopGuard(&supervisor);
        self.state.track(&supervisor);
        let end = tokio::select! {
            biased;
            () = pump::wait_until_set(&mut stopped) => {
                supervisor.wait_ended_within(GRACE).await;
                return Ok((StepEnd::Stopped, None));
            }
            end = supervisor.run_step(&order, step.time_limit, outputs, &out) => end,
        };
        let end = end.map_err(|lost| lost.into_error(step.cwd))?;
        unfinished.disarm();
        let layers = supervisor.status.borrow().layers;
        Ok((end, layers))
    }

    /// Kills all processes of this run and waits until none remains, for at most `limit`.
    ///
    /// It can be called at any time, from any task, and repeatedly. Running steps return [`StepEnd::Stopped`].
    pub async fn stop(&self, limit: Duration) -> Result<(), StopTimeoutError> {
        self.kill_now();
        let supervisor = self.state.supervisors().clone();
        let all = async {
            for supervisor in &supervisor {
                supervisor.wait_ended().await;
            }
        };
        let _late = timeout(limit, all).await;
        let left = self.state.prune_ended().iter().map(|supervisor| supervisor.pid).collect::<Vec<_>>();
        if left.is_empty() { Ok(()) } else { Err(StopTimeoutError { supervisors: left }) }
    }

    /// Requests that all processes of this run are killed, without waiting; no later step is started.
    pub fn kill_now(&self) {
        self.state.stop_all();
    }
}

impl RunSandbox for RunTree {
    fn run(&self, step: Step, out: mpsc::Sender<Chunk>) -> BoxFuture<'_, Result<StepEnd, StepError>> {
        Box::pin(Self::run(self, step, out))
    }

    fn hints<'a>(&'a self, command: &'a str, home: Option<&'a Path>, printed: &'a str) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move {
            match (&self.state.policy, self.state.local.mechanism().await) {
                (ExecutionPolicy::Model(confinement), Some(_)) => hint::notes(confinement, home, command, printed),
                (ExecutionPolicy::Model(_), None) | (ExecutionPolicy::User, _) => Vec::new(),
            }
        })
    }

    fn mechanism(&self) -> BoxFuture<'_, Option<Mechanism>> {
        Box::pin(async {
            match self.state.policy {
                ExecutionPolicy::Model(_) => self.state.local.mechanism().await,
                ExecutionPolicy::User => None,
            }
        })
    }

    fn begin_check(&self) -> PendingCheck {
        self.state.local.pending_checks().begin()
    }

    fn stop(&self, limit: Duration) -> BoxFuture<'_, Result<(), StopTimeoutError>> {
        Box::pin(Self::stop(self, limit))
    }

    fn kill_now(&self) {
        Self::kill_now(self);
    }
}

/// The state that the handles of a run share.
struct RunTreeState {
    local: LocalSandbox,
    policy: ExecutionPolicy,
    stopped: watch::Sender<bool>,
    supervisors: Mutex<Vec<Arc<SupervisorHandle>>>,
    /// The run's temporary directory, created by the first step that needs it.
    scratch: Mutex<Option<Arc<ScratchDir>>>,
    /// The private caches of the workspace, opened by the first step that needs them.
    caches: Mutex<Option<CacheStore>>,
}

/// Environment variables.
type Variables = Vec<(OsString, OsString)>;

impl RunTreeState {
    /// Computes the confinement of a step, and removes variables from its environment that a confined step must not
    /// have.
    async fn confinement_spec(self: &Arc<Self>, step: &mut Step) -> Result<Option<ConfinementSpec>, StepError> {
        let confinement = match &self.policy {
            ExecutionPolicy::User => return Ok(None),
            ExecutionPolicy::Model(_) if step.permissions.unconfined => return Ok(None),
            ExecutionPolicy::Model(confinement) => confinement,
        };
        let Some(mechanism) = self.local.mechanism().await else { return Ok(None) };
        let scratch = self.scratch()?;
        let mut spec = confinement.for_step(mechanism, scratch.path(), &step.permissions);
        let trunk = Arc::clone(self);
        // The workspace may be on a mount that does not respond.
        let prepared = FILE_TASKS.run_in(&confinement.workspace, move || {
            let variables = trunk.prepare(&mut spec)?;
            Ok((spec, variables))
        });
        let late = |why: FileTaskError| StepError::Confinement {
            what: "the workspace does not respond",
            source: Some(io::Error::other(why)),
        };
        let (spec, variables) = prepared.await.map_err(late)??;
        let temp = match mechanism {
            Mechanism::Bubblewrap | Mechanism::Namespaces => Path::new(TEMP_DIR),
            Mechanism::Rules => &spec.temp_source,
        };
        step.env = confinement.environment(&step.env, temp);
        step.env.retain(|(name, _)| !variables.iter().any(|(known, _)| known == name));
        step.env.extend(variables);
        Ok(Some(spec))
    }

    /// The workspace of a model's commands, confined or not, if its device and inode are known.
    fn workspace(&self) -> Option<(&Path, FileId)> {
        match &self.policy {
            ExecutionPolicy::User => None,
            ExecutionPolicy::Model(terms) => Some((&terms.workspace, terms.workspace_id?)),
        }
    }

    /// Collects what the confinement needs to know about files, and returns environment variables for the step. Blocks.
    fn prepare(&self, spec: &mut ConfinementSpec) -> Result<Variables, StepError> {
        let ExecutionPolicy::Model(terms) = &self.policy else { return Ok(Vec::new()) };
        // A file that the step could not read anyway needs no mount.
        spec.hidden.extend(system_credentials().into_iter().filter(|path| os::is_readable(path)));
        spec.opened_paths.extend(repository::directories_outside(&terms.workspace, &terms.writable, &terms.homes));
        self.private_caches(terms, spec)
    }

    /// Sets up private copies of caches; returns the environment variables that point to them where no mount is
    /// possible.
    fn private_caches(&self, terms: &Confinement, spec: &mut ConfinementSpec) -> Result<Variables, StepError> {
        let Some(root) = terms.cache_root.as_deref().filter(|_| !terms.caches.is_empty()) else {
            return Ok(Vec::new());
        };
        if !terms.workspace.is_dir() {
            // The supervisor reports why the workspace cannot be used.
            return Ok(Vec::new());
        }
        let what = "its private caches cannot be created";
        let failed = |source| StepError::Confinement { what, source: Some(source) };
        let mut store = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let store = match &*store {
            Some(store) => store,
            None => {
                self.local.sweep_caches_daily(root);
                store.insert(CacheStore::open(root, &terms.workspace).map_err(failed)?)
            }
        };
        spec.cache_store = store.path().to_owned();
        let is_written = |cache: &Cache| terms.writable.iter().any(|root| cache.path.starts_with(root));
        spec.caches = terms.caches.iter().filter(|cache| !is_written(cache)).cloned().collect();
        match spec.mechanism {
            Mechanism::Bubblewrap | Mechanism::Namespaces => Ok(Vec::new()),
            Mechanism::Rules => store.create_env_caches(&spec.caches).map_err(failed),
        }
    }

    fn scratch(&self) -> Result<Arc<ScratchDir>, StepError> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scratch) = &*scratch {
            return Ok(Arc::clone(scratch));
        }
        let made = ScratchDir::create(self.local.scratch_root(), self.local.remover());
        let what = "its temporary directory cannot be created";
        let made = made.map_err(|source| StepError::Confinement { what, source: Some(source) })?;
        Ok(Arc::clone(scratch.insert(Arc::new(made))))
    }

    /// Returns the resources that a supervisor needs while it lives.
    fn supervisor_resources(&self, spawned: &SpawnedSupervisor) -> SupervisorResources {
        let author = match self.policy {
            ExecutionPolicy::User => CommandAuthor::User,
            ExecutionPolicy::Model(_) => CommandAuthor::Model,
        };
        let registration = self.local.supervisors().register(spawned.pid, spawned.start_time, author);
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        SupervisorResources { _registration: registration, _scratch: scratch }
    }

    /// Tracks a supervisor, and drops those that have ended.
    fn track(&self, new: &Arc<SupervisorHandle>) {
        let mut supervisor = self.prune_ended();
        supervisor.push(Arc::clone(new));
        // A stop during the start of this supervisor did not reach it.
        if *self.stopped.borrow() {
            new.request_stop();
        }
    }

    /// Drops the supervisors that have ended and returns the remaining ones.
    fn prune_ended(&self) -> MutexGuard<'_, Vec<Arc<SupervisorHandle>>> {
        let mut supervisor = self.supervisors();
        supervisor.retain(|supervisor| !supervisor.has_ended());
        supervisor
    }

    fn stop_all(&self) {
        // The flag is set first, so a step that ends by this kill is reported as stopped.
        self.stopped.send_replace(true);
        for supervisor in self.supervisors().iter() {
            supervisor.request_stop();
        }
    }

    fn supervisors(&self) -> MutexGuard<'_, Vec<Arc<SupervisorHandle>>> {
        // Every statement leaves the list consistent, so a poisoned lock can be used.
        self.supervisors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunTreeState {
    fn drop(&mut self) {
        self.stop_all();
    }
}
