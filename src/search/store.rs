//! The index on disk: a SQLite database beside the journal, with full-text tables (FTS5).
//!
//! The full-text tables hold no text (`content=''`) and no positions (`detail=none`): excerpts are made from the
//! journal. They are divided into shards of bounded size. A deletion therefore rewrites a few shards and not the whole
//! index: FTS5 keeps the words of deleted rows until their segments are merged (`optimize`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

use super::document::{DocumentKind, Extract, Figures, FoldContext, ToolFigures};
use super::query::{SearchQuery, indexable};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::private_file;

/// The file name of the index in the state directory.
pub const FILE: &str = "pushd.index";

/// The index.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
}

/// Why the index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or removed.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// SQLite returned an error.
    #[error("the search index failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A search read the index for so long that removed text could not be erased from its log.
    #[error("removed text cannot be erased from the search index while it is read")]
    InUse,
}

impl StoreError {
    /// Returns whether the file is damaged or no index, so that it has to be built again.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        matches!(self, Self::Sqlite(error) if matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase)))
    }
}

/// How far a session is indexed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position {
    /// The events after this one are read next.
    pub resume: Seq,
    /// What the fold needs to know of the events before.
    pub context: FoldContext,
}

/// What the index knows of a session beside its documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedSession {
    /// Its id.
    pub id: SessionId,
    /// Its display name; empty if it has none.
    pub name: String,
    /// Its working directory.
    pub cwd: String,
    /// When its listing item was last changed, as far as it is indexed.
    pub updated_at: Now,
}

/// A document that may match a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its session.
    pub session: SessionId,
    /// Its kind.
    pub kind: DocumentKind,
    /// The position of its first event.
    pub first: Seq,
    /// The position of its last event.
    pub last: Seq,
    /// When it began.
    pub at: Now,
}

/// The filter of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Only these kinds; all if empty.
    pub kinds: BTreeSet<DocumentKind>,
    /// Only documents that began at or after this time.
    pub since: Now,
    /// Only sessions whose directory is this one or below it.
    pub directory: Option<String>,
}

impl Filter {
    /// Returns whether a kind is searched.
    pub fn includes(&self, kind: DocumentKind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// Returns whether a session in this directory is searched.
    pub fn includes_directory(&self, cwd: &str) -> bool {
        self.directory.as_deref().is_none_or(|directory| Path::new(cwd).starts_with(directory))
    }
}

/// The figures of sessions, by quarter of an hour, directory and model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatsTable {
    /// The figures.
    pub figures: BTreeMap<(u64, String, String), Figures>,
    /// The tools, by quarter of an hour and name.
    pub tools: BTreeMap<(u64, String), ToolFigures>,
    /// The cost of each session that has one.
    pub costs: BTreeMap<SessionId, u64>,
}

impl Store {
    /// Opens the index in a directory; creates an empty one if there is none, or one of another version.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        private_file::open(&path).map_err(|source| StoreError::File { action: "open", path: path.clone(), source })?;
        let connection = Connection::open(&path)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version != VERSION && version != 0 {
            drop(connection);
            remove_files(directory)?;
            return Self::open(directory);
        }
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "secure_delete", "ON")?;
        connection.pragma_update(None, "cache_size", -2048)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        // The log counts as part of the index: it is emptied into the database at every mebibyte.
        connection.pragma_update(None, "wal_autocheckpoint", LOG_BYTES / 4096)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        if version == 0 {
            connection.execute_batch(&format!("BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;"))?;
        }
        Ok(Self { connection })
    }

    /// Opens another connection to an index that is open, which only reads.
    pub fn open_reader(directory: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open_with_flags(
            directory.join(FILE),
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.pragma_update(None, "cache_size", -2048)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(Self { connection })
    }

    /// Returns the indexed sessions.
    pub fn sessions(&self) -> Result<Vec<IndexedSession>, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT id, name, cwd, updated_at FROM session")?;
        let rows = statement.query_map([], |row| {
            let (id, name, cwd): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(IndexedSession { id: id.into(), name, cwd, updated_at: Now(unsigned(row.get(3)?)) })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns how far a session is indexed.
    pub fn position(&self, session: &SessionId) -> Result<Position, StoreError> {
        let mut statement =
            self.connection.prepare_cached("SELECT resume, written, model, forked_at FROM session WHERE id = ?1")?;
        let found = statement
            .query_row([session.as_str()], |row| {
                let seq = |column| row.get(column).map(|number| Seq::new(unsigned(number)));
                let context = FoldContext { written: seq(1)?, model: row.get(2)?, forked_at: seq(3)? };
                Ok(Position { resume: seq(0)?, context })
            })
            .optional()?;
        Ok(found.unwrap_or_default())
    }

    /// Adds what a pass over some events has found, in one transaction.
    pub fn add(&mut self, session: &IndexedSession, position: &Position, found: &Extract) -> Result<(), StoreError> {
        let transaction = self.connection.transaction()?;
        let Position { resume, context } = position;
        let key: i64 = transaction
            .prepare_cached(
                "INSERT INTO session (id, name, cwd, updated_at, resume, written, model, forked_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT (id) DO UPDATE SET name = ?2, cwd = ?3, updated_at = ?4, resume = ?5, written = ?6,
                 model = ?7, forked_at = ?8 RETURNING key",
            )?
            .query_row(
                params![
                    session.id.as_str(),
                    session.name,
                    session.cwd,
                    signed(session.updated_at.0),
                    signed(resume.number()),
                    signed(context.written.number()),
                    context.model,
                    signed(context.forked_at.number())
                ],
                |row| row.get(0),
            )?;
        add_documents(&transaction, key, found)?;
        let columns: Vec<&str> = FIGURE_COLUMNS.split(", ").collect();
        let sums: Vec<String> = columns.iter().map(|name| format!("{name} = {name} + excluded.{name}")).collect();
        let places = vec!["?"; Figures::COUNT].join(", ");
        let statement =
            format!("INSERT INTO figures VALUES (?, ?, ?, {places}) ON CONFLICT DO UPDATE SET {}", sums.join(", "));
        for ((quarter, model), figures) in &found.figures {
            let numbers = figures.values().map(signed);
            let mut values: Vec<&dyn rusqlite::ToSql> = vec![&key];
            let quarter = signed(*quarter);
            values.extend([&quarter as &dyn rusqlite::ToSql, model]);
            values.extend(numbers.iter().map(|number| number as &dyn rusqlite::ToSql));
            transaction.prepare_cached(&statement)?.execute(&values[..])?;
        }
        for ((quarter, name), tool) in &found.tools {
            transaction
                .prepare_cached(
                    "INSERT INTO tool VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE SET
                     calls = calls + excluded.calls, failures = failures + excluded.failures",
                )?
                .execute(params![key, signed(*quarter), name, signed(tool.calls), signed(tool.failures)])?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Removes a session, and every word of it from the files.
    pub fn remove(&mut self, session: &SessionId) -> Result<(), StoreError> {
        let Some(key) = self.key(session)? else { return Ok(()) };
        let transaction = self.connection.transaction()?;
        let shards = remove_documents(&transaction, key, i64::MAX)?;
        for statement in [
            "DELETE FROM figures WHERE session = ?1",
            "DELETE FROM tool WHERE session = ?1",
            "DELETE FROM session WHERE key = ?1",
        ] {
            transaction.execute(statement, [key])?;
        }
        transaction.commit()?;
        self.erase(&shards)
    }

    /// Removes the documents of a session that begin at or before a position, up to which retention has removed events.
    /// One that ends after it goes too: its beginning must not be found any more.
    pub fn trim(&mut self, session: &SessionId, floor: Seq) -> Result<(), StoreError> {
        let Some(key) = self.key(session)? else { return Ok(()) };
        let transaction = self.connection.transaction()?;
        let shards = remove_documents(&transaction, key, signed(floor.number()))?;
        transaction.commit()?;
        self.erase(&shards)
    }

    /// Finds documents that may match, the newest of the index first, while `take` returns true.
    ///
    /// `sessions` are the ids of the sessions that are searched.
    pub fn candidates(
        &self,
        query: &SearchQuery,
        filter: &Filter,
        sessions: &BTreeSet<SessionId>,
        limit: usize,
    ) -> Result<Vec<Candidate>, StoreError> {
        let mut found = Vec::new();
        for shard in self.shards()? {
            let mut statement = self.connection.prepare_cached(&format!(
                "SELECT session.id, kind, first, last, at FROM text_{shard}
                 JOIN document ON document.id = text_{shard}.rowid JOIN session ON session.key = document.session
                 WHERE text_{shard} MATCH ?1 AND at >= ?2 ORDER BY text_{shard}.rowid DESC"
            ))?;
            let mut rows = statement.query(params![query.full_text(), signed(filter.since.0)])?;
            while let Some(row) = rows.next()? {
                let candidate = candidate(row)?;
                if filter.includes(candidate.kind) && sessions.contains(&candidate.session) {
                    found.push(candidate);
                }
                if found.len() >= limit {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    /// Returns the figures since a quarter of an hour, of the sessions that `includes` accepts by id and directory.
    pub fn stats(&self, since: u64, includes: impl Fn(&SessionId, &str) -> bool) -> Result<StatsTable, StoreError> {
        let mut table = StatsTable::default();
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT session.id, cwd, quarter, figures.model, {FIGURE_COLUMNS} FROM figures
             JOIN session ON session.key = figures.session WHERE quarter >= ?1"
        ))?;
        let mut rows = statement.query([signed(since)])?;
        while let Some(row) = rows.next()? {
            let (id, cwd): (String, String) = (row.get(0)?, row.get(1)?);
            let id = SessionId::from(id);
            if !includes(&id, &cwd) {
                continue;
            }
            let mut values = [0; Figures::COUNT];
            for (index, value) in values.iter_mut().enumerate() {
                *value = unsigned(row.get(4 + index)?);
            }
            let key = (unsigned(row.get(2)?), cwd, row.get(3)?);
            let figures = Figures::from_values(values);
            if figures.cost > 0 {
                *table.costs.entry(id).or_default() += figures.cost;
            }
            table.figures.entry(key).or_default().add(&figures);
        }
        let mut statement = self.connection.prepare_cached(
            "SELECT session.id, cwd, quarter, tool.name, calls, failures FROM tool
             JOIN session ON session.key = tool.session WHERE quarter >= ?1",
        )?;
        let mut rows = statement.query([signed(since)])?;
        while let Some(row) = rows.next()? {
            let (id, cwd): (String, String) = (row.get(0)?, row.get(1)?);
            if includes(&id.into(), &cwd) {
                let tool = table.tools.entry((unsigned(row.get(2)?), row.get(3)?)).or_default();
                tool.calls += unsigned(row.get(4)?);
                tool.failures += unsigned(row.get(5)?);
            }
        }
        Ok(table)
    }

    fn key(&self, session: &SessionId) -> Result<Option<i64>, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT key FROM session WHERE id = ?1")?;
        Ok(statement.query_row([session.as_str()], |row| row.get(0)).optional()?)
    }

    fn shards(&self) -> Result<Vec<i64>, StoreError> {
        let mut statement = self.connection.prepare_cached("SELECT key FROM shard ORDER BY key DESC")?;
        Ok(statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    }

    /// Rewrites shards from which documents were removed, so that no word of these is left in the files.
    fn erase(&self, shards: &BTreeSet<i64>) -> Result<(), StoreError> {
        for shard in shards {
            self.connection.execute_batch(&format!("INSERT INTO text_{shard} (text_{shard}) VALUES ('optimize');"))?;
        }
        self.connection.execute_batch("PRAGMA incremental_vacuum;")?;
        // The log has copies of the pages from before.
        let is_in_use =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))?;
        if is_in_use { Err(StoreError::InUse) } else { Ok(()) }
    }
}

/// Removes the files of an index.
pub fn remove_files(directory: &Path) -> Result<(), StoreError> {
    for suffix in ["", "-wal", "-shm"] {
        let path = directory.join(format!("{FILE}{suffix}"));
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::File { action: "remove", path, source });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn add_documents(connection: &Connection, session: i64, found: &Extract) -> rusqlite::Result<()> {
    for document in &found.documents {
        let id: i64 = connection
            .prepare_cached(
                "INSERT INTO document (session, kind, first, last, at) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id",
            )?
            .query_row(
                params![
                    session,
                    kind_number(document.kind),
                    signed(document.first.number()),
                    signed(document.last.number()),
                    signed(document.at.0)
                ],
                |row| row.get(0),
            )?;
        let bytes = i64::try_from(document.text.len()).unwrap_or(i64::MAX);
        let shard = current_shard(connection, id, bytes)?;
        connection
            .prepare_cached(&format!("INSERT INTO text_{shard} (rowid, text) VALUES (?1, ?2)"))?
            .execute(params![id, indexable(&document.text)])?;
    }
    Ok(())
}

/// Returns the newest shard, or a new one if that is full, and counts the bytes that are added to it.
fn current_shard(connection: &Connection, first: i64, bytes: i64) -> rusqlite::Result<i64> {
    let newest: Option<(i64, i64)> = connection
        .prepare_cached("SELECT key, bytes FROM shard ORDER BY key DESC LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let key = match newest {
        Some((key, used)) if used < SHARD_BYTES => key,
        Some(_) | None => {
            let key = newest.map_or(1, |(key, _)| key + 1);
            connection.execute("INSERT INTO shard VALUES (?1, ?2, 0)", [key, first])?;
            connection.execute_batch(&format!(
                "CREATE VIRTUAL TABLE text_{key} USING fts5(text, content='', contentless_delete=1, detail=none,
                 tokenize='unicode61 remove_diacritics 0');"
            ))?;
            key
        }
    };
    connection.prepare_cached("UPDATE shard SET bytes = bytes + ?2 WHERE key = ?1")?.execute([key, bytes])?;
    Ok(key)
}

/// Removes the documents of a session that begin at or before a position; returns the shards that had them.
fn remove_documents(connection: &Connection, session: i64, up_to: i64) -> rusqlite::Result<BTreeSet<i64>> {
    let mut shards = BTreeSet::new();
    let rows: Vec<(i64, i64)> = connection
        .prepare_cached(
            "SELECT id, (SELECT key FROM shard WHERE first <= id ORDER BY key DESC LIMIT 1)
             FROM document WHERE session = ?1 AND first <= ?2",
        )?
        .query_map([session, up_to], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (id, shard) in rows {
        connection.prepare_cached(&format!("DELETE FROM text_{shard} WHERE rowid = ?1"))?.execute([id])?;
        connection.prepare_cached("DELETE FROM document WHERE id = ?1")?.execute([id])?;
        shards.insert(shard);
    }
    Ok(shards)
}

fn candidate(row: &Row<'_>) -> rusqlite::Result<Candidate> {
    let kind = if row.get::<_, i64>(1)? == kind_number(DocumentKind::Tool) {
        DocumentKind::Tool
    } else {
        DocumentKind::Message
    };
    let seq = |column| row.get(column).map(|number| Seq::new(unsigned(number)));
    Ok(Candidate {
        session: row.get::<_, String>(0)?.into(),
        kind,
        first: seq(2)?,
        last: seq(3)?,
        at: Now(unsigned(row.get(4)?)),
    })
}

const fn kind_number(kind: DocumentKind) -> i64 {
    match kind {
        DocumentKind::Message => 0,
        DocumentKind::Tool => 1,
        DocumentKind::Name => 2,
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The version of the tables. An index of another version is built again.
const VERSION: i64 = 1;
/// The size of the texts at which a shard is full.
const SHARD_BYTES: i64 = 16 * 1024 * 1024;
/// The length of the log at which it is emptied.
const LOG_BYTES: i64 = 1024 * 1024;
/// The columns of the figures, in the order of [`Figures::values`].
const FIGURE_COLUMNS: &str = "succeeded, failed, cancelled, denied, turns, input, output, cost, unpriced, calls, \
                              call_failures, asked, approved, refused";

const TABLES: &str = include_str!("tables.sql");
