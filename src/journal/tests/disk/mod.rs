//! A disk for tests: real files, a record of everything that is done to them, and calls that fail on demand.
//!
//! SQLite's file layer and the journal's own files stand on the same disk, so that both handles on the log are one file
//! and the record has one order. Locks and shared memory are the operating system's and are not in the record: they
//! do not outlive the power. What the record makes of a loss of power is the business of `crash`.

pub(super) mod crash;
pub(super) mod ledger;
pub(super) mod model;
mod raw;
mod vfs;
pub(super) mod workload;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::files::{Ground, RawFile};

/// Something that was done to the files, in the order in which it was done.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// A file came into being under a name.
    Made {
        name: String,
        file: usize,
    },
    /// A name is no longer that of a file.
    Gone {
        name: String,
    },
    /// All names are durable.
    NamesSynced,
    Write {
        file: usize,
        at: u64,
        bytes: Vec<u8>,
    },
    Length {
        file: usize,
        len: u64,
    },
    /// What stands before `begun` is durable.
    Synced {
        file: usize,
        begun: usize,
    },
    /// What stands before `begun` and was not durable may never be.
    SyncFailed {
        file: usize,
        begun: usize,
        /// Who asked for it.
        thread: ThreadId,
    },
}

/// A kind of call, by whoever makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Open,
    Read,
    Write,
    Length,
    Sync,
    Size,
    Delete,
    Access,
    OwnOpen,
    OwnRead,
    OwnWrite,
    OwnLength,
    OwnSync,
    OwnSize,
}

impl Kind {
    /// Returns whether such a call leaves something behind.
    const fn changes(self) -> bool {
        match self {
            Self::Write | Self::Length | Self::Sync | Self::Delete => true,
            Self::OwnOpen | Self::OwnWrite | Self::OwnLength | Self::OwnSync => true,
            Self::Open | Self::Read | Self::Size | Self::Access => false,
            Self::OwnRead | Self::OwnSize => false,
        }
    }
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The device says no, and nothing is done.
    Broken,
    /// There is no room, and nothing is done.
    Full,
    /// There is room for a part.
    HalfFull,
}

/// For how long it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasting {
    Once,
    ForEver,
}

/// Which call fails, counted from one since the fault was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) nth: u64,
    pub(super) failure: Failure,
    pub(super) lasting: Lasting,
}

/// What was done on a disk since it began.
#[derive(Debug, Clone, Default)]
pub(super) struct Recording {
    /// The files that were there, durable, numbered in the order of their names.
    pub(super) found: BTreeMap<String, Vec<u8>>,
    pub(super) ops: Vec<Op>,
}

/// A directory whose files are watched.
pub(super) struct Disk {
    shared: Arc<Shared>,
    layer: vfs::Layer,
    dir: TempDir,
}

/// Looks at the world; it is given a way to ask for the length of the record.
type Watch = Box<dyn FnMut(&dyn Fn() -> usize) + Send>;

/// What the handles share.
struct Shared {
    state: Mutex<State>,
    /// Called before each change.
    watch: Mutex<Option<Watch>>,
    /// Held while something is done and recorded, so that it is either both or nothing.
    doing: RwLock<()>,
    gate: Mutex<Gate>,
    turned: Condvar,
}

#[derive(Default)]
struct State {
    recording: Recording,
    names: BTreeMap<String, usize>,
    files: usize,
    calls: BTreeMap<Kind, u64>,
    fault: Option<Fault>,
    struck: bool,
    /// Whether the process is as good as dead: it changes nothing any more, and nothing of it is recorded.
    dead: bool,
}

/// A change that is under way.
struct Turn<'a> {
    /// How long the record was when it began.
    begun: usize,
    _doing: RwLockReadGuard<'a, ()>,
}

/// Whether a sync of the log waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
    Reached,
}

impl Disk {
    /// An empty directory in memory, where there is such a place: what is durable is the record's business.
    pub(super) fn new() -> Self {
        Self::on(directory())
    }

    /// A directory with files, all of them durable.
    pub(super) fn on(dir: TempDir) -> Self {
        let mut state = State::default();
        for entry in fs::read_dir(dir.path()).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = name_of(&path);
            if !name.ends_with("-shm") {
                state.recording.found.insert(name, fs::read(&path).expect("a file"));
            }
        }
        let names = state.recording.found.keys().cloned().enumerate();
        state.names = names.map(|(file, name)| (name, file)).collect();
        state.files = state.names.len();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            watch: Mutex::new(None),
            doing: RwLock::new(()),
            gate: Mutex::new(Gate::Open),
            turned: Condvar::new(),
        });
        let layer = vfs::Layer::over(&shared);
        Self { shared, layer, dir }
    }

    /// The ground for a journal.
    pub(super) fn ground(&self) -> Ground {
        let shared = Arc::clone(&self.shared);
        let open = move |path: &Path| raw::open(&shared, path).map(|file| Box::new(file) as Box<dyn RawFile>);
        Ground {
            dir: self.dir.path().to_path_buf(),
            layer: Some(self.layer.name().to_owned()),
            open: Box::new(open),
            memory: None,
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Says that the directory itself has been synced, which no file layer sees.
    pub(super) fn names_synced(&self) {
        self.shared.state().recording.ops.push(Op::NamesSynced);
    }

    /// Calls `watch` before each change; what it sees there has come before the change.
    pub(super) fn watched_by(&self, watch: impl FnMut(&dyn Fn() -> usize) + Send + 'static) {
        *self.shared.watch.lock().expect("not poisoned") = Some(Box::new(watch));
    }

    /// Calls the watch out of turn.
    pub(super) fn look(&self) {
        self.shared.look();
    }

    /// How much has been done so far.
    pub(super) fn position(&self) -> usize {
        self.shared.state().recording.ops.len()
    }

    /// Takes the record out; the disk is not to be used any more.
    pub(super) fn into_recording(self) -> Recording {
        std::mem::take(&mut self.shared.state().recording)
    }

    /// Does something with the record as it is.
    pub(super) fn with_ops<T>(&self, look: impl FnOnce(&[Op]) -> T) -> T {
        look(&self.shared.state().recording.ops)
    }

    /// The numbers of all files that ever had such a name.
    pub(super) fn files_of(&self, is_meant: impl Fn(&str) -> bool) -> Vec<usize> {
        let state = self.shared.state();
        let found = state.recording.found.keys().enumerate().map(|(file, name)| (name.as_str(), file));
        let made = state.recording.ops.iter().filter_map(|op| match op {
            Op::Made { name, file } => Some((name.as_str(), *file)),
            Op::Gone { .. } | Op::NamesSynced | Op::Write { .. } => None,
            Op::Length { .. } | Op::Synced { .. } | Op::SyncFailed { .. } => None,
        });
        found.chain(made).filter(|(name, _)| is_meant(name)).map(|(_, file)| file).collect()
    }

    /// Makes calls fail from here on, in place of those before.
    pub(super) fn fail(&self, fault: Fault) {
        let mut state = self.shared.state();
        state.calls.clear();
        state.struck = false;
        state.fault = Some(fault);
    }

    /// Lets everything succeed; returns whether anything has failed.
    pub(super) fn heal(&self) -> bool {
        let mut state = self.shared.state();
        state.fault = None;
        state.struck
    }

    /// Returns whether anything has failed.
    pub(super) fn struck(&self) -> bool {
        self.shared.state().struck
    }

    /// Keeps whatever is done from the disk, as if whoever does it had been killed.
    pub(super) fn kill(&self) {
        let _nothing_under_way = self.shared.doing.write().expect("not poisoned");
        self.shared.state().dead = true;
    }

    /// Lets the next process have the disk.
    pub(super) fn revive(&self) {
        self.shared.state().dead = false;
    }

    /// Lets the next sync of the journal's own wait until it is released.
    pub(super) fn hold(&self) {
        *self.shared.gate.lock().expect("not poisoned") = Gate::Closed;
    }

    /// Waits until a sync waits, or until there is no reason to wait for one.
    pub(super) fn wait_until_held(&self, mut in_vain: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut gate = self.shared.gate.lock().expect("not poisoned");
        while *gate != Gate::Reached {
            assert!(Instant::now() < deadline, "nothing was synced");
            drop(gate);
            if in_vain() {
                return;
            }
            gate = self.shared.gate.lock().expect("not poisoned");
            gate = self.shared.turned.wait_timeout(gate, Duration::from_millis(1)).expect("not poisoned").0;
        }
    }

    pub(super) fn release(&self) {
        *self.shared.gate.lock().expect("not poisoned") = Gate::Open;
        self.shared.turned.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    /// Calls the watch.
    ///
    /// Whoever changes something comes through here first, so that the record does not grow between what is seen and
    /// the question how long it is.
    fn look(&self) {
        if let Some(watch) = self.watch.lock().expect("not poisoned").as_mut() {
            watch(&|| self.state().recording.ops.len());
        }
    }

    /// Says that a change is about to happen, and returns where in the record it begins.
    fn begin(&self) -> Turn<'_> {
        self.look();
        let doing = self.doing.read().expect("not poisoned");
        Turn { begun: self.state().recording.ops.len(), _doing: doing }
    }

    fn record_failed_sync(&self, file: usize, begun: usize) {
        self.record(Op::SyncFailed { file, begun, thread: thread::current().id() });
    }

    fn record(&self, op: Op) {
        let mut state = self.state();
        if !state.dead {
            state.recording.ops.push(op);
        }
    }

    /// Counts a call and says how it is to fail.
    fn failure(&self, kind: Kind) -> Option<Failure> {
        let mut state = self.state();
        if state.dead {
            return kind.changes().then_some(Failure::Broken);
        }
        let count = state.calls.entry(kind).or_default();
        *count += 1;
        let count = *count;
        let fault = state.fault.filter(|fault| fault.kind == kind)?;
        let strikes = match fault.lasting {
            Lasting::Once => count == fault.nth,
            Lasting::ForEver => count >= fault.nth,
        };
        state.struck |= strikes;
        strikes.then_some(fault.failure)
    }

    /// Finds out which file stands at `path`, which exists.
    fn file(&self, path: &Path) -> usize {
        let name = name_of(path);
        let mut state = self.state();
        if let Some(file) = state.names.get(&name) {
            return *file;
        }
        let file = state.files;
        state.files += 1;
        state.names.insert(name.clone(), file);
        state.recording.ops.push(Op::Made { name, file });
        // Somebody may have made it without this layer; then it is not durable either.
        let bytes = fs::read(path).expect("a file");
        if !bytes.is_empty() {
            state.recording.ops.push(Op::Write { file, at: 0, bytes });
        }
        file
    }

    /// Says that nothing has this name any more.
    fn gone(&self, path: &Path) {
        let name = name_of(path);
        let mut state = self.state();
        state.names.remove(&name);
        state.recording.ops.push(Op::Gone { name });
    }

    /// Holds a sync back while the gate is closed.
    fn pass(&self) {
        let mut gate = self.gate.lock().expect("not poisoned");
        if *gate == Gate::Closed {
            *gate = Gate::Reached;
            self.turned.notify_all();
        }
        let deadline = Instant::now() + PATIENCE;
        while *gate == Gate::Reached {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "a sync was held and not released");
            gate = self.turned.wait_timeout(gate, left).expect("not poisoned").0;
        }
    }
}

/// A directory of its own, in memory if there is room for one.
pub(super) fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let named = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("pushd-disk-");
        builder
    };
    named().tempdir_in(memory).or_else(|_| named().tempdir()).expect("a directory")
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

/// How long anything is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
