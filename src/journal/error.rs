//! What can go wrong with the journal, one enum an operation.

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
    /// The file system refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database was written by a program which this one does not understand.
    #[error("{} has schema {found}, this program knows up to {known}", .path.display())]
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
        /// Whose it says it is.
        owner: i64,
    },
    /// The file is no database, or a broken one.
    #[error("{} cannot be read as a database", .path.display())]
    Unreadable {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file system cannot hold a write-ahead log.
    #[error("{} cannot have a write-ahead log here", .path.display())]
    NoLog {
        /// The database.
        path: PathBuf,
    },
    /// The file is empty, though there were sessions in it.
    #[error("{} is empty, and was not", .path.display())]
    Emptied {
        /// The database.
        path: PathBuf,
    },
    /// What the life before lost cannot be written down.
    #[error("cannot write down in {} what was lost", .path.display())]
    Begin {
        /// The database.
        path: PathBuf,
        /// Why not.
        #[source]
        error: CommitError,
    },
    /// SQLite refused.
    #[error("cannot open {}", .path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// Names what was attempted on which path.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }

    /// Tells an unreadable database from one that cannot be reached.
    pub(super) fn sqlite(path: &Path) -> impl Fn(rusqlite::Error) -> Self {
        move |source| match source.sqlite_error_code() {
            _ if is_corrupt(&source) => Self::Unreadable { path: path.to_path_buf(), source },
            Some(_) | None => Self::Sqlite { path: path.to_path_buf(), source },
        }
    }
}

/// Why a batch does not fit what is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The session is not stored, and the batch does not create it.
    #[error("there is no such session")]
    NoSuchSession,
    /// The session to create is stored already.
    #[error("the session exists")]
    SessionExists,
    /// Another session was started under the key.
    #[error("the start key is taken")]
    StartKeyTaken,
    /// The block does not begin after the last stored event.
    #[error("the block begins at {first}, the history reaches {last}")]
    Overlap {
        /// Where the block begins.
        first: Seq,
        /// The last stored event.
        last: Seq,
    },
    /// The block is empty, runs backwards or counts more events than it has numbers.
    #[error("the block that begins at {first} contradicts itself")]
    Malformed {
        /// Where the block begins.
        first: Seq,
    },
    /// The meta names another session than the batch.
    #[error("the meta is that of another session")]
    OtherSession,
    /// A number does not fit the database.
    #[error("a number is too large to be stored")]
    TooLarge,
    /// The database itself refused the rows.
    #[error("the database refused the rows")]
    Constraint,
    /// The history has changed since it was looked at.
    #[error("the history has changed meanwhile")]
    Changed,
}

/// Why a batch was not kept, or not made durable.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The batch does not fit; others of its group are not concerned.
    #[error("the batch does not fit")]
    Conflict(#[from] Conflict),
    /// The disk is full; nothing of the batch is kept.
    #[error("the disk is full")]
    Full,
    /// Another process held the database for too long; nothing of the batch is kept.
    #[error("the database is held by another writer")]
    Busy,
    /// The batch may be written, but whether it survives a loss of power is unknown.
    #[error("the journal cannot be synced")]
    SyncFailed {
        /// What the system said.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A sync failed earlier: nothing is taken until the journal is opened anew.
    #[error("the journal takes nothing after a failed sync")]
    StorageFailed,
    /// SQLite refused; nothing of the batch is kept.
    #[error("the journal cannot be written")]
    Sqlite {
        /// What SQLite said.
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
            // The file of the log's index could not grow.
            Some(_) if extended == Some(ffi::SQLITE_IOERR_SHMSIZE) => Self::Full,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(_) | None => Self::Sqlite { source: Arc::new(source) },
        }
    }
}

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// What is stored is not what was written.
    #[error("the history of {session} is damaged at {first}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The first event of the block concerned.
        first: Seq,
    },
    /// There is no such session.
    #[error("there is no session {session}")]
    NoSuchSession {
        /// The session.
        session: SessionId,
    },
    /// SQLite refused.
    #[error("the journal cannot be read")]
    Sqlite(#[from] rusqlite::Error),
    /// What is missing could not be written down.
    #[error("a damaged history could not be mended")]
    Mend(#[source] CommitError),
    /// The read was given up half-way, as its runtime ended.
    #[error("the read was given up")]
    GivenUp,
    /// The journal is closed.
    #[error("the journal is closed")]
    Closed,
}

impl ReadError {
    /// Tells whether the database itself is broken.
    pub(super) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Sqlite(error) if is_corrupt(error))
    }
}

impl CommitError {
    /// Tells whether the database itself is broken.
    pub(super) fn is_corrupt(&self) -> bool {
        match self {
            Self::Sqlite { source } => is_corrupt(source),
            // Whatever could clash is looked up before: an index does not say what its table says.
            Self::Conflict(conflict) => *conflict == Conflict::Constraint,
            Self::Full | Self::Busy | Self::SyncFailed { .. } | Self::StorageFailed | Self::Closed => false,
        }
    }
}

/// Tells whether SQLite says that what it reads cannot be what it wrote.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enum is another crate's, and most of it says nothing of the file"
)]
pub(super) fn is_corrupt(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(error, said) => {
            // Our statements are right, so that a table or column which is not there has lost its name.
            let nameless = |said: &str| said.starts_with("no such ") || said.contains("has no column");
            matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                || (error.code == ErrorCode::Unknown && said.as_deref().is_some_and(nameless))
        }
        rusqlite::Error::SqlInputError { .. } => true,
        // A value of another type, or a missing row where one always is: a tree points to the wrong page.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::QueryReturnedNoRows => true,
        _ => false,
    }
}

/// Why blocks were not merged; slices done before stay merged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MergeError {
    /// What is stored is not what was written; it is left as it is.
    #[error("the history of {session} is damaged at {first}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The first event of the block concerned.
        first: Seq,
    },
    /// The slice was not kept.
    #[error("the merged blocks were not kept")]
    Commit(#[source] CommitError),
}

impl From<rusqlite::Error> for MergeError {
    fn from(source: rusqlite::Error) -> Self {
        Self::Commit(source.into())
    }
}
