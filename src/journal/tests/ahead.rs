//! Early writes survive their process, are recovered once, and leave nothing behind.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::journal::ahead;

/// A journal with an in-memory directory.
struct Beside {
    dir: TempDir,
    memory: TempDir,
    journal: Journal,
}

impl Beside {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let journal = open(&dir, memory.path());
        Self { dir, memory, journal }
    }

    async fn history(&self, name: &str, ranges: &[(u64, u64)]) {
        commit(&self.journal, created(name)).await;
        for (first, last) in ranges {
            commit(&self.journal, appending(name, *first, *last)).await;
        }
    }

    fn put(&self, name: &str, first: u64, last: u64) -> Option<Early> {
        self.journal.put_ahead(&appending(name, first, last), Seq::new(first - 1))
    }

    /// Reopens the journal as after a kill: the current one is not shut down.
    fn killed(self) -> Self {
        let Self { dir, memory, journal } = self;
        // Its thread and its files stay until the test process ends.
        std::mem::forget(journal);
        let next = tempfile::tempdir().expect("a directory");
        copy(dir.path(), next.path());
        fs::copy(dir.path().join(AHEAD), next.path().join(AHEAD)).expect("the key");
        if let Some(left) = file(&memory) {
            let state = fs::canonicalize(next.path()).expect("a directory");
            fs::rename(left, memory.path().join(ahead::name(&state))).expect("another name");
        }
        let journal = open(&next, memory.path());
        Self { dir: next, memory, journal }
    }

    async fn shape(&self, name: &str) -> Vec<(u64, u64)> {
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
    let mut found =
        fs::read_dir(memory.path()).expect("the directory").map(|entry| entry.expect("a name").path());
    let first = found.next();
    assert!(found.next().is_none(), "one file is enough");
    first
}

#[tokio::test]
async fn what_was_put_ahead_is_there_after_a_kill() {
    let place = Beside::new();
    place.history("a", &[(1, 3)]).await;
    place.history("b", &[]).await;
    place.put("a", 4, 5).expect("room");
    place.put("b", 1, 1).expect("room");
    let place = place.killed();
    assert_eq!((place.last("a").await, place.last("b").await), (5, 1));
    let page = place.journal.page("a".into(), Seq::ZERO, usize::MAX).await.expect("a page");
    let text: Vec<u8> = page.blocks.iter().flat_map(|block| block.bytes.to_vec()).collect();
    assert_eq!(text, lines(1, 5).into_bytes());
    commit(&place.journal, appending("a", 6, 6)).await;
    let place = place.killed();
    assert_eq!(place.last("a").await, 6, "the chain goes on behind it");
    assert_eq!(file(&place.memory), None, "nothing is left of it");
}

#[tokio::test]
async fn what_is_committed_is_not_taken_up_again() {
    let place = Beside::new();
    place.history("a", &[(1, 3)]).await;
    let early = place.put("a", 4, 4).expect("room");
    commit(&place.journal, appending("a", 4, 4)).await;
    let place = {
        // Killed between the commit and the release of the slot.
        drop(early);
        place.killed()
    };
    assert_eq!(place.shape("a").await, [(1, 3), (4, 4)]);
}

#[tokio::test]
async fn what_does_not_continue_its_session_is_not_taken_up() {
    let place = Beside::new();
    place.history("a", &[(1, 3)]).await;
    place.put("a", 9, 9).expect("room");
    place.put("nobody", 1, 1).expect("room");
    let place = place.killed();
    assert_eq!(place.last("a").await, 3);
    assert!(place.journal.load("nobody".into()).await.expect("it reads").is_none());
}

#[tokio::test]
async fn a_place_is_used_again_when_its_batch_is_committed_and_holds_nothing_any_more() {
    let place = Beside::new();
    let mut held: Vec<_> =
        (0..8).map(|number| place.put(&format!("s{number}"), 1, 2).expect("room")).collect();
    assert!(place.put("one more", 1, 1).is_none(), "all slots are in use");
    held.remove(3).done();
    let there = fs::read(file(&place.memory).expect("a file")).expect("its bytes");
    assert!(there[3 * 8192..4 * 8192].iter().all(|byte| *byte == 0), "it is wiped");
    assert!(there[4 * 8192..5 * 8192].iter().any(|byte| *byte != 0));
    let again = place.put("one more", 1, 1).expect("room");
    held.push(again);
    held.into_iter().for_each(Early::done);
    let there = fs::read(file(&place.memory).expect("a file")).expect("its bytes");
    assert!(there.iter().all(|byte| *byte == 0), "nothing is left");
}

#[tokio::test]
async fn only_plain_events_of_a_few_kilobytes_go_ahead() {
    let place = Beside::new();
    let refused = |batch: Batch| assert!(place.journal.put_ahead(&batch, Seq::ZERO).is_none(), "{batch:?}");
    refused(Batch::new("a".into()));
    refused(created("a"));
    refused(synced(appending("a", 1, 1)));
    refused(Batch { urgent: true, ..appending("a", 1, 1) });
    refused(Batch { meta: Some(meta("a", 1)), ..appending("a", 1, 1) });
    refused(Batch { reserve: Some(Seq::new(9)), ..appending("a", 1, 1) });
    let mut large = appending("a", 1, 1);
    large.block.as_mut().expect("a block").bytes = Bytes::from(vec![b'x'; 8192]);
    refused(large.clone());
    large.block.as_mut().expect("a block").bytes = Bytes::from(vec![b'x'; 8000]);
    assert!(place.journal.put_ahead(&large, Seq::ZERO).is_some());
}

#[tokio::test]
async fn a_session_that_is_deleted_leaves_nothing_ahead() {
    let place = Beside::new();
    place.history("a", &[(1, 3)]).await;
    place.put("a", 4, 4).expect("room");
    place.journal.delete("a".into()).await.expect("an answer").expect("deleted");
    let there = fs::read(file(&place.memory).expect("a file")).expect("its bytes");
    assert!(there.iter().all(|byte| *byte == 0));
}

#[tokio::test]
async fn an_end_in_good_order_leaves_a_file_only_where_something_is_in_it() {
    let place = Beside::new();
    place.history("a", &[(1, 1)]).await;
    place.put("a", 2, 2).expect("room").done();
    place.journal.clone().close().await.expect("closes");
    assert_eq!(file(&place.memory), None);
    assert!(place.put("a", 2, 2).is_none(), "the journal is closed");

    let place = Beside::new();
    place.history("a", &[(1, 1)]).await;
    place.put("a", 2, 2).expect("room");
    place.journal.clone().close().await.expect("closes");
    assert!(file(&place.memory).is_some());
    let journal = open(&place.dir, place.memory.path());
    let page = journal.page("a".into(), Seq::ZERO, usize::MAX).await.expect("a page");
    assert_eq!(page.blocks.len(), 2);
}

#[tokio::test]
async fn a_file_that_lost_its_name_is_of_no_use() {
    let place = Beside::new();
    let early = place.put("a", 1, 1).expect("room");
    fs::remove_file(file(&place.memory).expect("a file")).expect("removed");
    early.done();
    assert!(place.put("a", 1, 1).is_none());
}

#[tokio::test]
async fn nothing_goes_ahead_where_files_do_not_lie_in_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    for memory in [Path::new("/proc/self"), Path::new("/there/is/no/such/place")] {
        let journal = open(&dir, memory);
        assert!(journal.put_ahead(&appending("a", 1, 1), Seq::ZERO).is_none());
        journal.close().await.expect("closes");
    }
}

#[tokio::test]
async fn what_somebody_else_put_there_is_left_alone() {
    let (dir, memory) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir_in("/dev/shm").expect("a directory"));
    let path = memory.path().join(ahead::name(&fs::canonicalize(dir.path()).expect("a directory")));
    let target = dir.path().join("target");
    fs::write(&target, "precious").expect("a file");
    symlink(&target, &path).expect("a link");
    let refuses = || {
        let journal = open(&dir, memory.path());
        assert!(journal.put_ahead(&appending("a", 1, 1), Seq::ZERO).is_none());
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
async fn nobody_without_the_key_can_put_anything_into_a_session() {
    let place = Beside::new();
    place.history("a", &[(1, 3)]).await;
    place.put("a", 4, 4).expect("room");
    let path = file(&place.memory).expect("a file");
    let forged = Beside::new();
    forged.put("a", 4, 4).expect("room");
    let with_another_key = fs::read(file(&forged.memory).expect("a file")).expect("its bytes");
    File::options().write(true).open(&path).expect("it").write_all_at(&with_another_key, 0).expect("written");
    let place = place.killed();
    assert_eq!(place.last("a").await, 3);
}
