//! Salvage on real files: what is recovered, where the damaged files go, and the states after a crash.

use std::collections::BTreeMap;

use super::super::salvage::{SalvageContext, SalvageReport, rebuild, resume};
use super::*;

#[tokio::test]
async fn everything_is_recovered_byte_for_byte() {
    let (dir, before) = filled(40).await;
    let report = salvage(dir.path()).expect("salvaged");
    assert_eq!((report.sessions, report.sessions_without_row, report.unreadable_pages), (40, 0, 0));
    assert_eq!(report.checkpoints, 8);
    assert_eq!(rows(&dir.path().join(DATABASE)), before);
    assert_eq!(names(dir.path()), ["pushd.db", "pushd.db.damaged-1000", "pushd.db.damaged-1000-wal"]);
    assert_eq!(report.set_aside, dir.path().join("pushd.db.damaged-1000"));
    let journal = Journal::open(dir.path(), Options::default()).expect("opens");
    let test = TestJournal { dir, journal };
    assert_eq!(test.journal.stats().sessions, 40);
    let stored = test.journal.load("s7".into()).await.expect("readable").expect("there");
    assert_eq!(stored.token_hash, [7; 32]);
    assert!(stored.reserved >= Seq::new(4_096));
    test.commit(synced(appending("s7", 5_000, 5_000))).await.expect("the history goes on");
    assert!(test.journal.started_by_key("start 5").await.expect("readable").is_some());
    let created = test.commit(created("s99")).await;
    created.expect("a key is free for another session");
}

#[tokio::test]
async fn a_thousand_sessions_and_large_blocks_are_recovered_without_the_first_page() {
    let (dir, before) = filled(1_000).await;
    let path = dir.path().join(DATABASE);
    let mut file = std::fs::read(&path).expect("a file");
    file[..4096].fill(0);
    std::fs::write(&path, file).expect("damaged");
    // The first page in the log would restore the one in the database, but it holds no row.
    let report = salvage(dir.path()).expect("salvaged");
    assert_eq!(report.sessions, 1_000);
    assert_eq!(rows(&path), before);
}

#[tokio::test]
async fn a_lost_row_is_recreated_from_the_name_in_its_mark() {
    let test = TestJournal::new();
    test.write_history("s1", &[(1, 3), (4, 9)]).await;
    let dir = crashed(test).await;
    let path = dir.path().join(DATABASE);
    let file = std::fs::read(&path).expect("a file");
    let tables = Connection::open(&path).expect("a connection");
    let pages: Vec<usize> = tables
        .prepare("SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'session' AND rootpage > 0")
        .expect("a query")
        .query_map([], |row| row.get::<_, u32>(0))
        .expect("rows")
        .map(|page| page.expect("a number") as usize)
        .collect();
    drop(tables);
    let mut damaged = file;
    for page in pages {
        damaged[(page - 1) * 4096..page * 4096].fill(0xee);
    }
    std::fs::write(&path, damaged).expect("damaged");
    let names = |key: i64| (key == 1).then(|| "s1".into());
    let context = SalvageContext { name_of: &names, ..empty_context() };
    let report = rebuild(&StorageEnv::native(dir.path()), &Options::default(), &context, 7).expect("salvaged");
    assert_eq!((report.sessions, report.sessions_without_row, report.blocks), (1, 1, 2));
    let journal = Journal::open(dir.path(), Options::default()).expect("opens");
    let test = TestJournal { dir, journal };
    assert_eq!(test.text("s1", 1).await, lines(1, 9).into_bytes());
    let stored = test.journal.load("s1".into()).await.expect("readable").expect("there");
    assert_eq!((stored.reserved, stored.token_hash), (Seq::new(9), [0; 32]));
    assert_eq!((stored.meta.state.as_str(), stored.meta.summary.as_str()), ("idle", "{\"lost\":\"s1\"}"));
}

#[tokio::test]
async fn a_row_with_a_changed_name_is_not_recovered() {
    let test = TestJournal::new();
    test.commit(created("sess_lonely")).await.expect("kept");
    test.commit(created("sess_other")).await.expect("kept");
    let dir = crashed(test).await;
    let path = dir.path().join(DATABASE);
    let mut file = std::fs::read(&path).expect("a file");
    // In its row the name precedes the digest of the token; the indexes hold the name too.
    let row = [&b"sess_lonely"[..], &[7; 32]].concat();
    let at = file.windows(row.len()).position(|part| part == row).expect("the row");
    file[at + 10] ^= 1;
    std::fs::write(&path, file).expect("damaged");
    let report = salvage(dir.path()).expect("salvaged");
    assert_eq!((report.sessions, report.sessions_without_row), (1, 0));
    assert!(rows(&path)["session 2"].contains("sess_other"));
}

#[tokio::test]
async fn nothing_of_a_deleted_session_is_recovered() {
    let (dir, before) = filled(20).await;
    let deleted = |key: i64| key % 2 == 0;
    let context = SalvageContext { is_deleted: &deleted, ..empty_context() };
    rebuild(&StorageEnv::native(dir.path()), &Options::default(), &context, 7).expect("salvaged");
    let path = dir.path().join(DATABASE);
    let after = rows(&path);
    assert!(!after.is_empty());
    assert!(after.iter().all(|(name, value)| name == "tally" || before.get(name) == Some(value)));
    assert!(before.keys().any(|name| name.starts_with("block 2 ")) && before.contains_key("start_key start 4"));
    for (name, _) in after.iter().filter(|(name, _)| !name.starts_with("unsure")) {
        let key = name.split(' ').nth(1).and_then(|key| key.parse::<i64>().ok());
        assert!(key.is_none_or(|key| key % 2 == 1), "{name}");
    }
    let file = std::fs::read(&path).expect("a file");
    assert!(!file.windows(7).any(|part| part == b"start 4"), "not even in a free page");
}

#[tokio::test]
async fn removed_and_lost_events_are_not_recovered() {
    let test = TestJournal::new();
    let ranges: Vec<_> = (1..=60).map(|seq| (seq, seq)).collect();
    test.write_history("s1", &ranges).await;
    test.write_history("s2", &ranges[..9]).await;
    let checkpoint = Some(Checkpoint { seq: Seq::new(40), bytes: Bytes::from_static(b"state") });
    test.commit(Batch { checkpoint, ..Batch::new("s1".into()) }).await.expect("kept");
    // A copy of the removed blocks stays in the log, as after a crash.
    let before = tempfile::tempdir().expect("a directory");
    copy(test.dir.path(), before.path());
    let floor = test.journal.retain_after("s1".into(), Seq::new(30), Now(9)).await.expect("an answer").expect("cut");
    assert_eq!(floor, Seq::new(30));
    test.second_connection().execute_batch("DELETE FROM block WHERE session = 2 AND first = 5").expect("damaged");
    let shapes = (test.block_ranges("s1").await, test.block_ranges("s2").await);
    assert_eq!(shapes.0[0], (0, -30));
    assert_eq!(shapes.1[4], (-5, -5), "{:?}", shapes.1);
    let dir = crashed(test).await;
    std::fs::copy(before.path().join(LOG), dir.path().join(LOG)).expect("the old log");
    let report = salvage(dir.path()).expect("salvaged");
    assert_eq!((report.sessions, report.checkpoints), (2, 1));
    let journal = Journal::open(dir.path(), Options::default()).expect("opens");
    let test = TestJournal { dir, journal };
    assert_eq!((test.block_ranges("s1").await, test.block_ranges("s2").await), shapes);
}

#[tokio::test]
async fn any_files_are_replaced_by_a_working_journal() {
    let kinds: [(&[u8], &[u8]); 5] = [
        (b"", b""),
        (b"x", b"y"),
        (&[0; 9_000], &[0; 9_000]),
        (&[0xff; 9_000], &[13; 9_000]),
        (b"SQLite format 3\0", b""),
    ];
    for (database, log) in kinds {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(DATABASE), database).expect("written");
        std::fs::write(dir.path().join(LOG), log).expect("written");
        let report = salvage(dir.path()).expect("salvaged");
        assert_eq!((report.sessions, report.blocks), (0, 0));
        assert_eq!(std::fs::read(dir.path().join("pushd.db.damaged-1000")).expect("kept"), database);
        assert_eq!(std::fs::read(dir.path().join("pushd.db.damaged-1000-wal")).expect("kept"), log);
        let journal = Journal::open(dir.path(), Options::default()).expect("opens");
        let test = TestJournal { dir, journal };
        test.write_history("s1", &[(1, 1)]).await;
    }
    let nothing = tempfile::tempdir().expect("a directory");
    assert_eq!(salvage(nothing.path()).expect("salvaged").pages, 0);
}

#[tokio::test]
async fn existing_files_are_not_overwritten() {
    let (dir, before) = filled(3).await;
    for name in ["pushd.db.damaged-1000", "pushd.db.damaged-1001-wal"] {
        std::fs::write(dir.path().join(name), name).expect("written");
    }
    let report = salvage(dir.path()).expect("salvaged");
    assert_eq!(report.set_aside, dir.path().join("pushd.db.damaged-1002"));
    assert_eq!(std::fs::read(dir.path().join("pushd.db.damaged-1000")).expect("kept"), b"pushd.db.damaged-1000");
    assert_eq!(rows(&dir.path().join(DATABASE)), before);
    let again = salvage(dir.path()).expect("salvaged");
    assert_eq!((again.set_aside, again.sessions), (dir.path().join("pushd.db.damaged-1003"), 3));
    assert_eq!(rows(&dir.path().join(DATABASE)), before, "what was salvaged can be salvaged");
}

#[tokio::test]
async fn an_interrupted_salvage_is_resumed() {
    let (whole, before) = filled(10).await;
    let (path, log) = (whole.path().join(DATABASE), whole.path().join(LOG));
    let (database, log) = (std::fs::read(&path).expect("a file"), std::fs::read(&log).expect("a file"));
    let (damaged, damaged_log) = ("pushd.db.damaged-5", "pushd.db.damaged-5-wal");
    let mark = "pushd.db.salvage-5";
    // The states on disk after a crash: the marker alone, one file renamed, both, a partial database, and a page file.
    let states: [&[(&str, &[u8])]; 7] = [
        &[(mark, b""), (DATABASE, &database), (LOG, &log), ("pushd.db-shm", b"old")],
        &[(mark, b""), (DATABASE, &database), (damaged_log, &log)],
        &[(mark, b""), (damaged, &database), (LOG, &log)],
        &[(mark, b""), (damaged, &database), (damaged_log, &log)],
        &[(mark, &log[..8_000]), (damaged, &database), (damaged_log, &log), ("pushd.db.salvage-5-wal", &log)],
        &[(mark, &[9; 5_000]), (damaged, &database), (damaged_log, &log), ("pushd.db.salvage-5-shm", b"old")],
        &[(mark, b""), (damaged, &database), (damaged_log, &log), ("pushd.db.salvage-5-pages", &log)],
    ];
    for (number, state) in states.into_iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, bytes) in state {
            std::fs::write(dir.path().join(name), bytes).expect("written");
        }
        let env = StorageEnv::native(dir.path());
        let report = resume(&env, &Options::default(), &empty_context()).expect("salvaged");
        assert_eq!(report.map(|report| report.sessions), Some(10), "state {number}");
        assert_eq!(rows(&dir.path().join(DATABASE)), before, "state {number}");
        assert_eq!(names(dir.path()), [DATABASE, damaged, damaged_log], "state {number}");
        assert_eq!(std::fs::read(dir.path().join(damaged)).expect("kept"), database);
        assert_eq!(std::fs::read(dir.path().join(damaged_log)).expect("kept"), log);
        let again = resume(&env, &Options::default(), &empty_context()).expect("nothing to do");
        assert_eq!(again, None);
    }
}

#[tokio::test]
async fn a_failed_salvage_is_resumed_and_loses_nothing() {
    let (dir, before) = filled(10).await;
    for step in 0.. {
        let real = StorageEnv::native(dir.path());
        let left = Arc::new(Mutex::new(step));
        let open = move |path: &Path| {
            let mut left = left.lock().expect("not poisoned");
            *left = i32::checked_sub(*left, 1).filter(|left| *left >= 0).ok_or_else(|| io::Error::other("broken"))?;
            (real.open_file)(path)
        };
        let env = StorageEnv { dir: dir.path().to_path_buf(), vfs: None, open_file: Box::new(open) };
        let outcome = rebuild(&env, &Options::default(), &empty_context(), 1_000);
        if outcome.is_ok() {
            assert!(step > 2, "opening failed {step} times");
            break;
        }
        assert!(matches!(outcome, Err(OpenError::Io { .. })), "{outcome:?}");
        assert!(!dir.path().join(DATABASE).exists(), "the target path is free");
    }
    assert_eq!(rows(&dir.path().join(DATABASE)), before);
    assert_eq!(names(dir.path()), ["pushd.db", "pushd.db.damaged-1000", "pushd.db.damaged-1000-wal"]);
}

#[tokio::test]
async fn a_database_created_during_a_salvage_is_set_aside() {
    let (dir, before) = filled(3).await;
    std::fs::rename(dir.path().join(DATABASE), dir.path().join("pushd.db.damaged-5")).expect("renamed");
    std::fs::rename(dir.path().join(LOG), dir.path().join("pushd.db.damaged-5-wal")).expect("renamed");
    std::fs::write(dir.path().join("pushd.db.salvage-5"), b"").expect("written");
    std::fs::write(dir.path().join(DATABASE), b"another").expect("written");
    let env = StorageEnv::native(dir.path());
    resume(&env, &Options::default(), &empty_context()).expect("salvaged").expect("it was unfinished");
    assert_eq!(rows(&dir.path().join(DATABASE)), before);
    assert_eq!(std::fs::read(dir.path().join("pushd.db.damaged-6")).expect("kept"), b"another");
}

#[cfg(unix)]
#[tokio::test]
async fn salvaged_files_are_private_to_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, _) = filled(3).await;
    salvage(dir.path()).expect("salvaged");
    for name in names(dir.path()) {
        let mode = std::fs::metadata(dir.path().join(&name)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

fn salvage(dir: &Path) -> Result<SalvageReport, OpenError> {
    rebuild(&StorageEnv::native(dir), &Options::default(), &empty_context(), 1_000)
}

fn empty_context() -> SalvageContext<'static> {
    SalvageContext {
        name_of: &|_| None,
        is_deleted: &|_| false,
        lost_summary: &|session| format!("{{\"lost\":\"{session}\"}}"),
        before_swap: &|_, _| Ok(()),
    }
}

/// Returns the files of a journal with that many sessions, as a kill leaves them, and their rows.
async fn filled(sessions: u64) -> (TempDir, BTreeMap<String, String>) {
    let test = TestJournal::with(Options { checkpoint_pages: 50, ..Options::default() });
    let mut answers = Vec::new();
    for number in 1..=sessions {
        let name = format!("s{number}");
        let start_key = (number % 3 != 0).then(|| (format!("start {number}"), Fingerprint(number.into())));
        let create = Create { token_hash: [number as u8; 32], start_key, opened_at: Now(number) };
        let reserved_seq = Some(Seq::new(4_096));
        let batch =
            Batch { create: Some(create), meta: Some(meta(&name, number)), reserved_seq, ..appending(&name, 1, 2) };
        answers.push(test.journal.commit(batch));
        answers.push(test.journal.commit(appending(&name, 4, 4)));
        if number % 5 == 0 {
            let bytes = Bytes::from(vec![number as u8; 9_000]);
            let checkpoint = Some(Checkpoint { seq: Seq::new(4), bytes });
            answers.push(test.journal.commit(Batch { checkpoint, ..appending(&name, 5, 600) }));
        }
    }
    for answer in answers {
        answer.await.expect("an answer").expect("kept");
    }
    let lives = "INSERT INTO unsure VALUES (0, 5), (7, 1785000000)";
    test.second_connection().execute_batch(lives).expect("inserted");
    let dir = tempfile::tempdir().expect("a directory");
    copy(test.dir.path(), dir.path());
    let before = rows(&test.dir.path().join(DATABASE));
    test.journal.close().await.expect("closes");
    (dir, before)
}

/// Returns the files of a closed journal, whose log was checkpointed.
async fn crashed(test: TestJournal) -> TempDir {
    let TestJournal { dir, journal } = test;
    journal.close().await.expect("closes");
    dir
}

/// Returns every row of every table, by its key.
fn rows(path: &Path) -> BTreeMap<String, String> {
    let connection = Connection::open(path).expect("a connection");
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("an answer");
    assert_eq!(sound, "ok");
    let mut rows = BTreeMap::new();
    let queries = [
        (
            "session",
            "SELECT key || '', quote(id) || quote(token_hash) || opened_at || ' ' || updated_at || quote(state) ||
            quote(active_run) || quote(summary) || reserved || ' ' || life FROM session",
        ),
        ("start_key", "SELECT start_key, quote(fingerprint) || session FROM start_key"),
        (
            "block",
            "SELECT session || ' ' || first, last || ' ' || count || ' ' || prev || ' ' || checksum || ' ' || seal ||
            quote(bytes) FROM block",
        ),
        ("checkpoint", "SELECT session || '', seq || ' ' || checksum || quote(bytes) FROM checkpoint"),
        ("unsure", "SELECT since || '', until || '' FROM unsure"),
        ("tally", "SELECT '', sessions || '' FROM tally"),
    ];
    for (table, query) in queries {
        let mut statement = connection.prepare(query).expect("a query");
        let mut found = statement.query([]).expect("rows");
        while let Some(row) = found.next().expect("a row") {
            let text = |column: usize| row.get::<_, String>(column).expect("a text");
            let name = format!("{table} {}", text(0)).trim_end().to_owned();
            assert_eq!(rows.insert(name, text(1)), None);
        }
    }
    rows
}

/// Returns the names in a directory, apart from those that SQLite creates while the database is open.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.retain(|name| name.starts_with(DATABASE) && ![LOG, "pushd.db-shm"].contains(&name.as_str()));
    names.sort_unstable();
    names
}
