//! Damage of every kind to a small database and its log: what is found was written, and one flipped bit costs one block.
//!
//! `PUSH_LONG=1` tries every byte and every bit, `PUSH_SALVAGE_SEED` sets what the short form tries.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::images::Place;
use super::rows::{self, Head};
use super::survey::{Candidate, survey};
use super::*;
use crate::journal::{Batch, Block, Checkpoint, Create, Journal, Meta};
use crate::kernel::id::{Fingerprint, Seq};
use crate::kernel::time::Now;

#[tokio::test]
async fn what_is_not_damaged_is_found_to_the_last_byte() {
    let model = Model::new().await;
    let found = model.found(&model.database, &model.log, Rows::Exact);
    assert_eq!(found.events, model.events(), "every event");
    assert_eq!(found.rows, model.sessions.len(), "every row, as it was last");
    assert_eq!((found.checkpoints, found.starts), (2, 1));
    assert_eq!(found.unreadable, 0);
    let moved = model.found(&model.moved, &[], Rows::Exact);
    assert_eq!((moved.events, moved.unreadable), (model.events(), 0), "without a log");
}

#[tokio::test]
async fn a_flipped_bit_costs_one_block_at_most() {
    let model = Model::new().await;
    let mut chance = Chance::new();
    for (name, file) in [("database", &model.moved), ("half", &model.database), ("log", &model.log)] {
        for bit in chance.choose(file.len() * 8, 40) {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = match name {
                "database" => model.found(&flipped, &[], Rows::OneBit),
                "half" => model.found(&flipped, &model.log, Rows::OneBit),
                _ => model.found(&model.database, &flipped, Rows::OneBit),
            };
            assert!(found.lost <= 1, "bit {bit} of the {name}: {} blocks are lost", found.lost);
            assert_eq!(found.sessions, model.sessions.len(), "bit {bit} of the {name}");
        }
    }
}

#[tokio::test]
async fn a_file_cut_short_anywhere_keeps_what_precedes() {
    let model = Model::new().await;
    let mut chance = Chance::new();
    for file in [&model.moved, &model.log] {
        let edges =
            (0..=file.len() / PAGE).flat_map(|page| [page * PAGE, page * PAGE + 1, page * PAGE + PAGE - 1]);
        let frames = (0..=file.len() / (PAGE + 24)).map(|frame| 32 + frame * (PAGE + 24));
        let cuts: BTreeSet<usize> = edges
            .chain(frames)
            .chain(chance.choose(file.len(), 20))
            .filter(|cut| *cut <= file.len())
            .collect();
        let mut before = 0;
        for cut in cuts {
            let cut_file = &file[..cut];
            if std::ptr::eq(file, &model.log) {
                let found = model.found(&model.database, cut_file, Rows::Exact);
                assert!(found.events >= before, "a longer log holds more: {cut}");
                before = found.events;
            } else {
                model.found(cut_file, &[], Rows::Exact);
            }
        }
        assert!(file.len() != model.log.len() || before == model.events());
    }
}

#[tokio::test]
async fn pages_that_are_zero_swapped_or_rubbish_cost_themselves() {
    let model = Model::new().await;
    let mut chance = Chance::new();
    let pages = model.moved.len() / PAGE;
    let mut unreadable = 0;
    for page in 0..pages {
        let mut file = model.moved.clone();
        file[page * PAGE..(page + 1) * PAGE].fill(0);
        let found = model.found(&file, &[], Rows::Exact);
        // A page that is not in use may hold anything.
        assert!(found.unreadable <= 1, "page {page} is zero");
        unreadable += found.unreadable;
        for byte in &mut file[page * PAGE..(page + 1) * PAGE] {
            *byte = chance.next() as u8;
        }
        model.found(&file, &[], Rows::Exact);
        let other = chance.below(pages);
        let mut file = model.moved.clone();
        for at in 0..PAGE {
            file.swap(page * PAGE + at, other * PAGE + at);
        }
        let found = model.found(&file, &[], Rows::Exact);
        assert!(found.events > 0, "pages {page} and {other} are swapped");
    }
    assert!(unreadable >= pages as u64 / 2, "{unreadable} of {pages} pages are missed");
}

#[tokio::test]
async fn nothing_is_found_in_nothing_and_in_rubbish() {
    let model = Model::new().await;
    let mut chance = Chance::new();
    let rubbish: Vec<u8> = (0..30_000).map(|_| chance.next() as u8).collect();
    let low: Vec<u8> = (0..30_000).map(|_| chance.below(20) as u8).collect();
    let circle = [13_u8, 0, 0, 0].repeat(8_000);
    let files: [&[u8]; 7] = [&[], &[0], &[0; 20_000], &[255; 20_000], &rubbish, &low, &circle];
    for database in files {
        for log in files {
            let found = model.found(database, log, Rows::Exact);
            assert_eq!((found.sessions, found.events), (0, 0));
        }
    }
}

#[tokio::test]
async fn a_history_is_found_by_a_name_known_outside() {
    let model = Model::new().await;
    let mut file = model.moved.clone();
    for written in model.sessions.values() {
        replace(&mut file, written.id.as_str().as_bytes(), b"\0\0\0\0");
    }
    let nothing = model.found(&file, &[], Rows::Exact);
    assert_eq!(nothing.sessions, 0, "nobody knows whose the blocks are");
    let names = |key: i64| model.sessions.get(&key).map(|written| written.id.clone());
    let outside = Outside { names: &names, ..nothing_known() };
    let found = model.found_with(&file, &[], Rows::Exact, &outside);
    assert_eq!((found.sessions, found.rows, found.lost), (model.sessions.len(), 0, 0));
}

#[tokio::test]
async fn a_name_that_is_not_the_one_known_outside_is_not_believed() {
    let model = Model::new().await;
    let names = |key: i64| (key == 1).then(|| SessionId::from("sess_other"));
    let found = model.found_with(
        &model.database,
        &model.log,
        Rows::Exact,
        &Outside { names: &names, ..nothing_known() },
    );
    assert_eq!(found.sessions, model.sessions.len() - 1);
}

#[tokio::test]
async fn a_deleted_key_is_not_found() {
    let model = Model::new().await;
    let deleted = |key: i64| key == 2;
    let outside = Outside { deleted: &deleted, ..nothing_known() };
    let found = model.found_with(&model.database, &model.log, Rows::Exact, &outside);
    assert_eq!(found.sessions, model.sessions.len() - 1);
    assert!(!found.keys.contains(&2));
}

#[tokio::test]
async fn the_size_of_a_page_is_found_where_the_heads_are_wrong() {
    let model = Model::new().await;
    let (mut database, mut log) = (model.database.clone(), model.log.clone());
    for wrong in [[0_u8, 0], [2, 0], [0, 1], [0x20, 0], [0xff, 0xff]] {
        database[16..18].copy_from_slice(&wrong);
        assert_eq!(model.found(&database, &model.log, Rows::Exact).events, model.events(), "{wrong:?}");
        log[10..12].copy_from_slice(&wrong);
        assert_eq!(model.found(&database, &log, Rows::Exact).events, model.events(), "{wrong:?} in both");
        database[..100].fill(0);
        assert_eq!(model.found(&database, &log, Rows::Exact).events, model.events(), "no head at all");
    }
}

#[tokio::test]
async fn what_was_not_committed_is_not_found() {
    let model = Model::new().await;
    let frames = (model.log.len() - 32) / (PAGE + 24);
    let head = |frame: usize| &model.log[32 + frame * (PAGE + 24)..][..24];
    // Behind the frames of the log there are those from before it began anew.
    let current = |frame: &usize| head(*frame)[8..16] == model.log[16..24];
    let commits: Vec<usize> =
        (0..frames).filter(current).filter(|frame| head(*frame)[4..8] != [0; 4]).collect();
    let end = *commits.last().expect("the log has a commit");
    let start = commits.iter().rev().nth(1).map_or(0, |before| before + 1);
    assert!(end > start, "the last transaction has several frames");
    let whole = &model.log[..32 + (end + 1) * (PAGE + 24)];
    let all = model.found(&model.database, whole, Rows::Exact);
    let without = model.found(&model.database, &whole[..32 + start * (PAGE + 24)], Rows::Exact);
    assert!(without.events < all.events);
    let mut unmarked = whole.to_vec();
    unmarked[32 + end * (PAGE + 24) + 4..][..4].fill(0);
    for log in [&unmarked[..], &whole[..32 + end * (PAGE + 24)]] {
        let found = model.found(&model.database, log, Rows::Exact);
        assert_eq!(found.events, without.events, "half a transaction is none");
    }
}

#[test]
fn the_history_is_the_chain_that_reaches_furthest() {
    let block =
        |first, last, prev, checksum| Head { first, last, count: (last - first) as u32 + 1, prev, checksum };
    let choose = |heads: &[Head]| {
        let mut heads = heads.to_vec();
        heads.sort_unstable();
        let chosen = chain::history(100, &heads);
        chosen.into_iter().map(|at| (heads[at].first, heads[at].last)).collect::<Vec<_>>()
    };
    let small: Vec<Head> =
        (0..9).map(|n| block(n * 2 + 1, n * 2 + 2, 100 + n as u32, 101 + n as u32)).collect();
    let ranges: Vec<(u64, u64)> = small.iter().map(|head| (head.first, head.last)).collect();
    assert_eq!(choose(&small), ranges);
    let with = |more: &[Head]| [&small[..], more].concat();
    assert_eq!(
        choose(&with(&[block(1, 10, 100, 105), block(11, 18, 105, 109)])),
        [(1, 10), (11, 18)],
        "merged ones"
    );
    assert_eq!(choose(&with(&[block(3, 18, 101, 109)]))[..2], [(1, 2), (3, 18)]);
    assert_eq!(choose(&[&small[..3], &small[5..]].concat())[2..4], [(5, 6), (11, 12)], "a hole stays");
    assert_eq!(choose(&small[4..]), ranges[4..], "and so does a lost beginning");
    let lost = block(19, 20, 109, 999);
    let after = block(4_097, 4_099, 109, 110);
    assert_eq!(
        choose(&with(&[lost, after]))[8..],
        [(17, 18), (4_097, 4_099)],
        "what was given up does not return"
    );
    assert_eq!(choose(&with(&[lost]))[8..], [(17, 18), (19, 20)], "unless nothing took its place");
    let splice = Head { count: 0, ..block(19, 20, 109, 109) };
    assert_eq!(
        choose(&with(&[splice, lost, after]))[8..],
        [(17, 18), (19, 20), (4_097, 4_099)],
        "a splice stays"
    );
    let longer = Head { last: 25, ..splice };
    assert_eq!(choose(&with(&[splice, longer]))[8..], [(17, 18), (19, 25)], "nothing is taken twice");
    let mut heads = with(&[Head { count: 0, ..small[4] }]);
    heads.sort_unstable();
    let chosen = chain::history(100, &heads);
    assert_eq!(chosen.len(), 9);
    assert_eq!(chosen.iter().filter(|at| heads[**at].count == 0).count(), 1, "what was given up stays so");
    let removed = Head { count: 0, ..block(0, 10, 100, 105) };
    assert_eq!(choose(&with(&[removed]))[..2], [(0, 10), (11, 12)], "what was removed does not return");
    let removed_first = Head { count: 0, ..block(0, 4, 100, 102) };
    assert_eq!(
        choose(&with(&[removed_first, removed]))[..2],
        [(0, 10), (11, 12)],
        "nor what was removed later"
    );
    let chosen = [&small[8], &after];
    assert!(chain::is_passed_over(chosen.into_iter(), 20));
    assert!(
        !chain::is_passed_over(chosen.into_iter(), 18) && !chain::is_passed_over(chosen.into_iter(), 4_097)
    );
    assert!(
        !chain::is_passed_over(chosen.into_iter(), 9_999) && !chain::is_passed_over(chosen.into_iter(), 1)
    );
    assert!(choose(&[]).is_empty());
}

/// What was written, and the files in which it stands.
struct Model {
    sessions: BTreeMap<i64, Written>,
    /// The database and its log, both of which hold a part.
    database: Vec<u8>,
    log: Vec<u8>,
    /// The database after the log was moved into it.
    moved: Vec<u8>,
}

/// Everything that was ever written about one session.
struct Written {
    id: SessionId,
    lines: BTreeMap<u64, Bytes>,
    /// The rows, the last one last.
    rows: Vec<Vec<u8>>,
    checkpoints: BTreeMap<u64, Vec<u8>>,
}

/// How far a row may be from what was written.
#[derive(Clone, Copy, PartialEq)]
enum Rows {
    Exact,
    OneBit,
}

#[derive(Default)]
struct Found {
    keys: BTreeSet<i64>,
    sessions: usize,
    rows: usize,
    events: usize,
    /// How many of the lines that a block would hold are missing, counted in blocks.
    lost: usize,
    checkpoints: usize,
    starts: usize,
    unreadable: u64,
}

impl Model {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let options =
            Options { checkpoint_pages: 10, small_block: 2_000, spare_bytes: 0, ..Options::default() };
        let journal = Journal::open(dir.path(), options).expect("a journal");
        let mut sessions = BTreeMap::new();
        for key in 1..=3_i64 {
            let id = SessionId::from(format!("sess_{key:02}abcdefgh"));
            let create = Create {
                token_hash: [key as u8; 32],
                start_key: (key == 2).then(|| ("a start".to_owned(), Fingerprint(77))),
                opened_at: Now(5),
            };
            let mut written = Written {
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
                let all = Seq::new(u64::MAX);
                let merge = journal.merge(sessions[&1].id.clone(), all).await;
                assert!(merge.expect("an answer").expect("merged").joined > 0);
            }
        }
        let read = |name: &str| std::fs::read(dir.path().join(name)).expect("a file");
        let mut model = Self { sessions, database: Vec::new(), log: Vec::new(), moved: Vec::new() };
        for round in 11.. {
            model.sessions.get_mut(&3).expect("a session").round(&journal, round, 3).await;
            (model.database, model.log) = (read(DATABASE), read(LOG));
            // The writer may just have moved the log; the last events are to stand in the log alone.
            if model.found(&model.database, &[], Rows::Exact).events < model.events() {
                break;
            }
        }
        journal.close().await.expect("closes");
        model.moved = read(DATABASE);
        model
    }

    fn events(&self) -> usize {
        self.sessions.values().map(|written| written.lines.len()).sum()
    }

    fn found(&self, database: &[u8], log: &[u8], rows: Rows) -> Found {
        self.found_with(database, log, rows, &nothing_known())
    }

    /// Searches two files and holds everything that is found against what was written.
    fn found_with(&self, database: &[u8], log: &[u8], rows: Rows, outside: &Outside<'_>) -> Found {
        let file = |bytes: &[u8]| Some(Box::new(Memory(bytes.to_vec())) as Box<dyn RawFile>);
        let images = Images::open(file(database), file(log)).expect("files in memory");
        let findings = survey(&images, outside);
        let mut found = Found { unreadable: findings.unreadable, ..Found::default() };
        let chosen = fill::chosen(findings.sessions);
        found.starts = findings.starts.keys().filter(|key| chosen.contains_key(key)).count();
        for (key, candidate) in chosen {
            let written = self.sessions.get(&key).expect("a key that was written");
            assert_eq!(candidate.id, written.id);
            let history = fill::history(&candidate);
            let events = written.holds(&images, &history);
            found.events += events;
            found.lost += usize::from(events < written.lines.len());
            found.checkpoints += usize::from(written.knows_checkpoint(&images, &candidate, &history));
            found.rows += usize::from(written.knows_row(&images, &candidate, rows));
            found.sessions += 1;
            found.keys.insert(key);
        }
        found
    }
}

impl Written {
    /// Writes something of each kind.
    async fn round(&mut self, journal: &Journal, round: u64, key: i64) {
        let next = self.lines.keys().last().map_or(1, |last| last + 1);
        // The second session skips numbers, and each has one block now and then that fills several pages.
        let first = if key == 2 && round.is_multiple_of(4) { next + 10 } else { next };
        let length = if round % 5 == key as u64 { 4_500 } else { 90 };
        let lines = (first..first + 2).map(|seq| {
            let mut text: String =
                (0..length).map(|at| char::from(b'a' + ((seq + at * at) % 26) as u8)).collect();
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
            reserve: (round.is_multiple_of(6)).then(|| Seq::new(round * 100)),
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

    async fn commit(&mut self, journal: &Journal, batch: Batch) {
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

    /// Holds a history against what was written and returns how many events it has.
    fn holds(&self, images: &Images, history: &[(Head, Place)]) -> usize {
        let (mut reached, mut events) = (0, 0);
        for (head, place) in history {
            assert!(head.first > reached, "events come once and in order");
            reached = head.last;
            let (record, payload) = images.record(*place, &mut Vec::new()).expect("it was there");
            let lines: Vec<_> = self.lines.range(head.first..=head.last).collect();
            assert_eq!(lines.len(), head.count as usize);
            let bytes: Vec<u8> = lines.into_iter().flat_map(|(_, line)| line.to_vec()).collect();
            assert!(
                record.bytes(&payload, rows::BLOCK_BYTES) == Some(&bytes[..]),
                "{head:?} was not written"
            );
            events += head.count as usize;
        }
        events
    }

    fn knows_checkpoint(&self, images: &Images, candidate: &Candidate, history: &[(Head, Place)]) -> bool {
        let Some(place) = fill::checkpoint(candidate, history) else { return false };
        let (record, payload) = images.record(place, &mut Vec::new()).expect("it was there");
        let found = rows::Checkpoint::read(&record, &payload).expect("a checkpoint");
        assert_eq!(self.checkpoints.get(&found.seq).map(Vec::as_slice), Some(found.bytes));
        true
    }

    /// Holds a row against what was written; returns whether it is the last one.
    fn knows_row(&self, images: &Images, candidate: &Candidate, rows: Rows) -> bool {
        let Some(place) = candidate.row() else { return false };
        let (record, payload) = images.record(place, &mut Vec::new()).expect("it was there");
        let row = rows::Session::read(&record, &payload).expect("a row");
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
            self.rows.contains(&found) || (rows == Rows::OneBit && self.rows.iter().any(near)),
            "a row that was never written: {}",
            String::from_utf8_lossy(&found)
        );
        self.rows.last() == Some(&found)
    }
}

fn row_of(token_hash: &[u8; 32], numbers: [u64; 3], texts: [Option<&str>; 4]) -> Vec<u8> {
    let texts = texts.map(|text| text.map_or("-".to_owned(), |text| format!("<{text}>"))).concat();
    [token_hash.to_vec(), numbers.map(u64::to_be_bytes).concat(), texts.into_bytes()].concat()
}

fn nothing_known() -> Outside<'static> {
    Outside { names: &|_| None, deleted: &|_| false, summary: &|_| String::new(), last: &|_, _| Ok(()) }
}

/// Overwrites every occurrence of `text` with the beginning of it.
fn replace(file: &mut [u8], text: &[u8], with: &[u8]) {
    for at in 0..file.len() - text.len() {
        if file[at..].starts_with(text) {
            file[at..at + with.len()].copy_from_slice(with);
        }
    }
}

struct Memory(Vec<u8>);

impl RawFile for Memory {
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

/// Numbers from a seed, which is printed.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        let given = std::env::var("PUSH_SALVAGE_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_nanos() as u64;
        let seed = given.unwrap_or(now);
        println!("PUSH_SALVAGE_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Some numbers below `bound`, or all of them in the long form.
    fn choose(&mut self, bound: usize, some: usize) -> Vec<usize> {
        if std::env::var_os("PUSH_LONG").is_some_and(|value| value == "1") {
            return (0..bound).collect();
        }
        (0..some).map(|_| self.below(bound)).collect()
    }
}

const PAGE: usize = 4096;
