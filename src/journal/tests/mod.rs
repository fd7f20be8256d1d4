//! Tests of the journal on real files: acknowledged data is there, and damaged data is not returned.

mod commands;
mod commit;
mod damage;
mod disk;
#[cfg(target_os = "linux")]
mod faults;
mod inspect;
mod lines;
mod open;
mod power;
mod random_damage;
mod read;
mod removal;
mod salvage;
mod write_ahead;

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::kernel::time::Now;

/// A journal in its own directory.
struct TestJournal {
    dir: TempDir,
    journal: Journal,
}

impl TestJournal {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = Journal::open(dir.path(), options).expect("a journal");
        Self { dir, journal }
    }

    /// A journal that syncs its log with `sync`.
    fn with_sync(options: Options, sync: impl FnMut() -> io::Result<()> + Send + 'static) -> Self {
        Self::prepared(options, |_| (), sync)
    }

    /// A journal whose connection `prepare` has configured.
    fn prepared(
        options: Options,
        prepare: impl FnOnce(&Connection),
        sync: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let env = StorageEnv::native(dir.path());
        let connection = schema::open(&env.path(DATABASE), None, &options).expect("a database");
        prepare(&connection);
        let opened = OpenState::recover(&env, &connection, &options).expect("an open state");
        let journal = Journal::start(env, connection, options, opened, Box::new(sync)).expect("a journal");
        Self { dir, journal }
    }

    /// Closes the journal and opens it again.
    async fn reopen(self) -> Self {
        let Self { dir, journal } = self;
        journal.close().await.expect("closes");
        let journal = Journal::open(dir.path(), Options::default()).expect("opens again");
        Self { dir, journal }
    }

    /// Leaves the journal as a killed process would, and opens a copy with `options`.
    fn kill_and_reopen(self, options: Options) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        copy(self.dir.path(), dir.path());
        let journal = Journal::open(dir.path(), options).expect("opens again");
        Self { dir, journal }
    }

    /// Returns the ranges of all blocks; the range of a splice is negative.
    async fn block_ranges(&self, name: &str) -> Vec<(i64, i64)> {
        let page = self.journal.page(name.into(), Seq::ZERO, usize::MAX).await.expect("a page");
        let number = |seq: Seq| i64::try_from(seq.number()).expect("small");
        let sign = |block: &Block| if block.count == 0 { -1 } else { 1 };
        page.blocks.iter().map(|block| (sign(block) * number(block.first), sign(block) * number(block.last))).collect()
    }

    /// Opens a second connection to the database.
    fn second_connection(&self) -> Connection {
        Connection::open(self.dir.path().join(DATABASE)).expect("a connection")
    }

    async fn commit(&self, batch: Batch) -> Result<(), CommitError> {
        self.journal.commit(batch).await.expect("an answer")
    }

    /// Creates session `name` and appends one block for each range.
    async fn write_history(&self, name: &str, ranges: &[(u64, u64)]) {
        self.commit(created(name)).await.expect("created");
        for (first, last) in ranges {
            self.commit(appending(name, *first, *last)).await.expect("appended");
        }
    }

    /// Reads the whole history in pages of `max_bytes`.
    async fn text(&self, name: &str, max_bytes: usize) -> Vec<u8> {
        let (mut text, mut after) = (Vec::new(), Seq::ZERO);
        loop {
            let page = self.journal.page(name.into(), after, max_bytes).await.expect("a page");
            for block in &page.blocks {
                assert!(block.first > after, "a page begins where the last one ended");
                after = block.last;
                text.extend_from_slice(&block.bytes);
            }
            if !page.more {
                return text;
            }
        }
    }
}

fn created(name: &str) -> Batch {
    let create = Create { token_hash: [7; 32], start_key: None, opened_at: Now(1) };
    Batch { create: Some(create), meta: Some(meta(name, 1)), ..Batch::new(name.into()) }
}

fn appending(name: &str, first: u64, last: u64) -> Batch {
    Batch { block: Some(block(first, last)), ..Batch::new(name.into()) }
}

fn synced(batch: Batch) -> Batch {
    Batch { durability: Durability::Synced, ..batch }
}

fn block(first: u64, last: u64) -> Block {
    let count = u32::try_from(last - first + 1).expect("a small block");
    Block { first: Seq::new(first), last: Seq::new(last), count, bytes: Bytes::from(lines(first, last)) }
}

fn lines(first: u64, last: u64) -> String {
    (first..=last).map(|seq| format!("{{\"seq\":{seq},\"text\":\"event {seq}\"}}\n")).collect()
}

fn meta(name: &str, updated_at: u64) -> Meta {
    Meta {
        session: name.into(),
        state: "idle".into(),
        updated_at: Now(updated_at),
        opened_at: Now(1),
        active_run: None,
        summary: format!("{{\"title\":\"{name}\"}}"),
    }
}

/// Merges the adjacent blocks of a session that end at or before `up_to`, as earlier versions did with small ones.
pub(super) fn merge_blocks(connection: &Connection, session: &SessionId, up_to: i64) {
    connection.busy_timeout(Duration::from_secs(20)).expect("patience");
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0; BEGIN IMMEDIATE").expect("the lock");
    let key = apply::key(connection, session).expect("readable").expect("the session");
    let found: Vec<(checksum::BlockHeader, Vec<u8>)> = connection
        .prepare("SELECT first, last, count, prev, checksum, seal, bytes FROM block WHERE session = ?1 ORDER BY first")
        .expect("a statement")
        .query_map([key], |found| Ok((row::block_header(found)?.0, found.get(6)?)))
        .expect("rows")
        .collect::<rusqlite::Result<_>>()
        .expect("rows");
    let mut merged: Vec<(checksum::BlockHeader, Vec<u8>)> = Vec::new();
    for (header, bytes) in found.into_iter().filter(|(header, _)| header.last <= row::unsigned(up_to)) {
        match merged.last_mut().filter(|(whole, _)| whole.last + 1 == header.first) {
            Some((whole, text)) => {
                (whole.last, whole.count, whole.checksum) = (header.last, whole.count + header.count, header.checksum);
                text.extend(bytes);
            }
            None => merged.push((header, bytes)),
        }
    }
    let before = connection.total_changes();
    connection.execute("DELETE FROM block WHERE session = ?1 AND last <= ?2", (key, up_to)).expect("removed");
    let removed = connection.total_changes() - before;
    assert!(removed > merged.len() as u64, "nothing to merge");
    for (header, bytes) in merged {
        apply::insert_block(connection, session, key, &header, &bytes).expect("inserted");
    }
    connection.execute_batch("COMMIT").expect("committed");
}

/// Waits until `done` holds.
async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn copy(from: &Path, to: &Path) {
    for name in [DATABASE, LOG, MARKS, WRITE_AHEAD] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).expect("a copy");
        }
    }
}
