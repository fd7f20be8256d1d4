//! The write-ahead file: what was appended survives its process, is stored once and in order, and leaves nothing
//! behind.

use std::fs;
use std::path::PathBuf;

use super::disk::crash::CrashSimulator;
use super::disk::ledger::block_on;
use super::disk::{Disk, Failure, FaultDuration, FaultSpec, Kind, directory};
use super::*;
use crate::journal::high_water_marks::ShutdownState;

/// No timer: events are stored with a batch of their session, or when a region holds enough, and synced on request.
/// On a busy machine a write may take long.
fn options() -> Options {
    let (flush_after, sync_within, slow_write) = (NEVER, NEVER, Duration::MAX);
    Options { boot: 7, flush_after, sync_within, slow_write, ..Options::default() }
}

const NEVER: Duration = Duration::from_secs(3_600);

impl TestJournal {
    fn append(&self, name: &str, first: u64, last: u64) -> bool {
        self.journal.append(&appending(name, first, last), Seq::new(first - 1))
    }

    fn file(&self) -> Vec<u8> {
        fs::read(self.path()).expect("the write-ahead file")
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(WRITE_AHEAD)
    }

    /// Opens what is in the directory as a killed process would leave it; the current journal is not shut down.
    fn after_kill(&self) -> Self {
        let dir = directory();
        copy(self.dir.path(), dir.path());
        let journal = Journal::open(dir.path(), options()).expect("opens again");
        Self { dir, journal }
    }

    /// Like [`Self::after_kill`], with a changed write-ahead file.
    fn after_kill_with(&self, bytes: &[u8]) -> Self {
        let dir = directory();
        copy(self.dir.path(), dir.path());
        fs::write(dir.path().join(WRITE_AHEAD), bytes).expect("written");
        let journal = Journal::open(dir.path(), options()).expect("opens again");
        Self { dir, journal }
    }

    /// Reads the blocks that are in the database.
    fn stored(&self, name: &str) -> Vec<(i64, i64)> {
        let connection = self.second_connection();
        let query =
            "SELECT first, last FROM block WHERE session = (SELECT key FROM session WHERE id = ?1) ORDER BY first";
        let mut statement = connection.prepare(query).expect("a statement");
        let rows = statement.query_map([name], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        rows.collect::<rusqlite::Result<_>>().expect("rows")
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

#[tokio::test]
async fn appended_events_survive_a_kill() {
    let test = TestJournal::with(options());
    test.write_history("a", &[(1, 3)]).await;
    test.write_history("b", &[]).await;
    for seq in 1..=4 {
        assert!(test.append("a", seq + 3, seq + 3));
        assert!(test.append("b", 2 * seq - 1, 2 * seq));
    }
    assert_eq!(test.stored("a"), [(1, 3)], "nothing is committed yet");
    let test = test.after_kill();
    assert_eq!(test.text("a", 100).await, lines(1, 7).into_bytes());
    assert_eq!(test.text("b", 100).await, lines(1, 8).into_bytes());
    assert_eq!((test.stored("a"), test.stored("b")), (vec![(1, 3), (4, 7)], vec![(1, 8)]), "as one block each");
    assert!(is_zero(&test.file()));
    assert_eq!(test.journal.losses(9).await.expect("a list"), []);
    assert!(test.append("a", 8, 8));
    test.commit(synced(appending("a", 9, 9))).await.expect("kept");
    assert!(test.append("a", 10, 10));
    let test = test.after_kill();
    assert_eq!(test.text("a", 100).await, lines(1, 10).into_bytes(), "the chain goes on");
}

#[tokio::test]
async fn events_are_stored_as_one_block_with_the_next_batch_of_their_session() {
    let test = TestJournal::with(options());
    test.write_history("a", &[]).await;
    test.write_history("b", &[]).await;
    for seq in 1..=5 {
        assert!(test.append("a", seq, seq) && test.append("b", seq, seq));
    }
    let commits = test.journal.stats().commits;
    test.commit(synced(appending("a", 6, 7))).await.expect("kept");
    assert_eq!(test.stored("a"), [(1, 7)]);
    assert_eq!(test.stored("b"), []);
    test.journal.barrier("b".into()).await;
    assert_eq!(test.stored("b"), [(1, 5)], "an empty batch is one, too");
    assert_eq!(test.journal.stats().commits, commits + 2);
    assert_eq!(test.journal.stats().events, 12);
    let test = test.after_kill();
    assert_eq!((test.stored("a"), test.stored("b")), (vec![(1, 7)], vec![(1, 5)]), "and not again");
}

#[tokio::test]
async fn events_are_stored_after_a_while() {
    let test = TestJournal::with(Options { flush_after: Duration::from_millis(20), ..options() });
    test.write_history("a", &[(1, 1)]).await;
    assert!(test.append("a", 2, 2));
    test.journal.schedule_flush();
    eventually("a flush", || test.stored("a").len() == 2).await;
    eventually("an empty file", || is_zero(&test.file())).await;
    eventually("a free file", || test.append("a", 3, 3)).await;
    test.journal.schedule_flush();
    eventually("another flush", || test.stored("a").len() == 3).await;
    assert_eq!(test.text("a", 100).await, lines(1, 3).into_bytes());
}

#[tokio::test]
async fn events_are_stored_when_a_region_holds_enough() {
    let test = TestJournal::with(Options { flush_bytes: 1_000, region_bytes: 3_000, ..options() });
    test.write_history("a", &[]).await;
    let (mut seq, start) = (0, Instant::now());
    while test.stored("a").is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing was stored");
        if test.append("a", seq + 1, seq + 1) {
            seq += 1;
        }
        test.journal.schedule_flush();
    }
    // As one page: another flush may join the events between two pages, and a page never splits a block.
    assert_eq!(test.text("a", usize::MAX).await, lines(1, seq).into_bytes());
}

#[tokio::test]
async fn a_full_file_refuses_events_until_they_are_stored() {
    let test = TestJournal::with(Options { flush_bytes: usize::MAX, region_bytes: 1_000, ..options() });
    test.write_history("a", &[]).await;
    let full = (1..).find(|seq| !test.append("a", *seq, *seq)).expect("a limit");
    assert!((5..20).contains(&full), "{full}");
    assert!(!test.append("a", full, full), "and it stays full");
    test.commit(appending("a", full, full)).await.expect("kept");
    assert_eq!(test.text("a", 100).await, lines(1, full).into_bytes());
    let test = test.after_kill();
    assert_eq!(test.text("a", 100).await, lines(1, full).into_bytes());
}

#[tokio::test]
async fn reads_contain_events_that_are_not_stored() {
    let test = TestJournal::with(options());
    test.write_history("a", &[(1, 3)]).await;
    let checkpoint = Some(Checkpoint { seq: Seq::new(3), bytes: Bytes::from_static(b"state") });
    test.commit(Batch { checkpoint, ..Batch::new("a".into()) }).await.expect("kept");
    assert!(test.append("a", 4, 5) && test.append("a", 6, 6));
    for after in 0..=6 {
        let page = test.journal.page("a".into(), Seq::new(after), usize::MAX).await.expect("a page");
        assert!(!page.more);
        let text: Vec<u8> = page.blocks.iter().flat_map(|block| block.bytes.to_vec()).collect();
        let whole = test.journal.lines("a".into(), Seq::new(after), 10, None).await.expect("a page");
        let first = [1, 1, 1, 4, 4, 6, 7][after as usize];
        assert_eq!(text, lines(first, 6).into_bytes(), "after {after}");
        assert_eq!((&whole.bytes, whole.last), (&text, Seq::new(6)), "after {after}");
        assert_eq!(whole.first.number() == first, after < 6, "after {after}");
    }
    let stored = test.journal.load("a".into()).await.expect("readable").expect("there");
    assert_eq!(stored.tail, [block(4, 5), block(6, 6)]);
    let page = test.journal.page("a".into(), Seq::ZERO, 1).await.expect("a page");
    assert_eq!((page.blocks, page.more), (vec![block(1, 3)], true), "a page is bounded");
    assert_eq!(test.text("a", 1).await, lines(1, 6).into_bytes());
    let _large: Vec<_> = read_large_pages(&test).await;
    let page = test.journal.lines("a".into(), Seq::new(3), 1, None).await.expect("a page");
    assert_eq!((page.last, page.more), (Seq::new(5), true));
}

/// Takes all permits for large pages.
async fn read_large_pages(test: &TestJournal) -> Vec<LinePage> {
    let mut pages = Vec::new();
    loop {
        let page = test.journal.lines("a".into(), Seq::ZERO, 1, None).await.expect("a page");
        if !page.is_large() {
            return pages;
        }
        pages.push(page);
    }
}

#[tokio::test]
async fn only_small_batches_of_plain_events_are_appended() {
    let test = TestJournal::with(options());
    let refused = |batch: Batch| assert!(!test.journal.append(&batch, Seq::ZERO), "{batch:?}");
    refused(Batch::new("a".into()));
    refused(created("a"));
    refused(synced(appending("a", 1, 1)));
    refused(Batch { urgent: true, ..appending("a", 1, 1) });
    refused(Batch { meta: Some(meta("a", 1)), ..appending("a", 1, 1) });
    refused(Batch { reserved_seq: Some(Seq::new(9)), ..appending("a", 1, 1) });
    let mut large = appending("a", 1, 1);
    large.block.as_mut().expect("a block").bytes = Bytes::from(vec![b'x'; 8_193]);
    refused(large.clone());
    large.block.as_mut().expect("a block").bytes = Bytes::from(vec![b'x'; 8_192]);
    assert!(test.journal.append(&large, Seq::ZERO));
}

#[tokio::test]
async fn a_slow_file_is_not_used_for_a_while() {
    let test = TestJournal::with(Options { slow_write: Duration::ZERO, ..options() });
    test.write_history("a", &[]).await;
    let later = (1..).find(|seq| !test.append("a", *seq, *seq)).expect("a pause");
    test.commit(appending("a", later, later)).await.expect("kept");
    assert_eq!(test.text("a", 100).await, lines(1, later).into_bytes());
}

#[tokio::test]
async fn a_record_that_does_not_continue_its_session_is_skipped() {
    let test = TestJournal::with(options());
    test.write_history("a", &[(1, 3)]).await;
    assert!(test.append("a", 9, 9) && test.append("nobody", 1, 1));
    let test = test.after_kill();
    assert_eq!(test.stored("a"), [(1, 3)]);
    assert!(test.journal.load("nobody".into()).await.expect("it reads").is_none());
}

#[tokio::test]
async fn the_file_of_another_epoch_or_journal_is_not_replayed() {
    // An epoch is at least the time in seconds, so journals opened one after the other may have the same one. That
    // of a copy follows the epoch of its original.
    let test = TestJournal::with(options());
    let other = test.after_kill();
    test.write_history("a", &[(1, 3)]).await;
    other.write_history("a", &[(1, 3)]).await;
    assert!(test.append("a", 4, 4) && other.append("a", 4, 4));
    assert_eq!(test.after_kill_with(&other.file()).stored("a"), [(1, 3)], "another journal");
    assert_eq!(test.after_kill_with(&test.file()).stored("a"), [(1, 3), (4, 4)]);
    assert_eq!(other.after_kill_with(&other.file()).stored("a"), [(1, 3), (4, 4)]);
    let left = test.file();
    let next = test.after_kill_with(&[]);
    assert_eq!(next.after_kill_with(&left).stored("a"), [(1, 3)], "an earlier epoch");
}

#[tokio::test]
async fn the_file_of_a_journal_with_the_same_epoch_number_is_not_replayed() {
    let future = 1 << 40;
    let journal = || {
        let dir = directory();
        let file = os::private_file(&dir.path().join(MARKS)).expect("a file");
        let (marks, _) = HighWaterMarks::open(Box::new(file), 7, future).expect("marks");
        marks.set_shutdown_state(ShutdownState::Clean).expect("written");
        let journal = Journal::open(dir.path(), options()).expect("a journal");
        TestJournal { dir, journal }
    };
    let (test, other) = (journal(), journal());
    for journal in [&test, &other] {
        assert_eq!(journal.journal.shared.marks.epoch(), future + 1);
        journal.write_history("a", &[(1, 3)]).await;
        assert!(journal.append("a", 4, 4));
    }
    assert_eq!(test.after_kill_with(&other.file()).stored("a"), [(1, 3)]);
    assert_eq!(test.after_kill_with(&test.file()).stored("a"), [(1, 3), (4, 4)]);
}

#[tokio::test]
async fn a_torn_record_is_ignored_and_is_no_loss() {
    let test = TestJournal::with(options());
    test.write_history("a", &[(1, 3)]).await;
    assert!(test.append("a", 4, 4) && test.append("a", 5, 5));
    let whole = test.file();
    let end = whole.iter().rposition(|byte| *byte != 0).expect("a record");
    for left in [end, end - 10, end - 60] {
        let torn: Vec<u8> = whole.iter().enumerate().map(|(at, byte)| if at < left { *byte } else { 0 }).collect();
        let found = test.after_kill_with(&torn);
        assert_eq!(found.text("a", 100).await, lines(1, 4).into_bytes(), "{left} bytes");
        assert_eq!(found.journal.losses(9).await.expect("a list"), [], "{left} bytes");
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_in_the_file_is_noticed() {
    let test = TestJournal::with(options());
    test.write_history("a", &[(1, 3)]).await;
    for seq in 4..=6 {
        assert!(test.append("a", seq, seq));
    }
    let whole = test.file();
    let end = whole.iter().rposition(|byte| *byte != 0).expect("a record") + 1;
    let record = (end - 28) / 3;
    for at in 0..end + 10 {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        let found = test.after_kill_with(&bytes);
        let text = found.text("a", 100).await;
        let last = if at < 28 { 3 } else { 3 + ((at - 28) / record).min(3) as u64 };
        assert_eq!(text, lines(1, last).into_bytes(), "byte {at}");
        let in_length = (at.wrapping_sub(28)) % record < 4;
        let losses = found.journal.losses(9).await.expect("a list");
        let causes: Vec<&str> = losses.iter().map(|loss| loss.cause.as_str()).collect();
        assert!(causes == ["damage"] || (causes.is_empty() && (last >= 5 || in_length)), "byte {at}: {causes:?}");
        found.commit(appending("a", 100, 100)).await.expect("the session goes on");
    }
}

#[tokio::test]
async fn a_deleted_session_leaves_no_byte_in_the_file() {
    let test = TestJournal::with(options());
    test.write_history("a", &[(1, 3)]).await;
    test.write_history("b", &[]).await;
    let secret = "a-word-that-is-to-be-forgotten";
    let text = Bytes::from(format!("{{\"seq\":4,\"text\":\"{secret}\"}}\n"));
    let block = Block { first: Seq::new(4), last: Seq::new(4), count: 1, bytes: text };
    assert!(test.journal.append(&Batch { block: Some(block), ..Batch::new("a".into()) }, Seq::new(3)));
    assert!(test.append("b", 1, 2));
    let holds = |bytes: &[u8]| memchr::memmem::find(bytes, secret.as_bytes()).is_some();
    assert!(holds(&test.file()));
    test.journal.delete("a".into()).await.expect("an answer").expect("deleted");
    for entry in fs::read_dir(test.dir.path()).expect("the directory").flatten() {
        assert!(!holds(&fs::read(entry.path()).expect("a file")), "{:?} still holds it", entry.file_name());
    }
    assert_eq!(test.text("b", 100).await, lines(1, 2).into_bytes());
    assert_eq!(test.stored("b"), [(1, 2)], "the others are stored");
    assert!(test.append("b", 3, 3));
    assert_eq!(test.after_kill().text("b", 100).await, lines(1, 3).into_bytes());
}

#[tokio::test]
async fn a_clean_close_stores_everything_and_empties_the_file() {
    let test = TestJournal::with(options());
    test.write_history("a", &[(1, 1)]).await;
    assert!(test.append("a", 2, 2));
    test.journal.clone().close().await.expect("closes");
    assert!(is_zero(&test.file()));
    assert!(!test.append("a", 3, 3), "the journal is closed");
    assert_eq!(test.stored("a"), [(1, 1), (2, 2)]);
}

#[tokio::test]
async fn events_wait_for_a_locked_database() {
    let busy_timeout = Duration::from_millis(20);
    let test = TestJournal::with(Options { flush_after: busy_timeout, busy_timeout, ..options() });
    test.write_history("a", &[(1, 1)]).await;
    let lock = test.second_connection();
    lock.busy_timeout(Duration::from_secs(20)).expect("patience");
    lock.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    assert!(test.append("a", 2, 2));
    test.journal.schedule_flush();
    let refused = test.commit(Batch { meta: Some(meta("a", 2)), ..Batch::new("a".into()) }).await;
    assert!(matches!(refused, Err(CommitError::Busy)), "{refused:?}");
    eventually("a free file", || test.append("a", 3, 3)).await;
    test.journal.schedule_flush();
    assert_eq!(test.text("a", 100).await, lines(1, 3).into_bytes());
    lock.execute_batch("COMMIT").expect("released");
    eventually("the flush", || test.stored("a").last().is_some_and(|(_, last)| *last == 3)).await;
    assert_eq!(test.text("a", 100).await, lines(1, 3).into_bytes());
    test.commit(appending("a", 4, 4)).await.expect("kept");
}

#[tokio::test]
async fn a_refused_batch_keeps_the_events_before_it() {
    let test = TestJournal::with(options());
    test.write_history("a", &[(1, 3)]).await;
    assert!(test.append("a", 4, 5));
    let refused = test.commit(Batch { create: created("a").create, ..Batch::new("a".into()) }).await;
    assert!(matches!(refused, Err(CommitError::Conflict(Conflict::SessionExists))), "{refused:?}");
    assert_eq!(test.text("a", 100).await, lines(1, 5).into_bytes());
    test.commit(appending("a", 9, 9)).await.expect("kept");
    assert_eq!(test.stored("a"), [(1, 3), (4, 5), (9, 9)], "blocks with a gap between them stay apart");
}

#[tokio::test]
async fn events_survive_a_failed_sync() {
    let broken = Arc::new(Mutex::new(false));
    let breaks = Arc::clone(&broken);
    let test = TestJournal::with_sync(options(), move || match *breaks.lock().expect("not poisoned") {
        true => Err(io::Error::other("the disk is gone")),
        false => Ok(()),
    });
    test.write_history("a", &[(1, 1)]).await;
    assert!(test.append("a", 2, 2));
    test.write_history("b", &[]).await;
    *broken.lock().expect("not poisoned") = true;
    let refused = test.commit(synced(appending("b", 1, 1))).await;
    assert!(matches!(refused, Err(CommitError::SyncFailed { .. })), "{refused:?}");
    assert!(!test.append("a", 3, 3));
    assert_eq!(test.text("a", 100).await, lines(1, 2).into_bytes());
    test.journal.clone().close().await.expect_err("the journal has failed");
    assert_eq!(test.after_kill().text("a", 100).await, lines(1, 2).into_bytes());
}

#[test]
fn a_file_that_cannot_be_written_leaves_events_to_the_commits() {
    for failure in [Failure::Full, Failure::HalfFull, Failure::Broken] {
        let disk = Disk::new();
        // No disk reserve: the idle writer fills it, and the fault must meet the write of an appended event.
        let options = || Options { reserve_bytes: 0, ..options() };
        let journal = Journal::open_with_env(disk.env(), options()).expect("opens");
        let commit = |batch| block_on(journal.commit(batch)).expect("an answer").expect("kept");
        commit(synced(created("a")));
        let append = |seq: u64| journal.append(&appending("a", seq, seq), Seq::new(seq - 1));
        // Held in a sync, the writer cannot store the region, which counts as full after the failed write.
        disk.hold_sync();
        let held = journal.commit(synced(created("b")));
        disk.wait_until_held(|| false);
        assert!(append(1));
        disk.fail(FaultSpec { kind: Kind::OwnWrite, nth: 1, failure, duration: FaultDuration::Once });
        assert!(!append(2), "{failure:?}");
        assert!(disk.clear_fault(), "{failure:?}: refused for another reason");
        assert!(!append(2), "{failure:?}: the region may hold a part of the record");
        disk.release_sync();
        block_on(held).expect("an answer").expect("kept");
        commit(appending("a", 2, 2));
        let start = Instant::now();
        while !append(3) {
            // The writer stores the full region and empties it.
            assert!(start.elapsed() < Duration::from_secs(20), "{failure:?}: the file is not used again");
            std::thread::yield_now();
        }
        disk.kill();
        let _ = block_on(journal.close());
        let journal = Journal::open(disk.path(), options()).expect("opens again");
        let page = block_on(journal.page("a".into(), Seq::ZERO, usize::MAX)).expect("a page");
        let text: Vec<u8> = page.blocks.iter().flat_map(|block| block.bytes.to_vec()).collect();
        assert_eq!(text, lines(1, 3).into_bytes(), "{failure:?}");
        assert_eq!(block_on(journal.losses(9)).expect("a list"), [], "{failure:?}");
    }
}

/// Kills the process between any two operations on its files: everything that was shown is there, once and in order.
#[test]
fn shown_events_survive_a_kill_between_any_two_steps() {
    let options = Options { flush_bytes: 700, region_bytes: 2_000, reserve_bytes: 0, ..options() };
    let disk = Disk::new();
    let mut shown: Vec<(usize, &str, u64)> = Vec::new();
    let mut last = [0_u64; 2];
    let mut random = crate::random::Random::new(5);
    for ends_by_kill in [true, false] {
        let journal = Journal::open_with_env(disk.env(), options).expect("opens");
        disk.names_synced();
        let commit = |batch| block_on(journal.commit(batch)).expect("an answer").expect("kept");
        if last == [0; 2] {
            ["a", "b"].into_iter().for_each(|name| commit(synced(created(name))));
        }
        for _ in 0..60 {
            let of = random.index(2);
            let (name, after) = (["a", "b"][of], last[of]);
            let batch = appending(name, after + 1, after + 1 + random.below(3));
            last[of] = batch.block.as_ref().expect("a block").last.number();
            if random.one_in(12) {
                commit(synced(batch));
            } else if journal.append(&batch, Seq::new(after)) {
                journal.schedule_flush();
            } else {
                commit(batch);
            }
            shown.push((disk.position(), name, last[of]));
        }
        if ends_by_kill {
            // Something to replay, unless the writer stores it in this moment.
            last[0] += 1;
            while !journal.append(&appending("a", last[0], last[0]), Seq::new(last[0] - 1)) {
                journal.schedule_flush();
                std::thread::yield_now();
            }
            shown.push((disk.position(), "a", last[0]));
            disk.kill();
        }
        let closed = block_on(journal.close());
        assert!(closed.is_ok() || ends_by_kill, "{closed:?}");
        disk.revive();
    }
    let recording = disk.into_recording();
    let begin = shown.first().expect("an event").0;
    let mut player = CrashSimulator::new(&recording);
    let (mut replayed, mut cuts) = (0, 0);
    for cut in begin..=recording.ops.len() {
        player.advance(cut);
        let dir = directory();
        for name in [DATABASE, LOG, MARKS, WRITE_AHEAD] {
            if let Some(bytes) = player.read(name) {
                fs::write(dir.path().join(name), bytes).expect("a file");
            }
        }
        let journal = Journal::open(dir.path(), options).expect("opens");
        let test = TestJournal { dir, journal };
        for name in ["a", "b"] {
            let text = block_on(test.text(name, usize::MAX));
            let least = shown.iter().rev().find(|(at, of, _)| *at <= cut && *of == name).map_or(0, |(_, _, seq)| *seq);
            let found = text.split(|byte| *byte == b'\n').count() as u64 - 1;
            assert!(found >= least, "cut at {cut}: {name} ends at {found}, {least} was shown");
            assert_eq!(text, lines(1, found).into_bytes(), "cut at {cut}: {name}");
        }
        assert_eq!(block_on(test.journal.losses(9)).expect("a list"), [], "cut at {cut}");
        cuts += 1;
        replayed += usize::from(!is_zero(&player.read(WRITE_AHEAD).unwrap_or_default()));
    }
    assert!(replayed > 20 && replayed < cuts, "{replayed} of {cuts} cuts had something to replay");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_an_earlier_version_left_in_memory_is_removed() {
    use sha2::{Digest, Sha256};
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join(WRITE_AHEAD), [7; 32]).expect("a key");
    let name = Sha256::digest(fs::canonicalize(dir.path()).expect("a path").as_os_str().as_encoded_bytes());
    let name: String = name.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    let slots = PathBuf::from(format!("/dev/shm/pushd-{}-{name}", nix::unistd::geteuid()));
    fs::write(&slots, "encrypted").expect("a file");
    let journal = Journal::open(dir.path(), options()).expect("opens");
    assert!(!slots.exists() && is_zero(&fs::read(dir.path().join(WRITE_AHEAD)).expect("the file")));
    assert_eq!(journal.losses(9).await.expect("a list"), []);
    journal.close().await.expect("closes");
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_belongs_to_its_owner_alone() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(WRITE_AHEAD);
    fs::write(&path, "").expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
    Journal::open(dir.path(), options()).expect("opens").close().await.expect("closes");
    assert_eq!(fs::metadata(&path).expect("the file").mode() & 0o777, 0o600);
    fs::remove_file(&path).expect("removed");
    let target = dir.path().join("target");
    fs::write(&target, "precious").expect("a file");
    symlink(&target, &path).expect("a link");
    let journal = Journal::open(dir.path(), options()).expect("opens");
    assert!(!journal.append(&appending("a", 1, 1), Seq::ZERO));
    assert_eq!(fs::read_to_string(&target).expect("the file"), "precious");
}
