//! Reads: a small pool of connections and short transactions. Every block is verified.
//!
//! Reads run on the runtime's blocking threads, a bounded number at a time. No read sees a part of a batch.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, ffi, params};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::apply;
use super::checksum::{self, BlockHeader};
use super::error::ReadError;
use super::files;
use super::high_water_marks::HighWaterMarks;
use super::record::{Block, Checkpoint, LinePage, ListQuery, LossRecord, Meta, Options, Page, StoredSession};
use super::repair::SessionExtent;
use super::row;
use crate::kernel::id::{Fingerprint, Seq, SessionId};
use crate::kernel::time::Now;

/// The pool of connections for reading.
pub(super) struct Readers {
    path: PathBuf,
    vfs: Option<String>,
    busy_timeout: Duration,
    count: u32,
    permits: Arc<Semaphore>,
    /// Limits the large pages in use, so that memory stays bounded however many subscribers lag.
    large_pages: Arc<Semaphore>,
    page_bytes: usize,
    idle: Mutex<Vec<(u64, Connection)>>,
    /// Counts how often the database was replaced; connections to an earlier database are dropped.
    generation: Arc<AtomicU64>,
}

/// The permit for a large page, held as long as the page.
pub(super) type LargePagePermit = Option<OwnedSemaphorePermit>;

impl Readers {
    pub(super) fn new(path: PathBuf, vfs: Option<String>, options: &Options, generation: Arc<AtomicU64>) -> Self {
        let count = options.readers.max(1);
        let permits = Arc::new(Semaphore::new(usize::try_from(count).unwrap_or(1)));
        let large_pages = Arc::new(Semaphore::new(options.large_pages));
        let page_bytes = options.page_bytes;
        let idle = Mutex::new(Vec::new());
        Self {
            path,
            vfs,
            busy_timeout: options.busy_timeout,
            count,
            permits,
            large_pages,
            page_bytes,
            idle,
            generation,
        }
    }

    /// Returns a page to read into: the spent one, or a new one that is large if a permit is free.
    pub(super) fn page_buffer(&self, spent: Option<LinePage>, small: usize) -> LinePage {
        let LinePage { mut bytes, permit, .. } = spent.unwrap_or_default();
        let permit = permit.or_else(|| Arc::clone(&self.large_pages).try_acquire_owned().ok());
        if permit.is_none() {
            // The memory of a small page is not reused: there may be many small pages.
            return LinePage { limit: small, ..LinePage::default() };
        }
        bytes.clear();
        let limit = self.page_bytes.max(small);
        // Allocate here and not on the reading thread: an allocator arena of a blocking thread is not reused by
        // others.
        bytes.reserve_exact(limit);
        LinePage { bytes, permit, limit, ..LinePage::default() }
    }

    /// Runs `job` on a connection, off the runtime's async threads.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Connection) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| ReadError::Closed)?;
        let readers = Arc::clone(self);
        let work = move || {
            let result = readers.with_connection(job);
            // The permit is held until here even if the caller no longer waits.
            drop(permit);
            result
        };
        match Handle::try_current() {
            Ok(runtime) => runtime.spawn_blocking(work).await.unwrap_or(Err(ReadError::Aborted)),
            // Without a runtime there is no async thread to block.
            Err(_) => work(),
        }
    }

    /// Returns how often the database was replaced.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Waits for running reads and refuses new ones.
    pub(super) async fn close(&self) {
        let all = self.permits.acquire_many(self.count).await;
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        drop(all);
    }

    fn with_connection<T>(&self, job: impl FnOnce(&Connection) -> Result<T, ReadError>) -> Result<T, ReadError> {
        let generation = self.generation();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(of, _)| *of == generation);
        let waiting = idle.pop();
        drop(idle);
        let connection = match waiting {
            Some((_, connection)) => connection,
            None => self.connect()?,
        };
        let result = job(&connection);
        if connection.is_autocommit() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((generation, connection));
        }
        result
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = files::connect(&self.path, flags, self.vfs.as_deref())?;
        connection.busy_timeout(self.busy_timeout)?;
        // The query plan must not depend on parameter values: SQLite would prepare it again for every page.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // Blocks are copied out once, so a large cache is useless.
        connection.pragma_update(None, "cache_size", -512)?;
        Ok(connection)
    }
}

/// Loads everything needed to restore `session`, in one transaction. A history without its newest part counts as
/// damaged.
pub(super) fn load(
    connection: &Connection,
    session: &SessionId,
    marks: &HighWaterMarks,
) -> Result<Option<StoredSession>, ReadError> {
    let moment = connection.unchecked_transaction()?;
    let Some(extent) = SessionExtent::load(&moment, session, marks)? else { return Ok(None) };
    let found = moment
        .prepare_cached(&format!("SELECT {META}, token_hash FROM session WHERE key = ?1"))?
        .query_row([extent.key], |row| Ok((meta(row)?, row.get::<_, [u8; 32]>(6)?)))?;
    let (meta, token_hash) = found;
    let checkpoint = checkpoint(&moment, session, extent.key)?;
    let after = checkpoint.as_ref().map_or(Seq::ZERO, |checkpoint| checkpoint.seq);
    let tail = blocks(&moment, session, extent.key, after, usize::MAX)?.blocks;
    let reached = last_position(&moment, extent.key)?;
    if extent.truncation_cause(reached).is_some() {
        return Err(ReadError::Damaged { session: session.clone(), first: Seq::new(reached).next() });
    }
    let (floor, holes) = holes(&moment, extent.key)?;
    let reserved = Seq::new(extent.reserved);
    Ok(Some(StoredSession { meta, reserved, token_hash, checkpoint, tail, floor, holes }))
}

/// Returns the last position of the history, found from its end; reading the tail verifies its block.
fn last_position(connection: &Connection, key: i64) -> Result<u64, ReadError> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT last FROM block WHERE session = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(last.map_or(0, row::unsigned))
}

/// Returns the last position that retention removed, and the ranges lost otherwise.
fn holes(connection: &Connection, key: i64) -> Result<(Seq, Vec<(Seq, Seq)>), ReadError> {
    let mut statement =
        connection.prepare_cached("SELECT first, last FROM block WHERE session = ?1 AND count = 0 ORDER BY first")?;
    let rows = statement.query_map([key], |row| Ok((row::unsigned(row.get(0)?), row::unsigned(row.get(1)?))))?;
    let (mut floor, mut holes) = (Seq::ZERO, Vec::new());
    for found in rows {
        match found? {
            (0, last) => floor = Seq::new(last),
            (first, last) => holes.push((Seq::new(first - 1), Seq::new(last))),
        }
    }
    Ok((floor, holes))
}

/// Lists the losses after the loss numbered `since`, newest first.
pub(super) fn losses(connection: &Connection, since: i64, limit: u32) -> Result<Vec<LossRecord>, ReadError> {
    connection
        .prepare_cached(
            "SELECT at, session, after, until, cause, detail FROM loss WHERE key > ?1
             ORDER BY key DESC LIMIT ?2",
        )?
        .query_map(params![since, limit], |row| {
            Ok(LossRecord {
                at: Now(row::unsigned(row.get(0)?)),
                session: row.get(1)?,
                after: Seq::new(row::unsigned(row.get(2)?)),
                until: Seq::new(row::unsigned(row.get(3)?)),
                cause: row.get(4)?,
                detail: row.get(5)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()
        .map_err(ReadError::Sqlite)
}

/// Reads a page of the history of `session`.
pub(super) fn page(
    connection: &Connection,
    session: &SessionId,
    after: Seq,
    max_bytes: usize,
) -> Result<Page, ReadError> {
    let moment = connection.unchecked_transaction()?;
    let Some(key) = apply::key(&moment, session)? else {
        return Err(ReadError::NoSuchSession { session: session.clone() });
    };
    blocks(&moment, session, key, after, max_bytes)
}

/// Reads the lines of the events after `after` into `page`: as many blocks as fit, but at least one if there is
/// any.
///
/// Blocks before a damaged one are still returned; the next page reports the damage.
pub(super) fn lines(
    connection: &Connection,
    session: &SessionId,
    after: Seq,
    mut page: LinePage,
) -> Result<LinePage, ReadError> {
    let moment = connection.unchecked_transaction()?;
    let Some(key) = apply::key(&moment, session)? else {
        return Err(ReadError::NoSuchSession { session: session.clone() });
    };
    page.last = after;
    let read = visit_blocks(&moment, session, key, after, |header, bytes| {
        if page.bytes.is_empty() {
            page.first = Seq::new(header.first);
            page.bytes.reserve_exact(bytes.len());
        }
        page.last = Seq::new(header.last);
        page.bytes.extend_from_slice(bytes);
        // Do not read the next block only to find that it does not fit.
        page.more = page.bytes.len().saturating_add(bytes.len()) > page.limit;
        if page.more { Visit::Stop } else { Visit::Continue }
    });
    match read {
        Err(ReadError::Damaged { .. }) if !page.bytes.is_empty() => page.more = true,
        other => other?,
    }
    Ok(page)
}

/// Lists sessions, most recently updated first.
pub(super) fn list(connection: &Connection, query: &ListQuery) -> Result<Vec<Meta>, ReadError> {
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let (time, id) = match &query.after {
        Some((Now(time), session)) => (row::signed(*time), session.as_str()),
        None => (i64::MAX, ""),
    };
    let found: rusqlite::Result<_> = match &query.prefix {
        None => connection
            .prepare_cached(&format!(
                "SELECT {META} FROM session WHERE (updated_at, id) < (?1, ?2)
                 ORDER BY updated_at DESC, id DESC LIMIT ?3"
            ))?
            .query_map(params![time, id, limit], meta)?
            .collect(),
        Some(prefix) => {
            let end = format!("{prefix}{}", char::MAX);
            // The plus keeps SQLite from scanning all sessions by time when the prefix selects a few.
            connection
                .prepare_cached(&format!(
                    "SELECT {META} FROM session WHERE id >= ?4 AND id < ?5 AND (+updated_at, id) < (?1, ?2)
                     ORDER BY +updated_at DESC, id DESC LIMIT ?3"
                ))?
                .query_map(params![time, id, limit, prefix, end], meta)?
                .collect()
        }
    };
    found.map_err(ReadError::Sqlite)
}

/// Returns the list entry of one session.
pub(super) fn meta_of(connection: &Connection, session: &SessionId) -> Result<Option<Meta>, ReadError> {
    connection
        .prepare_cached(&format!("SELECT {META} FROM session WHERE id = ?1"))?
        .query_row([session.as_str()], meta)
        .optional()
        .map_err(ReadError::Sqlite)
}

/// Returns the sessions with an unfinished run.
pub(super) fn active(connection: &Connection) -> Result<Vec<SessionId>, ReadError> {
    connection
        .prepare_cached("SELECT id FROM session WHERE active_run IS NOT NULL ORDER BY id")?
        .query_map([], |row| Ok(SessionId::from(row.get::<_, String>(0)?)))?
        .collect::<rusqlite::Result<_>>()
        .map_err(ReadError::Sqlite)
}

/// Returns the session that was started with the idempotency key `key`.
pub(super) fn started_by_key(
    connection: &Connection,
    key: &str,
) -> Result<Option<(Fingerprint, SessionId)>, ReadError> {
    connection
        .prepare_cached(
            "SELECT fingerprint, id FROM start_key JOIN session ON session.key = start_key.session
             WHERE start_key = ?1",
        )?
        .query_row([key], |row| {
            let fingerprint = Fingerprint(u128::from_be_bytes(row.get(0)?));
            Ok((fingerprint, SessionId::from(row.get::<_, String>(1)?)))
        })
        .optional()
        .map_err(ReadError::Sqlite)
}

fn meta(row: &Row<'_>) -> rusqlite::Result<Meta> {
    Ok(Meta {
        session: SessionId::from(row.get::<_, String>(0)?),
        state: row.get(1)?,
        updated_at: Now(row::unsigned(row.get(2)?)),
        opened_at: Now(row::unsigned(row.get(3)?)),
        active_run: row.get(4)?,
        summary: row.get(5)?,
    })
}

/// Reads the checkpoint. A damaged one counts as missing, because the history holds the same state.
fn checkpoint(connection: &Connection, session: &SessionId, key: i64) -> Result<Option<Checkpoint>, ReadError> {
    let found = connection
        .prepare_cached("SELECT seq, checksum, bytes FROM checkpoint WHERE session = ?1")?
        .query_row([key], |row| {
            let (seq, checksum): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok((row::unsigned(seq), row::unsigned32(checksum), row.get::<_, Vec<u8>>(2)?))
        })
        .optional()?;
    Ok(found.and_then(|(seq, checksum, bytes)| {
        if checksum::checkpoint(session, seq, &bytes) == checksum {
            return Some(Checkpoint { seq: Seq::new(seq), bytes: bytes.into() });
        }
        tracing::warn!(%session, seq, "a checkpoint is damaged; reading the whole history");
        None
    }))
}

/// Reads whole blocks with events after `after`: at most `max_bytes`, but at least one block if there is any.
fn blocks(
    connection: &Connection,
    session: &SessionId,
    key: i64,
    after: Seq,
    max_bytes: usize,
) -> Result<Page, ReadError> {
    let mut page = Page { blocks: Vec::new(), more: false };
    let mut size = 0_usize;
    visit_blocks(connection, session, key, after, |header, bytes| {
        size = size.saturating_add(bytes.len());
        page.more = size > max_bytes && !page.blocks.is_empty();
        if page.more {
            return Visit::Stop;
        }
        page.blocks.push(Block {
            first: Seq::new(header.first),
            last: Seq::new(header.last),
            count: header.count,
            bytes: Bytes::copy_from_slice(bytes),
        });
        Visit::Continue
    })?;
    Ok(page)
}

/// Whether a visit of blocks continues.
enum Visit {
    Continue,
    Stop,
}

/// Visits the blocks with events after `after` in order, and verifies each, including its link to the block
/// before.
///
/// A damaged entry of the index can hide the blocks behind it or lead to earlier ones, although every block
/// verifies. So the positions must ascend, and the last one must be the end of the history as found from there.
fn visit_blocks(
    connection: &Connection,
    session: &SessionId,
    key: i64,
    after: Seq,
    mut take: impl FnMut(&BlockHeader, &[u8]) -> Visit,
) -> Result<(), ReadError> {
    let (start, mut prev) = start_position(connection, session, key, after)?;
    let mut statement = connection.prepare_cached(
        "SELECT first, last, count, prev, checksum, seal, bytes
         FROM block WHERE session = ?1 AND first >= ?2 ORDER BY first",
    )?;
    let mut rows = statement.query(params![key, start])?;
    let mut reached = after.number();
    while let Some(row) = rows.next()? {
        let (header, seal) = row::block_header(row)?;
        let bytes = row.get_ref(6)?.as_blob().map_err(rusqlite::Error::from)?;
        if !header.verify(session, seal, prev, bytes) {
            return Err(ReadError::Damaged { session: session.clone(), first: Seq::new(header.first) });
        }
        if header.last <= reached {
            return Err(corrupt_index());
        }
        (reached, prev) = (header.last, header.checksum);
        match take(&header, bytes) {
            Visit::Continue => {}
            Visit::Stop => return Ok(()),
        }
    }
    if last_position(connection, key)? > reached { Err(corrupt_index()) } else { Ok(()) }
}

/// Returns the error for an index of the blocks that contradicts itself: only a salvage finds all its blocks.
fn corrupt_index() -> ReadError {
    let message = "the index of the blocks contradicts itself".to_owned();
    ReadError::Sqlite(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT_INDEX), Some(message)))
}

/// Finds where to start reading events after `after`, and the checksum chain up to there.
fn start_position(connection: &Connection, session: &SessionId, key: i64, after: Seq) -> Result<(i64, u32), ReadError> {
    let mut statement = connection.prepare_cached(
        "SELECT first, last, count, prev, checksum, seal, CASE count WHEN 0 THEN bytes ELSE x'' END
         FROM block WHERE session = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 2",
    )?;
    let mut rows = statement.query(params![key, row::signed(after.number())])?;
    let mut begin = None;
    while let Some(row) = rows.next()? {
        let (header, seal) = row::block_header(row)?;
        // A wrong number here would silently skip events.
        if header.seal(session, row.get_ref(6)?.as_blob().map_err(rusqlite::Error::from)?) != seal {
            return Err(ReadError::Damaged { session: session.clone(), first: Seq::new(header.first) });
        }
        match begin {
            None if header.last > after.number() => begin = Some(header.first),
            None => return Ok((row::signed(after.next().number()), header.checksum)),
            Some(first) => return Ok((row::signed(first), header.checksum)),
        }
    }
    Ok((row::signed(begin.unwrap_or(0)), checksum::genesis(session)))
}

/// The columns that [`meta`] reads.
const META: &str = "id, state, updated_at, opened_at, active_run, summary";
