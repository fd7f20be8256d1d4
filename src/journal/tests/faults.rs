//! Failing files: each call of each kind fails in turn, once and permanently.
//!
//! Whatever fails, every batch gets a reply, and the reply is true: committed data is there, refused data is not,
//! and after a failed sync all writes are refused. `PUSH_LONG=1` makes every call fail in turn; the short form
//! skips most of the later ones.

use std::env;

use super::disk::ledger::{Driver, RequestLog, block_on};
use super::disk::model::{JournalContents, Model};
use super::disk::workload::{BOOT, Workload};
use super::disk::{Disk, Failure, FaultDuration, FaultSpec, Kind, Op};
use super::*;

#[test]
fn a_failed_write_is_reported() {
    each_call(Kind::Write, Failure::Broken);
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_lost() {
    each_call(Kind::Write, Failure::Full);
    each_call(Kind::Write, Failure::HalfFull);
}

#[test]
fn a_failed_read_is_reported() {
    each_call(Kind::Read, Failure::Broken);
    each_call(Kind::Size, Failure::Broken);
}

#[test]
fn a_failed_open_or_truncate_is_reported() {
    for kind in [Kind::Open, Kind::Access, Kind::Delete, Kind::Length] {
        each_call(kind, Failure::Broken);
    }
}

#[test]
fn a_failed_sync_is_never_retried() {
    each_call(Kind::Sync, Failure::Broken);
    each_call(Kind::OwnSync, Failure::Broken);
    each_call(Kind::OwnSync, Failure::Full);
}

#[test]
fn failures_of_the_journals_own_files_are_handled() {
    for kind in [Kind::OwnOpen, Kind::OwnRead, Kind::OwnSize, Kind::OwnLength] {
        each_call(kind, Failure::Broken);
    }
    for failure in [Failure::Broken, Failure::Full, Failure::HalfFull] {
        each_call(Kind::OwnWrite, failure);
    }
}

/// The state in which a journal is opened.
#[derive(Debug, Clone, Copy)]
enum StartState {
    /// In an empty directory.
    Fresh,
    /// After another one was killed.
    AfterKill,
}

/// The caller of a sync: the thread of the test opens a journal, and the writer thread uses it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncCaller {
    Opening,
    Writer,
}

/// Makes one call after another fail until none is left.
fn each_call(kind: Kind, failure: Failure) {
    let long = env::var("PUSH_LONG").is_ok_and(|value| value == "1");
    for start in [StartState::Fresh, StartState::AfterKill] {
        for lasting in [FaultDuration::Once, FaultDuration::Permanent] {
            let fault = FaultSpec { kind, nth: 1, failure, duration: lasting };
            // There are few syncs, and each has its own purpose.
            let every = long || (fault.kind == Kind::Sync && fault.duration == FaultDuration::Once);
            let mut nth = 1;
            while FaultTrial::new(start, FaultSpec { nth, ..fault }).run() {
                nth += if every { 1 } else { 1 + nth * 2 / 3 };
            }
        }
    }
}

/// One fault and its consequences for a journal.
struct FaultTrial {
    name: String,
    start: StartState,
    fault: FaultSpec,
    workload: Workload,
    commands: u64,
}

impl FaultTrial {
    fn new(start: StartState, fault: FaultSpec) -> Self {
        Self { name: format!("{start:?} {fault:?}"), start, fault, workload: Workload::new(5), commands: 0 }
    }

    /// Runs the trial; returns whether the failing call was reached.
    fn run(mut self) -> bool {
        let (disk, requests) = self.prepare();
        disk.fail(self.fault);
        let (driver, opened) = self.open(disk, requests);
        let mut struck = !opened;
        if opened {
            let hidden = self.sync_failed(&driver.disk, SyncCaller::Opening);
            assert_eq!(hidden, None, "{}: opening hides a failed sync", self.name);
        }
        for _ in 0..STEPS {
            self.step(&driver);
        }
        // Its reply shows that all work after the previous reply is done.
        let _ = driver.commit(Batch::new("s0".into()));
        if driver.disk.triggered() {
            struck = true;
            driver.disk.clear_fault();
            match self.sync_failed(&driver.disk, SyncCaller::Writer) {
                Some(_) => self.refuses_batches(&driver),
                None => self.accepts_batches(&driver),
            }
        }
        // A fault that has not triggered yet may trigger while the journal closes.
        let (disk, requests, outcome) = driver.close();
        struck |= disk.clear_fault();
        let failed = self.sync_failed(&disk, SyncCaller::Writer).is_some();
        match outcome {
            Ok(()) => assert!(!failed, "{}: closing hides a failed sync", self.name),
            Err(CommitError::StorageFailed | CommitError::SyncFailed { .. }) => {
                assert!(failed, "{}: closing claims a failed sync", self.name);
            }
            Err(error) => assert!(struck, "{}: closing says {error:?}", self.name),
        }
        self.never_synced_again(&disk);
        self.verify(&disk, &requests);
        struck
    }

    fn prepare(&mut self) -> (Disk, RequestLog) {
        let disk = Disk::new();
        match self.start {
            StartState::Fresh => (disk, RequestLog::default()),
            StartState::AfterKill => {
                let driver =
                    Driver::open(disk, options(), RequestLog::default()).map_err(|refused| refused.1).expect("opens");
                for _ in 0..8 {
                    driver.commit(self.workload.batch()).expect("kept");
                }
                driver.kill()
            }
        }
    }

    /// Opens the journal, with a second attempt if the first fails; returns whether the first succeeded.
    fn open(&self, disk: Disk, requests: RequestLog) -> (Driver, bool) {
        let (disk, error) = match Driver::open(disk, options(), requests.clone()) {
            Ok(driver) => return (driver, true),
            Err(refused) => *refused,
        };
        let name = &self.name;
        assert!(
            matches!(error, OpenError::Io { .. } | OpenError::Sqlite { .. }),
            "{name}: a failing disk is called something else: {error:?}"
        );
        assert!(disk.clear_fault(), "{name}: nothing failed and it does not open: {error:?}");
        match Driver::open(disk, options(), requests) {
            Ok(driver) => (driver, false),
            Err(refused) => panic!("{name}: the fault is over: {:?}", refused.1),
        }
    }

    /// Commits a batch; repeats a refused one if the fault is over.
    fn step(&mut self, driver: &Driver) {
        let batch = self.workload.batch();
        match driver.commit(batch.clone()) {
            Ok(()) | Err(CommitError::SyncFailed { .. } | CommitError::StorageFailed) => {}
            Err(CommitError::Conflict(Conflict::NoSuchSession)) => {}
            Err(error) => {
                assert!(driver.disk.triggered(), "{}: nothing failed: {error:?}", self.name);
                let full = matches!(self.fault.failure, Failure::Full | Failure::HalfFull);
                assert_eq!(matches!(error, CommitError::Full), full, "{}: {error:?}", self.name);
                if self.fault.duration == FaultDuration::Once {
                    let again = driver.commit(batch);
                    assert!(again.is_ok(), "{}: the fault is over: {again:?}", self.name);
                }
            }
        }
        if self.workload.random.one_in(3) {
            self.commands += 1;
            let it = super::commands::settlement(self.commands, "s0", "answer");
            let admitted = CommandWrite::Admitted(Arc::clone(&it.record));
            let (row, journal) = (it.record.row, &driver.journal);
            let _ = block_on(journal.write_commands(vec![admitted], Durability::Synced)).expect("an answer");
            let settled = CommandWrite::Settled(it.clone());
            let _ = block_on(journal.write_commands(vec![settled], Durability::Written)).expect("an answer");
            journal.defer_commands([it], [row]);
        }
        if self.workload.random.one_in(4) {
            let _ = JournalContents::read(&driver.journal, 4_000);
        }
    }

    /// Finds the position in the recording at which a sync of the database or its log failed.
    fn sync_failed(&self, disk: &Disk, by: SyncCaller) -> Option<usize> {
        let store = disk.files_of(|name| name.starts_with(DATABASE));
        let here = std::thread::current().id();
        let failed = |op: &Op| match op {
            Op::SyncFailed { file, thread, .. } => {
                store.contains(file) && (*thread == here) == (by == SyncCaller::Opening)
            }
            Op::Created { .. } | Op::Removed { .. } | Op::NamesSynced => false,
            Op::Write { .. } | Op::Length { .. } | Op::Synced { .. } => false,
        };
        disk.with_ops(|ops| ops.iter().position(failed))
    }

    fn accepts_batches(&mut self, driver: &Driver) {
        let batch = Batch { durability: Durability::Synced, ..self.workload.batch() };
        match driver.commit(batch) {
            // A session that a refused batch would have created is missing.
            Ok(()) | Err(CommitError::Conflict(Conflict::NoSuchSession)) => {}
            Err(error) => panic!("{}: the fault is over: {error:?}", self.name),
        }
    }

    fn refuses_batches(&mut self, driver: &Driver) {
        for durability in [Durability::Written, Durability::Synced] {
            let refused = driver.commit(Batch { durability, ..self.workload.batch() });
            assert!(matches!(refused, Err(CommitError::StorageFailed)), "{}: {refused:?}", self.name);
        }
        assert!(driver.journal.stats().failed, "{}", self.name);
        JournalContents::read(&driver.journal, 4_000)
            .unwrap_or_else(|error| panic!("{}: reads go on: {error:?}", self.name));
    }

    fn never_synced_again(&self, disk: &Disk) {
        let Some(at) = self.sync_failed(disk, SyncCaller::Writer) else { return };
        let store = disk.files_of(|name| name.starts_with(DATABASE));
        let synced =
            |op: &&Op| matches!(op, Op::Synced { file, .. } | Op::SyncFailed { file, .. } if store.contains(file));
        let again = disk.with_ops(|ops| ops.iter().skip(at + 1).find(synced).cloned());
        assert!(again.is_none(), "{}: a sync after a failed one: {again:?}", self.name);
    }

    /// Opens what is left without faults and compares it with the replies.
    fn verify(&self, disk: &Disk, requests: &RequestLog) {
        let name = &self.name;
        let journal = Journal::open(disk.path(), options()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let seen = JournalContents::read(&journal, usize::MAX).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let models = [UnsyncedBatch::Present, UnsyncedBatch::Missing].map(|unsynced| {
            let there = requests.entries.iter().filter(|entry| match &entry.answer {
                Some((_, Ok(()))) => true,
                Some((_, Err(CommitError::SyncFailed { .. }))) => unsynced == UnsyncedBatch::Present,
                Some((_, Err(_))) => false,
                None => panic!("{name}: no answer"),
            });
            Model::of(there.map(|entry| &entry.batch))
        });
        let whole = requests.entries.len();
        assert!(
            models.iter().any(|model| model.find(&seen, whole, whole).is_some()),
            "{name}:\n{}{:#?}",
            models[0].describe_differences(&seen, whole),
            requests.entries.iter().map(|entry| &entry.answer).collect::<Vec<_>>()
        );
        block_on(journal.close()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
}

/// What became of a batch that could not be synced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UnsyncedBatch {
    Present,
    Missing,
}

/// How many batches each journal gets.
const STEPS: usize = 14;

/// Limits that make checkpoints frequent, and no timers.
fn options() -> Options {
    Options {
        sync_within: Duration::from_secs(3_600),
        checkpoint_pages: 6,
        readers: 1,
        reserve_bytes: 8_192,
        boot: BOOT,
        ..Options::default()
    }
}
