//! Inserts the recovered rows into a fresh database, a bounded number in each transaction.
//!
//! Every block is read and verified again; one that no longer verifies is left out.

use std::collections::BTreeMap;

use rusqlite::{Connection, ToSql, params};

use super::SalvageReport;
use super::chain;
use super::reader::{PageReader, RowLocation};
use super::rows::{Session, TableRow};
use super::scan::{Candidate, ScanResults, StartKey};
use crate::journal::checksum::{self, BlockHeader};
use crate::journal::row;
use crate::kernel::id::SessionId;

/// Fills the database of `connection` and counts the inserted rows.
pub(super) fn fill(
    connection: &Connection,
    pages: &PageReader,
    found: ScanResults,
    summary: &dyn Fn(&SessionId) -> String,
    report: &mut SalvageReport,
) -> rusqlite::Result<()> {
    let mut inserter = RowInserter { connection, pages, summary, report, transaction_bytes: 0 };
    inserter.connection.execute_batch("BEGIN IMMEDIATE")?;
    for (key, candidate) in choose_sessions(found.sessions) {
        inserter.insert_session(key, &candidate)?;
        if let Some(start) = found.start_keys.get(&key) {
            inserter.insert_start_key(key, start)?;
        }
    }
    for (since, until) in found.uncertain_epochs {
        connection
            .prepare_cached("INSERT INTO unsure (since, until) VALUES (?1, ?2)")?
            .execute(params![row::signed(since), row::signed(until)])?;
    }
    connection.execute_batch("UPDATE tally SET sessions = (SELECT count(*) FROM session); COMMIT")?;
    truncate_log(connection)
}

/// Chooses one name for each key and one key for each name.
pub(super) fn choose_sessions(sessions: BTreeMap<i64, Vec<Candidate>>) -> BTreeMap<i64, Candidate> {
    let mut keys: BTreeMap<SessionId, i64> = BTreeMap::new();
    let mut chosen: BTreeMap<i64, Candidate> = BTreeMap::new();
    for (key, candidates) in sessions {
        let best = candidates.into_iter().max_by_key(Candidate::score);
        let Some(best) = best.filter(|best| best.is_proven() || best.row().is_some()) else { continue };
        let rival = keys.get(&best.id).copied();
        if let Some(rival) = rival {
            if chosen.get(&rival).is_some_and(|rival| rival.score() >= best.score()) {
                continue;
            }
            chosen.remove(&rival);
        }
        keys.insert(best.id.clone(), key);
        chosen.insert(key, best);
    }
    chosen
}

/// Selects the history of a session among the recovered blocks.
pub(super) fn history(candidate: &Candidate) -> Vec<(BlockHeader, RowLocation)> {
    let heads: Vec<BlockHeader> = candidate.blocks.keys().copied().collect();
    let locations: Vec<RowLocation> = candidate.blocks.values().copied().collect();
    let chosen = chain::history(checksum::genesis(&candidate.id), &heads);
    chosen.into_iter().filter_map(|at| Some((*heads.get(at)?, *locations.get(at)?))).collect()
}

/// Chooses the checkpoint to restore from: the latest that the history does not skip, or else the latest.
pub(super) fn checkpoint(candidate: &Candidate, history: &[(BlockHeader, RowLocation)]) -> Option<RowLocation> {
    let fits = |seq: u64| !chain::is_skipped(history.iter().map(|(head, _)| head), seq);
    let latest = candidate.checkpoints.iter().rev().find(|(seq, _)| fits(**seq));
    latest.or_else(|| candidate.checkpoints.last_key_value()).map(|(_, location)| *location)
}

struct RowInserter<'a> {
    connection: &'a Connection,
    pages: &'a PageReader,
    summary: &'a dyn Fn(&SessionId) -> String,
    report: &'a mut SalvageReport,
    /// How many bytes the current transaction holds.
    transaction_bytes: usize,
}

impl RowInserter<'_> {
    fn insert_session(&mut self, key: i64, candidate: &Candidate) -> rusqlite::Result<()> {
        let history = history(candidate);
        let mut reserved = candidate.reserved;
        for (head, location) in &history {
            if self.insert_block(key, &candidate.id, head, *location)? {
                reserved = reserved.max(head.last);
            }
        }
        if let Some(location) = checkpoint(candidate, &history) {
            reserved = reserved.max(self.insert_checkpoint(key, &candidate.id, location)?);
        }
        let stored = match candidate.row() {
            Some(location) => self.pages.row(location, |row| row.into_session())?,
            None => None,
        };
        self.report.sessions += 1;
        self.report.sessions_without_row += u64::from(stored.is_none());
        let mut row = stored.unwrap_or_else(|| self.placeholder_row(&candidate.id));
        row.reserved = row.reserved.max(reserved);
        self.insert_row(key, &row)
    }

    /// Creates the row of a session whose own is lost; no token has this digest.
    fn placeholder_row(&self, id: &SessionId) -> Session {
        Session {
            id: id.clone(),
            token_hash: [0; 32],
            opened_at: 0,
            updated_at: 0,
            state: "idle".to_owned(),
            active_run: None,
            summary: (self.summary)(id),
            reserved: 0,
            epoch: 0,
        }
    }

    fn insert_row(&mut self, key: i64, row: &Session) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO session (key, id, token_hash, opened_at, updated_at, state, active_run, summary,
                     reserved, life)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                key,
                row.id.as_str(),
                row.token_hash.as_slice(),
                row::signed(row.opened_at),
                row::signed(row.updated_at),
                row.state,
                row.active_run,
                row.summary,
                row::signed(row.reserved),
                row::signed(row.epoch)
            ])?;
        self.commit_if_large(row.summary.len())
    }

    /// Inserts a block; returns whether it verified.
    fn insert_block(
        &mut self,
        key: i64,
        id: &SessionId,
        head: &BlockHeader,
        location: RowLocation,
    ) -> rusqlite::Result<bool> {
        let connection = self.connection;
        let inserted = self.pages.row(location, |row| {
            let TableRow::Block { session, header, seal, bytes } = row else { return None };
            let intact = session == key && header == *head && header.verify_unchained(id, seal, bytes);
            let (first, last) = (row::signed(header.first), row::signed(header.last));
            let values = params![key, first, last, header.count, header.prev, header.checksum, seal, bytes];
            intact.then(|| insert(connection, INSERT_BLOCK, values).map(|()| bytes.len()))
        })?;
        let Some(size) = inserted.transpose()? else { return Ok(false) };
        self.report.blocks += 1;
        self.commit_if_large(size)?;
        Ok(true)
    }

    /// Inserts a checkpoint and returns its position.
    fn insert_checkpoint(&mut self, key: i64, id: &SessionId, location: RowLocation) -> rusqlite::Result<u64> {
        let connection = self.connection;
        let inserted = self.pages.row(location, |row| {
            let TableRow::Checkpoint { seq, checksum, bytes } = row else { return None };
            let values = params![key, row::signed(seq), checksum, bytes];
            (checksum::checkpoint(id, seq, bytes) == checksum)
                .then(|| insert(connection, INSERT_CHECKPOINT, values).map(|()| (seq, bytes.len())))
        })?;
        let Some((seq, size)) = inserted.transpose()? else { return Ok(0) };
        self.report.checkpoints += 1;
        self.commit_if_large(size)?;
        Ok(seq)
    }

    /// Inserts the idempotency key of a session; if two sessions claim one key, the first has it.
    fn insert_start_key(&mut self, key: i64, found: &StartKey) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "INSERT INTO start_key (start_key, fingerprint, session) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![found.key, found.fingerprint.as_slice(), key])?;
        self.commit_if_large(found.key.len())
    }

    /// Commits the transaction when it has grown, so that neither memory nor the log grows with the database.
    fn commit_if_large(&mut self, bytes: usize) -> rusqlite::Result<()> {
        self.transaction_bytes = self.transaction_bytes.saturating_add(bytes).saturating_add(ROW_OVERHEAD);
        if self.transaction_bytes >= TRANSACTION_BYTES {
            self.transaction_bytes = 0;
            self.connection.execute_batch("COMMIT")?;
            truncate_log(self.connection)?;
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
        }
        Ok(())
    }
}

fn insert(connection: &Connection, statement: &str, values: &[&dyn ToSql]) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute(values).map(drop)
}

/// Checkpoints the log into the database.
fn truncate_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

const INSERT_BLOCK: &str = "INSERT INTO block (session, first, last, count, prev, checksum, seal, bytes)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const INSERT_CHECKPOINT: &str = "INSERT INTO checkpoint (session, seq, checksum, bytes) VALUES (?1, ?2, ?3, ?4)";
/// The approximate cost of a row besides its bytes.
const ROW_OVERHEAD: usize = 128;
/// The maximum size of a transaction.
const TRANSACTION_BYTES: usize = 8 * 1024 * 1024;
