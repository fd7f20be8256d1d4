//! Damage of every kind to a small database and its log: only written data is recovered, and one flipped bit costs
//! the rows of one page at most.
//!
//! `PUSH_LONG=1` tries every byte and every bit; `PUSH_SALVAGE_SEED` sets the seed of the short form.

mod model;

use std::collections::BTreeSet;

use super::reader::RowLocation;
use super::rows::TableRow;
use super::scan::{Candidate, scan};
use super::*;
use crate::journal::checksum::BlockHeader;
use model::{Model, PAGE_BYTES, PAGE_EVENTS, RowTolerance, SeededRandom, empty_context, replace};

#[tokio::test]
async fn undamaged_data_is_recovered_completely() {
    let model = Model::new().await;
    let found = model.salvage(&model.database, &model.log, RowTolerance::Exact);
    assert_eq!(found.events, model.events(), "every event");
    assert_eq!(found.rows, model.sessions.len(), "every row, as it was last");
    assert_eq!((found.checkpoints, found.starts), (2, 1));
    assert_eq!(found.unreadable, 0);
    let moved = model.salvage(&model.checkpointed, &[], RowTolerance::Exact);
    assert_eq!((moved.events, moved.unreadable), (model.events(), 0), "without a log");
}

#[tokio::test]
async fn a_flipped_bit_costs_one_page_at_most() {
    let model = Model::new().await;
    let mut chance = SeededRandom::new();
    let (mut flips, mut losses) = (0, 0);
    for (name, file) in [("database", &model.checkpointed), ("half", &model.database), ("log", &model.log)] {
        for bit in chance.choose(file.len() * 8, 40) {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = match name {
                "database" => model.salvage(&flipped, &[], RowTolerance::OneBit),
                "half" => model.salvage(&flipped, &model.log, RowTolerance::OneBit),
                _ => model.salvage(&model.database, &flipped, RowTolerance::OneBit),
            };
            let lost = model.events() - found.events;
            assert!(lost <= PAGE_EVENTS, "bit {bit} of the {name}: {lost} events are lost");
            assert_eq!(found.sessions, model.sessions.len(), "bit {bit} of the {name}");
            (flips, losses) = (flips + 1, losses + usize::from(found.lost > 1));
        }
    }
    // A block belongs to one session. More is lost only with the type of a page, one byte of it.
    assert!(losses * 20 <= flips, "{losses} of {flips} flipped bits cost more than one block");
}

#[tokio::test]
async fn a_damaged_rowid_costs_no_event() {
    let model = Model::new().await;
    let (mut flips, mut file) = (0, model.checkpointed.clone());
    for page in 1..file.len() / PAGE_BYTES {
        for at in rowids(&model.checkpointed, page * PAGE_BYTES) {
            for bit in 0..7 {
                file[at] ^= 1 << bit;
                let found = model.salvage(&file, &[], RowTolerance::OneBit);
                assert_eq!(found.events, model.events(), "bit {bit} of the rowid at {at}");
                file[at] ^= 1 << bit;
                flips += 1;
            }
        }
    }
    assert!(flips > 100, "{flips} rowids were damaged");
}

/// Returns the offsets of the last bytes of the rowids in a page, if it is a leaf page of a table.
fn rowids(file: &[u8], page: usize) -> Vec<usize> {
    if file[page] != 0x0d {
        return Vec::new();
    }
    let short = |at: usize| usize::from(u16::from_be_bytes([file[at], file[at + 1]]));
    let end_of_varint = |at: usize| at + file[at..].iter().position(|byte| byte & 0x80 == 0).expect("an end");
    let cells = (0..short(page + 3)).map(|cell| page + short(page + 8 + 2 * cell));
    // A cell begins with the length of its record.
    cells.map(|cell| end_of_varint(end_of_varint(cell) + 1)).collect()
}

#[tokio::test]
async fn a_file_truncated_anywhere_keeps_everything_before_the_cut() {
    let model = Model::new().await;
    let mut chance = SeededRandom::new();
    for file in [&model.checkpointed, &model.log] {
        let edges = (0..=file.len() / PAGE_BYTES)
            .flat_map(|page| [page * PAGE_BYTES, page * PAGE_BYTES + 1, page * PAGE_BYTES + PAGE_BYTES - 1]);
        let frames = (0..=file.len() / (PAGE_BYTES + 24)).map(|frame| 32 + frame * (PAGE_BYTES + 24));
        let cuts: BTreeSet<usize> =
            edges.chain(frames).chain(chance.choose(file.len(), 20)).filter(|cut| *cut <= file.len()).collect();
        let mut before = 0;
        for cut in cuts {
            let cut_file = &file[..cut];
            if std::ptr::eq(file, &model.log) {
                let found = model.salvage(&model.database, cut_file, RowTolerance::Exact);
                assert!(found.events >= before, "a longer log holds more: {cut}");
                before = found.events;
            } else {
                model.salvage(cut_file, &[], RowTolerance::Exact);
            }
        }
        assert!(file.len() != model.log.len() || before == model.events());
    }
}

#[tokio::test]
async fn zeroed_swapped_or_random_pages_only_lose_their_own_rows() {
    let model = Model::new().await;
    let mut chance = SeededRandom::new();
    let pages = model.checkpointed.len() / PAGE_BYTES;
    for page in 0..pages {
        let mut file = model.checkpointed.clone();
        file[page * PAGE_BYTES..(page + 1) * PAGE_BYTES].fill(0);
        let found = model.salvage(&file, &[], RowTolerance::Exact);
        assert!(found.events + PAGE_EVENTS >= model.events(), "page {page} is zero");
        for byte in &mut file[page * PAGE_BYTES..(page + 1) * PAGE_BYTES] {
            *byte = chance.next() as u8;
        }
        let found = model.salvage(&file, &[], RowTolerance::Exact);
        assert!(found.events + PAGE_EVENTS >= model.events(), "page {page} is random");
        let other = chance.below(pages);
        let mut file = model.checkpointed.clone();
        for at in 0..PAGE_BYTES {
            file.swap(page * PAGE_BYTES + at, other * PAGE_BYTES + at);
        }
        let found = model.salvage(&file, &[], RowTolerance::Exact);
        assert!(found.events > 0, "pages {page} and {other} are swapped");
    }
}

#[tokio::test]
async fn nothing_is_recovered_from_empty_or_random_files() {
    let model = Model::new().await;
    let mut chance = SeededRandom::new();
    let rubbish: Vec<u8> = (0..30_000).map(|_| chance.next() as u8).collect();
    let low: Vec<u8> = (0..30_000).map(|_| chance.below(20) as u8).collect();
    let circle = [13_u8, 0, 0, 0].repeat(8_000);
    let files: [&[u8]; 7] = [&[], &[0], &[0; 20_000], &[255; 20_000], &rubbish, &low, &circle];
    for database in files {
        for log in files {
            let found = model.salvage(database, log, RowTolerance::Exact);
            assert_eq!((found.sessions, found.events), (0, 0));
        }
    }
}

#[tokio::test]
async fn a_history_is_recovered_by_the_name_in_its_mark() {
    let model = Model::new().await;
    let mut file = model.checkpointed.clone();
    for written in model.sessions.values() {
        replace(&mut file, written.id.as_str().as_bytes(), b"\0\0\0\0");
    }
    let nothing = model.salvage(&file, &[], RowTolerance::Exact);
    assert_eq!(nothing.sessions, 0, "no source names the sessions of the blocks");
    let names = |key: i64| model.sessions.get(&key).map(|written| written.id.clone());
    let context = SalvageContext { name_of: &names, ..empty_context() };
    let found = model.salvage_with(&file, &[], RowTolerance::Exact, &context);
    assert_eq!((found.sessions, found.rows, found.lost), (model.sessions.len(), 0, 0));
}

#[tokio::test]
async fn a_name_that_contradicts_its_mark_is_ignored() {
    let model = Model::new().await;
    let names = |key: i64| (key == 1).then(|| SessionId::from("sess_other"));
    let found = model.salvage_with(
        &model.database,
        &model.log,
        RowTolerance::Exact,
        &SalvageContext { name_of: &names, ..empty_context() },
    );
    assert_eq!(found.sessions, model.sessions.len() - 1);
}

#[tokio::test]
async fn a_deleted_session_is_not_recovered() {
    let model = Model::new().await;
    let deleted = |key: i64| key == 2;
    let context = SalvageContext { is_deleted: &deleted, ..empty_context() };
    let found = model.salvage_with(&model.database, &model.log, RowTolerance::Exact, &context);
    assert_eq!(found.sessions, model.sessions.len() - 1);
    assert!(!found.keys.contains(&2));
}

#[tokio::test]
async fn the_headers_of_the_files_are_not_needed() {
    let model = Model::new().await;
    let (mut database, mut log) = (model.database.clone(), model.log.clone());
    database[..PAGE_BYTES].fill(0xee);
    assert_eq!(model.salvage(&database, &model.log, RowTolerance::Exact).events, model.events(), "no first page");
    log[..32].fill(0xee);
    assert_eq!(model.salvage(&database, &log, RowTolerance::Exact).events, model.events(), "nor a log header");
}

#[tokio::test]
async fn uncommitted_frames_are_not_recovered() {
    let model = Model::new().await;
    let frames = (model.log.len() - 32) / (PAGE_BYTES + 24);
    let head = |frame: usize| &model.log[32 + frame * (PAGE_BYTES + 24)..][..24];
    // After the current frames the log still holds frames from before its restart.
    let current = |frame: &usize| head(*frame)[8..16] == model.log[16..24];
    let commits: Vec<usize> = (0..frames).filter(current).filter(|frame| head(*frame)[4..8] != [0; 4]).collect();
    let end = *commits.last().expect("the log has a commit");
    let start = commits.iter().rev().nth(1).map_or(0, |before| before + 1);
    assert!(end > start, "the last transaction has several frames");
    let whole = &model.log[..32 + (end + 1) * (PAGE_BYTES + 24)];
    let all = model.salvage(&model.database, whole, RowTolerance::Exact);
    let without = model.salvage(&model.database, &whole[..32 + start * (PAGE_BYTES + 24)], RowTolerance::Exact);
    assert!(without.events < all.events);
    let mut unmarked = whole.to_vec();
    unmarked[32 + end * (PAGE_BYTES + 24) + 4..][..4].fill(0);
    for log in [&unmarked[..], &whole[..32 + end * (PAGE_BYTES + 24)]] {
        let found = model.salvage(&model.database, log, RowTolerance::Exact);
        assert_eq!(found.events, without.events, "half a transaction is none");
    }
}

#[test]
fn the_history_is_the_chain_that_reaches_furthest() {
    let block =
        |first, last, prev, checksum| BlockHeader { first, last, count: (last - first) as u32 + 1, prev, checksum };
    let choose = |heads: &[BlockHeader]| {
        let mut heads = heads.to_vec();
        heads.sort_unstable();
        let chosen = chain::history(100, &heads);
        chosen.into_iter().map(|at| (heads[at].first, heads[at].last)).collect::<Vec<_>>()
    };
    let small: Vec<BlockHeader> = (0..9).map(|n| block(n * 2 + 1, n * 2 + 2, 100 + n as u32, 101 + n as u32)).collect();
    let ranges: Vec<(u64, u64)> = small.iter().map(|head| (head.first, head.last)).collect();
    assert_eq!(choose(&small), ranges);
    let with = |more: &[BlockHeader]| [&small[..], more].concat();
    assert_eq!(choose(&with(&[block(1, 10, 100, 105), block(11, 18, 105, 109)])), [(1, 10), (11, 18)], "merged ones");
    assert_eq!(choose(&with(&[block(3, 18, 101, 109)]))[..2], [(1, 2), (3, 18)]);
    assert_eq!(choose(&[&small[..3], &small[5..]].concat())[2..4], [(5, 6), (11, 12)], "a hole stays");
    assert_eq!(choose(&small[4..]), ranges[4..], "and so does a lost beginning");
    let lost = block(19, 20, 109, 999);
    let after = block(4_097, 4_099, 109, 110);
    assert_eq!(choose(&with(&[lost, after]))[8..], [(17, 18), (4_097, 4_099)], "what was given up does not return");
    assert_eq!(choose(&with(&[lost]))[8..], [(17, 18), (19, 20)], "unless nothing took its place");
    let splice = BlockHeader { count: 0, ..block(19, 20, 109, 109) };
    assert_eq!(choose(&with(&[splice, lost, after]))[8..], [(17, 18), (19, 20), (4_097, 4_099)], "a splice stays");
    let longer = BlockHeader { last: 25, ..splice };
    assert_eq!(choose(&with(&[splice, longer]))[8..], [(17, 18), (19, 25)], "nothing is taken twice");
    let mut heads = with(&[BlockHeader { count: 0, ..small[4] }]);
    heads.sort_unstable();
    let chosen = chain::history(100, &heads);
    assert_eq!(chosen.len(), 9);
    assert_eq!(chosen.iter().filter(|at| heads[**at].count == 0).count(), 1, "what was given up stays so");
    let removed = BlockHeader { count: 0, ..block(0, 10, 100, 105) };
    assert_eq!(choose(&with(&[removed]))[..2], [(0, 10), (11, 12)], "what was removed does not return");
    let removed_first = BlockHeader { count: 0, ..block(0, 4, 100, 102) };
    assert_eq!(choose(&with(&[removed_first, removed]))[..2], [(0, 10), (11, 12)], "nor what was removed later");
    let chosen = [&small[8], &after];
    assert!(chain::is_skipped(chosen.into_iter(), 20));
    assert!(!chain::is_skipped(chosen.into_iter(), 18) && !chain::is_skipped(chosen.into_iter(), 4_097));
    assert!(!chain::is_skipped(chosen.into_iter(), 9_999) && !chain::is_skipped(chosen.into_iter(), 1));
    assert!(choose(&[]).is_empty());
}
