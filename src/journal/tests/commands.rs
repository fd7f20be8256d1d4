//! Admissions and outcomes of commands survive the process, are removed with their session, and are verified.

use std::sync::atomic::AtomicUsize;

use super::disk::ledger::{Driver, RequestLog, block_on};
use super::disk::{Disk, Failure, FaultDuration, FaultSpec, Kind};
use super::*;
use crate::kernel::command_log::record::{
    CommandOutcome, CommandRecord, OutcomeRecord, ReplyBody, RowId, StoredCommand as Kept,
};
use crate::kernel::id::Fingerprint;

/// A delay that never passes.
const NEVER: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn admissions_and_outcomes_survive_a_kill() {
    let test = TestJournal::with(Options { deferred_delay: NEVER, ..Options::default() });
    write(&test, vec![admitted(1, "s"), admitted(2, "s")], Durability::Synced).await;
    write(&test, vec![settled(2, "s", "done"), settled(3, "s", "never admitted")], Durability::Written).await;
    write(&test, vec![admitted(3, "s")], Durability::Written).await;
    let test = test.kill_and_reopen(Options::default());
    let found = test.journal.load_commands().await.expect("readable");
    assert_eq!(found, [open_row(1, "s"), settled_row(2, "s", "done"), settled_row(3, "s", "never admitted")]);
    assert_eq!(test.journal.stats().syncs, 0, "loading needs none");
}

#[tokio::test]
async fn every_part_of_a_command_comes_back() {
    let test = TestJournal::new();
    let bare = CommandRecord { id: None, key: None, session: None, ..record(1, "s") };
    let failed = CommandOutcome { timed_out: true, version: Some(7), ..CommandOutcome::failed("late \u{0} \u{1f600}") };
    let outcomes = [
        CommandOutcome { version: Some(0), ..failed.clone() },
        failed,
        CommandOutcome { body: ReplyBody::Removed, ..CommandOutcome::succeeded("", None) },
        CommandOutcome { body: ReplyBody::TooLarge(1 << 40), ..CommandOutcome::succeeded("", None) },
        CommandOutcome::succeeded("", None),
    ];
    let mut wanted = Vec::new();
    for (row, outcome) in (1..).zip(outcomes) {
        let record = Arc::new(CommandRecord { row: RowId(row), ..bare.clone() });
        let it = OutcomeRecord { record, outcome, at: Now(row) };
        wanted.push(Kept { record: (*it.record).clone(), settled: Some((it.outcome.clone(), it.at)) });
        write(&test, vec![CommandWrite::Settled(it)], Durability::Written).await;
    }
    let test = test.reopen().await;
    assert_eq!(test.journal.load_commands().await.expect("readable"), wanted);
}

#[tokio::test]
async fn an_admission_is_answered_after_its_sync_and_an_outcome_before() {
    let syncs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&syncs);
    let options = Options { sync_within: NEVER, ..Options::default() };
    let test = TestJournal::with_sync(options, move || {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let before = syncs.load(Ordering::SeqCst);
    write(&test, vec![settled(1, "s", "r")], Durability::Written).await;
    assert_eq!(syncs.load(Ordering::SeqCst), before);
    write(&test, vec![admitted(2, "s")], Durability::Synced).await;
    assert_eq!(syncs.load(Ordering::SeqCst), before + 1);
}

#[tokio::test]
async fn an_outcome_is_committed_with_its_effect_and_replaces_no_other() {
    let test = TestJournal::new();
    write(&test, vec![admitted(2, "s")], Durability::Synced).await;
    write(&test, vec![settled(3, "s", "timed out")], Durability::Written).await;
    let syncs = test.journal.stats().syncs;
    let commands = vec![settled(1, "s", ""), settled(2, "s", ""), settled(3, "s", ""), admitted(5, "s")];
    let batch = Batch { commands, durability: Durability::Synced, ..created("s") };
    test.commit(batch).await.expect("stored");
    assert_eq!(test.journal.stats().syncs, syncs + 1);
    let conflict = Batch { commands: vec![settled(4, "s", "")], ..created("s") };
    assert!(test.commit(conflict).await.is_err(), "the session exists");
    let test = test.kill_and_reopen(Options::default());
    let found = test.journal.load_commands().await.expect("readable");
    let timed_out = settled_row(3, "s", "timed out");
    assert_eq!(found, [settled_row(1, "s", ""), settled_row(2, "s", ""), timed_out, open_row(5, "s")]);
}

#[tokio::test]
async fn after_a_failed_sync_commands_are_refused() {
    let options = Options { sync_within: NEVER, ..Options::default() };
    let test = TestJournal::with_sync(options, || Err(io::Error::other("broken")));
    let failed = test.journal.write_commands(vec![admitted(1, "s")], Durability::Synced).await.expect("an answer");
    assert!(matches!(failed, Err(CommitError::SyncFailed { .. })), "{failed:?}");
    test.journal.defer_commands([settlement(2, "s", "r")], [RowId(1)]);
    let refused = test.journal.write_commands(vec![settled(1, "s", "r")], Durability::Written).await;
    assert!(matches!(refused.expect("an answer"), Err(CommitError::StorageFailed)));
}

#[tokio::test]
async fn deferred_outcomes_are_written_later_in_few_commits() {
    let test = TestJournal::with(Options { deferred_delay: Duration::from_millis(5), ..Options::default() });
    let commits = test.journal.stats().commits;
    for row in 1..=500 {
        test.journal.defer_commands([settlement(row, "s", "r")], []);
    }
    eventually("the last row", || rows(&test) == 500).await;
    assert!(test.journal.stats().commits - commits < 100, "{} commits", test.journal.stats().commits);
    test.journal.defer_commands([], (1..=499).map(RowId));
    eventually("the last removal", || rows(&test) == 1).await;
}

#[tokio::test]
async fn an_outcome_removed_before_it_is_written_is_never_written() {
    let test = TestJournal::with(Options { deferred_delay: NEVER, ..Options::default() });
    test.journal.defer_commands([settlement(1, "s", "r"), settlement(2, "s", "r")], [RowId(1)]);
    test.journal.defer_commands([settlement(3, "s", "r")], [RowId(3)]);
    let test = test.reopen().await;
    assert_eq!(test.journal.load_commands().await.expect("readable"), [settled_row(2, "s", "r")]);
}

#[tokio::test]
async fn an_interrupted_command_that_is_settled_and_removed_leaves_the_disk() {
    let test = TestJournal::new();
    write(&test, vec![admitted(1, "s"), admitted(2, "s")], Durability::Synced).await;
    let test = test.kill_and_reopen(Options { deferred_delay: NEVER, ..Options::default() });
    assert_eq!(test.journal.load_commands().await.expect("readable").len(), 2);
    test.journal.defer_commands([settlement(1, "s", "interrupted")], [RowId(1)]);
    let test = test.reopen().await;
    assert_eq!(test.journal.load_commands().await.expect("readable"), [open_row(2, "s")]);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_stored_as_its_size() {
    let test = TestJournal::with(Options { answer_bytes: 8, ..Options::default() });
    write(&test, vec![settled(1, "s", "12345678"), settled(2, "s", "123456789")], Durability::Written).await;
    let found = test.journal.load_commands().await.expect("readable");
    assert_eq!(found[0], settled_row(1, "s", "12345678"));
    assert_eq!(found[1].settled.as_ref().map(|(outcome, _)| &outcome.body), Some(&ReplyBody::TooLarge(9)));
}

#[tokio::test]
async fn of_large_deferred_answers_the_newest_are_written() {
    let options = Options { deferred_delay: NEVER, deferred_bytes: 25_000, ..Options::default() };
    let test = TestJournal::with(options);
    let large = "x".repeat(10_000);
    let all = [(1, "small"), (2, &large), (3, &large), (4, &large)];
    test.journal.defer_commands(all.map(|(row, body)| settlement(row, "s", body)), []);
    let test = test.reopen().await;
    let found = test.journal.load_commands().await.expect("readable");
    assert_eq!(found.iter().map(|stored| stored.record.row.0).collect::<Vec<_>>(), [1, 3, 4]);
}

#[tokio::test]
async fn a_deleted_session_takes_its_commands_with_it() {
    let test = TestJournal::with(Options { deferred_delay: NEVER, ..Options::default() });
    test.write_history("gone", &[(1, 3)]).await;
    test.write_history("stays", &[(1, 3)]).await;
    let secret = "a-word-that-is-to-be-forgotten".repeat(200);
    let naming = format!("{{\"sessions\":[\"gone\"],\"text\":\"{secret}\"}}");
    let writes = vec![
        settled(1, "gone", &secret),
        settled(2, "stays", &naming),
        settled(3, "stays", "gone is a word"),
        admitted(4, "gone"),
    ];
    write(&test, writes, Durability::Synced).await;
    test.journal.defer_commands([settlement(5, "gone", &secret), settlement(6, "stays", &naming)], []);
    test.journal.delete("gone".into()).await.expect("an answer").expect("deleted");
    eventually("what nobody waits for", || rows(&test) == 3).await;
    for entry in std::fs::read_dir(test.dir.path()).expect("the directory").flatten() {
        let bytes = std::fs::read(entry.path()).expect("a file");
        let found = bytes.windows(20).any(|window| window == &secret.as_bytes()[..20]);
        assert!(!found, "{:?} still holds it", entry.file_name());
    }
    let found = test.journal.load_commands().await.expect("readable");
    let bodies: Vec<_> = found.iter().map(|stored| stored.settled.clone().expect("over").0.body).collect();
    assert_eq!(bodies, [ReplyBody::Removed, ReplyBody::Text("gone is a word".into()), ReplyBody::Removed]);
}

#[tokio::test]
async fn a_program_with_an_older_schema_deletes_the_commands_too() {
    let test = TestJournal::new();
    test.write_history("gone", &[(1, 3)]).await;
    write(&test, vec![settled(1, "gone", "x"), settled(2, "stays", "[\"gone\"]")], Durability::Synced).await;
    test.second_connection().execute("DELETE FROM session WHERE id = 'gone'", []).expect("deleted");
    let found = test.journal.load_commands().await.expect("readable");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].settled.as_ref().map(|(outcome, _)| &outcome.body), Some(&ReplyBody::Removed));
}

#[tokio::test]
async fn a_changed_row_is_dropped_and_a_changed_answer_is_dropped_alone() {
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
        let test = TestJournal::with(Options { deferred_delay: Duration::from_millis(1), ..Options::default() });
        write(&test, vec![settled(1, "s", "r"), settled(2, "s", "r")], Durability::Synced).await;
        let change = format!("UPDATE command SET {column} = {value} WHERE row = 1");
        test.second_connection().execute(&change, []).expect("changed");
        assert_eq!(test.journal.load_commands().await.expect("readable"), [settled_row(2, "s", "r")], "{change}");
        eventually("the removal of the row", || rows(&test) == 1).await;
    }
    let test = TestJournal::new();
    write(&test, vec![settled(1, "s", "right"), settled(2, "s", "left!")], Durability::Synced).await;
    test.second_connection().execute("UPDATE command SET body = 'wrong' WHERE row = 1", []).expect("changed");
    test.second_connection()
        .execute("UPDATE command SET (body, body_seal) = ('right', body_seal) WHERE row = 2", [])
        .expect("changed");
    for stored in test.journal.load_commands().await.expect("readable") {
        let (outcome, _) = stored.settled.expect("what happened is known");
        assert!(outcome.success);
        assert_eq!(outcome.body, ReplyBody::Removed);
    }
}

#[tokio::test]
async fn a_corrupt_command_table_does_not_block_the_sessions() {
    for at_opening in [true, false] {
        let test = TestJournal::new();
        test.write_history("s1", &[(1, 300)]).await;
        let rows: Vec<_> = (1..400).map(|row| settled(row, "s1", &"x".repeat(300))).collect();
        write(&test, rows, Durability::Synced).await;
        let TestJournal { dir, journal } = test.reopen().await;
        let root: u32 = Connection::open(dir.path().join(DATABASE))
            .expect("a connection")
            .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'command'", [], |row| row.get(0))
            .expect("a page");
        journal.close().await.expect("closes");
        if at_opening {
            overwrite_page(&dir.path().join(DATABASE), root);
        }
        let journal = Journal::open(dir.path(), Options::default()).expect("it opens");
        if !at_opening {
            overwrite_page(&dir.path().join(DATABASE), root);
        }
        let test = TestJournal { dir, journal };
        let found = test.journal.load_commands().await.expect("an answer");
        assert!(found.is_empty() || !at_opening, "a page in memory may still be served");
        assert_eq!(test.text("s1", 1 << 20).await, lines(1, 300).into_bytes());
        write(&test, vec![settled(1_000, "s1", "after")], Durability::Synced).await;
        let test = test.reopen().await;
        assert_eq!(test.journal.load_commands().await.expect("readable"), [settled_row(1_000, "s1", "after")]);
    }
}

#[tokio::test]
async fn a_journal_with_an_older_schema_gets_the_command_table() {
    let dir = tempfile::tempdir().expect("a directory");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/journal-1000.db");
    std::fs::copy(fixture, dir.path().join(DATABASE)).expect("the fixture");
    let journal = Journal::open(dir.path(), Options::default()).expect("opens");
    let test = TestJournal { dir, journal };
    assert_eq!(test.journal.load_commands().await.expect("readable"), []);
    write(&test, vec![settled(1, "s", "r")], Durability::Synced).await;
    let test = test.reopen().await;
    assert_eq!(test.journal.load_commands().await.expect("readable"), [settled_row(1, "s", "r")]);
    assert_eq!(test.journal.summarize().await.expect("a summary").schema, 1002);
    test.journal.close().await.expect("closes");
    let database = Connection::open(test.dir.path().join(DATABASE)).expect("a connection");
    database
        .execute_batch("DROP TRIGGER command_of_session; DROP TABLE command; PRAGMA user_version = 1001")
        .expect("the schema before");
    drop(database);
    let journal = Journal::open(test.dir.path(), Options::default()).expect("opens");
    assert_eq!(journal.load_commands().await.expect("readable"), []);
}

#[test]
fn on_a_full_disk_an_outcome_is_stored_and_an_admission_is_refused() {
    let driver = Driver::open(Disk::new(), Options::default(), RequestLog::default())
        .map_err(|refused| refused.1)
        .expect("opens");
    let reserve = driver.disk.path().join(RESERVE);
    while std::fs::metadata(&reserve).map_or(0, |found| found.len()) == 0 {
        // The reserve is filled when the writer is idle.
        block_on(driver.journal.write_commands(Vec::new(), Durability::Synced)).expect("an answer").expect("kept");
    }
    let fault = FaultSpec { kind: Kind::Write, nth: 1, failure: Failure::Full, duration: FaultDuration::Once };
    let keep = |write| block_on(driver.journal.write_commands(vec![write], Durability::Written)).expect("an answer");
    driver.disk.fail(fault);
    let refused = keep(admitted(1, "s"));
    assert!(driver.disk.triggered() && matches!(refused, Err(CommitError::Full)), "{refused:?}");
    driver.disk.fail(fault);
    keep(settled(2, "s", "r")).expect("an outcome may use the reserve");
    assert!(driver.disk.triggered());
    driver.journal.defer_commands([settlement(3, "s", "later")], []);
    driver.disk.fail(fault);
    let (disk, _, _) = driver.close();
    disk.clear_fault();
    let journal = Journal::open_with_env(disk.env(), Options::default()).expect("opens again");
    let found = block_on(journal.load_commands()).expect("readable");
    assert!(found.contains(&settled_row(2, "s", "r")) && !found.contains(&open_row(1, "s")), "{found:?}");
}

/// Overwrites a page of the database.
fn overwrite_page(path: &Path, page: u32) {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = std::fs::OpenOptions::new().write(true).open(path).expect("the database");
    file.seek(SeekFrom::Start(u64::from(page - 1) * 4096)).expect("a page");
    file.write_all(&[0xa5; 4096]).expect("written");
    file.sync_all().expect("synced");
}

fn rows(test: &TestJournal) -> i64 {
    test.second_connection().query_row("SELECT count(*) FROM command", [], |row| row.get(0)).expect("a count")
}

async fn write(test: &TestJournal, writes: Vec<CommandWrite>, durability: Durability) {
    test.journal.write_commands(writes, durability).await.expect("an answer").expect("kept");
}

fn admitted(row: u64, session: &str) -> CommandWrite {
    CommandWrite::Admitted(Arc::new(record(row, session)))
}

fn settled(row: u64, session: &str, body: &str) -> CommandWrite {
    CommandWrite::Settled(settlement(row, session, body))
}

pub(super) fn settlement(row: u64, session: &str, body: &str) -> OutcomeRecord {
    let record = Arc::new(record(row, session));
    OutcomeRecord { record, outcome: CommandOutcome::succeeded(body, Some(1)), at: Now(2_000 + row) }
}

fn record(row: u64, session: &str) -> CommandRecord {
    CommandRecord {
        row: RowId(row),
        id: Some(format!("id {row}").into()),
        key: Some("key".into()),
        kind: "work".into(),
        session: Some(session.into()),
        fingerprint: Fingerprint(u128::MAX - u128::from(row)),
        admitted_at: Now(1_000 + row),
    }
}

fn open_row(row: u64, session: &str) -> Kept {
    Kept { record: record(row, session), settled: None }
}

fn settled_row(row: u64, session: &str, body: &str) -> Kept {
    let OutcomeRecord { record, outcome, at } = settlement(row, session, body);
    Kept { record: (*record).clone(), settled: Some((outcome, at)) }
}
