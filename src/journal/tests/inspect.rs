//! Queries over the whole journal.

use super::*;
use crate::journal::high_water_marks::HighWaterMark;

#[tokio::test]
async fn idle_sessions_are_listed_oldest_first_without_active_ones() {
    let test = TestJournal::new();
    for (name, updated_at, run) in [("s1", 30, None), ("s2", 10, None), ("s3", 20, Some("r")), ("s4", 10, None)] {
        let mut batch = created(name);
        batch.meta = Some(Meta { active_run: run.map(str::to_owned), ..meta(name, updated_at) });
        test.commit(batch).await.expect("created");
    }
    let idle = test.journal.idle_sessions(None, 9).await.expect("a list");
    let expected = [(10, "s2"), (10, "s4"), (30, "s1")].map(|(at, name)| (Now(at), SessionId::from(name)));
    assert_eq!(idle, expected);
    let mut pages = Vec::new();
    while let Some(next) = test.journal.idle_sessions(pages.last().cloned(), 1).await.expect("a page").pop() {
        pages.push(next);
    }
    assert_eq!(pages, expected);
}

#[tokio::test]
async fn a_session_size_says_what_exceeds_the_limit() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 2), (3, 4), (5, 6)]).await;
    let block = lines(1, 2).len() as u64;
    let weigh = async |keep| test.journal.measure("s1".into(), keep).await.expect("readable").expect("there");
    let whole = SessionSize { bytes: 3 * block, events: 6, removable_up_to: Seq::ZERO, active: false };
    assert_eq!(weigh(u64::MAX).await, whole);
    assert_eq!(weigh(3 * block).await, whole);
    assert_eq!(weigh(3 * block - 1).await.removable_up_to, Seq::new(2));
    assert_eq!(weigh(block).await.removable_up_to, Seq::new(4));
    assert_eq!(weigh(0).await.removable_up_to, Seq::new(6));
    assert_eq!(test.journal.measure("s2".into(), 0).await.expect("readable"), None);
}

#[tokio::test]
async fn used_bytes_shrink_with_a_deletion() {
    let test = TestJournal::new();
    test.write_history("s1", &[]).await;
    let empty = test.journal.used_bytes().await.expect("a size");
    let bytes = Bytes::from(vec![b'x'; 1 << 20]);
    let block = Block { first: Seq::new(1), last: Seq::new(1), count: 1, bytes };
    test.commit(Batch { block: Some(block), ..Batch::new("s1".into()) }).await.expect("kept");
    let filled = test.journal.used_bytes().await.expect("a size");
    assert!(filled >= empty + (1 << 20), "{empty} {filled}");
    test.journal.delete("s1".into()).await.expect("an answer").expect("deleted");
    assert!(test.journal.used_bytes().await.expect("a size") <= empty);
}

#[tokio::test]
async fn a_scan_visits_every_session_once_and_finds_truncated_ones() {
    let test = TestJournal::new();
    for number in 0..7 {
        test.write_history(&format!("s{number}"), &[(1, 3), (4, 5)]).await;
    }
    test.commit(synced(appending("s6", 6, 6))).await.expect("synced");
    let marks = &test.journal.shared.marks;
    eventually(
        "the marks",
        || matches!(marks.read(7), Ok(Some(HighWaterMark::Synced { seq, .. })) if seq == Seq::new(6)),
    )
    .await;
    assert_eq!(truncated(&test, 3).await, [], "sessions of this epoch are skipped");
    let test = test.kill_and_reopen(Options { boot: 7, ..Options::default() });
    let test = test.kill_and_reopen(Options { boot: 7, ..Options::default() });
    for size in [1, 3, 7, 100] {
        let (mut names, mut walk) = (Vec::new(), Some(SessionCursor::default()));
        while let Some(from) = walk {
            let (sessions, next) = test.journal.scan_sessions(from, size).await.expect("a slice");
            names.extend(sessions);
            walk = next;
        }
        let expected: Vec<_> = (0..7).map(|number| SessionId::from(format!("s{number}"))).collect();
        assert_eq!(names, expected, "in slices of {size}");
    }
    test.second_connection().execute("DELETE FROM block WHERE session IN (2, 5) AND first = 4", []).expect("damaged");
    for size in [1, 3, 100] {
        assert_eq!(truncated(&test, size).await, ["s1".into(), "s4".into()]);
    }
    test.journal.repair("s1".into()).await.expect("repaired");
    assert_eq!(truncated(&test, 3).await, ["s4".into()]);
    let summary = test.journal.summarize().await.expect("a summary");
    assert_eq!((summary.sessions, summary.losses, summary.schema / 1000), (7, 1, 1));
    test.journal.repair("s4".into()).await.expect("repaired");
    let since = test.journal.losses_since(summary.newest_loss, 9).await.expect("a list");
    assert_eq!(since.iter().map(|found| found.session.as_str()).collect::<Vec<_>>(), ["s4"]);
}

#[tokio::test]
async fn a_changed_checkpoint_is_invalid() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 3)]).await;
    let stands = async || test.journal.is_checkpoint_valid("s1".into(), |_| true).await.expect("readable");
    assert!(stands().await, "a session without a checkpoint is valid");
    let checkpoint = Checkpoint { seq: Seq::new(3), bytes: Bytes::from_static(b"state") };
    test.commit(Batch { checkpoint: Some(checkpoint), ..Batch::new("s1".into()) }).await.expect("kept");
    assert!(stands().await);
    test.second_connection().execute("UPDATE checkpoint SET seq = 2", []).expect("damaged");
    assert!(!stands().await);
}

#[tokio::test]
async fn files_that_were_set_aside_are_counted() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 3)]).await;
    for (name, size) in [("pushd.db.damaged-1", 10), ("pushd.db.damaged-1-wal", 5), ("pushd.db.backup", 99)] {
        std::fs::write(test.dir.path().join(name), vec![0; size]).expect("a file");
    }
    let sizes = test.journal.file_sizes();
    assert_eq!((sizes.set_aside_files, sizes.set_aside_bytes), (2, 15));
    assert!(sizes.database > 0 && sizes.log > 0 && sizes.marks > 0, "{sizes:?}");
}

async fn truncated(test: &TestJournal, size: u32) -> Vec<SessionId> {
    let (mut found, mut walk) = (Vec::new(), Some(SessionCursor::default()));
    while let Some(from) = walk {
        let (sessions, next) = test.journal.scan_truncated(from, size).await.expect("a slice");
        found.extend(sessions);
        walk = next;
    }
    found
}
