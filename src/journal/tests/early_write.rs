//! Early writes survive their process, are recovered once, and leave nothing behind.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::journal::early_write;

/// A journal with an in-memory directory.
struct EarlyWriteTest {
    dir: TempDir,
    memory: TempDir,
    journal: Journal,
}

impl EarlyWriteTest {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let journal = open(&dir, memory.path());
        Self { dir, memory, journal }
    }

    async fn write_history(&self, name: &str, ranges: &[(u64, u64)]) {
        commit(&self.journal, created(name)).await;
        for (first, last) in ranges {
            commit(&self.journal, appending(name, *first, *last)).await;
        }
    }

    fn write_early(&self, name: &str, first: u64, last: u64) -> Option<EarlyWrite> {
        self.journal.write_early(&appending(name, first, last), Seq::new(first - 1))
    }

    /// Reopens the journal as after a kill: the current one is not shut down.
    fn kill_and_reopen(self) -> Self {
        let Self { dir, memory, journal } = self;
        // Its thread and its files stay until the test process ends.
        std::mem::forget(journal);
        let next = tempfile::tempdir().expect("a directory");
        copy(dir.path(), next.path());
        fs::copy(dir.path().join(EARLY_WRITE_KEY), next.path().join(EARLY_WRITE_KEY)).expect("the key");
        if let Some(left) = file(&memory) {
            let state = fs::canonicalize(next.path()).expect("a directory");
            fs::rename(left, memory.path().join(early_write::file_name(&state))).expect("another name");
        }
        let journal = open(&next, memory.path());
        Self { dir: next, memory, journal }
    }

    async fn block_ranges(&self, name: &str) -> Vec<(u64, u64)> {
        let page = self.journal.page(name.into(), Seq::ZERO, usize::MAX).await.expect("a page");
        page.blocks.iter().map(|block| (block.first.number(), block.last.number())).collect()
    }

    async fn last(&self, name: &str) -> u64 {
        let page = self.journal.page(name.into(), Seq::ZERO, usize::MAX).await.expect("a page");
        page.blocks.last().map_or(0, |block| block.last.number())
    }
}

fn open(dir: &TempDir, memory: &Path) -> Journal {
    Journal::open_with_memory(dir.path(), Some(memory), Options::default()).expect("a journal")
}

async fn commit(journal: &Journal, batch: Batch) {
    journal.commit(batch).await.expect("an answer").expect("committed");
}

/// Returns the file in memory, if there is one.
fn file(memory: &TempDir) -> Option<PathBuf> {
    let mut found = fs::read_dir(memory.path()).expect("the directory").map(|entry| entry.expect("a name").path());
    let first = found.next();
    assert!(found.next().is_none(), "one file is enough");
    first
}

#[tokio::test]
async fn early_writes_survive_a_kill() {
    let test = EarlyWriteTest::new();
    test.write_history("a", &[(1, 3)]).await;
    test.write_history("b", &[]).await;
    test.write_early("a", 4, 5).expect("room");
    test.write_early("b", 1, 1).expect("room");
    let test = test.kill_and_reopen();
    assert_eq!((test.last("a").await, test.last("b").await), (5, 1));
    let page = test.journal.page("a".into(), Seq::ZERO, usize::MAX).await.expect("a page");
    let text: Vec<u8> = page.blocks.iter().flat_map(|block| block.bytes.to_vec()).collect();
    assert_eq!(text, lines(1, 5).into_bytes());
    commit(&test.journal, appending("a", 6, 6)).await;
    let test = test.kill_and_reopen();
    assert_eq!(test.last("a").await, 6, "the chain goes on behind it");
    assert_eq!(file(&test.memory), None, "nothing is left of it");
}

#[tokio::test]
async fn committed_events_are_not_recovered_twice() {
    let test = EarlyWriteTest::new();
    test.write_history("a", &[(1, 3)]).await;
    let early = test.write_early("a", 4, 4).expect("room");
    commit(&test.journal, appending("a", 4, 4)).await;
    let test = {
        // Killed between the commit and the release of the slot.
        drop(early);
        test.kill_and_reopen()
    };
    assert_eq!(test.block_ranges("a").await, [(1, 3), (4, 4)]);
}

#[tokio::test]
async fn a_record_that_does_not_continue_its_session_is_skipped() {
    let test = EarlyWriteTest::new();
    test.write_history("a", &[(1, 3)]).await;
    test.write_early("a", 9, 9).expect("room");
    test.write_early("nobody", 1, 1).expect("room");
    let test = test.kill_and_reopen();
    assert_eq!(test.last("a").await, 3);
    assert!(test.journal.load("nobody".into()).await.expect("it reads").is_none());
}

#[tokio::test]
async fn a_slot_is_wiped_and_reused_after_the_commit() {
    let test = EarlyWriteTest::new();
    let mut held: Vec<_> = (0..8).map(|number| test.write_early(&format!("s{number}"), 1, 2).expect("room")).collect();
    assert!(test.write_early("one more", 1, 1).is_none(), "all slots are in use");
    held.remove(3).release();
    let there = fs::read(file(&test.memory).expect("a file")).expect("its bytes");
    assert!(there[3 * 8192..4 * 8192].iter().all(|byte| *byte == 0), "it is wiped");
    assert!(there[4 * 8192..5 * 8192].iter().any(|byte| *byte != 0));
    let again = test.write_early("one more", 1, 1).expect("room");
    held.push(again);
    held.into_iter().for_each(EarlyWrite::release);
    let there = fs::read(file(&test.memory).expect("a file")).expect("its bytes");
    assert!(there.iter().all(|byte| *byte == 0), "nothing is left");
}

#[tokio::test]
async fn only_small_batches_of_plain_events_are_written_early() {
    let test = EarlyWriteTest::new();
    let refused = |batch: Batch| assert!(test.journal.write_early(&batch, Seq::ZERO).is_none(), "{batch:?}");
    refused(Batch::new("a".into()));
    refused(created("a"));
    refused(synced(appending("a", 1, 1)));
    refused(Batch { urgent: true, ..appending("a", 1, 1) });
    refused(Batch { meta: Some(meta("a", 1)), ..appending("a", 1, 1) });
    refused(Batch { reserved_seq: Some(Seq::new(9)), ..appending("a", 1, 1) });
    let mut large = appending("a", 1, 1);
    large.block.as_mut().expect("a block").bytes = Bytes::from(vec![b'x'; 8192]);
    refused(large.clone());
    large.block.as_mut().expect("a block").bytes = Bytes::from(vec![b'x'; 8000]);
    assert!(test.journal.write_early(&large, Seq::ZERO).is_some());
}

#[tokio::test]
async fn a_deleted_session_leaves_no_early_record() {
    let test = EarlyWriteTest::new();
    test.write_history("a", &[(1, 3)]).await;
    test.write_early("a", 4, 4).expect("room");
    test.journal.delete("a".into()).await.expect("an answer").expect("deleted");
    let there = fs::read(file(&test.memory).expect("a file")).expect("its bytes");
    assert!(there.iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn a_clean_close_keeps_the_file_only_if_it_holds_a_record() {
    let test = EarlyWriteTest::new();
    test.write_history("a", &[(1, 1)]).await;
    test.write_early("a", 2, 2).expect("room").release();
    test.journal.clone().close().await.expect("closes");
    assert_eq!(file(&test.memory), None);
    assert!(test.write_early("a", 2, 2).is_none(), "the journal is closed");

    let test = EarlyWriteTest::new();
    test.write_history("a", &[(1, 1)]).await;
    test.write_early("a", 2, 2).expect("room");
    test.journal.clone().close().await.expect("closes");
    assert!(file(&test.memory).is_some());
    let journal = open(&test.dir, test.memory.path());
    let page = journal.page("a".into(), Seq::ZERO, usize::MAX).await.expect("a page");
    assert_eq!(page.blocks.len(), 2);
}

#[tokio::test]
async fn an_unlinked_file_is_not_used() {
    let test = EarlyWriteTest::new();
    let early = test.write_early("a", 1, 1).expect("room");
    fs::remove_file(file(&test.memory).expect("a file")).expect("removed");
    early.release();
    assert!(test.write_early("a", 1, 1).is_none());
}

#[tokio::test]
async fn early_writes_require_a_tmpfs() {
    let dir = tempfile::tempdir().expect("a directory");
    for memory in [Path::new("/proc/self"), Path::new("/there/is/no/such/place")] {
        let journal = open(&dir, memory);
        assert!(journal.write_early(&appending("a", 1, 1), Seq::ZERO).is_none());
        journal.close().await.expect("closes");
    }
}

#[tokio::test]
async fn a_file_of_another_user_is_left_alone() {
    let (dir, memory) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir_in("/dev/shm").expect("a directory"));
    let path = memory.path().join(early_write::file_name(&fs::canonicalize(dir.path()).expect("a directory")));
    let target = dir.path().join("target");
    fs::write(&target, "precious").expect("a file");
    symlink(&target, &path).expect("a link");
    let refuses = || {
        let journal = open(&dir, memory.path());
        assert!(journal.write_early(&appending("a", 1, 1), Seq::ZERO).is_none());
        journal
    };
    refuses().close().await.expect("closes");
    assert_eq!(fs::read_to_string(&target).expect("it is there"), "precious");
    fs::remove_file(&path).expect("removed");
    let open_to_all = File::create(&path).expect("a file");
    open_to_all.set_permissions(Permissions::from_mode(0o666)).expect("a mode");
    refuses().close().await.expect("closes");
    assert_eq!(open_to_all.metadata().expect("it is there").len(), 0);
}

#[tokio::test]
async fn a_record_with_another_key_is_not_recovered() {
    let test = EarlyWriteTest::new();
    test.write_history("a", &[(1, 3)]).await;
    test.write_early("a", 4, 4).expect("room");
    let path = file(&test.memory).expect("a file");
    let forged = EarlyWriteTest::new();
    forged.write_early("a", 4, 4).expect("room");
    let with_another_key = fs::read(file(&forged.memory).expect("a file")).expect("its bytes");
    File::options().write(true).open(&path).expect("it").write_all_at(&with_another_key, 0).expect("written");
    let test = test.kill_and_reopen();
    assert_eq!(test.last("a").await, 3);
}
