//! A model for the salvage tests: writes a journal, damages its files, and compares what is recovered.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::journal::tests::merge_blocks;
use crate::journal::{Batch, Block, Checkpoint, Create, Journal, Meta};
use crate::kernel::id::{Fingerprint, Seq};
use crate::kernel::time::Now;
use crate::random::Random;

/// What was written, and the files that hold it.
pub(super) struct Model {
    pub(super) sessions: BTreeMap<i64, WrittenSession>,
    /// The database and its log, each of which holds a part.
    pub(super) database: Vec<u8>,
    pub(super) log: Vec<u8>,
    /// The database after its log was checkpointed.
    pub(super) checkpointed: Vec<u8>,
}

/// Everything that was ever written about one session.
pub(super) struct WrittenSession {
    pub(super) id: SessionId,
    pub(super) lines: BTreeMap<u64, Bytes>,
    /// All versions of its row, the last one last.
    pub(super) rows: Vec<Vec<u8>>,
    pub(super) checkpoints: BTreeMap<u64, Vec<u8>>,
}

/// How far a recovered row may differ from what was written.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum RowTolerance {
    Exact,
    OneBit,
}

#[derive(Default)]
pub(super) struct SalvageResult {
    pub(super) keys: BTreeSet<i64>,
    pub(super) sessions: usize,
    pub(super) rows: usize,
    pub(super) events: usize,
    /// How many sessions lost events.
    pub(super) lost: usize,
    pub(super) checkpoints: usize,
    pub(super) starts: usize,
    pub(super) unreadable: u64,
}

impl Model {
    pub(super) async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options { checkpoint_pages: 10, reserve_bytes: 0, ..Options::default() };
        let journal = Journal::open(dir.path(), options).expect("a journal");
        let mut sessions = BTreeMap::new();
        for key in 1..=3_i64 {
            let id = SessionId::from(format!("sess_{key:02}abcdefgh"));
            let create = Create {
                token_hash: [key as u8; 32],
                start_key: (key == 2).then(|| ("a start".to_owned(), Fingerprint(77))),
                opened_at: Now(5),
            };
            let mut written = WrittenSession {
                id: id.clone(),
                lines: BTreeMap::new(),
                rows: Vec::new(),
                checkpoints: BTreeMap::new(),
            };
            let batch = Batch { create: Some(create.clone()), ..Batch::new(id) };
            written.commit(&journal, batch).await;
            sessions.insert(key, written);
        }
        for round in 1..=10_u64 {
            for (key, written) in &mut sessions {
                written.round(&journal, round, *key).await;
            }
            if round == 5 {
                let connection = Connection::open(dir.path().join(DATABASE)).expect("a connection");
                merge_blocks(&connection, &sessions[&1].id, 1 << 40);
            }
        }
        let read = |name: &str| std::fs::read(dir.path().join(name)).expect("a file");
        let mut model = Self { sessions, database: Vec::new(), log: Vec::new(), checkpointed: Vec::new() };
        for round in 11.. {
            model.sessions.get_mut(&3).expect("a session").round(&journal, round, 3).await;
            // The writer answers an empty batch after the checkpoint that may follow the round, so that the files
            // are not read while it changes them.
            let barrier = Batch::new(model.sessions[&3].id.clone());
            journal.commit(barrier).await.expect("an answer").expect("nothing to do");
            (model.database, model.log) = (read(DATABASE), read(LOG));
            // The writer may just have checkpointed the log; the last events must be in the log alone.
            if model.salvage(&model.database, &[], RowTolerance::Exact).events < model.events() {
                break;
            }
        }
        journal.close().await.expect("closes");
        model.checkpointed = read(DATABASE);
        model
    }

    pub(super) fn events(&self) -> usize {
        self.sessions.values().map(|written| written.lines.len()).sum()
    }

    pub(super) fn salvage(&self, database: &[u8], log: &[u8], rows: RowTolerance) -> SalvageResult {
        self.salvage_with(database, log, rows, &empty_context())
    }

    /// Searches two files and compares everything recovered with what was written.
    pub(super) fn salvage_with(
        &self,
        database: &[u8],
        log: &[u8],
        rows: RowTolerance,
        context: &SalvageContext<'_>,
    ) -> SalvageResult {
        let dir = memory_directory();
        let pages = open_pages(&dir, database, log);
        let findings = scan(&pages, context).expect("readable");
        let mut found = SalvageResult { unreadable: findings.unreadable_pages, ..SalvageResult::default() };
        let chosen = fill::choose_sessions(findings.sessions);
        found.starts = findings.start_keys.keys().filter(|key| chosen.contains_key(key)).count();
        for (key, candidate) in chosen {
            let written = self.sessions.get(&key).expect("a key that was written");
            assert_eq!(candidate.id, written.id);
            let history = fill::history(&candidate);
            let events = written.check_history(&pages, &history);
            found.events += events;
            found.lost += usize::from(events < written.lines.len());
            found.checkpoints += usize::from(written.check_checkpoint(&pages, &candidate, &history));
            found.rows += usize::from(written.check_row(&pages, &candidate, rows));
            found.sessions += 1;
            found.keys.insert(key);
        }
        found
    }
}

impl WrittenSession {
    /// Writes one batch with parts of each kind.
    pub(super) async fn round(&mut self, journal: &Journal, round: u64, key: i64) {
        let next = self.lines.keys().last().map_or(1, |last| last + 1);
        // The second session skips numbers, and each session sometimes has a block that fills several pages.
        let first = if key == 2 && round.is_multiple_of(4) { next + 10 } else { next };
        let length = if round % 5 == key as u64 { 4_500 } else { 90 };
        let lines = (first..first + 2).map(|seq| {
            let mut text: String = (0..length).map(|at| char::from(b'a' + ((seq + at * at) % 26) as u8)).collect();
            text.push('\n');
            (seq, Bytes::from(format!("{{\"seq\":{seq},\"of\":{key}}}{text}")))
        });
        let lines: Vec<_> = lines.collect();
        let bytes: Vec<u8> = lines.iter().flat_map(|(_, line)| line.to_vec()).collect();
        let (first, last) = (Seq::new(first), Seq::new(first + 1));
        self.lines.extend(lines);
        let meta = Meta {
            session: self.id.clone(),
            state: if round.is_multiple_of(2) { "idle".into() } else { "running".into() },
            updated_at: Now(1_000 + round),
            opened_at: Now(5),
            active_run: (round % 2 == 1).then(|| format!("run_{round}")),
            summary: format!("{{\"title\":\"{}\"}}", "x".repeat(round as usize * 3)),
        };
        let mut batch = Batch {
            block: Some(Block { first, last, count: 2, bytes: bytes.into() }),
            meta: (!round.is_multiple_of(3)).then_some(meta),
            reserved_seq: (round.is_multiple_of(6)).then(|| Seq::new(round * 100)),
            token_hash: (round == 9).then_some([round as u8; 32]),
            ..Batch::new(self.id.clone())
        };
        if key != 3 && round.is_multiple_of(4) {
            let bytes: Vec<u8> = (0..round * 700).map(|at| (at * at % 251) as u8).collect();
            self.checkpoints.insert(last.number(), bytes.clone());
            batch.checkpoint = Some(Checkpoint { seq: last, bytes: bytes.into() });
        }
        self.commit(journal, batch).await;
    }

    pub(super) async fn commit(&mut self, journal: &Journal, batch: Batch) {
        journal.commit(batch).await.expect("an answer").expect("kept");
        let stored = journal.load(self.id.clone()).await.expect("readable").expect("there");
        self.rows.push(row_of(
            &stored.token_hash,
            [stored.meta.opened_at.0, stored.meta.updated_at.0, stored.reserved.number()],
            [
                Some(self.id.as_str()),
                Some(&stored.meta.state),
                stored.meta.active_run.as_deref(),
                Some(&stored.meta.summary),
            ],
        ));
    }

    /// Compares a history with what was written, and returns how many events it has.
    pub(super) fn check_history(&self, pages: &PageReader, history: &[(BlockHeader, RowLocation)]) -> usize {
        let (mut reached, mut events) = (0, 0);
        for (head, location) in history {
            assert!(head.first > reached, "events come once and in order");
            reached = head.last;
            let found = pages.row(*location, |row| {
                let TableRow::Block { header, bytes, .. } = row else { return None };
                (header == *head).then(|| bytes.to_vec())
            });
            let lines: Vec<_> = self.lines.range(head.first..=head.last).collect();
            assert_eq!(lines.len(), head.count as usize);
            let bytes: Vec<u8> = lines.into_iter().flat_map(|(_, line)| line.to_vec()).collect();
            assert!(found.expect("readable") == Some(bytes), "{head:?} was not written");
            events += head.count as usize;
        }
        events
    }

    pub(super) fn check_checkpoint(
        &self,
        pages: &PageReader,
        candidate: &Candidate,
        history: &[(BlockHeader, RowLocation)],
    ) -> bool {
        let Some(location) = fill::checkpoint(candidate, history) else { return false };
        let found = pages.row(location, |row| {
            let TableRow::Checkpoint { seq, bytes, .. } = row else { return None };
            Some((seq, bytes.to_vec()))
        });
        let (seq, bytes) = found.expect("readable").expect("a checkpoint");
        assert_eq!(self.checkpoints.get(&seq), Some(&bytes));
        true
    }

    /// Compares a row with what was written; returns whether it is the last version.
    pub(super) fn check_row(&self, pages: &PageReader, candidate: &Candidate, rows: RowTolerance) -> bool {
        let Some(location) = candidate.row() else { return false };
        let row = pages.row(location, |row| row.into_session()).expect("readable").expect("a row");
        let found = row_of(
            &row.token_hash,
            [row.opened_at, row.updated_at, row.reserved],
            [Some(row.id.as_str()), Some(&row.state), row.active_run.as_deref(), Some(&row.summary)],
        );
        let near = |written: &Vec<u8>| {
            written.len() == found.len()
                && written.iter().zip(&found).map(|(one, other)| (one ^ other).count_ones()).sum::<u32>() <= 1
        };
        assert!(
            self.rows.contains(&found) || (rows == RowTolerance::OneBit && self.rows.iter().any(near)),
            "a row that was never written: {}",
            String::from_utf8_lossy(&found)
        );
        self.rows.last() == Some(&found)
    }
}

pub(super) fn row_of(token_hash: &[u8; 32], numbers: [u64; 3], texts: [Option<&str>; 4]) -> Vec<u8> {
    let texts = texts.map(|text| text.map_or("-".to_owned(), |text| format!("<{text}>"))).concat();
    [token_hash.to_vec(), numbers.map(u64::to_be_bytes).concat(), texts.into_bytes()].concat()
}

/// Makes a page file of a database and its log.
fn open_pages(dir: &TempDir, database: &[u8], log: &[u8]) -> PageReader {
    let file = |bytes: &[u8]| Some(Box::new(MemoryFile(bytes.to_vec())) as Box<dyn RawFile>);
    let env = StorageEnv::native(dir.path());
    PageReader::create(&env, &dir.path().join("pages"), file(database), file(log)).expect("a page file")
}

/// A directory in memory if possible: these tests are not about durability.
fn memory_directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

pub(super) fn empty_context() -> SalvageContext<'static> {
    SalvageContext {
        name_of: &|_| None,
        is_deleted: &|_| false,
        lost_summary: &|_| String::new(),
        before_swap: &|_, _| Ok(()),
    }
}

/// Overwrites the beginning of every occurrence of `text`.
pub(super) fn replace(file: &mut [u8], text: &[u8], with: &[u8]) {
    for at in 0..file.len() - text.len() {
        if file[at..].starts_with(text) {
            file[at..at + with.len()].copy_from_slice(with);
        }
    }
}

struct MemoryFile(Vec<u8>);

impl RawFile for MemoryFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = self.0.get(at as usize..).unwrap_or_default();
        let read = rest.len().min(into.len());
        into[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    fn write_at(&self, _at: u64, _bytes: &[u8]) -> io::Result<()> {
        panic!("the files set aside are never written")
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        panic!("the files set aside are never cut")
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A seeded random number generator. Its seed is fixed unless the environment names one: a test that fails by chance
/// says nothing about the change that it ran for.
pub(super) struct SeededRandom(Random);

impl SeededRandom {
    pub(super) fn new() -> Self {
        let seed = std::env::var("PUSH_SALVAGE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        Self(Random::new(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0.index(bound)
    }

    /// Returns some numbers below `bound`, or all of them in the long form.
    pub(super) fn choose(&mut self, bound: usize, some: usize) -> Vec<usize> {
        if std::env::var_os("PUSH_LONG").is_some_and(|value| value == "1") {
            return (0..bound).collect();
        }
        (0..some).map(|_| self.below(bound)).collect()
    }
}

pub(super) const PAGE_BYTES: usize = 4096;
/// More events than the rows of a page hold: each takes more than 100 bytes.
pub(super) const PAGE_EVENTS: usize = PAGE_BYTES / 100;
