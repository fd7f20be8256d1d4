//! Failing files: each call of each kind fails in turn, once and permanently.
//!
//! Whatever fails, every batch gets a reply, and the reply is true: committed data is there, refused data is not,
//! and after a failed sync all writes are refused. `PUSH_LONG=1` makes every call fail in turn; the short form
//! skips most of the later ones.

use std::env;

use super::disk::ledger::{Driver, Story, wait};
use super::disk::model::{Model, Seen};
use super::disk::workload::{BOOT, Workload};
use super::disk::{Disk, Failure, Fault, Kind, Lasting, Op};
use super::*;

#[test]
fn a_write_that_fails_is_an_answer() {
    each_call(Kind::Write, Failure::Broken);
}

#[test]
fn a_full_disk_is_an_answer_and_no_more_than_that() {
    each_call(Kind::Write, Failure::Full);
    each_call(Kind::Write, Failure::HalfFull);
}

#[test]
fn a_read_that_fails_is_an_answer() {
    each_call(Kind::Read, Failure::Broken);
    each_call(Kind::Size, Failure::Broken);
}

#[test]
fn a_file_that_cannot_be_opened_or_cut_is_an_answer() {
    for kind in [Kind::Open, Kind::Access, Kind::Delete, Kind::Length] {
        each_call(kind, Failure::Broken);
    }
}

#[test]
fn a_sync_that_fails_is_the_last() {
    each_call(Kind::Sync, Failure::Broken);
    each_call(Kind::OwnSync, Failure::Broken);
    each_call(Kind::OwnSync, Failure::Full);
}

#[test]
fn the_journals_own_files_may_fail() {
    for kind in [Kind::OwnOpen, Kind::OwnRead, Kind::OwnSize, Kind::OwnLength] {
        each_call(kind, Failure::Broken);
    }
    for failure in [Failure::Broken, Failure::Full, Failure::HalfFull] {
        each_call(Kind::OwnWrite, failure);
    }
}

/// The state in which a journal is opened.
#[derive(Debug, Clone, Copy)]
enum Start {
    /// In an empty directory.
    Fresh,
    /// After another one was killed.
    Left,
}

/// The caller of a sync: the thread of the test opens a journal, and the writer thread uses it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Opening,
    Writer,
}

/// Makes one call after another fail until none is left.
fn each_call(kind: Kind, failure: Failure) {
    let long = env::var("PUSH_LONG").is_ok_and(|value| value == "1");
    for start in [Start::Fresh, Start::Left] {
        for lasting in [Lasting::Once, Lasting::ForEver] {
            let fault = Fault { kind, nth: 1, failure, lasting };
            // There are few syncs, and each has its own purpose.
            let every = long || (fault.kind == Kind::Sync && fault.lasting == Lasting::Once);
            let mut nth = 1;
            while Trial::new(start, Fault { nth, ..fault }).run() {
                nth += if every { 1 } else { 1 + nth * 2 / 3 };
            }
        }
    }
}

/// One fault and its consequences for a journal.
struct Trial {
    name: String,
    start: Start,
    fault: Fault,
    workload: Workload,
    commands: u64,
}

impl Trial {
    fn new(start: Start, fault: Fault) -> Self {
        Self { name: format!("{start:?} {fault:?}"), start, fault, workload: Workload::new(5), commands: 0 }
    }

    /// Runs the trial; returns whether the failing call was reached.
    fn run(mut self) -> bool {
        let (disk, story) = self.begin();
        disk.fail(self.fault);
        let (driver, opened) = self.open(disk, story);
        let mut struck = !opened;
        if opened {
            let hidden = self.sync_failed(&driver.disk, By::Opening);
            assert_eq!(hidden, None, "{}: opening hides a failed sync", self.name);
        }
        for _ in 0..STEPS {
            self.step(&driver);
        }
        // Its reply shows that all work after the previous reply is done.
        let _ = driver.commit(Batch::new("s0".into()));
        if driver.disk.struck() {
            struck = true;
            driver.disk.heal();
            match self.sync_failed(&driver.disk, By::Writer) {
                Some(_) => self.takes_nothing(&driver),
                None => self.takes_more(&driver),
            }
        }
        // A fault that has not triggered yet may trigger while the journal closes.
        let (disk, story, outcome) = driver.close();
        struck |= disk.heal();
        let failed = self.sync_failed(&disk, By::Writer).is_some();
        match outcome {
            Ok(()) => assert!(!failed, "{}: closing hides a failed sync", self.name),
            Err(CommitError::StorageFailed | CommitError::SyncFailed { .. }) => {
                assert!(failed, "{}: closing claims a failed sync", self.name);
            }
            Err(error) => assert!(struck, "{}: closing says {error:?}", self.name),
        }
        self.never_synced_again(&disk);
        self.judge(&disk, &story);
        struck
    }

    fn begin(&mut self) -> (Disk, Story) {
        let disk = Disk::new();
        match self.start {
            Start::Fresh => (disk, Story::default()),
            Start::Left => {
                let driver = Driver::open(disk, options(), Story::default())
                    .map_err(|refused| refused.1)
                    .expect("opens");
                for _ in 0..8 {
                    driver.commit(self.workload.batch()).expect("kept");
                }
                driver.die()
            }
        }
    }

    /// Opens the journal, with a second attempt if the first fails; returns whether the first succeeded.
    fn open(&self, disk: Disk, story: Story) -> (Driver, bool) {
        let (disk, error) = match Driver::open(disk, options(), story.clone()) {
            Ok(driver) => return (driver, true),
            Err(refused) => *refused,
        };
        let name = &self.name;
        assert!(
            matches!(error, OpenError::Io { .. } | OpenError::Sqlite { .. }),
            "{name}: a failing disk is called something else: {error:?}"
        );
        assert!(disk.heal(), "{name}: nothing failed and it does not open: {error:?}");
        match Driver::open(disk, options(), story) {
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
                assert!(driver.disk.struck(), "{}: nothing failed: {error:?}", self.name);
                let full = matches!(self.fault.failure, Failure::Full | Failure::HalfFull);
                assert_eq!(matches!(error, CommitError::Full), full, "{}: {error:?}", self.name);
                if self.fault.lasting == Lasting::Once {
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
            let _ = wait(journal.keep_commands(vec![admitted], Durability::Synced)).expect("an answer");
            let settled = CommandWrite::Settled(it.clone());
            let _ = wait(journal.keep_commands(vec![settled], Durability::Written)).expect("an answer");
            journal.keep_commands_later([it], [row]);
        }
        if self.workload.random.one_in(4) {
            let session: SessionId = "s0".into();
            // Only completion matters, not the result.
            let _ = wait(driver.journal.merge(session, Seq::new(u64::MAX))).expect("an answer");
            let _ = Seen::of(&driver.journal, 4_000);
        }
    }

    /// Finds the position in the recording at which a sync of the database or its log failed.
    fn sync_failed(&self, disk: &Disk, by: By) -> Option<usize> {
        let store = disk.files_of(|name| name.starts_with(DATABASE));
        let here = std::thread::current().id();
        let failed = |op: &Op| match op {
            Op::SyncFailed { file, thread, .. } => {
                store.contains(file) && (*thread == here) == (by == By::Opening)
            }
            Op::Made { .. } | Op::Gone { .. } | Op::NamesSynced => false,
            Op::Write { .. } | Op::Length { .. } | Op::Synced { .. } => false,
        };
        disk.with_ops(|ops| ops.iter().position(failed))
    }

    fn takes_more(&mut self, driver: &Driver) {
        let batch = Batch { durability: Durability::Synced, ..self.workload.batch() };
        match driver.commit(batch) {
            // A session that a refused batch would have created is missing.
            Ok(()) | Err(CommitError::Conflict(Conflict::NoSuchSession)) => {}
            Err(error) => panic!("{}: the fault is over: {error:?}", self.name),
        }
    }

    fn takes_nothing(&mut self, driver: &Driver) {
        for durability in [Durability::Written, Durability::Synced] {
            let refused = driver.commit(Batch { durability, ..self.workload.batch() });
            assert!(matches!(refused, Err(CommitError::StorageFailed)), "{}: {refused:?}", self.name);
        }
        assert!(driver.journal.stats().failed, "{}", self.name);
        Seen::of(&driver.journal, 4_000)
            .unwrap_or_else(|error| panic!("{}: reads go on: {error:?}", self.name));
    }

    fn never_synced_again(&self, disk: &Disk) {
        let Some(at) = self.sync_failed(disk, By::Writer) else { return };
        let store = disk.files_of(|name| name.starts_with(DATABASE));
        let synced = |op: &&Op| matches!(op, Op::Synced { file, .. } | Op::SyncFailed { file, .. } if store.contains(file));
        let again = disk.with_ops(|ops| ops.iter().skip(at + 1).find(synced).cloned());
        assert!(again.is_none(), "{}: a sync after a failed one: {again:?}", self.name);
    }

    /// Opens what is left without faults and compares it with the replies.
    fn judge(&self, disk: &Disk, story: &Story) {
        let name = &self.name;
        let journal =
            Journal::open(disk.path(), options()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let seen = Seen::of(&journal, usize::MAX).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let models = [SyncFailed::Kept, SyncFailed::Lost].map(|unsynced| {
            let there = story.entries.iter().filter(|entry| match &entry.answer {
                Some((_, Ok(()))) => true,
                Some((_, Err(CommitError::SyncFailed { .. }))) => unsynced == SyncFailed::Kept,
                Some((_, Err(_))) => false,
                None => panic!("{name}: no answer"),
            });
            Model::of(there.map(|entry| &entry.batch))
        });
        let whole = story.entries.len();
        assert!(
            models.iter().any(|model| model.find(&seen, whole, whole).is_some()),
            "{name}:\n{}{:#?}",
            models[0].differences(&seen, whole),
            story.entries.iter().map(|entry| &entry.answer).collect::<Vec<_>>()
        );
        wait(journal.close()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
}

/// What became of a batch that could not be synced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncFailed {
    Kept,
    Lost,
}

/// How many batches each journal gets.
const STEPS: usize = 14;

/// Limits that make checkpoints frequent, and no timers.
fn options() -> Options {
    Options {
        sync_within: Duration::from_secs(3_600),
        checkpoint_pages: 6,
        readers: 1,
        small_block: 2_048,
        merged_block: 12_000,
        spare_bytes: 8_192,
        boot: BOOT,
        ..Options::default()
    }
}
