//! What is kept: the history of every session in one SQLite database.
//!
//! Events are opaque bytes to it. It keeps them in blocks (one row holds a run of consecutive events), proves on every
//! read that they are what was written, and tells each writer when its batch has reached the grade of durability
//! that it asked for. It serves nothing that it cannot prove, never reorders a session's batches, never blocks the
//! thread that asks, and never tries a failed sync a second time: the kernel may have dropped the pages already, so that
//! the second answer means nothing.
//!
//! # One writer
//!
//! A thread of its own takes everything that waits, applies it in one transaction (a savepoint a batch, so that a
//! refused one harms nobody) and commits once. SQLite runs with `synchronous=NORMAL`: a commit puts the pages into the
//! write-ahead log, which is [`Durability::Written`]. For [`Durability::Synced`] the thread calls `fdatasync` through a
//! handle of its own on the log. The other way, `PRAGMA synchronous=FULL` for the transactions which need it, costs as
//! much for a synced commit (215 against 269 µs in the median, one block of 180 bytes) and less is possible with it: the
//! whole group would wait for the sync, where a batch that is only to be written is answered before it; and what is left
//! unsynced could be synced later only by writing something once more. A handle on the log is harmless; one on the
//! database or its shared memory would not be, because closing it drops the locks which SQLite holds there.
//!
//! Checkpoints of the log are asked for here and not left to SQLite, which would hide a failed sync inside them.
//!
//! # Blocks
//!
//! Blocks lie in a rowid table with an index on (session, first). Clustering them by session (`WITHOUT ROWID`) costs
//! 5 to 10 times the log for a commit over many sessions, as each touches a page of its own: measured 7,500 against
//! 720 bytes a block with 1,000 sessions of 180 bytes each.
//!
//! `checksum` is the CRC-32 of all bytes of the session up to the end of the block, continued from `prev`, the value
//! before it; the first block continues from the CRC-32 of the session's name. A lost, swapped or changed block breaks the
//! chain, and blocks can be merged without touching what follows them. `seal` covers what stands beside the bytes.

mod apply;
mod check;
mod error;
mod files;
mod merge;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod reader;
mod record;
mod row;
#[cfg_attr(not(test), expect(dead_code, reason = "nothing calls it yet"))]
mod salvage;
mod schema;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::oneshot;

use crate::kernel::id::{Fingerprint, Seq, SessionId};

pub use error::{CommitError, Conflict, MergeError, OpenError, ReadError};
pub use record::{
    Batch, Block, Checkpoint, Create, Durability, ListQuery, Merged, Meta, Options, Page, Stats, Stored,
};

use files::Ground;
use reader::Readers;
use writer::{Counters, Task, Writer};

/// The journal; clones share one writer.
///
/// When the last clone is dropped, what was handed in is still written and synced, but nobody waits for it: use
/// [`Journal::close`] where that matters.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
}

struct Shared {
    database: PathBuf,
    log: PathBuf,
    tasks: mpsc::Sender<Task>,
    thread: Mutex<Option<JoinHandle<()>>>,
    readers: Arc<Readers>,
    counters: Arc<Counters>,
}

impl Journal {
    /// Opens the journal in `dir`, which exists and belongs to its user alone, and creates or migrates it if need be.
    ///
    /// It blocks, and everything that it finds is synced when it returns. A database of a newer major schema is left
    /// as it is.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        Self::open_on(Ground::real(dir), options)
    }

    /// Opens the journal on any ground.
    fn open_on(ground: Ground, options: Options) -> Result<Self, OpenError> {
        let (database, log) = (ground.path(DATABASE), ground.path(LOG));
        os::prepare(&database).map_err(OpenError::io("prepare", &database))?;
        let connection = schema::open(&database, ground.layer.as_deref(), &options)?;
        let handle = (ground.open)(&log).map_err(OpenError::io("open", &log))?;
        handle.sync().map_err(OpenError::io("sync", &log))?;
        os::sync_directory(&ground.dir).map_err(OpenError::io("sync", &ground.dir))?;
        Self::start(&ground, connection, options, Box::new(move || handle.sync()))
    }

    /// Starts the writer on an open database; `sync` makes the log durable.
    fn start(
        ground: &Ground,
        connection: rusqlite::Connection,
        options: Options,
        sync: Box<dyn FnMut() -> io::Result<()> + Send>,
    ) -> Result<Self, OpenError> {
        let (database, log) = (ground.path(DATABASE), ground.path(LOG));
        let sessions = schema::sessions(&connection)
            .map_err(|source| OpenError::Sqlite { path: database.clone(), source })?;
        let counters = Arc::new(Counters::starting_with(sessions));
        let readers = Arc::new(Readers::new(database.clone(), ground.layer.clone(), &options));
        let (tasks, inbox) = mpsc::channel();
        let writer = Writer::new(connection, sync, options, Arc::clone(&counters));
        let thread = thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run(inbox))
            .map_err(OpenError::io("start the writer of", &database))?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { shared: Arc::new(Shared { database, log, tasks, thread, readers, counters }) })
    }

    /// Hands in a batch; the answer comes when it is as durable as it asked to be.
    ///
    /// Batches are applied in the order in which they were handed in. The queue is as long as callers make it: one batch
    /// in flight a session is the rule which bounds it.
    pub fn commit(&self, batch: Batch) -> oneshot::Receiver<Result<(), CommitError>> {
        let (reply, answer) = oneshot::channel();
        if let Err(mpsc::SendError(Task::Commit(_, reply))) =
            self.shared.tasks.send(Task::Commit(Box::new(batch), reply))
        {
            // Whoever asked may be gone as well.
            let _ = reply.send(Err(CommitError::Closed));
        }
        answer
    }

    /// Merges runs of small adjacent blocks of `session` which end at or before `up_to`.
    ///
    /// It happens between batches, a slice and a transaction at a time. Every byte and its order stay; only blocks which
    /// end in a line feed and leave no gap in the numbers are joined to what follows them.
    pub fn merge(&self, session: SessionId, up_to: Seq) -> oneshot::Receiver<Result<Merged, MergeError>> {
        let (reply, answer) = oneshot::channel();
        let task = Task::Merge { session, up_to, reply };
        if let Err(mpsc::SendError(Task::Merge { reply, .. })) = self.shared.tasks.send(task) {
            let _ = reply.send(Err(MergeError::Commit(CommitError::Closed)));
        }
        answer
    }

    /// Finishes what was handed in before, syncs it, empties the log into the database and ends the writer.
    ///
    /// Other clones answer `Closed` from then on.
    pub async fn close(self) -> Result<(), CommitError> {
        let (reply, answer) = oneshot::channel();
        self.shared.readers.close().await;
        self.shared.tasks.send(Task::Close(reply)).map_err(|_| CommitError::Closed)?;
        let result = answer.await.unwrap_or(Err(CommitError::Closed));
        let thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The answer was the thread's last act, so that this does not wait.
            let _ = thread.join();
        }
        result
    }

    /// Reads everything that restores a session: `None` if there is no such session.
    pub async fn load(&self, session: SessionId) -> Result<Option<Stored>, ReadError> {
        self.shared.readers.run(move |connection| reader::load(connection, &session)).await
    }

    /// Reads whole blocks which hold events after `after`: at most `max_bytes`, but one block if there is any.
    ///
    /// The first block may begin with events up to `after`, as blocks are merged; the caller skips them.
    pub async fn page(&self, session: SessionId, after: Seq, max_bytes: usize) -> Result<Page, ReadError> {
        self.shared.readers.run(move |connection| reader::page(connection, &session, after, max_bytes)).await
    }

    /// Lists sessions, the newest updated first.
    pub async fn list(&self, query: ListQuery) -> Result<Vec<Meta>, ReadError> {
        self.shared.readers.run(move |connection| reader::list(connection, &query)).await
    }

    /// Names the sessions whose last meta says that a run is unfinished.
    pub async fn active(&self) -> Result<Vec<SessionId>, ReadError> {
        self.shared.readers.run(reader::active).await
    }

    /// Finds the session which was started under an idempotency key.
    pub async fn started_by_key(
        &self,
        key: impl Into<String>,
    ) -> Result<Option<(Fingerprint, SessionId)>, ReadError> {
        let key = key.into();
        self.shared.readers.run(move |connection| reader::started_by_key(connection, &key)).await
    }

    /// Returns the figures of this journal; it costs two looks at the file system.
    pub fn stats(&self) -> Stats {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        let counters = &self.shared.counters;
        Stats {
            sessions: counters.sessions.load(Ordering::Relaxed),
            events: counters.events.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            syncs: counters.syncs.load(Ordering::Relaxed),
            bytes: size(&self.shared.database).saturating_add(size(&self.shared.log)),
            failed: counters.failed.load(Ordering::Relaxed),
        }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("database", &self.shared.database).finish_non_exhaustive()
    }
}

/// The name of the database in the state directory.
const DATABASE: &str = "pushd.db";
/// The name which SQLite gives to the write-ahead log of it.
const LOG: &str = "pushd.db-wal";
