//! Merging: fewer blocks, the same bytes.

use std::sync::atomic::AtomicBool;

use super::*;

#[tokio::test]
async fn merging_keeps_every_byte() {
    let test = TestJournal::new();
    let ranges: Vec<_> = (0..2_000).map(|n| (n * 3 + 1, n * 3 + 3)).collect();
    test.write_history("s1", &ranges).await;
    test.write_history("s2", &[(1, 1), (2, 2)]).await;
    let before = test.text("s1", 1 << 16).await;
    let merged = merge(&test, "s1", u64::MAX).await.expect("merged");
    assert_eq!(merged.merged_blocks - merged.result_blocks, 2_000 - blocks(&test, "s1").await.len() as u64);
    assert_eq!(test.text("s1", 1 << 16).await, before);
    let after = blocks(&test, "s1").await;
    assert!(after.len() < 10, "{} blocks", after.len());
    assert_eq!(after.iter().map(|block| block.count).sum::<u32>(), 6_000);
    assert!(after.iter().all(|block| block.bytes.len() <= 64 * 1024));
    assert_eq!(blocks(&test, "s2").await.len(), 2, "others are left alone");
    assert_eq!(merge(&test, "s1", u64::MAX).await.expect("merged").merged_blocks, 0, "there is nothing left to do");
    test.commit(synced(appending("s1", 6_001, 6_001))).await.expect("the history goes on");
    let test = test.reopen().await;
    assert_eq!(test.text("s1", 1 << 16).await, [before, lines(6_001, 6_001).into_bytes()].concat());
    let page = test.journal.page("s1".into(), Seq::new(4_000), 1).await.expect("a page from the middle");
    assert!(page.blocks[0].first <= Seq::new(4_001) && page.blocks[0].last >= Seq::new(4_001));
}

#[tokio::test]
async fn only_small_adjacent_blocks_up_to_the_end_are_joined() {
    let test = TestJournal::with(Options { small_block: 100, merged_block: 150, ..Options::default() });
    assert!((25..50).contains(&lines(1, 1).len()), "the ranges are made for short lines");
    // 3..=6 is too large, there is a gap after 8, and the blocks after 10 exceed `up_to`.
    test.write_history("s1", &[(1, 1), (2, 2), (3, 6), (7, 7), (8, 8), (10, 10), (11, 11)]).await;
    merge(&test, "s1", 10).await.expect("merged");
    assert_eq!(ranges(&test, "s1").await, [(1, 2), (3, 6), (7, 8), (10, 10), (11, 11)]);
    merge(&test, "s1", 11).await.expect("merged");
    assert_eq!(ranges(&test, "s1").await, [(1, 2), (3, 6), (7, 8), (10, 11)]);
    assert_eq!(test.text("s1", 1).await, [lines(1, 8), lines(10, 11)].concat().into_bytes());
}

#[tokio::test]
async fn a_block_without_a_line_feed_at_its_end_is_not_continued() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 1)]).await;
    for (seq, bytes) in [(2, "half"), (3, "a line\n"), (4, "another\n")] {
        let block = Block { bytes: Bytes::from_static(bytes.as_bytes()), ..block(seq, seq) };
        test.commit(Batch { block: Some(block), ..Batch::new("s1".into()) }).await.expect("kept");
    }
    merge(&test, "s1", 9).await.expect("merged");
    assert_eq!(ranges(&test, "s1").await, [(1, 2), (3, 4)]);
}

#[tokio::test]
async fn damaged_blocks_are_not_merged() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 1), (2, 2), (3, 3)]).await;
    test.second_connection()
        .execute_batch("UPDATE block SET bytes = CAST(replace(bytes, '2', '7') AS BLOB) WHERE first = 2")
        .expect("damaged");
    let refused = merge(&test, "s1", 9).await;
    assert!(matches!(&refused, Err(MergeError::Damaged { first, .. }) if *first == Seq::new(2)), "{refused:?}");
    let count: i64 =
        test.second_connection().query_row("SELECT count(*) FROM block", [], |row| row.get(0)).expect("a count");
    assert_eq!(count, 3, "they are left as they were");
    let refused = merge(&test, "nobody", 9).await;
    assert!(matches!(refused, Err(MergeError::Commit(CommitError::Conflict(Conflict::NoSuchSession)))), "{refused:?}");
}

#[tokio::test]
async fn batches_are_committed_between_the_slices_of_a_merge() {
    type Merging = oneshot::Receiver<Result<MergeStats, MergeError>>;
    let merging: Arc<Mutex<Option<Merging>>> = Arc::default();
    let watched = Arc::clone(&merging);
    let ended_before_the_batch = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&ended_before_the_batch);
    let options = Options { merged_block: 200, busy_timeout: Duration::from_secs(20), ..Options::default() };
    // The sync runs on the writer's thread, so it sees the progress of the merge when the batch is committed.
    let test = TestJournal::with_sync(options, move || {
        if let Some(merging) = watched.lock().expect("not poisoned").as_mut() {
            let still = matches!(merging.try_recv(), Err(oneshot::error::TryRecvError::Empty));
            ended.fetch_or(!still, Ordering::SeqCst);
        }
        Ok(())
    });
    let ranges: Vec<_> = (1..=500).map(|seq| (seq, seq)).collect();
    test.write_history("s1", &ranges).await;
    let lock = test.second_connection();
    lock.busy_timeout(Duration::from_secs(20)).expect("patience");
    lock.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    *merging.lock().expect("not poisoned") = Some(test.journal.merge("s1".into(), Seq::new(500)));
    let batch = test.journal.commit(synced(appending("s1", 501, 501)));
    lock.execute_batch("COMMIT").expect("the lock is released");
    batch.await.expect("an answer").expect("kept");
    assert!(!ended_before_the_batch.load(Ordering::SeqCst), "the batch waited for the whole merge");
    let merging = merging.lock().expect("not poisoned").take().expect("the merge");
    assert!(merging.await.expect("an answer").expect("merged").result_blocks > 50);
    assert_eq!(test.text("s1", 1 << 16).await, lines(1, 501).into_bytes());
}

#[tokio::test]
async fn readers_see_the_same_bytes_while_blocks_are_merged() {
    let test = TestJournal::with(Options { merged_block: 2_000, ..Options::default() });
    let ranges: Vec<_> = (1..=1_000).map(|seq| (seq, seq)).collect();
    test.write_history("s1", &ranges).await;
    let mut merging = test.journal.merge("s1".into(), Seq::new(1_000));
    let expected = lines(1, 1_000).into_bytes();
    loop {
        let whole = test.journal.page("s1".into(), Seq::ZERO, usize::MAX).await.expect("a page");
        let bytes: Vec<_> = whole.blocks.iter().flat_map(|block| block.bytes.to_vec()).collect();
        assert_eq!(bytes, expected);
        match merging.try_recv() {
            Ok(merged) => {
                assert!(merged.expect("merged").result_blocks > 1);
                break;
            }
            Err(_) => continue,
        }
    }
}

async fn merge(test: &TestJournal, name: &str, up_to: u64) -> Result<MergeStats, MergeError> {
    test.journal.merge(name.into(), Seq::new(up_to)).await.expect("an answer")
}

async fn blocks(test: &TestJournal, name: &str) -> Vec<Block> {
    test.journal.page(name.into(), Seq::ZERO, usize::MAX).await.expect("a page").blocks
}

async fn ranges(test: &TestJournal, name: &str) -> Vec<(u64, u64)> {
    blocks(test, name).await.iter().map(|block| (block.first.number(), block.last.number())).collect()
}
