//! A disk for tests: real files, a recording of all operations on them, and injected faults.
//!
//! SQLite's VFS and the journal's own files use the same disk, so both handles on the log refer to one file and
//! the recording has one order. Locks and shared memory belong to the operating system and are not recorded: they
//! do not survive a power loss. `crash` simulates the power loss.

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

use super::super::files::{RawFile, StorageEnv};

/// An operation on the files, in order.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// A file was created.
    Created {
        name: String,
        file: usize,
    },
    /// A name was removed.
    Removed {
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
    /// Operations before `begun` are durable.
    Synced {
        file: usize,
        begun: usize,
    },
    /// Unsynced operations before `begun` may never become durable.
    SyncFailed {
        file: usize,
        begun: usize,
        /// The thread that requested the sync.
        thread: ThreadId,
    },
}

/// A kind of call. `Own` marks calls of the journal itself, the others are SQLite's.
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
    /// Returns whether the call changes the disk.
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
    /// The device reports an error, and nothing is written.
    Broken,
    /// The disk is full, and nothing is written.
    Full,
    /// The disk is full after a part was written.
    HalfFull,
}

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultDuration {
    Once,
    Permanent,
}

/// Which call fails, counted from one since the fault was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FaultSpec {
    pub(super) kind: Kind,
    pub(super) nth: u64,
    pub(super) failure: Failure,
    pub(super) duration: FaultDuration,
}

/// All operations on a disk since its creation.
#[derive(Debug, Clone, Default)]
pub(super) struct Recording {
    /// The initial files, all durable, numbered in the order of their names.
    pub(super) initial_files: BTreeMap<String, Vec<u8>>,
    pub(super) ops: Vec<Op>,
}

/// A directory whose files are recorded.
pub(super) struct Disk {
    shared: Arc<Shared>,
    layer: vfs::TestVfs,
    dir: TempDir,
}

/// A callback that observes each change; its argument returns the length of the recording.
type Observer = Box<dyn FnMut(&dyn Fn() -> usize) + Send>;

/// The state shared by all handles.
struct Shared {
    state: Mutex<State>,
    /// Called before each change.
    observer: Mutex<Option<Observer>>,
    /// Held during an operation and its recording, so that both happen or neither.
    operation: RwLock<()>,
    gate: Mutex<SyncGate>,
    gate_changed: Condvar,
}

#[derive(Default)]
struct State {
    recording: Recording,
    names: BTreeMap<String, usize>,
    files: usize,
    calls: BTreeMap<Kind, u64>,
    fault: Option<FaultSpec>,
    triggered: bool,
    /// Whether the process counts as killed: it changes nothing, and nothing is recorded.
    dead: bool,
}

/// A change in progress.
struct ChangeGuard<'a> {
    /// The length of the recording when the change began.
    begun: usize,
    _doing: RwLockReadGuard<'a, ()>,
}

/// Whether a sync of the log is held back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncGate {
    Open,
    Closed,
    Reached,
}

impl Disk {
    /// Creates an empty directory, in memory if possible: durability is simulated by the recording.
    pub(super) fn new() -> Self {
        Self::on(directory())
    }

    /// Uses a directory with files, all of them durable.
    pub(super) fn on(dir: TempDir) -> Self {
        let mut state = State::default();
        for entry in fs::read_dir(dir.path()).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = name_of(&path);
            if !name.ends_with("-shm") {
                state.recording.initial_files.insert(name, fs::read(&path).expect("a file"));
            }
        }
        let names = state.recording.initial_files.keys().cloned().enumerate();
        state.names = names.map(|(file, name)| (name, file)).collect();
        state.files = state.names.len();
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            observer: Mutex::new(None),
            operation: RwLock::new(()),
            gate: Mutex::new(SyncGate::Open),
            gate_changed: Condvar::new(),
        });
        let layer = vfs::TestVfs::over(&shared);
        Self { shared, layer, dir }
    }

    /// Returns the storage environment for a journal.
    pub(super) fn env(&self) -> StorageEnv {
        let shared = Arc::clone(&self.shared);
        let open = move |path: &Path| raw::open(&shared, path).map(|file| Box::new(file) as Box<dyn RawFile>);
        StorageEnv {
            dir: self.dir.path().to_path_buf(),
            vfs: Some(self.layer.name().to_owned()),
            open_file: Box::new(open),
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Records a sync of the directory, which no VFS call shows.
    pub(super) fn names_synced(&self) {
        self.shared.state().recording.ops.push(Op::NamesSynced);
    }

    /// Sets the callback that runs before each change; whatever it observes precedes the change.
    pub(super) fn set_observer(&self, watch: impl FnMut(&dyn Fn() -> usize) + Send + 'static) {
        *self.shared.observer.lock().expect("not poisoned") = Some(Box::new(watch));
    }

    /// Runs the observer.
    pub(super) fn observe(&self) {
        self.shared.observe();
    }

    /// Returns the length of the recording.
    pub(super) fn position(&self) -> usize {
        self.shared.state().recording.ops.len()
    }

    /// Returns the recording; the disk must not be used afterwards.
    pub(super) fn into_recording(self) -> Recording {
        std::mem::take(&mut self.shared.state().recording)
    }

    /// Runs `look` on the recorded operations.
    pub(super) fn with_ops<T>(&self, look: impl FnOnce(&[Op]) -> T) -> T {
        look(&self.shared.state().recording.ops)
    }

    /// Returns the numbers of all files that ever had such a name.
    pub(super) fn files_of(&self, is_meant: impl Fn(&str) -> bool) -> Vec<usize> {
        let state = self.shared.state();
        let found = state.recording.initial_files.keys().enumerate().map(|(file, name)| (name.as_str(), file));
        let made = state.recording.ops.iter().filter_map(|op| match op {
            Op::Created { name, file } => Some((name.as_str(), *file)),
            Op::Removed { .. } | Op::NamesSynced | Op::Write { .. } => None,
            Op::Length { .. } | Op::Synced { .. } | Op::SyncFailed { .. } => None,
        });
        found.chain(made).filter(|(name, _)| is_meant(name)).map(|(_, file)| file).collect()
    }

    /// Sets the fault and clears the previous one.
    pub(super) fn fail(&self, fault: FaultSpec) {
        let mut state = self.shared.state();
        state.calls.clear();
        state.triggered = false;
        state.fault = Some(fault);
    }

    /// Clears the fault; returns whether it triggered.
    pub(super) fn clear_fault(&self) -> bool {
        let mut state = self.shared.state();
        state.fault = None;
        state.triggered
    }

    /// Returns whether the fault triggered.
    pub(super) fn triggered(&self) -> bool {
        self.shared.state().triggered
    }

    /// Discards all further changes, as if the process had been killed.
    pub(super) fn kill(&self) {
        let _nothing_under_way = self.shared.operation.write().expect("not poisoned");
        self.shared.state().dead = true;
    }

    /// Accepts changes again, for the next process.
    pub(super) fn revive(&self) {
        self.shared.state().dead = false;
    }

    /// Holds the journal's next sync until it is released.
    pub(super) fn hold_sync(&self) {
        *self.shared.gate.lock().expect("not poisoned") = SyncGate::Closed;
    }

    /// Waits until a sync is held, or until `in_vain` returns true.
    pub(super) fn wait_until_held(&self, mut in_vain: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut gate = self.shared.gate.lock().expect("not poisoned");
        while *gate != SyncGate::Reached {
            assert!(Instant::now() < deadline, "nothing was synced");
            drop(gate);
            if in_vain() {
                return;
            }
            gate = self.shared.gate.lock().expect("not poisoned");
            gate = self.shared.gate_changed.wait_timeout(gate, Duration::from_millis(1)).expect("not poisoned").0;
        }
    }

    pub(super) fn release_sync(&self) {
        *self.shared.gate.lock().expect("not poisoned") = SyncGate::Open;
        self.shared.gate_changed.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    /// Runs the observer.
    ///
    /// Every change runs it first, so that the recording does not grow between an observation and the query of its
    /// length.
    fn observe(&self) {
        if let Some(watch) = self.observer.lock().expect("not poisoned").as_mut() {
            watch(&|| self.state().recording.ops.len());
        }
    }

    /// Begins a change, and returns its position in the recording.
    fn begin_change(&self) -> ChangeGuard<'_> {
        self.observe();
        let doing = self.operation.read().expect("not poisoned");
        ChangeGuard { begun: self.state().recording.ops.len(), _doing: doing }
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

    /// Counts a call and returns how it fails.
    fn failure(&self, kind: Kind) -> Option<Failure> {
        let mut state = self.state();
        if state.dead {
            return kind.changes().then_some(Failure::Broken);
        }
        let count = state.calls.entry(kind).or_default();
        *count += 1;
        let count = *count;
        let fault = state.fault.filter(|fault| fault.kind == kind)?;
        let strikes = match fault.duration {
            FaultDuration::Once => count == fault.nth,
            FaultDuration::Permanent => count >= fault.nth,
        };
        state.triggered |= strikes;
        strikes.then_some(fault.failure)
    }

    /// Returns the number of the file at `path`, which exists.
    fn file_number(&self, path: &Path) -> usize {
        let name = name_of(path);
        let mut state = self.state();
        if let Some(file) = state.names.get(&name) {
            return *file;
        }
        let file = state.files;
        state.files += 1;
        state.names.insert(name.clone(), file);
        state.recording.ops.push(Op::Created { name, file });
        // The file may have been created outside this layer; then it is not durable either.
        let bytes = fs::read(path).expect("a file");
        if !bytes.is_empty() {
            state.recording.ops.push(Op::Write { file, at: 0, bytes });
        }
        file
    }

    /// Records that a name was removed.
    fn record_removed(&self, path: &Path) {
        let name = name_of(path);
        let mut state = self.state();
        state.names.remove(&name);
        state.recording.ops.push(Op::Removed { name });
    }

    /// Holds a sync back while the gate is closed.
    fn wait_at_gate(&self) {
        let mut gate = self.gate.lock().expect("not poisoned");
        if *gate == SyncGate::Closed {
            *gate = SyncGate::Reached;
            self.gate_changed.notify_all();
        }
        let deadline = Instant::now() + PATIENCE;
        while *gate == SyncGate::Reached {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "a sync was held and not released");
            gate = self.gate_changed.wait_timeout(gate, left).expect("not poisoned").0;
        }
    }
}

/// Creates a directory, in memory if possible.
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

/// The timeout of every wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
