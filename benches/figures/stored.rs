//! Fills homes through the journal, without a daemon, which would take minutes.

use std::path::PathBuf;

use pushd::journal::{Batch, Block, Create, Journal, Options, StoredSession};
use pushd::kernel::id::{Seq, SessionId};
use pushd::record;

use super::daemon::Home;

/// Creates a home with a session of `from`, stored with one event per block.
pub(crate) fn one_event_per_block(from: &Home, session: &str) -> Home {
    let (stored, blocks) = read(from, session);
    let home = Home::new();
    let journal = open(&home);
    let id = SessionId::from(session);
    let mut create = Some(create(&stored));
    for line in blocks.iter().flat_map(|block| block.bytes.split_inclusive(|byte| *byte == b'\n')) {
        let seq = record::seq_of(line).expect("an event");
        let mut batch = Batch::new(id.clone());
        batch.create = create.take();
        batch.block = Some(Block { first: seq, last: seq, count: 1, bytes: line.to_vec().into() });
        // The journal replies in order, so the last reply is enough.
        drop(journal.commit(batch));
    }
    let mut batch = Batch::new(id);
    batch.reserved_seq = Some(stored.reserved);
    batch.meta = Some(stored.meta);
    batch.checkpoint = stored.checkpoint;
    journal.commit(batch).blocking_recv().expect("an answer").expect("a session that is kept");
    close(journal);
    home
}

/// Stores so many copies of a session of `home` under new ids; no daemon may run in it.
pub(crate) fn multiply(home: &Home, session: &str, times: u32) {
    let (stored, blocks) = read(home, session);
    let journal = open(home);
    let (prefix, _) = session.split_at(session.len() - 7);
    let mut answer = None;
    for number in 0..times {
        // Ids keep their length, so that they can be replaced within the events.
        let name = format!("{prefix}{number:07}");
        let renamed = |text: &str| text.replace(session, &name);
        let mut batch = Batch::new(SessionId::from(name.as_str()));
        batch.create = Some(create(&stored));
        batch.reserved_seq = Some(stored.reserved);
        batch.block = blocks.first().map(|block| {
            let lines = renamed(std::str::from_utf8(&block.bytes).expect("UTF-8"));
            Block { bytes: lines.into_bytes().into(), ..block.clone() }
        });
        batch.meta = Some(stored.meta.clone());
        if let Some(meta) = &mut batch.meta {
            meta.session = batch.session.clone();
            meta.summary = renamed(&meta.summary);
        }
        answer = Some(journal.commit(batch));
    }
    answer.expect("some sessions").blocking_recv().expect("an answer").expect("sessions that are kept");
    close(journal);
}

fn read(home: &Home, session: &str) -> (StoredSession, Vec<Block>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let id = SessionId::from(session);
    let journal = open(home);
    let stored = runtime.block_on(journal.load(id.clone())).expect("a journal").expect("the session");
    let page = runtime.block_on(journal.page(id, Seq::ZERO, usize::MAX)).expect("its history");
    close(journal);
    (stored, page.blocks)
}

fn create(stored: &StoredSession) -> Create {
    Create { token_hash: stored.token_hash, start_key: None, opened_at: stored.meta.opened_at }
}

fn open(home: &Home) -> Journal {
    let state: PathBuf = home.dir.path().join(".push/state");
    std::fs::create_dir_all(&state).expect("a directory");
    Journal::open(&state, Options::default()).expect("a journal")
}

fn close(journal: Journal) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(journal.close()).expect("a journal that closes");
}
