//! The sandbox provider that runs steps on this machine, and its probe of the available confinement layers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{OnceCell, mpsc};

use super::caches::{CacheLimits, sweep_caches};
use super::confine::bubblewrap::PROGRAMS;
use super::confine::toolchain::{Cache, CacheKind};
use super::confine::{Confinement, Leave, Way};
use super::keeper;
use super::lineage::Lineage;
use super::message::Standing;
use super::os;
use super::pending_checks::PendingChecks;
use super::provider::{Doing, Layers, Room, SandboxProvider, Strength, Terms};
use super::removal::Remover;
use super::scratch::{self, Scratch};
use super::step::{Outputs, Step, StepEnd, StepError};
use super::tree::RunTree;

/// The time limit of the confinement probe.
const TRIAL: Duration = Duration::from_secs(20);

/// How often unused private caches are removed.
const SWEPT_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs steps on this machine; clones share the probe result and all other state.
#[derive(Debug, Clone)]
pub struct Local {
    keeper: Arc<Path>,
    spawner: Arc<os::Spawner>,
    cgroups: Option<&'static Path>,
    descriptors: Option<u64>,
    scratch_root: Arc<Path>,
    lineage: Lineage,
    choice: Choice,
    found: Arc<OnceCell<Found>>,
    /// When unused private caches were last removed.
    swept: Arc<Mutex<Option<Instant>>>,
    pending_checks: PendingChecks,
}

/// How the confinement mechanism is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// The strongest mechanism that works on this machine.
    Best,
    /// Only this mechanism.
    Fixed(Way),
    /// No confinement.
    Unconfined,
}

/// The result of the confinement probe.
#[derive(Debug, Clone)]
struct Found {
    way: Option<Way>,
    layers: Layers,
}

impl Local {
    /// Sets the program to execute as the supervisor: its `main` must begin with [`supervisor::main_if_requested`].
    pub fn new(keeper: PathBuf) -> Self {
        Self {
            keeper: keeper.into(),
            spawner: Arc::default(),
            cgroups: keeper::cgroups(),
            descriptors: None,
            scratch_root: std::env::temp_dir().into(),
            lineage: Lineage::default(),
            choice: Choice::Best,
            found: Arc::default(),
            swept: Arc::default(),
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
    pub fn adopting_orphans(self) -> Self {
        self.spawner.adopting_orphans();
        self
    }

    /// Disables cgroups, even where they are available.
    #[must_use]
    pub fn without_cgroups(self) -> Self {
        Self { cgroups: None, ..self }
    }

    /// Sets the initial limit of open descriptors for steps, for a daemon that has raised its own limit.
    #[must_use]
    pub fn with_descriptors(self, descriptors: Option<u64>) -> Self {
        Self { descriptors, ..self }
    }

    /// Stores the temporary files of runs below `root`.
    #[must_use]
    pub fn with_scratch(self, root: PathBuf) -> Self {
        Self { scratch_root: root.into(), ..self }
    }

    /// Uses only this confinement mechanism, without probing for a better one.
    #[must_use]
    pub fn with_way(self, way: Way) -> Self {
        Self { choice: Choice::Fixed(way), found: Arc::default(), ..self }
    }

    /// Disables confinement.
    fn without_walls(self) -> Self {
        Self { choice: Choice::Unconfined, ..self }
    }

    /// Returns the registry that identifies descendants of a model's commands.
    pub const fn lineage(&self) -> &Lineage {
        &self.lineage
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
        Remover::new(Arc::clone(&self.keeper))
    }

    pub(super) fn keeper(&self) -> &Path {
        &self.keeper
    }

    pub(super) fn spawner(&self) -> &os::Spawner {
        &self.spawner
    }

    pub(super) const fn cgroups(&self) -> Option<&Path> {
        self.cgroups
    }

    pub(super) const fn descriptors(&self) -> Option<u64> {
        self.descriptors
    }

    pub(super) fn scratch_root(&self) -> &Path {
        &self.scratch_root
    }

    /// Removes unused private caches in a background thread, at most once a day.
    pub(super) fn sweep_caches_daily(&self, root: &Path) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_some_and(|swept| swept.elapsed() < SWEPT_EVERY) {
            return;
        }
        *swept = Some(Instant::now());
        let (root, remover) = (root.to_owned(), self.remover());
        let sweep = move || sweep_caches(&root, CacheLimits::default(), SystemTime::now(), &remover);
        // If no thread can be started, the next attempt follows a day later.
        let _started = std::thread::Builder::new().name("sweep".to_owned()).spawn(sweep);
    }

    /// Returns the mechanism that confines a model's commands; `None` if they are not confined.
    pub(super) async fn way(&self) -> Option<Way> {
        match self.choice {
            Choice::Best => self.found().await.way,
            Choice::Fixed(way) => Some(way),
            Choice::Unconfined => None,
        }
    }

    /// Returns the probe result, probing on the first call.
    ///
    /// The probe is a complete run; its future is boxed because of its size.
    async fn found(&self) -> &Found {
        self.found.get_or_init(|| Box::pin(self.find())).await
    }

    async fn find(&self) -> Found {
        let mut obstacles = Vec::new();
        let ways = match self.choice {
            Choice::Best => Way::ALL.to_vec(),
            Choice::Fixed(way) => vec![way],
            Choice::Unconfined => Vec::new(),
        };
        for way in ways {
            if way == Way::Bubblewrap && !PROGRAMS.iter().any(|path| Path::new(path).exists()) {
                continue;
            }
            match self.clone().with_way(way).trial().await {
                Ok(standing) => return Found { way: Some(way), layers: self.with(way, standing, obstacles) },
                Err(obstacle) => obstacles.push(format!("{}: {obstacle}", way.word())),
            }
        }
        let why = if obstacles.is_empty() {
            "no confinement mechanism is available".to_owned()
        } else {
            obstacles.join("; ")
        };
        let layers = Layers { strength: Strength::Missing, names: self.holding(), why: Some(why) };
        Found { way: None, layers }
    }

    /// Runs an empty command in confinement and returns the layers that were in force.
    async fn trial(self) -> Result<Standing, StepError> {
        let cannot =
            |source| StepError::Walls { what: "its directory cannot be created", source: Some(source) };
        let place = Scratch::make(&self.scratch_root, self.remover()).map_err(cannot)?;
        let [home, work] = ["home", "work"].map(|name| place.path().join(name));
        let cache = home.join("cache");
        std::fs::create_dir_all(&cache).and_then(|()| std::fs::create_dir(&work)).map_err(cannot)?;
        // The probe includes a cache, to find out whether overlay mounts are available.
        let terms = Terms::Model(Box::new(Confinement {
            homes: vec![home],
            caches: vec![Cache { kind: CacheKind::Npm, path: cache }],
            cache_root: Some(place.path().join("caches")),
            ..Confinement::of(work.clone())
        }));
        let step = Step {
            command: ":".to_owned(),
            cwd: work,
            env: Vec::new(),
            time_limit: TRIAL,
            leave: Leave::default(),
            outputs: Outputs::Apart,
        };
        let tree = RunTree::on(self, terms);
        match tree.run_and_look(step, mpsc::channel(1).0).await? {
            (StepEnd::Exited(0), Some(standing)) => Ok(standing),
            (
                StepEnd::Exited(_)
                | StepEnd::Signaled(_)
                | StepEnd::TimedOut
                | StepEnd::OutOfMemory
                | StepEnd::Stopped,
                _,
            ) => Err(StepError::Walls { what: "its probe failed", source: None }),
        }
    }

    /// Describes the layers of a mechanism that works.
    fn with(&self, way: Way, standing: Standing, obstacles: Vec<String>) -> Layers {
        let mut names = Vec::new();
        match way {
            Way::Bubblewrap => names.extend(["bubblewrap", "namespaces"]),
            Way::Namespaces => names.push("namespaces"),
            Way::Rules => {}
        }
        names.extend(standing.landlock.then_some("landlock"));
        names.extend(standing.seccomp.then_some("seccomp"));
        names.extend(standing.overlays.then_some("overlay"));
        names.extend(self.holding());
        let (strength, why) = match way {
            Way::Bubblewrap | Way::Namespaces if standing.seccomp => (Strength::Full, None),
            Way::Bubblewrap | Way::Namespaces => {
                (Strength::Partial, Some("seccomp filters are not available".to_owned()))
            }
            Way::Rules => (Strength::Partial, Some(obstacles.join("; "))),
        };
        Layers { strength, names, why }
    }

    /// The names of the layers that keep track of a step's processes.
    fn holding(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        names.extend(self.cgroups.map(|_| "cgroup"));
        names.push(keeper::holder());
        names
    }
}

impl SandboxProvider for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn layers(&self) -> Doing<'_, Layers> {
        Box::pin(async { self.found().await.layers.clone() })
    }

    fn open(&self, terms: Terms) -> Arc<dyn Room> {
        Arc::new(RunTree::on(self.clone(), terms))
    }
}

/// Runs steps on this machine without confinement, as configured by the user.
#[derive(Debug, Clone)]
pub struct Unconfined(Local);

impl Unconfined {
    /// Creates a provider that runs every command as the user's own commands are run.
    pub const fn new(local: Local) -> Self {
        Self(local)
    }
}

impl SandboxProvider for Unconfined {
    fn name(&self) -> &'static str {
        "none"
    }

    fn layers(&self) -> Doing<'_, Layers> {
        let why = Some("the sandbox is switched off: sandbox.provider is \"none\"".to_owned());
        let layers = Layers { strength: Strength::Missing, names: self.0.holding(), why };
        Box::pin(std::future::ready(layers))
    }

    fn open(&self, terms: Terms) -> Arc<dyn Room> {
        Arc::new(RunTree::on(self.0.clone().without_walls(), terms))
    }
}
