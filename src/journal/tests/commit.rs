//! Commits: groups, refusals, durability and failures.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc as channel;

use super::*;

#[tokio::test]
async fn everything_in_a_batch_comes_back() {
    let test = TestJournal::new();
    let mut batch = created("s1");
    batch.reserved_seq = Some(Seq::new(4096));
    batch.block = Some(block(1, 3));
    batch.checkpoint = Some(Checkpoint { seq: Seq::new(2), bytes: Bytes::from_static(b"state") });
    test.commit(synced(batch)).await.expect("kept");
    let stored = test.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!(stored.meta, meta("s1", 1));
    assert_eq!(stored.reserved, Seq::new(4096));
    assert_eq!(stored.token_hash, [7; 32]);
    assert_eq!(stored.checkpoint, Some(Checkpoint { seq: Seq::new(2), bytes: Bytes::from_static(b"state") }));
    assert_eq!(stored.tail, vec![block(1, 3)], "the block that straddles the checkpoint is in the tail");
    assert!(test.journal.load("s2".into()).await.expect("readable").is_none());
    let stats = test.journal.stats();
    assert_eq!((stats.sessions, stats.events, stats.failed), (1, 3, false));
    assert!(stats.bytes > 0);
}

#[tokio::test]
async fn queued_batches_are_committed_together() {
    let test = TestJournal::new();
    // While another writer holds the database, all batches queue behind the first.
    let other = test.second_connection();
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let answers: Vec<_> = (0..100).map(|n| test.journal.commit(synced(created(&format!("s{n}"))))).collect();
    other.execute_batch("COMMIT").expect("the lock is released");
    for answer in answers {
        answer.await.expect("an answer").expect("kept");
    }
    let stats = test.journal.stats();
    assert_eq!(stats.sessions, 100);
    assert!(stats.commits <= 3, "{} commits", stats.commits);
    assert!(stats.syncs <= 3, "{} syncs", stats.syncs);
}

#[tokio::test]
async fn a_refused_batch_does_not_affect_the_others() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 5)]).await;
    let other = test.second_connection();
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let mut overlapping = appending("s1", 5, 6);
    overlapping.reserved_seq = Some(Seq::new(99));
    let mut strange = appending("s1", 6, 7);
    strange.meta = Some(meta("another", 9));
    let answers: Vec<_> = [
        created("s2"),
        overlapping,
        created("s1"),
        appending("nobody", 1, 1),
        strange,
        Batch { block: Some(Block { count: 9, ..block(6, 7) }), ..Batch::new("s1".into()) },
        appending("s1", u64::MAX, u64::MAX),
        appending("s1", 6, 7),
        appending("s2", 3, 3),
    ]
    .map(|batch| test.journal.commit(batch))
    .into_iter()
    .collect();
    other.execute_batch("COMMIT").expect("the lock is released");
    let mut results = Vec::new();
    for answer in answers {
        results.push(match answer.await.expect("an answer") {
            Ok(()) => None,
            Err(CommitError::Conflict(conflict)) => Some(conflict),
            Err(error) => panic!("{error:?}"),
        });
    }
    assert_eq!(
        results,
        vec![
            None,
            Some(Conflict::Overlap { first: Seq::new(5), last: Seq::new(5) }),
            Some(Conflict::SessionExists),
            Some(Conflict::NoSuchSession),
            Some(Conflict::OtherSession),
            Some(Conflict::Malformed { first: Seq::new(6) }),
            Some(Conflict::TooLarge),
            None,
            None,
        ]
    );
    assert_eq!(test.text("s1", 1).await, lines(1, 7).into_bytes());
    let stored = test.journal.load("s1".into()).await.expect("readable").expect("there");
    assert!(stored.reserved <= Seq::new(7), "nothing of a refused batch is kept");
    assert_eq!(test.journal.stats().sessions, 2);
    assert_eq!(test.journal.stats().events, 8);
}

#[tokio::test]
async fn a_start_key_belongs_to_one_session() {
    let test = TestJournal::new();
    let with_key = |name: &str, fingerprint| {
        let mut batch = created(name);
        batch.create =
            batch.create.map(|create| Create { start_key: Some(("key".into(), Fingerprint(fingerprint))), ..create });
        batch
    };
    test.commit(with_key("s1", u128::MAX - 1)).await.expect("kept");
    let refused = test.commit(with_key("s2", 5)).await;
    assert!(matches!(refused, Err(CommitError::Conflict(Conflict::StartKeyTaken))), "{refused:?}");
    let found = test.journal.started_by_key("key").await.expect("readable");
    assert_eq!(found, Some((Fingerprint(u128::MAX - 1), "s1".into())));
    assert_eq!(test.journal.started_by_key("other").await.expect("readable"), None);
    assert!(test.journal.load("s2".into()).await.expect("readable").is_none(), "the session went with it");
    assert_eq!(test.journal.stats().sessions, 1);
}

#[tokio::test]
async fn the_reservation_is_stored_as_given() {
    let test = TestJournal::new();
    test.write_history("s1", &[]).await;
    for number in [4096, 8192, 17] {
        let batch = Batch { reserved_seq: Some(Seq::new(number)), ..Batch::new("s1".into()) };
        test.commit(synced(batch)).await.expect("kept");
        let stored = test.journal.load("s1".into()).await.expect("readable").expect("there");
        assert_eq!(stored.reserved, Seq::new(number));
    }
    let test = test.reopen().await;
    let stored = test.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!(stored.reserved, Seq::new(17));
}

#[tokio::test]
async fn a_locked_database_is_busy_and_works_after_the_release() {
    let test = TestJournal::with(Options { busy_timeout: Duration::from_millis(30), ..Options::default() });
    test.write_history("s1", &[(1, 1)]).await;
    let other = test.second_connection();
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let refused = test.commit(appending("s1", 2, 2)).await;
    assert!(matches!(refused, Err(CommitError::Busy)), "{refused:?}");
    other.execute_batch("COMMIT").expect("the lock is released");
    test.commit(synced(appending("s1", 2, 2))).await.expect("kept");
    assert_eq!(test.text("s1", 1 << 20).await, lines(1, 2).into_bytes());
}

#[tokio::test]
async fn a_full_disk_refuses_what_does_not_fit_and_nothing_else() {
    let bound = |connection: &Connection| {
        connection
            .pragma_update_and_check(None, "max_page_count", 40, |row| row.get::<_, i64>(0))
            .map(drop)
            .expect("a bound on the size");
    };
    let test = TestJournal::prepared(Options::default(), bound, || Ok(()));
    test.write_history("s1", &[(1, 1)]).await;
    let large = Block { bytes: Bytes::from(vec![b'x'; 200 * 1024]), ..block(2, 2) };
    let refused = test.commit(synced(Batch { block: Some(large), ..Batch::new("s1".into()) })).await;
    assert!(matches!(refused, Err(CommitError::Full)), "{refused:?}");
    test.commit(synced(appending("s1", 2, 2))).await.expect("what fits is kept");
    assert_eq!(test.text("s1", 1 << 20).await, lines(1, 2).into_bytes());
    assert!(!test.journal.stats().failed);
}

#[tokio::test]
async fn written_data_is_synced_soon_and_only_once() {
    let test = TestJournal::new();
    test.commit(created("s1")).await.expect("kept");
    eventually("a sync", || test.journal.stats().syncs == 1).await;
    test.commit(synced(Batch::new("s1".into()))).await.expect("a barrier");
    assert_eq!(test.journal.stats().syncs, 1, "a barrier over nothing new costs nothing");
    test.commit(synced(appending("s1", 1, 1))).await.expect("kept");
    assert_eq!(test.journal.stats().syncs, 2);
}

#[tokio::test]
async fn written_batches_are_answered_before_the_sync_of_others() {
    let (begun, syncing) = channel::channel();
    let (go_on, wait) = channel::channel::<()>();
    let test = TestJournal::with_sync(Options::default(), move || {
        let _ = begun.send(());
        let _ = wait.recv();
        Ok(())
    });
    // Batches queued during a sync form one group.
    let plug = test.journal.commit(synced(created("s0")));
    syncing.recv().expect("the first sync has begun");
    let mut last = test.journal.commit(synced(created("s1")));
    let first = test.journal.commit(created("s2"));
    go_on.send(()).expect("the first sync goes on");
    plug.await.expect("an answer").expect("kept");
    first.await.expect("an answer").expect("kept");
    syncing.recv().expect("the second sync has begun");
    assert!(last.try_recv().is_err(), "synced was answered before its sync");
    drop(go_on);
    last.await.expect("an answer").expect("kept");
}

#[tokio::test]
async fn after_a_failed_sync_all_writes_are_refused_until_reopened() {
    let broken = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&broken);
    let test = TestJournal::with_sync(Options::default(), move || match state.load(Ordering::SeqCst) {
        true => Err(io::Error::other("the disk is gone")),
        false => Ok(()),
    });
    test.commit(synced(created("s1"))).await.expect("kept");
    broken.store(true, Ordering::SeqCst);
    let refused = test.commit(synced(appending("s1", 1, 1))).await;
    assert!(matches!(refused, Err(CommitError::SyncFailed { .. })), "{refused:?}");
    broken.store(false, Ordering::SeqCst);
    for batch in [appending("s1", 2, 2), synced(appending("s1", 2, 2)), synced(Batch::new("s1".into()))] {
        let refused = test.commit(batch).await;
        assert!(matches!(refused, Err(CommitError::StorageFailed)), "{refused:?}");
    }
    let refused = test.journal.retain_after("s1".into(), Seq::new(9), Now(1)).await.expect("an answer");
    assert!(matches!(refused, Err(JobError::Commit(CommitError::StorageFailed))), "{refused:?}");
    assert!(test.journal.stats().failed);
    assert!(test.journal.load("s1".into()).await.expect("reads go on").is_some());
    let TestJournal { dir, journal } = test;
    assert!(matches!(journal.close().await, Err(CommitError::StorageFailed)));
    let journal = Journal::open(dir.path(), Options::default()).expect("opens anew");
    let page = journal.page("s1".into(), Seq::ZERO, 1).await.expect("readable");
    assert_eq!(page.blocks, vec![block(1, 1)], "the log was kept as it was");
    let next = journal.commit(synced(appending("s1", 2, 2)));
    next.await.expect("an answer").expect("kept");
}

#[tokio::test]
async fn a_failed_background_sync_is_detected() {
    let test = TestJournal::with_sync(Options::default(), || Err(io::Error::other("the disk is gone")));
    let batch = Batch { durability: Durability::Written, ..created("s1") };
    test.commit(batch).await.expect("written");
    eventually("the failure", || test.journal.stats().failed).await;
    let refused = test.commit(appending("s1", 1, 1)).await;
    assert!(matches!(refused, Err(CommitError::StorageFailed)), "{refused:?}");
}

#[tokio::test]
async fn a_closed_journal_returns_closed() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 1)]).await;
    let other = test.journal.clone();
    test.journal.close().await.expect("closes");
    let refused = other.commit(appending("s1", 2, 2)).await.expect("an answer");
    assert!(matches!(refused, Err(CommitError::Closed)), "{refused:?}");
    assert!(matches!(other.load("s1".into()).await, Err(ReadError::Closed)));
    let refused = other.retain_after("s1".into(), Seq::new(1), Now(1)).await.expect("an answer");
    assert!(matches!(refused, Err(JobError::Commit(CommitError::Closed))), "{refused:?}");
    assert!(matches!(other.close().await, Err(CommitError::Closed)));
    assert!(!test.dir.path().join(LOG).exists(), "the log has been moved into the database");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sessions_write_at_once() {
    let test = TestJournal::with(Options { checkpoint_pages: 100, ..Options::default() });
    let lanes: Vec<_> = (0..1000)
        .map(|n| {
            let journal = test.journal.clone();
            tokio::spawn(async move {
                let name = format!("s{n}");
                journal.commit(created(&name)).await.expect("an answer").expect("created");
                for seq in 1..=10 {
                    let batch = appending(&name, seq, seq);
                    let batch = if seq % 5 == 0 { synced(batch) } else { batch };
                    journal.commit(batch).await.expect("an answer").expect("kept");
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await.expect("a lane");
    }
    let stats = test.journal.stats();
    assert_eq!((stats.sessions, stats.events), (1000, 10_000));
    assert!(stats.commits < 2_000, "{} commits for 11,000 batches", stats.commits);
    let test = test.reopen().await;
    assert_eq!(test.journal.stats().sessions, 1000);
    for n in 0..1000 {
        assert_eq!(test.text(&format!("s{n}"), 64).await, lines(1, 10).into_bytes(), "s{n}");
    }
}

#[tokio::test]
async fn the_log_stays_bounded_while_readers_read() {
    let test = TestJournal::with(Options { checkpoint_pages: 64, ..Options::default() });
    test.write_history("s1", &[]).await;
    let log = test.dir.path().join(LOG);
    let mut longest = 0;
    for seq in 1..=600 {
        let large = Block { bytes: Bytes::from(vec![b'x'; 16 * 1024]), ..block(seq, seq) };
        test.commit(Batch { block: Some(large), ..Batch::new("s1".into()) }).await.expect("kept");
        test.journal.page("s1".into(), Seq::new(seq - 1), 1).await.expect("readable");
        longest = longest.max(std::fs::metadata(&log).expect("a log").len());
    }
    assert!(longest < 2 * 1024 * 1024, "the log grew to {longest} bytes for 9.6 MB of events");
}
