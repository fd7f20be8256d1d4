//! Read-only queries over the whole journal: sizes, idle sessions, and completeness.
//!
//! Each query reads a slice, so that no write waits for it. [`Journal::repair`] handles missing or damaged events.

use std::fs;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use super::error::ReadError;
use super::high_water_marks::HighWaterMarks;
use super::record::LossRecord;
use super::repair::SessionExtent;
use super::{DATABASE, Journal, MARKS, checksum, reader, row};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;

/// The size of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionSize {
    /// The bytes of its events.
    pub bytes: u64,
    /// How many events there are.
    pub events: u64,
    /// The events up to here can be removed, and the rest stays within the limit; zero if nothing exceeds it.
    pub removable_up_to: Seq,
    /// Whether its last metadata names an unfinished run.
    pub active: bool,
}

/// The position of a scan over all sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionCursor(i64);

/// An overview of the journal at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSummary {
    /// The schema of the database: 1000 times the major number plus the minor one.
    pub schema: i64,
    /// How many sessions are stored.
    pub sessions: u64,
    /// How many bytes of the database are in use.
    pub used_bytes: u64,
    /// How many blocks were removed from histories because they did not verify.
    pub set_aside_blocks: u64,
    /// How many losses are recorded.
    pub losses: u64,
    /// The number of the newest loss.
    pub newest_loss: i64,
}

/// The sizes of the journal's files in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileSizes {
    /// The database.
    pub database: u64,
    /// The write-ahead log.
    pub log: u64,
    /// The marks.
    pub marks: u64,
    /// How many damaged files were set aside.
    pub set_aside_files: u64,
    /// The total size of those files.
    pub set_aside_bytes: u64,
}

impl Journal {
    /// Lists sessions without an unfinished run, least recently updated first.
    ///
    /// `after` is the last entry of the previous list.
    pub async fn idle_sessions(
        &self,
        after: Option<(Now, SessionId)>,
        limit: u32,
    ) -> Result<Vec<(Now, SessionId)>, ReadError> {
        self.shared.readers.run(move |connection| idle_sessions(connection, after.as_ref(), limit)).await
    }

    /// Returns how many bytes of the database are in use.
    pub async fn used_bytes(&self) -> Result<u64, ReadError> {
        self.shared.readers.run(|connection| Ok(used_bytes(connection)?)).await
    }

    /// Measures the events of a session, and finds what exceeds `keep` bytes; `None` if there is no such session.
    pub async fn measure(&self, session: SessionId, keep: u64) -> Result<Option<SessionSize>, ReadError> {
        self.shared.readers.run(move |connection| measure(connection, &session, keep)).await
    }

    /// Returns the next sessions of a scan, and where it continues.
    pub async fn scan_sessions(
        &self,
        from: SessionCursor,
        limit: u32,
    ) -> Result<(Vec<SessionId>, Option<SessionCursor>), ReadError> {
        self.shared.readers.run(move |connection| scan_sessions(connection, from, limit, |_| Ok(true))).await
    }

    /// Returns those among the next `limit` sessions of a scan that are shorter than they should be.
    ///
    /// Sessions written in this epoch are skipped: they were checked when they were loaded.
    pub async fn scan_truncated(
        &self,
        from: SessionCursor,
        limit: u32,
    ) -> Result<(Vec<SessionId>, Option<SessionCursor>), ReadError> {
        let marks = self.shared.marks.clone();
        let job = move |connection: &Connection| {
            scan_sessions(connection, from, limit, |scanned| is_truncated(connection, scanned, &marks))
        };
        self.shared.readers.run(job).await
    }

    /// Returns whether the checkpoint of a session verifies and `is_readable` accepts it. A session without a
    /// checkpoint counts as valid.
    pub async fn is_checkpoint_valid(
        &self,
        session: SessionId,
        is_readable: fn(&[u8]) -> bool,
    ) -> Result<bool, ReadError> {
        self.shared.readers.run(move |connection| is_checkpoint_valid(connection, &session, is_readable)).await
    }

    /// Returns an overview of the journal.
    pub async fn summarize(&self) -> Result<JournalSummary, ReadError> {
        self.shared.readers.run(summarize).await
    }

    /// Lists the losses found since the loss numbered `since`, newest first.
    pub async fn losses_since(&self, since: i64, limit: u32) -> Result<Vec<LossRecord>, ReadError> {
        self.shared.readers.run(move |connection| reader::losses(connection, since, limit)).await
    }

    /// Returns the sizes of the journal's files.
    pub fn file_sizes(&self) -> FileSizes {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        let (database, log) = (size(&self.shared.database), size(&self.shared.log));
        let mut sizes = FileSizes { database, log, ..FileSizes::default() };
        let Some(directory) = self.shared.database.parent() else { return sizes };
        sizes.marks = size(&directory.join(MARKS));
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().and_then(|name| name.strip_prefix(DATABASE)?.strip_prefix(DAMAGED)).is_some() {
                sizes.set_aside_files += 1;
                sizes.set_aside_bytes = sizes.set_aside_bytes.saturating_add(size(&entry.path()));
            }
        }
        sizes
    }
}

/// The suffix of a database file that was set aside.
const DAMAGED: &str = ".damaged-";

fn idle_sessions(
    connection: &Connection,
    after: Option<&(Now, SessionId)>,
    limit: u32,
) -> Result<Vec<(Now, SessionId)>, ReadError> {
    let (time, id) = after.map_or((-1, ""), |(Now(time), id)| (row::signed(*time), id.as_str()));
    connection
        .prepare_cached(
            "SELECT updated_at, id FROM session WHERE (updated_at, id) > (?1, ?2) AND active_run IS NULL
             ORDER BY updated_at, id LIMIT ?3",
        )?
        .query_map(params![time, id, limit], |row| {
            Ok((Now(row::unsigned(row.get(0)?)), SessionId::from(row.get::<_, String>(1)?)))
        })?
        .collect::<rusqlite::Result<_>>()
        .map_err(ReadError::Sqlite)
}

fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let moment = connection.unchecked_transaction()?;
    let number = |pragma| moment.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
    Ok(row::unsigned(pages.saturating_mul(number("page_size")?)))
}

fn measure(connection: &Connection, session: &SessionId, keep: u64) -> Result<Option<SessionSize>, ReadError> {
    let moment = connection.unchecked_transaction()?;
    let found: Option<(i64, bool)> = moment
        .prepare_cached("SELECT key, active_run IS NOT NULL FROM session WHERE id = ?1")?
        .query_row([session.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((key, active)) = found else { return Ok(None) };
    let mut size = SessionSize { bytes: 0, events: 0, removable_up_to: Seq::ZERO, active };
    // The length is stored at the beginning of a row, so SQLite does not read the bytes themselves.
    let mut statement =
        moment.prepare_cached("SELECT last, count, length(bytes) FROM block WHERE session = ?1 ORDER BY first DESC")?;
    let mut rows = statement.query([key])?;
    while let Some(row) = rows.next()? {
        let (last, count): (i64, i64) = (row.get(0)?, row.get(1)?);
        size.bytes = size.bytes.saturating_add(row::unsigned(row.get(2)?));
        size.events = size.events.saturating_add(row::unsigned(count));
        if size.bytes > keep && size.removable_up_to == Seq::ZERO {
            size.removable_up_to = Seq::new(row::unsigned(last));
        }
    }
    Ok(Some(size))
}

/// A session that a scan visits.
struct ScannedSession {
    session: SessionId,
    key: i64,
    reserved: i64,
    epoch: i64,
    reached: i64,
}

fn scan_sessions(
    connection: &Connection,
    SessionCursor(from): SessionCursor,
    limit: u32,
    chosen: impl Fn(&ScannedSession) -> Result<bool, ReadError>,
) -> Result<(Vec<SessionId>, Option<SessionCursor>), ReadError> {
    let moment = connection.unchecked_transaction()?;
    let mut statement = moment.prepare_cached(
        "SELECT key, id, reserved, life,
                coalesce((SELECT last FROM block WHERE session = key ORDER BY first DESC LIMIT 1), 0)
         FROM session WHERE key > ?1 ORDER BY key LIMIT ?2",
    )?;
    let mut rows = statement.query(params![from, limit])?;
    let (mut sessions, mut scanned, mut last) = (Vec::new(), 0, from);
    while let Some(row) = rows.next()? {
        let session = SessionId::from(row.get::<_, String>(1)?);
        let (key, reserved, epoch, reached) = (row.get(0)?, row.get(2)?, row.get(3)?, row.get(4)?);
        let next = ScannedSession { session, key, reserved, epoch, reached };
        (scanned, last) = (scanned + 1, key);
        if chosen(&next)? {
            sessions.push(next.session);
        }
    }
    Ok((sessions, (scanned == limit).then_some(SessionCursor(last))))
}

fn is_truncated(connection: &Connection, scanned: &ScannedSession, marks: &HighWaterMarks) -> Result<bool, ReadError> {
    let ScannedSession { session, key, reserved, epoch, reached } = scanned;
    if row::unsigned(*epoch) == marks.epoch() {
        return Ok(false);
    }
    let extent = SessionExtent::from_row(connection, session, (*key, *reserved, *epoch), marks)?;
    Ok(extent.truncation_cause(row::unsigned(*reached)).is_some())
}

fn is_checkpoint_valid(
    connection: &Connection,
    session: &SessionId,
    is_readable: fn(&[u8]) -> bool,
) -> Result<bool, ReadError> {
    let found: Option<(i64, i64, Vec<u8>)> = connection
        .prepare_cached(
            "SELECT seq, checksum, bytes FROM checkpoint WHERE session = (SELECT key FROM session WHERE id = ?1)",
        )?
        .query_row([session.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    Ok(found.is_none_or(|(seq, checksum, bytes)| {
        checksum::checkpoint(session, row::unsigned(seq), &bytes) == row::unsigned32(checksum) && is_readable(&bytes)
    }))
}

fn summarize(connection: &Connection) -> Result<JournalSummary, ReadError> {
    let used = used_bytes(connection)?;
    let moment = connection.unchecked_transaction()?;
    let (losses, newest_loss) = moment.query_row("SELECT count(*), coalesce(max(key), 0) FROM loss", [], |row| {
        Ok((row::unsigned(row.get(0)?), row.get(1)?))
    })?;
    let count = |query| moment.query_row(query, [], |row| row.get(0).map(row::unsigned));
    Ok(JournalSummary {
        schema: moment.pragma_query_value(None, "user_version", |row| row.get(0))?,
        sessions: count("SELECT sessions FROM tally")?,
        used_bytes: used,
        set_aside_blocks: count("SELECT count(*) FROM set_aside")?,
        losses,
        newest_loss,
    })
}
