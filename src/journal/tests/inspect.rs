//! Queries over the whole journal.

use super::*;
use crate::journal::marks::Mark;

#[tokio::test]
async fn the_oldest_idle_sessions_come_first_and_busy_ones_not_at_all() {
    let place = Place::new();
    for (name, updated_at, run) in
        [("s1", 30, None), ("s2", 10, None), ("s3", 20, Some("r")), ("s4", 10, None)]
    {
        let mut batch = created(name);
        batch.meta = Some(Meta { active_run: run.map(str::to_owned), ..meta(name, updated_at) });
        place.commit(batch).await.expect("created");
    }
    let idle = place.journal.idle(None, 9).await.expect("a list");
    let expected = [(10, "s2"), (10, "s4"), (30, "s1")].map(|(at, name)| (Now(at), SessionId::from(name)));
    assert_eq!(idle, expected);
    let mut pages = Vec::new();
    while let Some(next) = place.journal.idle(pages.last().cloned(), 1).await.expect("a page").pop() {
        pages.push(next);
    }
    assert_eq!(pages, expected);
}

#[tokio::test]
async fn a_weight_says_what_is_too_much() {
    let place = Place::new();
    place.history("s1", &[(1, 2), (3, 4), (5, 6)]).await;
    let block = lines(1, 2).len() as u64;
    let weigh = async |keep| place.journal.weigh("s1".into(), keep).await.expect("readable").expect("there");
    let whole = Weight { bytes: 3 * block, events: 6, surplus: Seq::ZERO, active: false };
    assert_eq!(weigh(u64::MAX).await, whole);
    assert_eq!(weigh(3 * block).await, whole);
    assert_eq!(weigh(3 * block - 1).await.surplus, Seq::new(2));
    assert_eq!(weigh(block).await.surplus, Seq::new(4));
    assert_eq!(weigh(0).await.surplus, Seq::new(6));
    assert_eq!(place.journal.weigh("s2".into(), 0).await.expect("readable"), None);
}

#[tokio::test]
async fn what_is_used_shrinks_with_a_deletion() {
    let place = Place::new();
    place.history("s1", &[]).await;
    let empty = place.journal.used().await.expect("a size");
    let bytes = Bytes::from(vec![b'x'; 1 << 20]);
    let block = Block { first: Seq::new(1), last: Seq::new(1), count: 1, bytes };
    place.commit(Batch { block: Some(block), ..Batch::new("s1".into()) }).await.expect("kept");
    let filled = place.journal.used().await.expect("a size");
    assert!(filled >= empty + (1 << 20), "{empty} {filled}");
    place.journal.delete("s1".into()).await.expect("an answer").expect("deleted");
    assert!(place.journal.used().await.expect("a size") <= empty);
}

#[tokio::test]
async fn a_walk_passes_every_session_once_and_finds_the_shortened_ones() {
    let place = Place::new();
    for number in 0..7 {
        place.history(&format!("s{number}"), &[(1, 3), (4, 5)]).await;
    }
    place.commit(synced(appending("s6", 6, 6))).await.expect("synced");
    let marks = &place.journal.shared.marks;
    eventually(
        "the marks",
        || matches!(marks.read(7), Ok(Some(Mark::Reaches { seq, .. })) if seq == Seq::new(6)),
    )
    .await;
    assert_eq!(shortened(&place, 3).await, [], "sessions of this epoch are skipped");
    let place = place.killed(Options { boot: 7, ..Options::default() });
    let place = place.killed(Options { boot: 7, ..Options::default() });
    for size in [1, 3, 7, 100] {
        let (mut names, mut walk) = (Vec::new(), Some(Walk::default()));
        while let Some(from) = walk {
            let (sessions, next) = place.journal.walk(from, size).await.expect("a slice");
            names.extend(sessions);
            walk = next;
        }
        let expected: Vec<_> = (0..7).map(|number| SessionId::from(format!("s{number}"))).collect();
        assert_eq!(names, expected, "in slices of {size}");
    }
    place.beside().execute("DELETE FROM block WHERE session IN (2, 5) AND first = 4", []).expect("damaged");
    for size in [1, 3, 100] {
        assert_eq!(shortened(&place, size).await, ["s1".into(), "s4".into()]);
    }
    place.journal.mend("s1".into()).await.expect("repaired");
    assert_eq!(shortened(&place, 3).await, ["s4".into()]);
    let survey = place.journal.survey().await.expect("a survey");
    assert_eq!((survey.sessions, survey.losses, survey.schema / 1000), (7, 1, 1));
    place.journal.mend("s4".into()).await.expect("repaired");
    let since = place.journal.losses_since(survey.newest_loss, 9).await.expect("a list");
    assert_eq!(since.iter().map(|found| found.session.as_str()).collect::<Vec<_>>(), ["s4"]);
}

#[tokio::test]
async fn a_checkpoint_stands_as_it_was_written_or_not_at_all() {
    let place = Place::new();
    place.history("s1", &[(1, 3)]).await;
    let stands = async || place.journal.checkpoint_stands("s1".into(), |_| true).await.expect("readable");
    assert!(stands().await, "a session without a checkpoint is valid");
    let checkpoint = Checkpoint { seq: Seq::new(3), bytes: Bytes::from_static(b"state") };
    place.commit(Batch { checkpoint: Some(checkpoint), ..Batch::new("s1".into()) }).await.expect("kept");
    assert!(stands().await);
    place.beside().execute("UPDATE checkpoint SET seq = 2", []).expect("damaged");
    assert!(!stands().await);
}

#[tokio::test]
async fn files_that_were_set_aside_are_counted() {
    let place = Place::new();
    place.history("s1", &[(1, 3)]).await;
    for (name, size) in [("pushd.db.damaged-1", 10), ("pushd.db.damaged-1-wal", 5), ("pushd.db.backup", 99)] {
        std::fs::write(place.dir.path().join(name), vec![0; size]).expect("a file");
    }
    let sizes = place.journal.sizes();
    assert_eq!((sizes.set_aside_files, sizes.set_aside), (2, 15));
    assert!(sizes.database > 0 && sizes.log > 0 && sizes.marks > 0, "{sizes:?}");
}

async fn shortened(place: &Place, size: u32) -> Vec<SessionId> {
    let (mut found, mut walk) = (Vec::new(), Some(Walk::default()));
    while let Some(from) = walk {
        let (sessions, next) = place.journal.walk_shortened(from, size).await.expect("a slice");
        found.extend(sessions);
        walk = next;
    }
    found
}
