//! Random damage: whichever byte of whichever file is changed or missing, no event is lost without a report.
//!
//! `PUSH_DAMAGE` sets how many positions are tried, `PUSH_LONG=1` tries very many, `PUSH_DAMAGE_SEED` sets the
//! first seed.

use super::*;
use crate::random::Random;

/// Each session on disk, and its last position.
const SESSIONS: [(&str, u64); 3] = [("sess_a", 60), ("sess_b", 9), ("sess_c", 200)];

#[tokio::test]
async fn a_flipped_bit_anywhere_is_repaired_or_reported() {
    let files = Files::create().await;
    for (seed, mut random) in seeds() {
        let mut files = files.clone();
        let changes = if random.below(4) == 0 { 1 + random.below(20) } else { 1 };
        // If a mark is damaged together with its history, the loss cannot be detected.
        let kinds = if changes == 1 { 3 } else { 2 };
        for _ in 0..changes {
            let file = random.below(kinds) as usize;
            let length = files.0[file].1.len() as u64;
            if length > 0 {
                let bit = random.below(length * 8);
                files.0[file].1[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
        }
        verify(&files, &format!("PUSH_DAMAGE_SEED={seed}")).await;
    }
}

#[tokio::test]
async fn a_file_truncated_anywhere_is_repaired_or_reported() {
    let files = Files::create().await;
    for file in 0..3 {
        let length = files.0[file].1.len();
        let edges = (0..=length).step_by(4096).flat_map(|edge| [edge.saturating_sub(1), edge, edge + 1]);
        let edges: Vec<_> = edges.filter(|cut| *cut < length).collect();
        // The long form tries all positions, the short form some.
        let step = if std::env::var_os("PUSH_LONG").is_some() { 1 } else { 1 + edges.len() / 30 };
        for cut in edges.into_iter().step_by(step) {
            let mut files = files.clone();
            files.0[file].1.truncate(cut);
            verify(&files, &format!("{} cut at {cut}", files.0[file].0)).await;
        }
    }
}

/// The three files of a journal, as a kill leaves them.
#[derive(Clone)]
struct Files([(&'static str, Vec<u8>); 3]);

impl Files {
    async fn create() -> Self {
        // A part is in the database, a part in the log.
        let test = TestJournal::with(Options { checkpoint_pages: 60, ..Options::default() });
        for (name, last) in SESSIONS {
            test.commit(synced(created(name))).await.expect("kept");
            let mut first = 1;
            while first <= last {
                let end = (first + first % 7).min(last);
                test.commit(appending(name, first, end)).await.expect("kept");
                first = end + 1;
            }
            let reserve = Batch { reserved_seq: Some(Seq::new(last + 50)), ..Batch::new(name.into()) };
            test.commit(synced(reserve)).await.expect("on disk");
        }
        let read = |name| (name, std::fs::read(test.dir.path().join(name)).expect("a file"));
        Self([read(DATABASE), read(LOG), read(MARKS)])
    }
}

/// Opens what is left and checks that every event is there or reported as lost.
async fn verify(files: &Files, what: &str) {
    let dir = memory_directory();
    for (name, bytes) in &files.0 {
        std::fs::write(dir.path().join(name), bytes).expect("written");
    }
    let options = Options { reserve_bytes: 0, ..Options::default() };
    let journal = match Journal::open(dir.path(), options) {
        Ok(journal) => journal,
        Err(error) => panic!("{what}: it does not open: {error:?}"),
    };
    let mut shapes = Vec::new();
    for (name, last) in SESSIONS {
        let stored = journal.load(name.into()).await.unwrap_or_else(|error| panic!("{what}: {name} {error:?}"));
        let mut present = vec![stored.is_none(); last as usize + 1];
        let mut after = Seq::ZERO;
        while stored.is_some() {
            let page = journal.page(name.into(), after, 1 << 20).await;
            let page = page.unwrap_or_else(|error| panic!("{what}: {name} {error:?}"));
            for block in &page.blocks {
                assert!(block.first > after, "{what}: {name} goes back at {}", block.first);
                after = block.last;
                if block.count > 0 {
                    let expected = lines(block.first.number(), block.last.number());
                    assert_eq!(block.bytes, expected, "{what}: {name} returns data that was never written");
                }
                for seq in block.first.number()..=block.last.number().min(last) {
                    present[seq as usize] = true;
                }
            }
            if !page.more {
                break;
            }
        }
        shapes.push((name, present));
    }
    let losses = journal.losses(100).await.expect("a list");
    for (name, present) in shapes {
        let whole = present[1..].iter().all(|there| *there);
        assert!(whole, "{what}: {name} is truncated without a report: {present:?} {losses:?}");
        if journal.load(name.into()).await.expect("readable").is_none() {
            let reported = losses.iter().any(|loss| loss.session == name);
            assert!(reported, "{what}: {name} is missing without a report: {losses:?}");
        }
        // The session accepts events; the first attempt may meet more damage.
        let mut kept = false;
        for _ in 0..3 {
            let Some(stored) = journal.load(name.into()).await.expect("readable") else { break };
            let next = stored.reserved.number().max(300) + 1;
            kept = journal.commit(synced(appending(name, next, next))).await.expect("an answer").is_ok();
            if kept {
                break;
            }
        }
        let there = journal.load(name.into()).await.expect("readable").is_some();
        assert!(kept || !there, "{what}: {name} refuses events");
    }
    // Closing may meet damage that was never read; the next epoch then begins with a salvage.
    let _ = journal.close().await;
    let journal = Journal::open(dir.path(), options).unwrap_or_else(|error| panic!("{what}: again {error:?}"));
    journal.close().await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
}

fn seeds() -> impl Iterator<Item = (u64, Random)> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let count = if std::env::var_os("PUSH_LONG").is_some() { 20_000 } else { 150 };
    let chosen = number("PUSH_DAMAGE_SEED");
    let first = chosen.unwrap_or(1);
    let count = number("PUSH_DAMAGE").unwrap_or(if chosen.is_some() { 1 } else { count });
    let known = if chosen.is_some() { &[] } else { KNOWN_SEEDS };
    known.iter().copied().chain(first..first + count).map(|seed| (seed, Random::new(seed)))
}

/// Seeds that have found a defect; they are always tried.
const KNOWN_SEEDS: &[u64] = &[5035];

/// A directory in memory if possible: these tests are not about durability.
fn memory_directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}
