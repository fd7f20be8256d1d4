//! The tables, and the migrations from older schemas.
//!
//! `user_version` is 1000 times the major number plus the minor one. A newer minor schema only adds what this
//! program may ignore, so it is opened; a newer major one is refused before anything is written.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::error::OpenError;
use super::files;
use super::record::Options;

/// Opens the database for the writer and migrates it to the newest schema.
pub(super) fn open(path: &Path, vfs: Option<&str>, options: &Options) -> Result<Connection, OpenError> {
    let failed = OpenError::sqlite(path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = files::connect(path, flags, vfs).map_err(&failed)?;
    connection.busy_timeout(options.busy_timeout).map_err(&failed)?;
    // Closing the last connection would checkpoint the log: prevent that until the database is known to be ours.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(&failed)?;
    let found = pragma_integer(&connection, "user_version").map_err(&failed)?;
    let owner = pragma_integer(&connection, "application_id").map_err(&failed)?;
    let tables = pragma_integer(&connection, "schema_version").map_err(&failed)?;
    let fresh = tables == 0 && found == 0 && owner == 0;
    if !fresh && owner != APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.to_path_buf(), owner });
    }
    if found / MAJOR > CURRENT_SCHEMA / MAJOR {
        return Err(OpenError::Newer { path: path.to_path_buf(), found, known: CURRENT_SCHEMA });
    }
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(&failed)?;
    if fresh {
        // It can be chosen only before there are tables: incremental vacuum returns free pages in slices.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(&failed)?;
    }
    // Creation and migration are rare and must not be lost, so SQLite syncs each step.
    connection.pragma_update(None, "synchronous", "FULL").map_err(&failed)?;
    let mode = enable_wal(&connection).map_err(&failed)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(OpenError::NoLog { path: path.to_path_buf() });
    }
    migrate(&mut connection).map_err(&failed)?;
    tune(&connection).map_err(&failed)?;
    Ok(connection)
}

/// Enables the write-ahead log and returns the resulting journal mode.
///
/// The change is committed when the statement ends and not with its row, so the statement is stepped to its end:
/// an error there is the only sign that the mode has not changed.
fn enable_wal(connection: &Connection) -> rusqlite::Result<String> {
    let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
    let mut rows = statement.query([])?;
    let mode = rows.next()?.map_or(Ok(String::new()), |row| row.get(0));
    while rows.next()?.is_some() {}
    mode
}

/// Returns how many sessions are stored, from a counter row.
pub(super) fn session_count(connection: &Connection) -> rusqlite::Result<u64> {
    let count: i64 = connection.query_row("SELECT sessions FROM tally", [], |row| row.get(0))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    for (version, statements) in MIGRATIONS {
        if pragma_integer(connection, "user_version")? >= *version {
            continue;
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have migrated first.
        if pragma_integer(&transaction, "user_version")? < *version {
            transaction.execute_batch(statements)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", version)?;
        }
        transaction.commit()?;
    }
    Ok(())
}

fn tune(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // The writer requests checkpoints itself. The log keeps its length, because a sync is cheaper when the file
    // does not grow.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", LOG_LIMIT)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Overwrites the old content of changed rows. Deletion sets a stricter mode that also overwrites freed pages.
    connection.pragma_update(None, "secure_delete", "FAST")?;
    connection.pragma_update(None, "cache_size", -4096)?;
    connection.set_prepared_statement_cache_capacity(40);
    // The query plan must not depend on parameter values: SQLite would prepare it again for every batch.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

pub(super) fn pragma_integer(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}

/// The application id: `push` in ASCII.
pub(super) const APPLICATION_ID: i64 = 0x7075_7368;
/// The factor of the major number in `user_version`.
pub(super) const MAJOR: i64 = 1000;
/// The schema that this program writes.
pub(super) const CURRENT_SCHEMA: i64 = 1002;
/// The maximum length of the log after its content has been checkpointed.
const LOG_LIMIT: i64 = 16 * 1024 * 1024;

/// Every step from an empty database, in order. A released step never changes.
const MIGRATIONS: &[(i64, &str)] = &[(1000, INITIAL_TABLES), (1001, LOSSES), (1002, COMMANDS)];

/// The sessions, their events in blocks, their checkpoints, and in `tally` the number of sessions. `reserved` is the
/// number up to which sequence numbers may have been shown; `seal` is the checksum of a header and its block.
const INITIAL_TABLES: &str = "CREATE TABLE session (
        key INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        token_hash BLOB NOT NULL,
        opened_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        state TEXT NOT NULL,
        active_run TEXT,
        summary TEXT NOT NULL,
        reserved INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX session_by_update ON session (updated_at, id);
    CREATE INDEX session_active ON session (id) WHERE active_run IS NOT NULL;
    CREATE TABLE start_key (
        start_key TEXT PRIMARY KEY,
        fingerprint BLOB NOT NULL,
        session INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE block (
        session INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        count INTEGER NOT NULL,
        prev INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        seal INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        UNIQUE (session, first)
    ) STRICT;
    CREATE TABLE checkpoint (
        session INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        bytes BLOB NOT NULL
    ) STRICT;
    CREATE TABLE tally (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        sessions INTEGER NOT NULL
    ) STRICT;
    INSERT INTO tally VALUES (1, 0);";

/// Recorded losses, blocks set aside, in `unsure` the ranges of epochs in which something may have been lost, and in
/// `doomed` the sessions that are being deleted. `life` is the epoch in which a session last reserved numbers.
const LOSSES: &str = "ALTER TABLE session ADD COLUMN life INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX block_splice ON block (session, first) WHERE count = 0;
    CREATE TABLE unsure (
        since INTEGER NOT NULL,
        until INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE loss (
        key INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        session TEXT NOT NULL,
        after INTEGER NOT NULL,
        until INTEGER NOT NULL,
        cause TEXT NOT NULL,
        detail TEXT NOT NULL
    ) STRICT;
    CREATE INDEX loss_by_session ON loss (session);
    CREATE TABLE set_aside (
        session INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        count INTEGER NOT NULL,
        prev INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        seal INTEGER NOT NULL,
        bytes BLOB NOT NULL
    ) STRICT;
    CREATE INDEX set_aside_by_session ON set_aside (session);
    CREATE TABLE doomed (
        session INTEGER PRIMARY KEY
    ) STRICT;";

/// Admitted commands and their outcomes. The trigger also works for a program that does not know the table.
const COMMANDS: &str = "CREATE TABLE command (
        row INTEGER PRIMARY KEY,
        id TEXT,
        repeat_key TEXT,
        kind TEXT NOT NULL,
        session TEXT,
        fingerprint BLOB NOT NULL,
        admitted INTEGER NOT NULL,
        settled INTEGER,
        success INTEGER,
        timed_out INTEGER,
        version INTEGER,
        too_large INTEGER,
        seal INTEGER NOT NULL,
        body_seal INTEGER,
        body TEXT
    ) STRICT;
    CREATE TRIGGER command_of_session AFTER DELETE ON session BEGIN
        DELETE FROM command WHERE session = old.id;
        UPDATE command SET body = NULL WHERE instr(body, json_quote(old.id)) > 0;
    END;";
