//! Compares what reading through SQLite recovers with what the page parser recovers, on the same damaged files.
//!
//! `PUSH_COMPARE` sets how many files of each kind are tried. With `--nocapture` the test prints its counts.

use super::model::{MemoryFile, memory_directory, open_pages};
use super::*;

#[tokio::test]
async fn sqlite_recovers_at_least_95_percent_of_what_the_parser_recovers() {
    let model = Model::new().await;
    let mut chance = SeededRandom::new();
    let count = std::env::var("PUSH_COMPARE").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
    let names = |key: i64| model.sessions.get(&key).map(|written| written.id.clone());
    let marked = SalvageContext { name_of: &names, ..empty_context() };
    let (mut by_parser, mut by_sqlite) = (0, 0);
    println!(
        "{} events; pages {}, frames {}",
        model.events(),
        model.checkpointed.len() / PAGE_BYTES,
        model.log.len() / (PAGE_BYTES + 24)
    );
    for kind in KINDS {
        let mut sums = [[0; 2]; 2];
        for (number, (database, log)) in damaged(&model, kind, count, &mut chance).into_iter().enumerate() {
            for (sums, context) in sums.iter_mut().zip([&empty_context(), &marked]) {
                let file = |bytes: &[u8]| Box::new(MemoryFile(bytes.to_vec())) as Box<dyn RawFile>;
                let parser = super::parser::recovered_events(file(&database), file(&log), context);
                let dir = memory_directory();
                let found = scan(&open_pages(&dir, &database, &log), context).expect("readable");
                let chosen = fill::choose_sessions(found.sessions);
                let histories = chosen.values().flat_map(fill::history);
                let sqlite = histories.map(|(head, _)| head.count as usize).sum::<usize>();
                if parser.abs_diff(sqlite) > 40 {
                    println!("  {kind} {number}: parser {parser}, SQLite {sqlite}");
                }
                *sums = [sums[0] + parser, sums[1] + sqlite];
            }
        }
        let [[parser, sqlite], [with_marks, sqlite_with_marks]] = sums;
        println!("{kind:24} parser {parser:8} SQLite {sqlite:8} | with marks {with_marks:8} {sqlite_with_marks:8}");
        (by_parser, by_sqlite) = (by_parser + parser + with_marks, by_sqlite + sqlite + sqlite_with_marks);
    }
    println!("in all: {:.2} %", by_sqlite as f64 * 100.0 / by_parser as f64);
    assert!(by_sqlite * 100 >= by_parser * 95, "{by_sqlite} of {by_parser}");
}

const KINDS: [&str; 13] = [
    "flip database",
    "flip half",
    "flip log",
    "flips in both",
    "cut database",
    "cut log",
    "cut half",
    "zero page",
    "random page",
    "swap pages",
    "zero frame",
    "half overwritten",
    "fuzz corpus",
];

/// Damages the files of a model in one way.
fn damaged(model: &Model, kind: &str, count: usize, chance: &mut SeededRandom) -> Vec<(Vec<u8>, Vec<u8>)> {
    if kind == "fuzz corpus" {
        return corpus(model);
    }
    (0..count)
        .map(|_| {
            let (mut database, mut log) = match kind {
                "flip half" | "flip log" | "flips in both" | "cut log" | "cut half" | "zero frame" => {
                    (model.database.clone(), model.log.clone())
                }
                _ => (model.checkpointed.clone(), Vec::new()),
            };
            let page = chance.below(database.len() / PAGE_BYTES);
            let range = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            match kind {
                "flip database" | "flip half" => flip(&mut database, chance),
                "flip log" => flip(&mut log, chance),
                "flips in both" => {
                    for _ in 0..=chance.below(20) {
                        let file = if chance.below(2) == 0 { &mut database } else { &mut log };
                        flip(file, chance);
                    }
                }
                "cut database" | "cut half" => database.truncate(chance.below(database.len())),
                "cut log" => log.truncate(chance.below(log.len())),
                "zero page" => database[range].fill(0),
                "random page" => database[range].iter_mut().for_each(|byte| *byte = chance.next() as u8),
                "swap pages" => {
                    let other = chance.below(database.len() / PAGE_BYTES) * PAGE_BYTES;
                    for at in 0..PAGE_BYTES {
                        database.swap(page * PAGE_BYTES + at, other + at);
                    }
                }
                "zero frame" => {
                    let frame = 32 + chance.below(log.len() / (PAGE_BYTES + 24)) * (PAGE_BYTES + 24);
                    log[frame..frame + PAGE_BYTES + 24].fill(0);
                }
                _ => {
                    let half = database.len() / 2;
                    let from = chance.below(half);
                    database[from..from + half].fill(0xff);
                }
            }
            (database, log)
        })
        .collect()
}

fn flip(file: &mut [u8], chance: &mut SeededRandom) {
    let bit = chance.below(file.len() * 8);
    file[bit / 8] ^= 1 << (bit % 8);
}

/// The inputs of the fuzz target `recovery`, each applied to the files of the model.
fn corpus(model: &Model) -> Vec<(Vec<u8>, Vec<u8>)> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/recovery");
    let inputs =
        fs::read_dir(dir).expect("a corpus").map(|entry| fs::read(entry.expect("an entry").path()).expect("a file"));
    inputs
        .filter_map(|input| {
            let (left, edits) = input.split_first()?;
            let mut files = if left % 2 == 0 {
                [model.database.clone(), model.log.clone()]
            } else {
                [model.checkpointed.clone(), Vec::new()]
            };
            for edit in edits.chunks_exact(6).take(8) {
                if let Some(file) = files.get_mut(usize::from(edit[1]) % 3).filter(|file| !file.is_empty()) {
                    damage(file, edit);
                }
            }
            let [database, log] = files;
            Some((database, log))
        })
        .collect()
}

/// Damages a file as the fuzz target does.
fn damage(bytes: &mut Vec<u8>, edit: &[u8]) {
    let at = (usize::from(edit[2]) | usize::from(edit[3]) << 8 | usize::from(edit[4]) << 16) % bytes.len();
    let value = edit[5];
    let to = bytes.len().min(at + 1 + usize::from(value) * 8);
    match edit[0] % 9 {
        0 => bytes[at] ^= 1 << (value % 8),
        1 => bytes[at] = value,
        2 => bytes.truncate(at),
        3 => bytes[at..to].fill(0),
        4 => drop(bytes.drain(at..to)),
        5 => bytes.rotate_left(at),
        6 => {
            let page = PAGE_BYTES.min(bytes.len());
            let (from, into) = (at / PAGE_BYTES * PAGE_BYTES, usize::from(value) * PAGE_BYTES % bytes.len());
            let length = page.min(bytes.len() - from).min(bytes.len() - into);
            bytes.copy_within(from..from + length, into);
        }
        7 => bytes.extend(std::iter::repeat_n(value, 1 + at % PAGE_BYTES)),
        _ => bytes.clear(),
    }
}
