//! Opening: existing data, files that must not be changed, and the state after a crash.

use super::*;

#[tokio::test]
async fn a_restart_sees_everything_committed() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 3), (4, 4)]).await;
    test.write_history("s2", &[(1, 1)]).await;
    let test = test.reopen().await;
    assert_eq!(test.journal.stats().sessions, 2);
    assert_eq!(test.journal.stats().events, 0, "the figure is that of this journal");
    assert_eq!(test.text("s1", 1).await, lines(1, 4).into_bytes());
    assert_eq!(test.text("s2", 1).await, lines(1, 1).into_bytes());
    test.commit(synced(appending("s1", 5, 5))).await.expect("the history goes on");
}

#[tokio::test]
async fn a_copy_of_the_files_of_an_open_journal_holds_acknowledged_events() {
    let test = TestJournal::with(Options { checkpoint_pages: 20, ..Options::default() });
    test.write_history("s1", &[]).await;
    for seq in 1..=100 {
        test.commit(appending("s1", seq, seq)).await.expect("written");
        if seq % 10 == 7 {
            // Nothing is in flight, as after a kill: acknowledged data is in the files.
            let other = tempfile::tempdir().expect("a directory");
            copy(test.dir.path(), other.path());
            let journal = Journal::open(other.path(), Options::default()).expect("opens");
            let copied = TestJournal { dir: other, journal };
            assert_eq!(copied.text("s1", 100).await, lines(1, seq).into_bytes(), "after {seq}");
        }
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_untouched() {
    let TestJournal { dir, journal } = TestJournal::new();
    journal.close().await.expect("closes");
    let path = dir.path().join(DATABASE);
    let writer = Connection::open(&path).expect("a connection");
    writer.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 2000").expect("a newer one");
    let crashed = tempfile::tempdir().expect("a directory");
    copy(dir.path(), crashed.path());
    let read = |name: &str| std::fs::read(crashed.path().join(name)).expect("a file");
    let before = (read(DATABASE), read(LOG));
    assert!(!before.1.is_empty(), "the newer number stands in the log alone");
    let refused = Journal::open(crashed.path(), Options::default());
    assert!(matches!(refused, Err(OpenError::Newer { found: 2000, known: 1002, .. })), "{refused:?}");
    assert_eq!((read(DATABASE), read(LOG)), before);
    writer.execute_batch("PRAGMA user_version = 1999").expect("a newer minor one");
    drop(writer);
    let journal = Journal::open(dir.path(), Options::default()).expect("a newer minor schema is opened");
    journal.close().await.expect("closes");
    let reader = Connection::open(&path).expect("a connection");
    let version: i64 = reader.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a number");
    assert_eq!(version, 1999, "it keeps its number");
}

#[test]
fn a_file_that_is_not_a_journal_is_left_unchanged() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(DATABASE);
    std::fs::write(&path, "this is a letter, not a database, and long enough to be told from one".repeat(9))
        .expect("a file");
    let before = std::fs::read(&path).expect("a file");
    drop(Journal::open(dir.path(), Options::default()).expect("what cannot be read is set aside"));
    let entries = std::fs::read_dir(dir.path()).expect("the directory").flatten();
    let aside = entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(".damaged-"));
    assert_eq!(std::fs::read(aside.expect("a file set aside")).expect("a file"), before);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(DATABASE);
    let foreign = Connection::open(&path).expect("a connection");
    foreign.execute_batch("CREATE TABLE letters (text)").expect("a table");
    drop(foreign);
    let refused = Journal::open(dir.path(), Options::default());
    assert!(matches!(refused, Err(OpenError::Foreign { .. })), "{refused:?}");
    let nowhere = Journal::open(&dir.path().join("missing"), Options::default());
    assert!(matches!(nowhere, Err(OpenError::Io { .. })), "{nowhere:?}");
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("a directory in its place");
    let refused = Journal::open(dir.path(), Options::default());
    assert!(matches!(refused, Err(OpenError::Io { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_database_without_application_id_is_salvaged_only_beside_marks() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 3)]).await;
    let TestJournal { dir, journal } = test;
    journal.close().await.expect("closes");
    let path = dir.path().join(DATABASE);
    Connection::open(&path).expect("a connection").pragma_update(None, "application_id", 0).expect("damaged");
    let before = std::fs::read(&path).expect("a file");
    let unmarked = tempfile::tempdir().expect("a directory");
    let foreign = unmarked.path().join(DATABASE);
    std::fs::copy(&path, &foreign).expect("a copy");
    let refused = Journal::open(unmarked.path(), Options::default());
    assert!(matches!(refused, Err(OpenError::Foreign { owner: 0, .. })), "{refused:?}");
    assert_eq!(std::fs::read(&foreign).expect("a file"), before, "it may belong to another program");
    let journal = Journal::open(dir.path(), Options::default()).expect("salvaged");
    let entries = std::fs::read_dir(dir.path()).expect("the directory").flatten();
    let mut names = entries.map(|entry| entry.file_name().into_string().expect("a name"));
    let aside =
        names.find(|name| name.contains(".damaged-") && !name.ends_with("-wal")).map(|name| dir.path().join(name));
    assert_eq!(std::fs::read(aside.expect("a file set aside")).expect("a file"), before);
    let test = TestJournal { dir, journal };
    assert_eq!(test.text("s1", 1).await, lines(1, 3).into_bytes());
    assert_eq!(test.journal.losses(10).await.expect("a list")[0].cause, "database");
}

#[test]
fn an_empty_file_becomes_a_journal() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join(DATABASE), "").expect("a file");
    Journal::open(dir.path(), Options::default()).expect("a creation cut short is taken up");
}

#[cfg(unix)]
#[tokio::test]
async fn the_files_belong_to_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 1)]).await;
    let mode = |name: &str| std::fs::metadata(test.dir.path().join(name)).expect("a file").permissions().mode() & 0o777;
    for name in [DATABASE, LOG, "pushd.db-shm"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    let path = test.dir.path().join(DATABASE);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("opened to others");
    let TestJournal { dir, journal } = test;
    journal.close().await.expect("closes");
    let _journal = Journal::open(dir.path(), Options::default()).expect("opens");
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[tokio::test]
async fn a_session_killed_before_its_first_reply_has_lost_nothing() {
    let options = Options { boot: 7, ..Options::default() };
    let test = TestJournal::with(options);
    test.write_history("s1", &[(1, 3)]).await;
    let before = std::fs::read(test.dir.path().join(MARKS)).expect("the marks");
    let create = Batch { reserved_seq: Some(Seq::new(4_096)), block: Some(block(1, 1)), ..created("s2") };
    test.commit(synced(create)).await.expect("kept");
    // As when the process was killed: the commit is on disk, and its mark has not advanced.
    std::fs::write(test.dir.path().join(MARKS), before).expect("the marks of a moment ago");
    let test = test.kill_and_reopen(options);
    assert_eq!(test.block_ranges("s2").await, [(1, 1)]);
    assert!(test.journal.load("s2".into()).await.expect("a session").expect("it is there").holes.is_empty());
    // The same holds in later epochs.
    let test = test.kill_and_reopen(options);
    assert_eq!(test.block_ranges("s2").await, [(1, 1)]);
    assert!(test.journal.load("s2".into()).await.expect("a session").expect("it is there").holes.is_empty());
}

#[tokio::test]
async fn a_session_whose_mark_is_cut_off_counts_as_truncated() {
    let options = Options { boot: 7, ..Options::default() };
    let test = TestJournal::with(options);
    test.write_history("s1", &[(1, 3)]).await;
    let create = Batch { reserved_seq: Some(Seq::new(4_096)), block: Some(block(1, 1)), ..created("s2") };
    test.commit(synced(create)).await.expect("kept");
    let marks = std::fs::read(test.dir.path().join(MARKS)).expect("the marks");
    std::fs::write(test.dir.path().join(MARKS), &marks[..marks.len() - 64]).expect("one mark less");
    let test = test.kill_and_reopen(options);
    let stored = test.journal.load("s2".into()).await.expect("a session").expect("it is there");
    assert_eq!(stored.holes, [(Seq::new(1), Seq::new(4_097))]);
}
