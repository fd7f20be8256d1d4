//! Inserts the recovered rows into a fresh database, a bounded number in each transaction.
//!
//! Every block is read and verified again; one that no longer verifies is left out.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::SalvageReport;
use super::chain;
use super::images::{Images, RecordLocation};
use super::rows::{self, FoundBlock};
use super::scan::{Candidate, ScanResults};
use crate::journal::checksum;
use crate::journal::row;
use crate::kernel::id::SessionId;

/// Fills the database of `connection` and counts the inserted rows.
pub(super) fn fill(
    connection: &Connection,
    images: &Images,
    found: ScanResults,
    summary: &dyn Fn(&SessionId) -> String,
    report: &mut SalvageReport,
) -> rusqlite::Result<()> {
    let mut fill = Filler { connection, images, summary, report, image: Vec::new(), transaction_bytes: 0 };
    fill.connection.execute_batch("BEGIN IMMEDIATE")?;
    for (key, candidate) in choose_sessions(found.sessions) {
        fill.session(key, &candidate)?;
        if let Some(start) = found.start_keys.get(&key) {
            fill.start(key, start.location)?;
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
pub(super) fn history(candidate: &Candidate) -> Vec<(FoundBlock, RecordLocation)> {
    let heads: Vec<FoundBlock> = candidate.blocks.keys().copied().collect();
    let places: Vec<RecordLocation> = candidate.blocks.values().copied().collect();
    let chosen = chain::history(checksum::genesis(&candidate.id), &heads);
    chosen.into_iter().filter_map(|at| Some((*heads.get(at)?, *places.get(at)?))).collect()
}

/// Chooses the checkpoint to restore from: the latest that the history does not skip, or else the latest.
pub(super) fn checkpoint(candidate: &Candidate, history: &[(FoundBlock, RecordLocation)]) -> Option<RecordLocation> {
    let fits = |seq: u64| !chain::is_skipped(history.iter().map(|(head, _)| head), seq);
    let latest = candidate.checkpoints.iter().rev().find(|(seq, _)| fits(**seq));
    latest.or_else(|| candidate.checkpoints.last_key_value()).map(|(_, location)| *location)
}

struct Filler<'a> {
    connection: &'a Connection,
    images: &'a Images,
    summary: &'a dyn Fn(&SessionId) -> String,
    report: &'a mut SalvageReport,
    /// A reusable buffer for the current page.
    image: Vec<u8>,
    /// How many bytes the current transaction holds.
    transaction_bytes: usize,
}

impl Filler<'_> {
    fn session(&mut self, key: i64, candidate: &Candidate) -> rusqlite::Result<()> {
        let history = history(candidate);
        let mut reserved = candidate.reserved;
        for (head, location) in &history {
            if self.block(key, &candidate.id, head, *location)? {
                reserved = reserved.max(head.last);
            }
        }
        if let Some(location) = checkpoint(candidate, &history) {
            reserved = reserved.max(self.checkpoint(key, &candidate.id, location)?);
        }
        let stored = candidate.row().and_then(|location| {
            let (record, payload) = self.images.record(location, &mut self.image)?;
            rows::Session::read(&record, &payload)
        });
        self.report.sessions += 1;
        self.report.sessions_without_row += u64::from(stored.is_none());
        let mut row = stored.unwrap_or_else(|| self.placeholder_row(&candidate.id));
        row.reserved = row.reserved.max(reserved);
        self.insert(key, &row)
    }

    /// Creates the row of a session whose own is lost; no token has this digest.
    fn placeholder_row(&self, id: &SessionId) -> rows::Session {
        rows::Session {
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

    fn insert(&mut self, key: i64, row: &rows::Session) -> rusqlite::Result<()> {
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
    fn block(
        &mut self,
        key: i64,
        id: &SessionId,
        head: &FoundBlock,
        location: RecordLocation,
    ) -> rusqlite::Result<bool> {
        let Some((record, payload)) = self.images.record(location, &mut self.image) else { return Ok(false) };
        let read = rows::block(&record, &payload).filter(|(session, read, _)| *session == key && read == head);
        let bytes = record.bytes(&payload, rows::BLOCK_BYTES);
        let (Some((_, _, seal)), Some(bytes)) = (read, bytes) else { return Ok(false) };
        if !head.header().verify_unchained(id, seal, bytes) {
            return Ok(false);
        }
        self.connection
            .prepare_cached(
                "INSERT INTO block (session, first, last, count, prev, checksum, seal, bytes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                key,
                row::signed(head.first),
                row::signed(head.last),
                head.count,
                head.prev,
                head.checksum,
                seal,
                bytes
            ])?;
        self.report.blocks += 1;
        self.commit_if_large(bytes.len())?;
        Ok(true)
    }

    /// Inserts a checkpoint and returns its position.
    fn checkpoint(&mut self, key: i64, id: &SessionId, location: RecordLocation) -> rusqlite::Result<u64> {
        let Some((record, payload)) = self.images.record(location, &mut self.image) else { return Ok(0) };
        let Some(found) = rows::Checkpoint::read(&record, &payload) else { return Ok(0) };
        if checksum::checkpoint(id, found.seq, found.bytes) != found.checksum {
            return Ok(0);
        }
        self.connection
            .prepare_cached("INSERT INTO checkpoint (session, seq, checksum, bytes) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![key, row::signed(found.seq), found.checksum, found.bytes])?;
        self.report.checkpoints += 1;
        self.commit_if_large(found.bytes.len())?;
        Ok(found.seq)
    }

    /// Inserts the idempotency key of a session; if two sessions claim one key, the first has it.
    fn start(&mut self, key: i64, location: RecordLocation) -> rusqlite::Result<()> {
        let Some((record, payload)) = self.images.record(location, &mut self.image) else { return Ok(()) };
        let Some(found) = rows::StartKey::read(&record, &payload).filter(|found| found.session == key) else {
            return Ok(());
        };
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

/// Checkpoints the log into the database.
fn truncate_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// The approximate cost of a row besides its bytes.
const ROW_OVERHEAD: usize = 128;
/// The maximum size of a transaction.
const TRANSACTION_BYTES: usize = 8 * 1024 * 1024;
