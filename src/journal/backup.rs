//! Copies of the database, made while the daemon writes, and the preparation of a copy for a daemon.
//!
//! A copy is one snapshot: SQLite's backup API reads it in steps under one read transaction, which blocks neither the
//! writer nor other readers. It holds everything that was committed before it began.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::files::StorageEnv;
use super::high_water_marks::{HighWaterMarks, ShutdownState};
use super::schema::{self, APPLICATION_ID, CURRENT_SCHEMA, MAJOR};
use super::{DATABASE, MARKS, now, os, row};
use crate::kernel::id::{Seq, SessionId};

/// What a copy contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyInfo {
    /// The schema of the database.
    pub schema: i64,
    /// The number of sessions.
    pub sessions: u64,
    /// The number of events.
    pub events: u64,
}

/// Why a copy cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// SQLite reports an error.
    #[error("cannot use the database {}", .path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// A system call failed.
    #[error("cannot write {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The database is not one of this program.
    #[error("{} is not a database of pushd", .path.display())]
    Foreign {
        /// The database.
        path: PathBuf,
    },
    /// A newer version wrote it.
    #[error("{} has the schema {found}, and this version reads up to {known}; install a newer version", .path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema that this version knows.
        known: i64,
    },
    /// It is damaged.
    #[error("{} is damaged: {problem}", .path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// The first problem.
        problem: String,
    },
}

/// Returns whether this version reads databases with a schema: newer minor versions only add to it.
pub const fn is_readable(schema: i64) -> bool {
    schema / MAJOR <= CURRENT_SCHEMA / MAJOR
}

/// Copies the database of the state directory to an empty file, and checks the copy.
pub fn copy_database(state: &Path, to: &Path) -> Result<CopyInfo, BackupError> {
    let from = state.join(DATABASE);
    let failed = |source| BackupError::Sqlite { path: from.clone(), source };
    let source = open(&from).map_err(failed)?;
    // The log belongs to the daemon.
    source.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    // The snapshot: without it every commit of the daemon would start the copy again.
    source.execute_batch("BEGIN; SELECT count(*) FROM tally;").map_err(failed)?;
    let mut copy = open(to).map_err(failed)?;
    let backup = Backup::new(&source, &mut copy).map_err(failed)?;
    loop {
        match backup.step(STEP_PAGES).map_err(failed)? {
            StepResult::Done => break,
            StepResult::More => {}
            StepResult::Busy | StepResult::Locked | _ => std::thread::sleep(BUSY_PAUSE),
        }
    }
    drop(backup);
    drop(copy);
    check_copy(to)
}

/// Checks a copy and returns what it contains. It becomes a single file, without a log.
pub fn check_copy(path: &Path) -> Result<CopyInfo, BackupError> {
    let failed = |source| BackupError::Sqlite { path: path.to_owned(), source };
    let copy = open(path).map_err(failed)?;
    let schema = schema::pragma_integer(&copy, "user_version").map_err(failed)?;
    if schema::pragma_integer(&copy, "application_id").map_err(failed)? != APPLICATION_ID {
        return Err(BackupError::Foreign { path: path.to_owned() });
    }
    if !is_readable(schema) {
        return Err(BackupError::Newer { path: path.to_owned(), found: schema, known: CURRENT_SCHEMA });
    }
    copy.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(())).map_err(failed)?;
    let problem: String = copy.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if problem != "ok" {
        return Err(BackupError::Damaged { path: path.to_owned(), problem });
    }
    let count = |query| copy.query_row(query, [], |row| row.get(0)).map(row::unsigned);
    let sessions = count("SELECT count(*) FROM session").map_err(failed)?;
    let events = count("SELECT coalesce(sum(count), 0) FROM block").map_err(failed)?;
    Ok(CopyInfo { schema, sessions, events })
}

/// Writes the marks of a copied database, which say that it reaches exactly as far as it does.
pub fn write_marks(dir: &Path) -> Result<(), BackupError> {
    let (database, path) = (dir.join(DATABASE), dir.join(MARKS));
    let failed = |source| BackupError::Sqlite { path: database.clone(), source };
    let unwritable = |source| BackupError::Io { path: path.clone(), source };
    let file = (StorageEnv::native(dir).open_file)(&path).map_err(unwritable)?;
    let (marks, _) = HighWaterMarks::open(file, 0, now().0 / 1000).map_err(unwritable)?;
    let copy = open(&database).map_err(failed)?;
    let mut statement = copy
        .prepare(
            "SELECT key, id, reserved, coalesce((SELECT max(last) FROM block WHERE session = key), 0) FROM session",
        )
        .map_err(failed)?;
    let mut sessions = statement.query([]).map_err(failed)?;
    while let Some(found) = sessions.next().map_err(failed)? {
        let read = || Ok((found.get(0)?, found.get::<_, String>(1)?, found.get(2)?, found.get(3)?));
        let (key, session, reserved, reached): (i64, String, i64, i64) = read().map_err(failed)?;
        let (seq, reserved) = (Seq::new(row::unsigned(reached)), Seq::new(row::unsigned(reserved)));
        marks.write_mark(key, &SessionId::from(session), seq, reserved).map_err(unwritable)?;
    }
    marks.set_shutdown_state(ShutdownState::Clean).map_err(unwritable)?;
    os::sync_directory(dir).map_err(unwritable)
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// How many pages one step copies.
const STEP_PAGES: i32 = 1024;
/// How long a step waits before it is repeated.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
