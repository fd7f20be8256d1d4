//! Admissions and outcomes of commands survive the process, are removed with their session, and are verified.

use std::sync::atomic::AtomicUsize;

use super::disk::ledger::{Driver, Story, wait};
use super::disk::{Disk, Failure, Fault, Kind, Lasting};
use super::*;
use crate::kernel::book::record::{Body, Outcome, Record, Row, Settlement, Stored as Kept};
use crate::kernel::id::Fingerprint;

/// A delay that never passes.
const NEVER: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn admissions_and_outcomes_outlive_a_kill() {
    let place = Place::with(Options { write_behind: NEVER, ..Options::default() });
    keep(&place, vec![admitted(1, "s"), admitted(2, "s")], Durability::Synced).await;
    keep(&place, vec![settled(2, "s", "done"), settled(3, "s", "never admitted")], Durability::Written).await;
    keep(&place, vec![admitted(3, "s")], Durability::Written).await;
    let place = place.killed(Options::default());
    let found = place.journal.load_commands().await.expect("readable");
    assert_eq!(found, [open_row(1, "s"), over(2, "s", "done"), over(3, "s", "never admitted")]);
    assert_eq!(place.journal.stats().syncs, 0, "loading needs none");
}

#[tokio::test]
async fn every_part_of_a_command_comes_back() {
    let place = Place::new();
    let bare = Record { id: None, key: None, session: None, ..record(1, "s") };
    let failed = Outcome { timed_out: true, version: Some(7), ..Outcome::failed("late \u{0} \u{1f600}") };
    let outcomes = [
        Outcome { version: Some(0), ..failed.clone() },
        failed,
        Outcome { body: Body::Gone, ..Outcome::done("", None) },
        Outcome { body: Body::TooLarge(1 << 40), ..Outcome::done("", None) },
        Outcome::done("", None),
    ];
    let mut wanted = Vec::new();
    for (row, outcome) in (1..).zip(outcomes) {
        let record = Arc::new(Record { row: Row(row), ..bare.clone() });
        let it = Settlement { record, outcome, at: Now(row) };
        wanted.push(Kept { record: (*it.record).clone(), settled: Some((it.outcome.clone(), it.at)) });
        keep(&place, vec![CommandWrite::Settled(it)], Durability::Written).await;
    }
    let place = place.reopened().await;
    assert_eq!(place.journal.load_commands().await.expect("readable"), wanted);
}

#[tokio::test]
async fn an_admission_is_answered_after_its_sync_and_an_outcome_before() {
    let syncs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&syncs);
    let options = Options { sync_within: NEVER, ..Options::default() };
    let place = Place::with_sync(options, move || {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let before = syncs.load(Ordering::SeqCst);
    keep(&place, vec![settled(1, "s", "r")], Durability::Written).await;
    assert_eq!(syncs.load(Ordering::SeqCst), before);
    keep(&place, vec![admitted(2, "s")], Durability::Synced).await;
    assert_eq!(syncs.load(Ordering::SeqCst), before + 1);
}

#[tokio::test]
async fn after_a_failed_sync_no_command_is_taken() {
    let options = Options { sync_within: NEVER, ..Options::default() };
    let place = Place::with_sync(options, || Err(io::Error::other("broken")));
    let failed =
        place.journal.keep_commands(vec![admitted(1, "s")], Durability::Synced).await.expect("an answer");
    assert!(matches!(failed, Err(CommitError::SyncFailed { .. })), "{failed:?}");
    place.journal.keep_commands_later([settlement(2, "s", "r")], [Row(1)]);
    let refused = place.journal.keep_commands(vec![settled(1, "s", "r")], Durability::Written).await;
    assert!(matches!(refused.expect("an answer"), Err(CommitError::StorageFailed)));
}

#[tokio::test]
async fn what_nobody_waits_for_is_written_later_and_in_few_commits() {
    let place = Place::with(Options { write_behind: Duration::from_millis(5), ..Options::default() });
    let commits = place.journal.stats().commits;
    for row in 1..=500 {
        place.journal.keep_commands_later([settlement(row, "s", "r")], []);
    }
    eventually("the last row", || rows(&place) == 500).await;
    assert!(place.journal.stats().commits - commits < 100, "{} commits", place.journal.stats().commits);
    place.journal.keep_commands_later([], (1..=499).map(Row));
    eventually("the last removal", || rows(&place) == 1).await;
}

#[tokio::test]
async fn what_is_forgotten_before_it_is_written_is_never_written() {
    let place = Place::with(Options { write_behind: NEVER, ..Options::default() });
    place.journal.keep_commands_later([settlement(1, "s", "r"), settlement(2, "s", "r")], [Row(1)]);
    place.journal.keep_commands_later([settlement(3, "s", "r")], [Row(3)]);
    let place = place.reopened().await;
    assert_eq!(place.journal.load_commands().await.expect("readable"), [over(2, "s", "r")]);
}

#[tokio::test]
async fn an_interrupted_command_that_is_settled_and_forgotten_leaves_the_disk() {
    let place = Place::new();
    keep(&place, vec![admitted(1, "s"), admitted(2, "s")], Durability::Synced).await;
    let place = place.killed(Options { write_behind: NEVER, ..Options::default() });
    assert_eq!(place.journal.load_commands().await.expect("readable").len(), 2);
    place.journal.keep_commands_later([settlement(1, "s", "interrupted")], [Row(1)]);
    let place = place.reopened().await;
    assert_eq!(place.journal.load_commands().await.expect("readable"), [open_row(2, "s")]);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_told_by_its_size() {
    let place = Place::with(Options { answer_bytes: 8, ..Options::default() });
    keep(&place, vec![settled(1, "s", "12345678"), settled(2, "s", "123456789")], Durability::Written).await;
    let found = place.journal.load_commands().await.expect("readable");
    assert_eq!(found[0], over(1, "s", "12345678"));
    assert_eq!(found[1].settled.as_ref().map(|(outcome, _)| &outcome.body), Some(&Body::TooLarge(9)));
}

#[tokio::test]
async fn of_large_answers_that_nobody_waits_for_the_newest_are_written() {
    let options = Options { write_behind: NEVER, behind_bytes: 25_000, ..Options::default() };
    let place = Place::with(options);
    let large = "x".repeat(10_000);
    let all = [(1, "small"), (2, &large), (3, &large), (4, &large)];
    place.journal.keep_commands_later(all.map(|(row, body)| settlement(row, "s", body)), []);
    let place = place.reopened().await;
    let found = place.journal.load_commands().await.expect("readable");
    assert_eq!(found.iter().map(|stored| stored.record.row.0).collect::<Vec<_>>(), [1, 3, 4]);
}

#[tokio::test]
async fn a_deleted_session_takes_its_commands_with_it() {
    let place = Place::with(Options { write_behind: NEVER, ..Options::default() });
    place.history("gone", &[(1, 3)]).await;
    place.history("stays", &[(1, 3)]).await;
    let secret = "a-word-that-is-to-be-forgotten".repeat(200);
    let naming = format!("{{\"sessions\":[\"gone\"],\"text\":\"{secret}\"}}");
    let writes = vec![
        settled(1, "gone", &secret),
        settled(2, "stays", &naming),
        settled(3, "stays", "gone is a word"),
        admitted(4, "gone"),
    ];
    keep(&place, writes, Durability::Synced).await;
    place.journal.keep_commands_later([settlement(5, "gone", &secret), settlement(6, "stays", &naming)], []);
    place.journal.delete("gone".into()).await.expect("an answer").expect("deleted");
    eventually("what nobody waits for", || rows(&place) == 3).await;
    for entry in std::fs::read_dir(place.dir.path()).expect("the directory").flatten() {
        let bytes = std::fs::read(entry.path()).expect("a file");
        let found = bytes.windows(20).any(|window| window == &secret.as_bytes()[..20]);
        assert!(!found, "{:?} still holds it", entry.file_name());
    }
    let found = place.journal.load_commands().await.expect("readable");
    let bodies: Vec<_> = found.iter().map(|stored| stored.settled.clone().expect("over").0.body).collect();
    assert_eq!(bodies, [Body::Gone, Body::Text("gone is a word".into()), Body::Gone]);
}

#[tokio::test]
async fn a_program_of_an_older_schema_deletes_them_too() {
    let place = Place::new();
    place.history("gone", &[(1, 3)]).await;
    keep(&place, vec![settled(1, "gone", "x"), settled(2, "stays", "[\"gone\"]")], Durability::Synced).await;
    place.beside().execute("DELETE FROM session WHERE id = 'gone'", []).expect("deleted");
    let found = place.journal.load_commands().await.expect("readable");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].settled.as_ref().map(|(outcome, _)| &outcome.body), Some(&Body::Gone));
}

#[tokio::test]
async fn a_row_that_was_changed_is_not_believed_and_a_changed_answer_is_left_out() {
    for (column, value) in [
        ("id", "'other'"),
        ("id", "NULL"),
        ("repeat_key", "'other'"),
        ("kind", "'other'"),
        ("session", "'other'"),
        ("fingerprint", "zeroblob(16)"),
        ("fingerprint", "zeroblob(3)"),
        ("admitted", "9"),
        ("settled", "9"),
        ("settled", "NULL"),
        ("success", "0"),
        ("timed_out", "1"),
        ("version", "3"),
        ("too_large", "3"),
        ("row", "7"),
        ("seal", "seal + 1"),
    ] {
        let place = Place::with(Options { write_behind: Duration::from_millis(1), ..Options::default() });
        keep(&place, vec![settled(1, "s", "r"), settled(2, "s", "r")], Durability::Synced).await;
        let change = format!("UPDATE command SET {column} = {value} WHERE row = 1");
        place.beside().execute(&change, []).expect("changed");
        assert_eq!(place.journal.load_commands().await.expect("readable"), [over(2, "s", "r")], "{change}");
        eventually("the removal of the row", || rows(&place) == 1).await;
    }
    let place = Place::new();
    keep(&place, vec![settled(1, "s", "right"), settled(2, "s", "left!")], Durability::Synced).await;
    place.beside().execute("UPDATE command SET body = 'wrong' WHERE row = 1", []).expect("changed");
    place
        .beside()
        .execute("UPDATE command SET (body, body_seal) = ('right', body_seal) WHERE row = 2", [])
        .expect("changed");
    for stored in place.journal.load_commands().await.expect("readable") {
        let (outcome, _) = stored.settled.expect("what happened is known");
        assert!(outcome.success);
        assert_eq!(outcome.body, Body::Gone);
    }
}

#[tokio::test]
async fn a_broken_table_of_commands_keeps_nobody_from_the_sessions() {
    for at_opening in [true, false] {
        let place = Place::new();
        place.history("s1", &[(1, 300)]).await;
        let rows: Vec<_> = (1..400).map(|row| settled(row, "s1", &"x".repeat(300))).collect();
        keep(&place, rows, Durability::Synced).await;
        let Place { dir, journal } = place.reopened().await;
        let root: u32 = Connection::open(dir.path().join(DATABASE))
            .expect("a connection")
            .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'command'", [], |row| row.get(0))
            .expect("a page");
        journal.close().await.expect("closes");
        if at_opening {
            spoil(&dir.path().join(DATABASE), root);
        }
        let journal = Journal::open(dir.path(), Options::default()).expect("it opens");
        if !at_opening {
            spoil(&dir.path().join(DATABASE), root);
        }
        let place = Place { dir, journal };
        let found = place.journal.load_commands().await.expect("an answer");
        assert!(found.is_empty() || !at_opening, "a page in memory may still be served");
        assert_eq!(place.text("s1", 1 << 20).await, lines(1, 300).into_bytes());
        keep(&place, vec![settled(1_000, "s1", "after")], Durability::Synced).await;
        let place = place.reopened().await;
        assert_eq!(place.journal.load_commands().await.expect("readable"), [over(1_000, "s1", "after")]);
    }
}

#[tokio::test]
async fn a_journal_from_before_commands_were_kept_gets_their_table() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/journal-1000.db");
    std::fs::copy(fixture, dir.path().join(DATABASE)).expect("the fixture");
    let journal = Journal::open(dir.path(), Options::default()).expect("opens");
    let place = Place { dir, journal };
    assert_eq!(place.journal.load_commands().await.expect("readable"), []);
    keep(&place, vec![settled(1, "s", "r")], Durability::Synced).await;
    let place = place.reopened().await;
    assert_eq!(place.journal.load_commands().await.expect("readable"), [over(1, "s", "r")]);
    assert_eq!(place.journal.survey().await.expect("a survey").schema, 1002);
    place.journal.close().await.expect("closes");
    let database = Connection::open(place.dir.path().join(DATABASE)).expect("a connection");
    database
        .execute_batch("DROP TRIGGER command_of_session; DROP TABLE command; PRAGMA user_version = 1001")
        .expect("the schema before");
    drop(database);
    let journal = Journal::open(place.dir.path(), Options::default()).expect("opens");
    assert_eq!(journal.load_commands().await.expect("readable"), []);
}

#[test]
fn on_a_full_disk_an_outcome_is_kept_and_an_admission_is_not() {
    let driver = Driver::open(Disk::new(), Options::default(), Story::default())
        .map_err(|refused| refused.1)
        .expect("opens");
    let spare = driver.disk.path().join(SPARE);
    while std::fs::metadata(&spare).map_or(0, |found| found.len()) == 0 {
        // The reserve is filled when the writer is idle.
        wait(driver.journal.keep_commands(Vec::new(), Durability::Synced)).expect("an answer").expect("kept");
    }
    let fault = Fault { kind: Kind::Write, nth: 1, failure: Failure::Full, lasting: Lasting::Once };
    let keep =
        |write| wait(driver.journal.keep_commands(vec![write], Durability::Written)).expect("an answer");
    driver.disk.fail(fault);
    let refused = keep(admitted(1, "s"));
    assert!(driver.disk.struck() && matches!(refused, Err(CommitError::Full)), "{refused:?}");
    driver.disk.fail(fault);
    keep(settled(2, "s", "r")).expect("an outcome may use the reserve");
    assert!(driver.disk.struck());
    driver.journal.keep_commands_later([settlement(3, "s", "later")], []);
    driver.disk.fail(fault);
    let (disk, _, _) = driver.close();
    disk.heal();
    let journal = Journal::open_on(disk.ground(), Options::default()).expect("opens again");
    let found = wait(journal.load_commands()).expect("readable");
    assert!(found.contains(&over(2, "s", "r")) && !found.contains(&open_row(1, "s")), "{found:?}");
}

/// Overwrites a page of the database.
fn spoil(path: &Path, page: u32) {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = std::fs::OpenOptions::new().write(true).open(path).expect("the database");
    file.seek(SeekFrom::Start(u64::from(page - 1) * 4096)).expect("a page");
    file.write_all(&[0xa5; 4096]).expect("written");
    file.sync_all().expect("synced");
}

fn rows(place: &Place) -> i64 {
    place.beside().query_row("SELECT count(*) FROM command", [], |row| row.get(0)).expect("a count")
}

async fn keep(place: &Place, writes: Vec<CommandWrite>, durability: Durability) {
    place.journal.keep_commands(writes, durability).await.expect("an answer").expect("kept");
}

fn admitted(row: u64, session: &str) -> CommandWrite {
    CommandWrite::Admitted(Arc::new(record(row, session)))
}

fn settled(row: u64, session: &str, body: &str) -> CommandWrite {
    CommandWrite::Settled(settlement(row, session, body))
}

pub(super) fn settlement(row: u64, session: &str, body: &str) -> Settlement {
    let record = Arc::new(record(row, session));
    Settlement { record, outcome: Outcome::done(body, Some(1)), at: Now(2_000 + row) }
}

fn record(row: u64, session: &str) -> Record {
    Record {
        row: Row(row),
        id: Some(format!("id {row}").into()),
        key: Some("key".into()),
        kind: "work".into(),
        session: Some(session.into()),
        fingerprint: Fingerprint(u128::MAX - u128::from(row)),
        admitted: Now(1_000 + row),
    }
}

fn open_row(row: u64, session: &str) -> Kept {
    Kept { record: record(row, session), settled: None }
}

fn over(row: u64, session: &str, body: &str) -> Kept {
    let Settlement { record, outcome, at } = settlement(row, session, body);
    Kept { record: (*record).clone(), settled: Some((outcome, at)) }
}
