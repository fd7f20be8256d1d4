//! Recovery of the journal: whatever damage its files have, nothing panics, and it serves only what was written.
//!
//! The first byte of an input chooses the state of the journal. Each six bytes that follow damage one file: the
//! operation,
//! the file, the offset (three bytes), and a value.

use std::collections::BTreeMap;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Once};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use pushd::journal::{Batch, Block, Checkpoint, Create, Durability, Journal, ListQuery, Meta, Options};
use pushd::kernel::id::{Seq, SessionId};
use pushd::kernel::time::Now;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// Checks one input.
pub(crate) fn check(input: &[u8]) {
    let [left, edits @ ..] = input else { return };
    watch_for_panics();
    let before = PANICS.load(Ordering::SeqCst);
    let mut files = JOURNAL_IMAGES[usize::from(*left) % JOURNAL_IMAGES.len()].clone();
    let mut damaged = DamagedFiles::default();
    for edit in edits.chunks_exact(6).take(MAX_EDITS) {
        damaged.record(edit);
        damage(&mut files, edit);
    }
    let temp_dir = memory_dir();
    for (name, bytes) in &files {
        fs::write(temp_dir.path().join(name), bytes).expect("a file");
    }
    RUNTIME.with(|runtime| runtime.block_on(check_journal(temp_dir.path(), damaged)));
    assert_eq!(PANICS.load(Ordering::SeqCst), before, "a thread of the journal has panicked");
}

/// The files that the input has damaged.
#[derive(Debug, Clone, Copy, Default)]
struct DamagedFiles {
    any: bool,
    marks: bool,
}

impl DamagedFiles {
    fn record(&mut self, edit: &[u8]) {
        self.any = true;
        self.marks |= NAMES[usize::from(edit[1]) % NAMES.len()] == MARKS;
    }
}

async fn check_journal(dir: &Path, damaged: DamagedFiles) {
    // Damage is repaired or set aside; it never keeps a daemon from starting.
    let journal = Journal::open(dir, options()).expect("a journal that opens");
    let mut served = BTreeMap::new();
    for name in SESSIONS {
        served.insert(name, read_served(&journal, name, damaged).await);
    }
    let _ = journal.list(ListQuery { limit: 10, after: None, prefix: None }).await;
    let _ = journal.active_sessions().await;
    let _ = journal.losses(100).await;
    let mut added = BTreeMap::new();
    for name in SESSIONS {
        added.insert(name, append(&journal, name).await);
    }
    let _ = journal.close().await;
    // After a restart the journal serves the same events and the appended ones.
    let journal = Journal::open(dir, options()).expect("a journal that opens again");
    for name in SESSIONS {
        let again = read_served(&journal, name, DamagedFiles { any: true, marks: true }).await;
        if let (Some(before), Some(again), Some(added)) = (&served[name], &again, added[name]) {
            assert!(again.starts_with(before), "{name}: {before:?} became {again:?}");
            assert!(again.iter().any(|part| !part.lost && part.last == added), "{name}: {added} is gone: {again:?}");
        }
    }
    let _ = journal.close().await;
}

/// A range of a history as it was served.
#[derive(Debug, PartialEq, Eq)]
struct ServedRange {
    first: u64,
    last: u64,
    lost: bool,
}

/// Reads a session and compares it with what was written; `None` where it cannot be read.
async fn read_served(journal: &Journal, name: &str, damaged: DamagedFiles) -> Option<Vec<ServedRange>> {
    let loaded = journal.load(SessionId::from(name)).await;
    assert!(damaged.any || matches!(loaded, Ok(Some(_))), "{name}: {loaded:?}");
    let stored = loaded.ok()??;
    let (mut parts, mut reached, mut after) = (Vec::new(), 0, Seq::ZERO);
    loop {
        let page = journal.page(SessionId::from(name), after, 2_000).await.ok()?;
        for block in &page.blocks {
            let (first, last) = (block.first.number(), block.last.number());
            // Unissued numbers may be skipped after a shutdown or crash, and only there.
            assert!(
                first == reached + 1 || (first > reached && reached >= SYNCED),
                "{name}: {first} follows {reached}"
            );
            assert!(last >= first, "{name}: {first} to {last}");
            if block.count > 0 {
                assert_eq!(u64::from(block.count), last - first + 1, "{name}: the count of {first} to {last}");
                let written: String = (first..=last).map(|seq| line(name, seq)).collect();
                assert_eq!(block.bytes, written.as_bytes(), "{name}: {first} to {last} is not what was written");
            }
            parts.push(ServedRange { first, last, lost: block.count == 0 });
            (reached, after) = (last, block.last);
        }
        if !page.more {
            break;
        }
    }
    let lost = parts.iter().any(|part| part.lost);
    assert!(damaged.any || !lost, "{name}: something is missing from an undamaged history: {parts:?}");
    // Events before a checkpoint are verified when they are read, so only a later load reports their loss.
    let holes = journal.load(SessionId::from(name)).await.ok()??.holes;
    assert_eq!(lost, !holes.is_empty(), "{name}: {holes:?} {parts:?}");
    // The marks record what was on disk, so that a history without its end is detected.
    assert!(damaged.marks || lost || reached >= SYNCED, "{name}: a shortened history is served: {parts:?}");
    if let Some(checkpoint) = &stored.checkpoint {
        assert_eq!(checkpoint.bytes, state(name, checkpoint.seq.number()), "{name}: the checkpoint");
    }
    Some(parts)
}

/// Appends to a session after its last seq, and returns the committed seq.
async fn append(journal: &Journal, name: &str) -> Option<u64> {
    let stored = journal.load(SessionId::from(name)).await.ok()??;
    let ends = stored.tail.iter().map(|block| block.last).chain([stored.reserved]);
    let holes = stored.holes.iter().map(|(_, last)| *last);
    let checkpoint = stored.checkpoint.as_ref().map(|checkpoint| checkpoint.seq);
    let next = ends.chain(holes).chain(checkpoint).max().unwrap_or(Seq::ZERO).number().checked_add(1)?;
    // A damaged seq may be huge; the journal may refuse it and must not panic.
    let batch =
        Batch { block: Some(block(name, next, next)), durability: Durability::Synced, ..Batch::new(name.into()) };
    journal.commit(batch).await.ok()?.ok().map(|()| next)
}

/// Damages a file as six bytes say.
fn damage(files: &mut BTreeMap<&'static str, Vec<u8>>, edit: &[u8]) {
    let name = NAMES[usize::from(edit[1]) % NAMES.len()];
    let Some(bytes) = files.get_mut(name) else { return };
    if bytes.is_empty() {
        return;
    }
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
            // A misplaced page, as a disk that writes to the wrong sector would leave it.
            let page = PAGE.min(bytes.len());
            let (from, into) = (at / PAGE * PAGE, usize::from(value) * PAGE % bytes.len());
            let length = page.min(bytes.len() - from).min(bytes.len() - into);
            bytes.copy_within(from..from + length, into);
        }
        7 => bytes.extend(std::iter::repeat_n(value, 1 + at % PAGE)),
        _ => drop(files.remove(name)),
    }
}

/// The files of a journal after a kill, and after a clean close.
static JOURNAL_IMAGES: LazyLock<[BTreeMap<&'static str, Vec<u8>>; 2]> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let temp_dir = memory_dir();
        let journal = Journal::open(temp_dir.path(), options()).expect("a journal");
        for name in SESSIONS {
            write(&journal, name).await;
        }
        let killed = files_of(temp_dir.path());
        journal.close().await.expect("closes");
        [killed, files_of(temp_dir.path())]
    })
});

async fn write(journal: &Journal, name: &str) {
    let kept = async |batch| journal.commit(batch).await.expect("an answer").expect("kept");
    let create = Create { token_hash: [7; 32], start_key: None, opened_at: Now(1) };
    let meta = Meta {
        session: name.into(),
        state: "idle".into(),
        updated_at: Now(2),
        opened_at: Now(1),
        active_run: None,
        summary: "{}".into(),
    };
    kept(Batch {
        create: Some(create),
        meta: Some(meta),
        reserved_seq: Some(Seq::new(100)),
        ..Batch::new(name.into())
    })
    .await;
    for first in (1..=SYNCED).step_by(4) {
        kept(Batch { block: Some(block(name, first, first + 3)), ..Batch::new(name.into()) }).await;
    }
    let checkpoint = Checkpoint { seq: Seq::new(8), bytes: state(name, 8) };
    let durability = Durability::Synced;
    kept(Batch { checkpoint: Some(checkpoint), durability, ..Batch::new(name.into()) }).await;
}

fn block(name: &str, first: u64, last: u64) -> Block {
    let bytes: String = (first..=last).map(|seq| line(name, seq)).collect();
    let count = u32::try_from(last - first + 1).expect("a small block");
    Block { first: Seq::new(first), last: Seq::new(last), count, bytes: Bytes::from(bytes) }
}

fn line(name: &str, seq: u64) -> String {
    format!("{{\"seq\":{seq},\"text\":\"event {seq} of {name}\"}}\n")
}

fn state(name: &str, seq: u64) -> Bytes {
    Bytes::from(format!("the state of {name} at {seq}"))
}

fn files_of(dir: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    NAMES.iter().filter_map(|name| Some((*name, fs::read(dir.join(name)).ok()?))).collect()
}

fn options() -> Options {
    // No reserve on an in-memory file system, and a constant boot id.
    Options { boot: 7, reserve_bytes: 0, readers: 1, sync_within: Duration::ZERO, ..Options::default() }
}

/// A directory in memory, where there is one: thousands of journals are opened and synced.
fn memory_dir() -> TempDir {
    let memory = PathBuf::from("/dev/shm");
    let in_memory = memory.is_dir().then(|| TempDir::new_in(memory).ok()).flatten();
    in_memory.unwrap_or_else(|| TempDir::new().expect("a directory"))
}

/// Counts panics on the threads of the journal, which no caller sees.
fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let known = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if matches!(thread::current().name(), Some("journal" | "tokio-rt-worker")) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            known(info);
        }));
    });
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

const SESSIONS: [&str; 3] = ["sess_one", "sess_two", "sess_three"];
/// The number of events per session, all on disk.
const SYNCED: u64 = 20;
const NAMES: [&str; 3] = ["pushd.db", "pushd.db-wal", MARKS];
const MARKS: &str = "pushd.marks";
const PAGE: usize = 4096;
const MAX_EDITS: usize = 8;
