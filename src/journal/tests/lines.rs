//! Pages of lines: the same history as pages of blocks, a few large and the others small.

use super::*;

#[tokio::test]
async fn lines_match_the_history_from_every_position_and_page_size() {
    // Some blocks have several events, some have gaps between them.
    let ranges: Vec<_> = (1..=30).chain((20..=60).map(|half| 2 * half)).map(|seq| (seq, seq)).collect();
    for (page_bytes, small) in [(1, 1), (40, 40), (200, 40), (1 << 20, 1 << 20)] {
        let test = TestJournal::with(Options { page_bytes, large_pages: 2, ..Options::default() });
        test.write_history("s1", &ranges).await;
        let whole = test.text("s1", usize::MAX).await;
        merge_blocks(&test.second_connection(), &"s1".into(), 25);
        for seen in 0..=121 {
            let missed: usize =
                ranges.iter().filter(|(seq, _)| *seq > seen).map(|(seq, _)| lines(*seq, *seq).len()).sum();
            let read = read_all_after(&test, seen, small).await;
            assert!(read.ends_with(&whole[whole.len() - missed..]), "after {seen} in pages of {page_bytes}");
            assert!(whole.ends_with(&read), "after {seen} in pages of {page_bytes}");
        }
    }
}

#[tokio::test]
async fn few_pages_are_large_at_once() {
    let test = TestJournal::with(Options { page_bytes: 1 << 20, large_pages: 2, ..Options::default() });
    test.write_history("s1", &[(1, 1), (2, 2), (3, 3)]).await;
    let page = async |spent| test.journal.lines("s1".into(), Seq::ZERO, 1, spent).await.expect("a page");
    let (one, other, third) = (page(None).await, page(None).await, page(None).await);
    assert_eq!((one.is_large(), other.is_large(), third.is_large()), (true, true, false));
    assert_eq!((one.last, third.last), (Seq::new(3), Seq::new(1)));
    assert_eq!((one.more, third.more), (false, true));
    let again = page(Some(other)).await;
    assert!(again.is_large() && again.bytes == one.bytes, "a spent page passes on its memory and its permit");
    assert!(!page(Some(third)).await.is_large());
    drop(one);
    assert!(page(None).await.is_large(), "a page that is gone makes room");
}

#[tokio::test]
async fn events_before_damage_are_returned_and_the_rest_is_repaired() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 1), (2, 2), (3, 3), (4, 4)]).await;
    test.second_connection().execute("UPDATE block SET bytes = x'00' WHERE first = 3", []).expect("damage");
    let page = test.journal.lines("s1".into(), Seq::ZERO, 1 << 20, None).await.expect("a page");
    assert_eq!((page.bytes, page.last, page.more), (lines(1, 2).into_bytes(), Seq::new(2), true));
    let page = test.journal.lines("s1".into(), Seq::new(2), 1 << 20, None).await.expect("repaired");
    assert_eq!((page.first, page.last), (Seq::new(3), Seq::new(4)));
    assert!(
        page.bytes.ends_with(lines(4, 4).as_bytes()) && page.bytes.len() > lines(4, 4).len(),
        "the loss is reported"
    );
}

#[tokio::test]
async fn a_damage_that_two_readers_find_is_repaired_once() {
    for damage in ["UPDATE block SET bytes = x'00' WHERE first = 2", "DELETE FROM block WHERE first = 2"] {
        let test = TestJournal::new();
        test.write_history("s1", &[(1, 1), (2, 2), (3, 3)]).await;
        test.second_connection().execute(damage, []).expect("damage");
        let mut answers = Vec::new();
        for plan in [repair_plan(&test).await, repair_plan(&test).await] {
            let (reply, answer) = oneshot::channel();
            test.journal.send(Task::Repair { session: "s1".into(), plan: Box::new(plan), at: Now(1), reply });
            answers.push(answer);
        }
        let second = answers.pop().expect("two").await.expect("an answer");
        assert_eq!(answers.pop().expect("one").await.expect("an answer").expect("repaired").len(), 1);
        assert!(matches!(second, Err(CommitError::Conflict(Conflict::Changed))), "{second:?}");
        let losses = test.journal.losses_since(0, 9).await.expect("a list");
        let causes: Vec<_> = losses.iter().map(|loss| loss.cause.as_str()).collect();
        assert_eq!(causes, ["damage"], "the database is not replaced");
    }
}

async fn repair_plan(test: &TestJournal) -> repair::RepairPlan {
    let marks = Arc::clone(&test.journal.shared.marks);
    let plan = move |connection: &Connection| repair::plan(connection, &"s1".into(), &marks, EndEvidence::Mark);
    test.journal.read(plan).await.expect("readable").expect("damage")
}

/// Reads everything after `seen`, reusing the memory of each page for the next.
async fn read_all_after(test: &TestJournal, seen: u64, small: usize) -> Vec<u8> {
    let (mut text, mut after, mut spent) = (Vec::new(), Seq::new(seen), None);
    loop {
        let page = test.journal.lines("s1".into(), after, small, spent.take()).await.expect("a page");
        assert!(page.bytes.is_empty() || page.last > after, "a page leads on");
        text.extend_from_slice(&page.bytes);
        if !page.more {
            return text;
        }
        after = page.last;
        spent = Some(page);
    }
}
