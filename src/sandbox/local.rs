//! The executor of this machine, and what it finds out about its walls.

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

/// How long a trial of walls may take.
const TRIAL: Duration = Duration::from_secs(20);

/// How often private caches are looked through.
const SWEPT_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// The executor of this machine; clones share what they know.
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
    /// When private caches were last looked through.
    swept: Arc<Mutex<Option<Instant>>>,
    pending_checks: PendingChecks,
}

/// Who says how commands are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    /// The machine: the best that works.
    Best,
    /// This way and no other.
    Fixed(Way),
    /// Nothing confines.
    Unconfined,
}

/// What was found out about walls.
#[derive(Debug, Clone)]
struct Found {
    way: Option<Way>,
    layers: Layers,
}

impl Local {
    /// Names the program to execute as a keeper: its `main` must begin with [`keeper::main_if_asked`].
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

    /// Uses the running program as the keeper, also after its file was replaced by another version.
    pub fn this_program() -> io::Result<Self> {
        os::this_program().map(Self::new)
    }

    /// Has this process inherit and end what is left behind when the holder of the keepers is killed as well; for the daemon.
    ///
    /// From the first step on, every child of this process in a session other than its own counts as such an orphan then.
    #[must_use]
    pub fn adopting_orphans(self) -> Self {
        self.spawner.adopting_orphans();
        self
    }

    /// Does without cgroups, even where they could be used.
    #[must_use]
    pub fn without_cgroups(self) -> Self {
        Self { cgroups: None, ..self }
    }

    /// Lets steps have this many descriptors at first, where the daemon itself may have more.
    #[must_use]
    pub fn with_descriptors(self, descriptors: Option<u64>) -> Self {
        Self { descriptors, ..self }
    }

    /// Has runs keep their temporary files below `root`.
    #[must_use]
    pub fn with_scratch(self, root: PathBuf) -> Self {
        Self { scratch_root: root.into(), ..self }
    }

    /// Confines in this way and no other, whatever the machine has.
    #[must_use]
    pub fn with_way(self, way: Way) -> Self {
        Self { choice: Choice::Fixed(way), found: Arc::default(), ..self }
    }

    /// Confines nothing.
    fn without_walls(self) -> Self {
        Self { choice: Choice::Unconfined, ..self }
    }

    /// Returns who descends from a model's commands.
    pub const fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Returns the checks that are to be finished before the daemon ends.
    pub const fn pending_checks(&self) -> &PendingChecks {
        &self.pending_checks
    }

    /// Has the temporary files removed that earlier daemons have left; it does not wait for that.
    pub fn remove_leftovers(&self) {
        scratch::remove_leftovers(&self.scratch_root, &self.remover());
    }

    /// Returns who removes directories.
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

    /// Removes private caches that nobody needs, once a day and beside everything else.
    pub(super) fn sweep_caches_daily(&self, root: &Path) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_some_and(|swept| swept.elapsed() < SWEPT_EVERY) {
            return;
        }
        *swept = Some(Instant::now());
        let (root, remover) = (root.to_owned(), self.remover());
        let sweep = move || sweep_caches(&root, CacheLimits::default(), SystemTime::now(), &remover);
        // Where no thread can be started, the next day will do.
        let _started = std::thread::Builder::new().name("sweep".to_owned()).spawn(sweep);
    }

    /// The way in which a model's commands are confined; none where there is none.
    pub(super) async fn way(&self) -> Option<Way> {
        match self.choice {
            Choice::Best => self.found().await.way,
            Choice::Fixed(way) => Some(way),
            Choice::Unconfined => None,
        }
    }

    /// Finds out, once; a trial is a run of its own, so it is put aside for the sake of its size.
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
        let why =
            if obstacles.is_empty() { "nothing confines here".to_owned() } else { obstacles.join("; ") };
        let layers = Layers { strength: Strength::Missing, names: self.holding(), why: Some(why) };
        Found { way: None, layers }
    }

    /// Runs nothing behind walls, and says which stood.
    async fn trial(self) -> Result<Standing, StepError> {
        let cannot = |source| StepError::Walls { what: "its directory cannot be made", source: Some(source) };
        let place = Scratch::make(&self.scratch_root, self.remover()).map_err(cannot)?;
        let [home, work] = ["home", "work"].map(|name| place.path().join(name));
        let cache = home.join("cache");
        std::fs::create_dir_all(&cache).and_then(|()| std::fs::create_dir(&work)).map_err(cannot)?;
        // Whether the copy of a cache can begin with what is in it is found out on the way.
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
            ) => Err(StepError::Walls { what: "a trial of it failed", source: None }),
        }
    }

    /// The layers of a way that works.
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
                (Strength::Partial, Some("this machine has no filter of system calls".to_owned()))
            }
            Way::Rules => (Strength::Partial, Some(obstacles.join("; "))),
        };
        Layers { strength, names, why }
    }

    /// The layers that hold a step's processes together.
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

/// This machine without walls, because somebody has said so.
#[derive(Debug, Clone)]
pub struct Unconfined(Local);

impl Unconfined {
    /// Runs everything as the user's own commands are run.
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
