//! Reads: pages, lists, and damaged data that must not be returned.

use super::*;

#[tokio::test]
async fn pages_are_whole_blocks_within_the_bound() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 2), (3, 3), (10, 12)]).await;
    let page = async |after, max| test.journal.page("s1".into(), Seq::new(after), max).await.expect("a page");
    let whole = vec![block(1, 2), block(3, 3), block(10, 12)];
    assert_eq!(page(0, usize::MAX).await, Page { blocks: whole.clone(), more: false });
    assert_eq!(page(0, 0).await, Page { blocks: whole[..1].to_vec(), more: true }, "one block at least");
    assert_eq!(page(1, usize::MAX).await.blocks, whole, "the block that holds 2 begins at 1");
    assert_eq!(page(2, usize::MAX).await.blocks, whole[1..]);
    assert_eq!(page(3, usize::MAX).await.blocks, whole[2..]);
    assert_eq!(page(9, usize::MAX).await.blocks, whole[2..]);
    assert_eq!(page(11, usize::MAX).await.blocks, whole[2..]);
    for after in [12, 13, u64::MAX] {
        assert_eq!(page(after, usize::MAX).await, Page { blocks: Vec::new(), more: false });
    }
    let two = whole[0].bytes.len() + whole[1].bytes.len();
    assert_eq!(page(0, two).await, Page { blocks: whole[..2].to_vec(), more: true });
    assert_eq!(page(0, two - 1).await.blocks, whole[..1]);
    let unknown = test.journal.page("nobody".into(), Seq::ZERO, 1).await;
    assert!(matches!(unknown, Err(ReadError::NoSuchSession { .. })), "{unknown:?}");
}

#[tokio::test]
async fn the_tail_begins_after_the_checkpoint() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 2), (3, 4)]).await;
    let state = Checkpoint { seq: Seq::new(4), bytes: Bytes::from_static(b"at 4") };
    test.commit(Batch { checkpoint: Some(state.clone()), ..Batch::new("s1".into()) }).await.expect("kept");
    test.commit(appending("s1", 5, 6)).await.expect("kept");
    let stored = test.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!((stored.checkpoint, stored.tail), (Some(state), vec![block(5, 6)]));
    damage(&test, "UPDATE checkpoint SET bytes = x'00'");
    let stored = test.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!(stored.checkpoint, None, "a damaged checkpoint is not served");
    assert_eq!(stored.tail, vec![block(1, 2), block(3, 4), block(5, 6)]);
}

#[tokio::test]
async fn undamaged_parts_of_a_damaged_history_are_served() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 2), (3, 4), (5, 6)]).await;
    damage(&test, "UPDATE block SET bytes = x'00' WHERE first = 3");
    let page = test.journal.page("s1".into(), Seq::ZERO, 1).await.expect("the first block");
    assert_eq!(page, Page { blocks: vec![block(1, 2)], more: true });
    let page = test.journal.page("s1".into(), Seq::new(4), 1).await.expect("the last block");
    assert_eq!(page.blocks, vec![block(5, 6)]);
}

#[tokio::test]
async fn lists_are_newest_first_and_go_on_where_they_ended() {
    let test = TestJournal::new();
    for (name, time) in [("a1", 5), ("a2", 9), ("b1", 7), ("b2", 7), ("b3", 7), ("c", 6)] {
        test.write_history(name, &[]).await;
        test.commit(Batch { meta: Some(meta(name, time)), ..Batch::new(name.into()) }).await.expect("kept");
    }
    assert_eq!(names(&test, 100, None, None).await, ["a2", "b3", "b2", "b1", "c", "a1"]);
    assert_eq!(names(&test, 2, None, None).await, ["a2", "b3"]);
    assert_eq!(names(&test, 2, Some((7, "b3")), None).await, ["b2", "b1"]);
    assert_eq!(names(&test, 2, Some((7, "b1")), None).await, ["c", "a1"]);
    assert_eq!(names(&test, 2, Some((5, "a1")), None).await, Vec::<String>::new());
    assert_eq!(names(&test, 9, None, Some("b")).await, ["b3", "b2", "b1"]);
    assert_eq!(names(&test, 9, Some((7, "b3")), Some("b")).await, ["b2", "b1"]);
    assert_eq!(names(&test, 1, None, Some("a")).await, ["a2"]);
    assert_eq!(names(&test, 9, None, Some("%")).await, Vec::<String>::new());
    assert_eq!(names(&test, 9, None, Some("")).await.len(), 6);
    let query = ListQuery { limit: 1, after: None, prefix: None };
    assert_eq!(test.journal.list(query).await.expect("a list"), vec![meta("a2", 9)]);
}

#[tokio::test]
async fn active_sessions_are_found_by_an_index() {
    let test = TestJournal::new();
    for name in ["s1", "s2", "s3"] {
        test.write_history(name, &[]).await;
    }
    let run = |name: &str, run: Option<&str>| Batch {
        meta: Some(Meta { active_run: run.map(Into::into), ..meta(name, 2) }),
        ..Batch::new(name.into())
    };
    test.commit(run("s3", Some("r1"))).await.expect("kept");
    test.commit(run("s1", Some("r2"))).await.expect("kept");
    assert_eq!(test.journal.active_sessions().await.expect("readable"), ["s1".into(), "s3".into()]);
    test.commit(run("s1", None)).await.expect("kept");
    assert_eq!(test.journal.active_sessions().await.expect("readable"), ["s3".into()]);
    for (query, index) in [
        ("SELECT id FROM session WHERE active_run IS NOT NULL ORDER BY id", "session_active"),
        (
            "SELECT id FROM session WHERE (updated_at, id) < (9, '') ORDER BY updated_at DESC, id DESC",
            "session_by_update",
        ),
        (
            "SELECT id FROM session WHERE id >= 'a' AND id < 'b' AND (+updated_at, id) < (9, '')
             ORDER BY +updated_at DESC, id DESC",
            "sqlite_autoindex_session_1",
        ),
    ] {
        let plan: String = test
            .second_connection()
            .query_row(&format!("EXPLAIN QUERY PLAN {query}"), [], |row| row.get(3))
            .expect("a plan");
        assert!(plan.contains(index), "{plan}");
    }
}

#[tokio::test]
async fn many_reads_at_once_share_a_few_connections() {
    let test = TestJournal::with(Options { readers: 2, ..Options::default() });
    test.write_history("s1", &[(1, 9)]).await;
    let reads: Vec<_> = (0..200)
        .map(|_| {
            let journal = test.journal.clone();
            tokio::spawn(async move { journal.page("s1".into(), Seq::ZERO, 1).await })
        })
        .collect();
    for read in reads {
        assert_eq!(read.await.expect("a read").expect("a page").blocks, vec![block(1, 9)]);
    }
}

async fn names(test: &TestJournal, limit: usize, after: Option<(u64, &str)>, prefix: Option<&str>) -> Vec<String> {
    let after = after.map(|(time, name)| (Now(time), name.into()));
    let query = ListQuery { limit, after, prefix: prefix.map(Into::into) };
    let found = test.journal.list(query).await.expect("a list");
    found.into_iter().map(|meta| meta.session.as_str().to_owned()).collect()
}

fn damage(test: &TestJournal, statement: &str) {
    test.second_connection().execute_batch(statement).expect("damaged");
}
