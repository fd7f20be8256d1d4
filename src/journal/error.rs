//! The errors of the journal, one enum for each operation.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::kernel::id::{Seq, SessionId};

/// Why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A newer program with an incompatible schema wrote the database.
    #[error("{} has schema {found}, this program supports up to {known}; use a newer pushd", .path.display())]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema known.
        known: i64,
    },
    /// The database belongs to another program.
    #[error("{} is not a journal", .path.display())]
    Foreign {
        /// The database.
        path: PathBuf,
        /// The application id in its header.
        owner: i64,
    },
    /// The file is not a database, or is corrupt.
    #[error("{} is not a readable database", .path.display())]
    Unreadable {
        /// The database.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The file system does not support a write-ahead log.
    #[error("{} is on a file system without support for a write-ahead log; set PUSH_HOME to another one", .path.display())]
    NoLog {
        /// The database.
        path: PathBuf,
    },
    /// The file is empty, but marks say that it held sessions.
    #[error("{} is empty, but its high-water marks list sessions", .path.display())]
    Emptied {
        /// The database.
        path: PathBuf,
    },
    /// The losses of the previous epoch cannot be recorded.
    #[error("cannot record lost events in {}", .path.display())]
    RecordLosses {
        /// The database.
        path: PathBuf,
        /// The cause.
        #[source]
        error: CommitError,
    },
    /// The events that the previous epoch left in the write-ahead file cannot be stored.
    #[error("cannot store events of the previous process in {}", .path.display())]
    Replay {
        /// The database.
        path: PathBuf,
        /// The cause.
        #[source]
        error: CommitError,
    },
    /// SQLite failed.
    #[error("cannot open {}", .path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// Adds the attempted action and its path to an I/O error.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }

    /// Distinguishes a corrupt database from one that cannot be accessed.
    pub(super) fn sqlite(path: &Path) -> impl Fn(rusqlite::Error) -> Self {
        move |source| match source.sqlite_error_code() {
            _ if is_corrupt(&source) => Self::Unreadable { path: path.to_path_buf(), source },
            Some(_) | None => Self::Sqlite { path: path.to_path_buf(), source },
        }
    }
}

/// Why a batch conflicts with the stored state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The session is not stored, and the batch does not create it.
    #[error("the session does not exist; `push sessions` lists the sessions")]
    NoSuchSession,
    /// The session to create is stored already.
    #[error("the session exists already")]
    SessionExists,
    /// Another session was started with the same idempotency key.
    #[error("another session was started with the same idempotency key")]
    StartKeyTaken,
    /// The block does not begin after the last stored event.
    #[error("the block begins at {first}, the history reaches {last}")]
    Overlap {
        /// Where the block begins.
        first: Seq,
        /// The last stored event.
        last: Seq,
    },
    /// The block is empty, its range is reversed, or it counts more events than its range has numbers.
    #[error("the block at {first} has an invalid range or count")]
    Malformed {
        /// Where the block begins.
        first: Seq,
    },
    /// The metadata names another session than the batch.
    #[error("the metadata belongs to another session")]
    OtherSession,
    /// A number exceeds the range of an SQLite integer.
    #[error("a number exceeds the range of an SQLite integer")]
    TooLarge,
    /// A constraint of the rows violate a constraint of the database.
    #[error("the rows violate a constraint of the database")]
    Constraint,
    /// The history has changed since it was read.
    #[error("the history changed during the repair")]
    Changed,
}

/// Why a batch was not committed, or not synced.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The batch conflicts with the stored state; other batches of its group are not affected.
    #[error("the batch conflicts with the stored session")]
    Conflict(#[from] Conflict),
    /// The disk is full; nothing of the batch is stored.
    #[error("the disk is full")]
    Full,
    /// Another process held the database for too long; nothing of the batch is stored.
    #[error("another process holds the lock of the database")]
    Busy,
    /// The batch may be written, but whether it survives a power loss is unknown.
    #[error("cannot sync the journal")]
    SyncFailed {
        /// The cause.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A sync failed earlier: all writes are refused until the journal is opened again.
    #[error("the journal refuses all writes after a failed sync; restart the daemon")]
    StorageFailed,
    /// SQLite failed; nothing of the batch is stored.
    #[error("cannot write the journal")]
    Sqlite {
        /// The error of SQLite.
        source: Arc<rusqlite::Error>,
    },
    /// The journal is closed.
    #[error("the journal is closed")]
    Closed,
}

impl From<rusqlite::Error> for CommitError {
    fn from(source: rusqlite::Error) -> Self {
        let extended = source.sqlite_error().map(|error| error.extended_code);
        if matches!(extended, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)) {
            return Self::SyncFailed { source: Arc::new(source) };
        }
        match source.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation) => Self::Conflict(Conflict::Constraint),
            Some(ErrorCode::DiskFull) => Self::Full,
            // The file of the WAL index could not grow.
            Some(_) if extended == Some(ffi::SQLITE_IOERR_SHMSIZE) => Self::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(_) | None => Self::Sqlite { source: Arc::new(source) },
        }
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The stored data does not verify.
    #[error("the history of {session} is damaged at {first}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The first event of the damaged block.
        first: Seq,
    },
    /// There is no such session.
    #[error("there is no session {session}")]
    NoSuchSession {
        /// The session.
        session: SessionId,
    },
    /// SQLite failed.
    #[error("cannot read the journal")]
    Sqlite(#[from] rusqlite::Error),
    /// A damaged history could not be repaired.
    #[error("cannot repair a damaged history")]
    Repair(#[source] CommitError),
    /// The runtime ended before the read was finished.
    #[error("the read was aborted because the runtime ended")]
    Aborted,
    /// The journal is closed.
    #[error("the journal is closed")]
    Closed,
}

impl ReadError {
    /// Returns whether the database is corrupt.
    pub(super) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Sqlite(error) if is_corrupt(error))
    }
}

impl CommitError {
    /// Returns whether the database is corrupt.
    pub(super) fn is_corrupt(&self) -> bool {
        match self {
            Self::Sqlite { source } => is_corrupt(source),
            // All preconditions are checked first, so a constraint violation means that an index contradicts its
            // table.
            Self::Conflict(conflict) => *conflict == Conflict::Constraint,
            Self::Full | Self::Busy | Self::SyncFailed { .. } | Self::StorageFailed | Self::Closed => false,
        }
    }
}

/// Returns whether SQLite reports that what it reads cannot be what it wrote.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is another crate's, and most of it says nothing of the file"
)]
pub(super) fn is_corrupt(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(error, message) => {
            // Our statements are correct, so a missing table or column means that the schema is damaged.
            let names_missing_object =
                |message: &str| message.starts_with("no such ") || message.contains("has no column");
            matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                || (error.code == ErrorCode::Unknown && message.as_deref().is_some_and(names_missing_object))
        }
        rusqlite::Error::SqlInputError { .. } => true,
        // A value of another type, or no row where there always is one: a B-tree points to the wrong page.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::QueryReturnedNoRows => true,
        _ => false,
    }
}

/// Why a background job failed; slices committed before stay.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JobError {
    /// The stored data does not verify; it is left unchanged.
    #[error("the history of {session} is damaged at {first}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The first event of the damaged block.
        first: Seq,
    },
    /// The slice was not committed.
    #[error("cannot commit the changed blocks")]
    Commit(#[source] CommitError),
}

impl From<rusqlite::Error> for JobError {
    fn from(source: rusqlite::Error) -> Self {
        Self::Commit(source.into())
    }
}
