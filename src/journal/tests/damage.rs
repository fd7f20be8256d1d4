//! Damage: everything before and after it is returned, and the loss is reported.

use super::*;

#[tokio::test]
async fn blocks_that_do_not_verify_are_replaced_by_a_splice() {
    let flips: [(&str, &[(i64, i64)]); 12] = [
        (
            "UPDATE block SET bytes = CAST(replace(bytes, 'event 3', 'event 9') AS BLOB) WHERE first = 3",
            &[(1, 2), (-3, -4), (5, 6)],
        ),
        ("UPDATE block SET last = 5 WHERE first = 3", &[(1, 2), (-3, -4), (5, 6)]),
        ("UPDATE block SET count = 1 WHERE first = 3", &[(1, 2), (-3, -4), (5, 6)]),
        ("UPDATE block SET count = -1 WHERE first = 3", &[(1, 2), (-3, -4), (5, 6)]),
        ("UPDATE block SET count = 0 WHERE first = 3", &[(1, 2), (-3, -4), (5, 6)]),
        ("UPDATE block SET checksum = checksum + 1 WHERE first = 3", &[(1, 2), (-3, -4), (5, 6)]),
        ("UPDATE block SET prev = 0 WHERE first = 3", &[(1, 2), (-3, -4), (5, 6)]),
        ("UPDATE block SET seal = 1 << 40 WHERE first = 3", &[(1, 2), (-3, -4), (5, 6)]),
        ("DELETE FROM block WHERE first = 3", &[(1, 2), (-3, -4), (5, 6)]),
        ("DELETE FROM block WHERE first = 1", &[(-1, -2), (3, 4), (5, 6)]),
        ("UPDATE block SET session = 2 WHERE first = 1", &[(-1, -2), (3, 4), (5, 6)]),
        ("DELETE FROM block WHERE session = 1; UPDATE block SET session = 1", &[(-1, -11)]),
    ];
    for (statement, expected) in flips {
        let test = TestJournal::new();
        test.write_history("s1", &[(1, 2), (3, 4), (5, 6)]).await;
        test.write_history("s2", &[(9, 9)]).await;
        let reserve = Batch { reserved_seq: Some(Seq::new(10)), ..Batch::new("s1".into()) };
        test.commit(synced(reserve)).await.expect("kept");
        test.second_connection().execute_batch(statement).expect("damaged");
        if expected.len() == 1 {
            // A missing end is detected when the session is loaded: the remaining blocks verify.
            test.journal.load("s1".into()).await.expect("repaired").expect("there");
        }
        assert_eq!(test.block_ranges("s1").await, expected, "{statement}");
        let stored = test.journal.load("s1".into()).await.expect("readable").expect("there");
        assert_eq!(stored.holes.len(), 1, "{statement}");
        let losses = test.journal.losses(10).await.expect("a list");
        assert_eq!(losses.len(), 1, "it is reported once: {statement} {losses:?}");
        assert_eq!((losses[0].session.as_str(), losses[0].cause.as_str()), ("s1", "damage"));
        let next = stored.reserved.number().max(11) + 1;
        test.commit(synced(appending("s1", next, next))).await.expect("it goes on");
        let test = test.reopen().await;
        let shape = test.block_ranges("s1").await;
        assert_eq!(shape.last(), Some(&(next as i64, next as i64)), "{statement}");
        assert_eq!(shape.len(), expected.len() + 1, "{statement}");
    }
}

#[tokio::test]
async fn removed_blocks_are_set_aside() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 2), (3, 4)]).await;
    test.second_connection().execute_batch("UPDATE block SET bytes = x'0102' WHERE first = 1").expect("damaged");
    test.block_ranges("s1").await;
    let kept: Vec<u8> =
        test.second_connection().query_row("SELECT bytes FROM set_aside", [], |row| row.get(0)).expect("a row");
    assert_eq!(kept, [1, 2]);
}

#[tokio::test]
async fn damaged_numbers_do_not_hide_events() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 10), (11, 12)]).await;
    test.second_connection().execute_batch("UPDATE block SET last = 5 WHERE first = 1").expect("damaged");
    let page = test.journal.page("s1".into(), Seq::new(7), usize::MAX).await.expect("repaired");
    assert_eq!(page.blocks[0].count, 0, "8, 9 and 10 were passed over: {page:?}");
    assert_eq!(page.blocks[0].last, Seq::new(10));
}

#[tokio::test]
async fn a_damaged_index_entry_hides_no_event() {
    let whole: Vec<(u64, u64)> = (1..=16).map(|number| (2 * number, 2 * number + 1)).collect();
    for first in [2, 4, 10, 18, 32] {
        // The entry sorts behind all others of its session, or before them.
        for (flip, after) in [(4, 0), (4, first + 1), (2, 0), (2, first + 1)] {
            let test = with_damaged_index_entry(&whole, first, flip).await;
            let what = format!("entry {first}, changed by {flip}, after {after}");
            // A missing end that nothing in the index contradicts is detected when the session is loaded.
            test.journal.load("s2".into()).await.expect("readable").expect("there");
            let page = test.journal.page("s2".into(), Seq::new(after), usize::MAX).await.expect("a page");
            let mut reached = after.max(1);
            for block in &page.blocks {
                assert!(block.first.number() <= reached + 1, "{what}: {page:?}");
                assert!(block.last.number() > reached, "{what}: {page:?}");
                reached = block.last.number();
            }
            assert!(reached >= 33, "{what}: the history ends at {reached}");
            let losses = test.journal.losses(10).await.expect("a list");
            let lost = page.blocks.iter().any(|block| block.count == 0);
            assert!(!lost || losses.iter().any(|loss| loss.session == "s2"), "{what}: {losses:?}");
            if (first, flip) == (2, 4) {
                assert!(!lost, "a salvage finds all blocks: {what}");
                assert_eq!((losses.len(), losses[0].cause.as_str()), (1, "database"), "{what}: {losses:?}");
            }
        }
    }
}

/// Flips bits of the session's key in the index entry of the block of "s2" that begins at `first`.
async fn with_damaged_index_entry(ranges: &[(u64, u64)], first: u64, flip: u8) -> TestJournal {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 2)]).await;
    test.write_history("s2", ranges).await;
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_block_1'";
    let root: u32 = test.second_connection().query_row(root, [], |row| row.get(0)).expect("an index");
    let TestJournal { dir, journal } = test;
    journal.close().await.expect("closes");
    let mut file = std::fs::read(dir.path().join(DATABASE)).expect("a file");
    let page = &mut file[(root as usize - 1) * 4096..root as usize * 4096];
    // The length, the header with the types of three small integers, the session's key and the first event.
    let entry = [7, 4, 1, 1, 1, 2, first as u8];
    let at = page.windows(entry.len()).position(|part| part == entry).expect("the entry");
    page[at + 5] ^= flip;
    std::fs::write(dir.path().join(DATABASE), file).expect("damaged");
    let journal = Journal::open(dir.path(), Options::default()).expect("opens");
    TestJournal { dir, journal }
}

#[tokio::test]
async fn a_history_shorter_than_its_mark_is_repaired() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 2), (3, 4)]).await;
    test.commit(synced(appending("s1", 5, 9))).await.expect("on disk");
    test.second_connection().execute_batch("DELETE FROM block WHERE first = 5").expect("damaged");
    let stored = test.journal.load("s1".into()).await.expect("repaired").expect("there");
    assert_eq!(stored.holes, [(Seq::new(4), Seq::new(10))]);
    assert_eq!(test.block_ranges("s1").await, [(1, 2), (3, 4), (-5, -10)]);
}

#[tokio::test]
async fn a_log_truncated_anywhere_is_repaired_or_reported() {
    let test = TestJournal::with(Options { checkpoint_pages: 1_000_000, ..Options::default() });
    test.write_history("s1", &[(1, 2)]).await;
    for first in 3..9 {
        test.commit(synced(appending("s1", first, first))).await.expect("on disk");
    }
    test.commit(synced(created("s2"))).await.expect("on disk");
    let whole = std::fs::read(test.dir.path().join(LOG)).expect("the log");
    for cut in (0..whole.len()).step_by(509).chain([whole.len()]) {
        let dir = tempfile::tempdir().expect("a directory");
        copy(test.dir.path(), dir.path());
        std::fs::write(dir.path().join(LOG), &whole[..cut]).expect("cut");
        verify(dir, cut == whole.len(), &format!("cut at {cut}")).await;
    }
    for bit in (0..whole.len() * 8).step_by(40_009) {
        let dir = tempfile::tempdir().expect("a directory");
        copy(test.dir.path(), dir.path());
        let mut log = whole.clone();
        log[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(dir.path().join(LOG), &log).expect("changed");
        verify(dir, false, &format!("bit {bit}")).await;
    }
}

/// Checks that everything is there, or that the loss is reported.
async fn verify(dir: TempDir, whole: bool, what: &str) {
    let journal = Journal::open(dir.path(), Options::default()).expect("opens");
    let test = TestJournal { dir, journal };
    let first = test.journal.load("s1".into()).await.expect("readable");
    let second = test.journal.load("s2".into()).await.expect("readable");
    let losses = test.journal.losses(10).await.expect("a list");
    let reported = |name: &str| losses.iter().any(|loss| loss.session == name);
    match &first {
        None => assert!(reported("s1"), "{what}: s1 is missing without a report"),
        Some(_) => {
            let mut reached = 0;
            let shape = test.block_ranges("s1").await;
            for (first, last) in &shape {
                assert_eq!(first.abs(), reached + 1, "{what}: {shape:?}");
                reached = last.abs();
            }
            let missing = shape.iter().any(|(first, _)| *first < 0);
            assert!(missing || reached == 8, "{what}: a shortened history was served: {shape:?}");
            assert!(!missing || reported("s1"), "{what}");
        }
    }
    assert!(second.is_some() || reported("s2"), "{what}: s2 is missing without a report");
    assert!(!whole || losses.is_empty(), "{what}: {losses:?}");
}

#[tokio::test]
async fn an_emptied_database_is_reported_as_lost() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 2)]).await;
    let TestJournal { dir, journal } = test;
    journal.close().await.expect("closes");
    std::fs::write(dir.path().join(DATABASE), b"").expect("emptied");
    let journal = Journal::open(dir.path(), Options::default()).expect("opens");
    let losses = journal.losses(10).await.expect("a list");
    let reported: Vec<_> = losses.iter().map(|loss| (loss.session.as_str(), loss.cause.as_str())).collect();
    assert_eq!(reported, [("s1", "session"), ("", "database")]);
    journal.commit(created("s9")).await.expect("an answer").expect("kept");
    let key: i64 = Connection::open(dir.path().join(DATABASE))
        .expect("a connection")
        .query_row("SELECT key FROM session", [], |row| row.get(0))
        .expect("a key");
    assert_eq!(key, 2, "the key of the lost session is not given again");
    journal.close().await.expect("closes");
    let journal = Journal::open(dir.path(), Options::default()).expect("opens");
    assert_eq!(journal.losses(10).await.expect("a list").len(), 2, "it is reported once");
}

#[tokio::test]
async fn events_that_a_power_loss_may_have_taken_become_a_hole() {
    let boot = |boot| Options { boot, ..Options::default() };
    let test = TestJournal::with(boot(7));
    test.write_history("s1", &[(1, 2)]).await;
    test.write_history("s2", &[(1, 2)]).await;
    reserve(&test, 100).await;
    let killed = test.kill_and_reopen(boot(7));
    let stored = killed.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!((stored.holes.len(), stored.reserved), (0, Seq::new(100)), "everything written is there");
    let restarted = killed.kill_and_reopen(boot(8));
    let stored = restarted.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!(stored.holes.len(), 0, "opening syncs everything written");
    reserve(&restarted, 200).await;
    let restarted = restarted.kill_and_reopen(boot(9));
    let stored = restarted.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!(stored.holes, [(Seq::new(2), Seq::new(201))], "a client may have seen 3 to 200");
    assert_eq!(restarted.journal.losses(9).await.expect("a list")[0].cause, "power");
    let again = restarted.reopen().await;
    let stored = again.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!(stored.holes.len(), 1, "it is one hole");
    let stored = again.journal.load("s2".into()).await.expect("readable").expect("there");
    assert_eq!(stored.holes.len(), 1, "a session that was not loaded in between has it too");
}

async fn reserve(test: &TestJournal, number: u64) {
    for name in ["s1", "s2"] {
        let reserve = Batch { reserved_seq: Some(Seq::new(number)), ..Batch::new(name.into()) };
        test.commit(synced(reserve)).await.expect("kept");
    }
}
