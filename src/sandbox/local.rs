//! The sandbox provider that runs steps on this machine, and its probe of the available confinement layers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{OnceCell, mpsc};

use super::caches::{CacheLimits, sweep_caches};
use super::confinement::bubblewrap::BWRAP_PATHS;
use super::confinement::toolchain::{Cache, CacheKind};
use super::confinement::{Confinement, Mechanism, StepPermissions};
use super::os;
use super::pending_checks::PendingChecks;
use super::process_origin::SupervisorRegistry;
use super::provider::{BoxFuture, ConfinementStrength, ExecutionPolicy, Layers, RunSandbox, SandboxProvider};
use super::removal::Remover;
use super::scratch::{self, ScratchDir};
use super::step::{OutputMode, Step, StepEnd, StepError};
use super::supervisor;
use super::supervisor_protocol::ActiveLayers;
use super::tree::RunTree;

/// The time limit of the confinement probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// How often unused private caches are removed.
const CACHE_SWEEP_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs steps on this machine; clones share the probe result and all other state.
#[derive(Debug, Clone)]
pub struct LocalSandbox {
    supervisor_program: Arc<Path>,
    spawner: Arc<os::Spawner>,
    cgroup_parent: Option<&'static Path>,
    descriptor_limit: Option<u64>,
    scratch_root: Arc<Path>,
    supervisors: SupervisorRegistry,
    choice: MechanismChoice,
    probe_result: Arc<OnceCell<ProbeResult>>,
    /// When unused private caches were last removed.
    last_cache_sweep: Arc<Mutex<Option<Instant>>>,
    pending_checks: PendingChecks,
}

/// How the confinement mechanism is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MechanismChoice {
    /// The strongest mechanism that works on this machine.
    Best,
    /// Only this mechanism.
    Fixed(Mechanism),
    /// No confinement.
    Unconfined,
}

/// The result of the confinement probe.
#[derive(Debug, Clone)]
struct ProbeResult {
    mechanism: Option<Mechanism>,
    layers: Layers,
}

impl LocalSandbox {
    /// Sets the program to execute as the supervisor: its `main` must begin with [`supervisor::main_if_requested`].
    pub fn new(program: PathBuf) -> Self {
        Self {
            supervisor_program: program.into(),
            spawner: Arc::default(),
            cgroup_parent: supervisor::cgroup_parent(),
            descriptor_limit: None,
            scratch_root: std::env::temp_dir().into(),
            supervisors: SupervisorRegistry::default(),
            choice: MechanismChoice::Best,
            probe_result: Arc::default(),
            last_cache_sweep: Arc::default(),
            pending_checks: PendingChecks::default(),
        }
    }

    /// Uses the running program as the supervisor, also after its file was replaced by another version.
    pub fn this_program() -> io::Result<Self> {
        os::this_program().map(Self::new)
    }

    /// Makes this process adopt and kill orphaned processes when the holder of the supervisors is killed too; for the
    /// daemon.
    ///
    /// From the first step on, every child of this process in a session other than its own then counts as an orphan.
    #[must_use]
    pub fn with_orphan_adoption(self) -> Self {
        self.spawner.enable_orphan_adoption();
        self
    }

    /// Disables cgroups, even where they are available.
    #[must_use]
    pub fn without_cgroups(self) -> Self {
        Self { cgroup_parent: None, ..self }
    }

    /// Sets the initial limit of open descriptors for steps, for a daemon that has raised its own limit.
    #[must_use]
    pub fn with_descriptor_limit(self, descriptors: Option<u64>) -> Self {
        Self { descriptor_limit: descriptors, ..self }
    }

    /// Stores the temporary files of runs below `root`.
    #[must_use]
    pub fn with_scratch_root(self, root: PathBuf) -> Self {
        Self { scratch_root: root.into(), ..self }
    }

    /// Uses only this confinement mechanism, without probing for a better one.
    #[must_use]
    pub fn with_mechanism(self, mechanism: Mechanism) -> Self {
        Self { choice: MechanismChoice::Fixed(mechanism), probe_result: Arc::default(), ..self }
    }

    /// Disables confinement.
    fn without_confinement(self) -> Self {
        Self { choice: MechanismChoice::Unconfined, ..self }
    }

    /// Returns the registry that identifies descendants of a model's commands.
    pub const fn supervisors(&self) -> &SupervisorRegistry {
        &self.supervisors
    }

    /// Returns the checks that the daemon finishes before it exits.
    pub const fn pending_checks(&self) -> &PendingChecks {
        &self.pending_checks
    }

    /// Removes the temporary files of earlier daemons in the background.
    pub fn remove_leftovers(&self) {
        scratch::remove_leftovers(&self.scratch_root, &self.remover());
    }

    /// Returns the handle that removes directories.
    pub(super) fn remover(&self) -> Remover {
        Remover::new(Arc::clone(&self.supervisor_program))
    }

    pub(super) fn supervisor_program(&self) -> &Path {
        &self.supervisor_program
    }

    pub(super) fn spawner(&self) -> &os::Spawner {
        &self.spawner
    }

    pub(super) const fn cgroup_parent(&self) -> Option<&Path> {
        self.cgroup_parent
    }

    pub(super) const fn descriptor_limit(&self) -> Option<u64> {
        self.descriptor_limit
    }

    pub(super) fn scratch_root(&self) -> &Path {
        &self.scratch_root
    }

    /// Removes unused private caches in a background thread, at most once a day.
    pub(super) fn sweep_caches_daily(&self, root: &Path) {
        let mut last_sweep = self.last_cache_sweep.lock().unwrap_or_else(PoisonError::into_inner);
        if last_sweep.is_some_and(|last_sweep| last_sweep.elapsed() < CACHE_SWEEP_INTERVAL) {
            return;
        }
        *last_sweep = Some(Instant::now());
        let (root, remover) = (root.to_owned(), self.remover());
        let sweep = move || sweep_caches(&root, CacheLimits::default(), SystemTime::now(), &remover);
        // If no thread can be started, the next attempt follows a day later.
        let _started = std::thread::Builder::new().name("sweep".to_owned()).spawn(sweep);
    }

    /// Returns the mechanism that confines a model's commands; `None` if they are not confined.
    pub(super) async fn mechanism(&self) -> Option<Mechanism> {
        match self.choice {
            MechanismChoice::Best => self.probe_result().await.mechanism,
            MechanismChoice::Fixed(mechanism) => Some(mechanism),
            MechanismChoice::Unconfined => None,
        }
    }

    /// Returns the probe result, probing on the first call.
    ///
    /// The probe is a complete run; its future is boxed because of its size.
    async fn probe_result(&self) -> &ProbeResult {
        self.probe_result.get_or_init(|| Box::pin(self.probe())).await
    }

    async fn probe(&self) -> ProbeResult {
        let mut failures = Vec::new();
        let mechanisms = match self.choice {
            MechanismChoice::Best => Mechanism::ALL.to_vec(),
            MechanismChoice::Fixed(mechanism) => vec![mechanism],
            MechanismChoice::Unconfined => Vec::new(),
        };
        for mechanism in mechanisms {
            if mechanism == Mechanism::Bubblewrap && !BWRAP_PATHS.iter().any(|path| Path::new(path).exists()) {
                if self.choice == MechanismChoice::Fixed(mechanism) {
                    failures.push("bubblewrap is not installed in a system directory".to_owned());
                }
                continue;
            }
            match self.clone().with_mechanism(mechanism).run_probe().await {
                Ok(layers) => {
                    return ProbeResult {
                        mechanism: Some(mechanism),
                        layers: self.describe_layers(mechanism, layers, failures),
                    };
                }
                Err(failure) => failures.push(format!("{}: {failure}", mechanism.as_str())),
            }
        }
        let reason =
            if failures.is_empty() { "no confinement mechanism is available".to_owned() } else { failures.join("; ") };
        let layers =
            Layers { strength: ConfinementStrength::Missing, names: self.process_layers(), reason: Some(reason) };
        ProbeResult { mechanism: None, layers }
    }

    /// Runs an empty command in confinement and returns the layers that were in force.
    async fn run_probe(self) -> Result<ActiveLayers, StepError> {
        let cannot = |source| StepError::Confinement { what: "its directory cannot be created", source: Some(source) };
        let scratch = ScratchDir::create(&self.scratch_root, self.remover()).map_err(cannot)?;
        let [home, work] = ["home", "work"].map(|name| scratch.path().join(name));
        let cache = home.join("cache");
        std::fs::create_dir_all(&cache).and_then(|()| std::fs::create_dir(&work)).map_err(cannot)?;
        // The probe includes a cache, to find out whether overlay mounts are available.
        let terms = ExecutionPolicy::Model(Box::new(Confinement {
            homes: vec![home],
            caches: vec![Cache { kind: CacheKind::Npm, path: cache }],
            cache_root: Some(scratch.path().join("caches")),
            ..Confinement::new(work.clone())
        }));
        let step = Step {
            command: ":".to_owned(),
            cwd: work,
            env: Vec::new(),
            time_limit: PROBE_TIMEOUT,
            permissions: StepPermissions::default(),
            output_mode: OutputMode::Separate,
        };
        let tree = RunTree::with_policy(self, terms);
        match tree.run_with_layers(step, mpsc::channel(1).0).await? {
            (StepEnd::Exited(0), Some(layers)) => Ok(layers),
            (
                StepEnd::Exited(_) | StepEnd::Signaled(_) | StepEnd::TimedOut | StepEnd::OutOfMemory | StepEnd::Stopped,
                _,
            ) => Err(StepError::Confinement { what: "its probe failed", source: None }),
        }
    }

    /// Describes the layers of a mechanism that works.
    fn describe_layers(&self, mechanism: Mechanism, layers: ActiveLayers, failures: Vec<String>) -> Layers {
        let mut names = Vec::new();
        match mechanism {
            Mechanism::Bubblewrap => names.extend(["bubblewrap", "namespaces"]),
            Mechanism::Namespaces => names.push("namespaces"),
            Mechanism::Rules => {}
        }
        names.extend(layers.landlock.then_some("landlock"));
        names.extend(layers.seccomp.then_some("seccomp"));
        names.extend(layers.overlays.then_some("overlay"));
        names.extend(self.process_layers());
        let (strength, reason) = match mechanism {
            Mechanism::Bubblewrap | Mechanism::Namespaces if layers.seccomp => (ConfinementStrength::Full, None),
            Mechanism::Bubblewrap | Mechanism::Namespaces => {
                (ConfinementStrength::Partial, Some("seccomp filters are not available".to_owned()))
            }
            Mechanism::Rules if self.choice == MechanismChoice::Fixed(mechanism) => {
                (ConfinementStrength::Partial, Some("the configuration allows Landlock alone".to_owned()))
            }
            Mechanism::Rules => (ConfinementStrength::Partial, Some(failures.join("; "))),
        };
        Layers { strength, names, reason }
    }

    /// The names of the layers that keep track of a step's processes.
    fn process_layers(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        names.extend(self.cgroup_parent.map(|_| "cgroup"));
        names.push(supervisor::orphan_layer());
        names
    }
}

impl SandboxProvider for LocalSandbox {
    fn name(&self) -> &'static str {
        "local"
    }

    fn layers(&self) -> BoxFuture<'_, Layers> {
        Box::pin(async { self.probe_result().await.layers.clone() })
    }

    fn open(&self, terms: ExecutionPolicy) -> Arc<dyn RunSandbox> {
        Arc::new(RunTree::with_policy(self.clone(), terms))
    }
}

/// Runs steps on this machine without confinement, as configured by the user.
#[derive(Debug, Clone)]
pub struct UnconfinedSandbox(LocalSandbox);

impl UnconfinedSandbox {
    /// Creates a provider that runs every command as the user's own commands are run.
    pub const fn new(local: LocalSandbox) -> Self {
        Self(local)
    }
}

impl SandboxProvider for UnconfinedSandbox {
    fn name(&self) -> &'static str {
        "none"
    }

    fn layers(&self) -> BoxFuture<'_, Layers> {
        let reason = Some("the sandbox is switched off: sandbox.provider is \"none\"".to_owned());
        let layers = Layers { strength: ConfinementStrength::Missing, names: self.0.process_layers(), reason };
        Box::pin(std::future::ready(layers))
    }

    fn open(&self, terms: ExecutionPolicy) -> Arc<dyn RunSandbox> {
        Arc::new(RunTree::with_policy(self.0.clone().without_confinement(), terms))
    }
}
