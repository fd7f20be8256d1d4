//! Removal: deleted data is gone from every file, and retention leaves a splice.

use super::*;

#[tokio::test]
async fn a_deleted_session_leaves_no_byte_behind() {
    let test = TestJournal::new();
    let secret = "a-word-that-is-to-be-forgotten".repeat(30);
    test.write_history("s1", &[]).await;
    test.write_history("s2", &[(1, 300)]).await;
    for seq in 1..400 {
        let bytes = Bytes::from(format!("{{\"seq\":{seq},\"text\":\"{secret}\"}}\n"));
        let block = Block { first: Seq::new(seq), last: Seq::new(seq), count: 1, bytes };
        test.commit(Batch { block: Some(block), ..Batch::new("s1".into()) }).await.expect("kept");
    }
    merge_blocks(&test.second_connection(), &"s1".into(), 200);
    let size = test.journal.stats().bytes;
    test.journal.delete("s1".into()).await.expect("an answer").expect("deleted");
    assert!(test.journal.load("s1".into()).await.expect("readable").is_none());
    for entry in std::fs::read_dir(test.dir.path()).expect("the directory").flatten() {
        let bytes = std::fs::read(entry.path()).expect("a file");
        let found = bytes.windows(20).any(|window| window == &secret.as_bytes()[..20]);
        assert!(!found, "{:?} still holds it", entry.file_name());
    }
    assert!(test.journal.stats().bytes < size, "free pages were returned");
    assert_eq!(test.journal.stats().sessions, 1);
    assert_eq!(test.text("s2", 1 << 20).await, lines(1, 300).into_bytes());
    test.write_history("s1", &[(1, 1)]).await;
    let test = test.reopen().await;
    assert_eq!(test.journal.losses(9).await.expect("a list"), [], "a deletion is not a loss");
    let refused = test.journal.delete("s3".into()).await.expect("an answer");
    assert!(matches!(refused, Err(JobError::Commit(CommitError::Conflict(Conflict::NoSuchSession)))), "{refused:?}");
}

#[tokio::test]
async fn an_interrupted_deletion_continues_after_a_restart() {
    let test = TestJournal::new();
    test.write_history("s1", &(1..300).map(|n| (n, n)).collect::<Vec<_>>()).await;
    let deleting = test.journal.delete("s1".into());
    let rows = |test: &TestJournal| -> i64 {
        test.second_connection().query_row("SELECT count(*) FROM block", [], |row| row.get(0)).expect("a count")
    };
    eventually("the first slice", || rows(&test) < 299).await;
    // Files that change while they are copied do not represent a crash.
    let held = test.second_connection();
    held.busy_timeout(Duration::from_secs(20)).expect("patience");
    held.execute_batch("BEGIN IMMEDIATE").expect("the writer waits");
    let test = test.kill_and_reopen(Options::default());
    drop((held, deleting));
    eventually("the last slice", || rows(&test) == 0).await;
    assert!(test.journal.load("s1".into()).await.expect("readable").is_none());
}

#[tokio::test]
async fn batches_are_committed_between_the_slices_of_a_deletion() {
    type Deletion = oneshot::Receiver<Result<(), JobError>>;
    let deletion: Arc<Mutex<Option<Deletion>>> = Arc::default();
    let unfinished: Arc<Mutex<Vec<bool>>> = Arc::default();
    let (watched, seen) = (Arc::clone(&deletion), Arc::clone(&unfinished));
    let options = Options { busy_timeout: Duration::from_secs(20), ..Options::default() };
    // The sync runs on the writer's thread, so it sees the progress of the deletion when the batch is committed.
    let test = TestJournal::with_sync(options, move || {
        if let Some(deletion) = watched.lock().expect("not poisoned").as_mut() {
            let is_empty = matches!(deletion.try_recv(), Err(oneshot::error::TryRecvError::Empty));
            seen.lock().expect("not poisoned").push(is_empty);
        }
        Ok(())
    });
    test.write_history("s1", &(1..=500).map(|seq| (seq, seq)).collect::<Vec<_>>()).await;
    test.write_history("s2", &[]).await;
    let lock = test.second_connection();
    lock.busy_timeout(Duration::from_secs(20)).expect("patience");
    lock.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    *deletion.lock().expect("not poisoned") = Some(test.journal.delete("s1".into()));
    let batch = test.journal.commit(synced(appending("s2", 1, 1)));
    lock.execute_batch("COMMIT").expect("the lock is released");
    batch.await.expect("an answer").expect("kept");
    // The first sync is that of the removed session row, the second one that of the batch.
    assert_eq!(unfinished.lock().expect("not poisoned")[..2], [true; 2], "the batch waited for the whole deletion");
    let deletion = deletion.lock().expect("not poisoned").take().expect("the deletion");
    deletion.await.expect("an answer").expect("deleted");
}

#[tokio::test]
async fn retention_leaves_a_splice_and_the_history_continues() {
    let test = TestJournal::new();
    test.write_history("s1", &(0..200).map(|n| (n * 2 + 1, n * 2 + 2)).collect::<Vec<_>>()).await;
    assert_eq!(retain_after(&test, 100).await, Seq::ZERO, "without a checkpoint everything is needed");
    let checkpoint = Checkpoint { seq: Seq::new(301), bytes: Bytes::from_static(b"state") };
    let batch = Batch { checkpoint: Some(checkpoint), ..Batch::new("s1".into()) };
    test.commit(batch).await.expect("kept");
    assert_eq!(retain_after(&test, 9).await, Seq::new(8));
    assert_eq!(test.block_ranges("s1").await[..2], [(0, -8), (9, 10)]);
    assert_eq!(retain_after(&test, 400).await, Seq::new(300), "what the checkpoint does not contain stays");
    assert_eq!(retain_after(&test, 300).await, Seq::ZERO, "there is nothing more to cut");
    let test = test.reopen().await;
    let stored = test.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!((stored.floor, stored.holes.len()), (Seq::new(300), 0));
    assert_eq!(stored.tail.first().map(|block| block.first), Some(Seq::new(301)));
    assert_eq!(test.block_ranges("s1").await.len(), 51);
    test.commit(synced(appending("s1", 401, 401))).await.expect("it goes on");
    let page = test.journal.page("s1".into(), Seq::new(350), 1).await.expect("a page");
    assert_eq!(page.blocks, [block(351, 352)]);
    assert_eq!(test.journal.losses(9).await.expect("a list"), [], "retention is not a loss");
    let refused = test.journal.retain_after("s2".into(), Seq::new(9), Now(1)).await.expect("an answer");
    assert!(refused.is_err());
}

async fn retain_after(test: &TestJournal, up_to: u64) -> Seq {
    test.journal.retain_after("s1".into(), Seq::new(up_to), Now(1)).await.expect("an answer").expect("cut")
}

#[tokio::test]
async fn data_merged_or_replaced_before_a_deletion_is_erased_too() {
    let test = TestJournal::new();
    let secret = "a-word-that-was-written-over".repeat(100);
    test.write_history("s2", &[(1, 300)]).await;
    test.write_history("s1", &[]).await;
    for seq in 1..60 {
        let bytes = Bytes::from(format!("{{\"seq\":{seq},\"text\":\"{secret}\"}}\n"));
        let block = Block { first: Seq::new(seq), last: Seq::new(seq), count: 1, bytes };
        let checkpoint = Checkpoint { seq: Seq::new(seq), bytes: Bytes::from(secret.clone().repeat(9)) };
        let mut batch = Batch { block: Some(block), checkpoint: Some(checkpoint), ..Batch::new("s1".into()) };
        batch.meta = Some(Meta { summary: format!("{seq}{secret}"), ..meta("s1", seq) });
        test.commit(batch).await.expect("kept");
    }
    merge_blocks(&test.second_connection(), &"s1".into(), 60);
    let last = Checkpoint { seq: Seq::new(59), bytes: Bytes::from_static(b"small") };
    test.commit(Batch { checkpoint: Some(last), ..Batch::new("s1".into()) }).await.expect("kept");
    test.commit(Batch { meta: Some(meta("s1", 60)), ..Batch::new("s1".into()) }).await.expect("kept");
    test.journal.delete("s1".into()).await.expect("an answer").expect("deleted");
    for entry in std::fs::read_dir(test.dir.path()).expect("the directory").flatten() {
        let bytes = std::fs::read(entry.path()).expect("a file");
        let count = bytes.windows(20).filter(|window| *window == &secret.as_bytes()[..20]).count();
        assert_eq!(count, 0, "{:?} still holds it", entry.file_name());
    }
    assert_eq!(test.text("s2", 1 << 20).await, lines(1, 300).into_bytes());
}
