//! Durable storage of every session's history in one SQLite database.
//!
//! Events are opaque bytes to the journal. It stores them in blocks (one row holds a run of consecutive events),
//! verifies checksums on every read, and notifies each writer when its batch has reached the durability that it
//! requested. The journal never returns data that it cannot verify, never reorders the batches of a session, never
//! blocks the calling thread, and never retries a failed sync: the kernel may have dropped the dirty pages
//! already, so a second success would prove nothing.
//!
//! # One writer
//!
//! A dedicated thread takes all queued tasks, applies them in one transaction (one savepoint a batch, so that a
//! refused batch does not affect the others) and commits once. SQLite runs with `synchronous=NORMAL`: a commit
//! puts the pages into the write-ahead log, which is [`Durability::Written`]. For [`Durability::Synced`] the
//! thread calls `fdatasync` through its own handle on the log. The alternative, `PRAGMA synchronous=FULL` for the
//! transactions that need it, costs about the same for a synced commit (215 against 269 µs in the median, one
//! block of 180 bytes) and has two drawbacks: the whole group would wait for the sync, whereas a batch that only
//! needs to be written is answered before it; and unsynced data could be synced later only by writing again. An
//! extra handle on the log is harmless. An extra handle on the database or its shared memory is not, because
//! closing it drops the POSIX locks that SQLite holds there.
//!
//! The writer requests WAL checkpoints itself, because an automatic checkpoint in SQLite would hide a failed sync.
//!
//! # Blocks
//!
//! Blocks are stored in a rowid table with an index on (session, first). Clustering them by session (`WITHOUT
//! ROWID`) costs 5 to 10 times the log for a commit over many sessions, because each session touches its own page:
//! measured 7,500 against 720 bytes a block with 1,000 sessions of 180 bytes each.
//!
//! `checksum` is the CRC-32 of all bytes of the session up to the end of the block, continued from `prev`, the
//! value before it; the first block continues from the CRC-32 of the session's name. A lost, swapped or changed
//! block breaks the chain. `seal` is a CRC-32 over the
//! other columns of the row.

mod apply;
pub mod backup;
mod checksum;
mod commands;
mod deferred;
mod error;
mod files;
mod high_water_marks;
mod inspect;
mod jobs;
mod maintenance;
mod mark_writer;
mod open;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod reader;
mod record;
mod repair;
mod replace;
mod reserve;
mod row;
mod salvage;
mod schema;
mod secure_delete;
mod task;
#[cfg(test)]
mod tests;
mod write_ahead;
mod writer;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use crate::kernel::id::{Fingerprint, Seq, SessionId};
use crate::kernel::time::Now;

pub use commands::CommandWrite;
pub use error::{CommitError, Conflict, JobError, OpenError, ReadError};
pub use inspect::{FileSizes, JournalSummary, SessionCursor, SessionSize};
pub use record::{
    Batch, Block, Checkpoint, Create, Durability, LinePage, ListQuery, Loss, LossReason, LossRecord, LostLine,
    LostSummary, Meta, Options, Page, Stats, StoredSession,
};

use deferred::{DeferredWrites, PendingWrites};
use files::StorageEnv;
use high_water_marks::{HighWaterMarks, PreviousShutdown};
use mark_writer::MarkWriter;
use open::OpenState;
use reader::Readers;
use repair::EndEvidence;
use reserve::DiskReserve;
use secure_delete::RetainJob;
use task::Task;
use write_ahead::WriteAhead;
use writer::{Counters, FileMaintenance, Writer};

/// The journal. Clones share one writer.
///
/// After the last clone is dropped, the writer still writes and syncs all queued batches, but no caller waits for
/// it. Use [`Journal::close`] to wait.
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
    options: Options,
    marks: Arc<HighWaterMarks>,
    previous_shutdown: PreviousShutdown,
    deferred: Arc<DeferredWrites>,
    opened_empty: bool,
    write_ahead: Option<Arc<WriteAhead>>,
}

impl Journal {
    /// Opens the journal in `dir`, and creates or migrates the database if necessary. `dir` exists and only its
    /// user may access it.
    ///
    /// The call blocks, and everything found on disk is synced when it returns. A database with a newer major
    /// schema is refused and left unchanged.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        Self::open_with_env(StorageEnv::native(dir), options)
    }

    /// Opens the journal with `sync` as the function that syncs the log.
    #[cfg(test)]
    pub(crate) fn open_with_sync(
        dir: &Path,
        options: Options,
        sync: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let env = StorageEnv::native(dir);
        let (connection, opened) = replace::open_or_salvage(&env, &options)?;
        Self::start(env, connection, options, opened, Box::new(sync))
    }

    /// Opens the journal in any storage environment.
    fn open_with_env(env: StorageEnv, options: Options) -> Result<Self, OpenError> {
        let log = env.path(LOG);
        os::prepare(&env.path(DATABASE)).map_err(OpenError::io("prepare", &env.path(DATABASE)))?;
        let (connection, opened) = replace::open_or_salvage(&env, &options)?;
        let handle = (env.open_file)(&log).map_err(OpenError::io("open", &log))?;
        Self::start(env, connection, options, opened, Box::new(move || handle.sync()))
    }

    /// Starts the writer on an open database; `sync` syncs the log.
    fn start(
        env: StorageEnv,
        connection: rusqlite::Connection,
        options: Options,
        opened: OpenState,
        sync: Box<dyn FnMut() -> io::Result<()> + Send>,
    ) -> Result<Self, OpenError> {
        let (database, log) = (env.path(DATABASE), env.path(LOG));
        os::sync_directory(&env.dir).map_err(OpenError::io("sync", &env.dir))?;
        let generation = Arc::new(AtomicU64::new(0));
        let counters = Arc::new(Counters::with_sessions(opened.sessions));
        let marks = Arc::new(opened.marks);
        let readers = Readers::new(database.clone(), env.vfs.clone(), &options, Arc::clone(&generation));
        let (tasks, inbox) = mpsc::channel();
        let deferred = Arc::new(DeferredWrites::default());
        let reserve = DiskReserve::new((env.open_file)(&env.path(RESERVE)).ok(), options.reserve_bytes);
        let write_ahead = WriteAhead::create(&env, &options, marks.epoch_id());
        let writer = Writer {
            env,
            generation,
            connection,
            sync,
            options,
            counters: Arc::clone(&counters),
            epoch: opened.epoch,
            mark_writer: MarkWriter::new(Arc::clone(&marks)),
            reserve,
            dirty: None,
            deferred: Arc::clone(&deferred),
            pending: PendingWrites::default(),
            write_ahead: write_ahead.clone(),
            flush_at: None,
            jobs: opened.jobs,
            file_maintenance: FileMaintenance::default(),
        };
        let thread = thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run(inbox))
            .map_err(OpenError::io("start the writer of", &database))?;
        let thread = Mutex::new(Some(thread));
        let (previous_shutdown, opened_empty, readers) =
            (opened.previous_shutdown, opened.sessions == 0, Arc::new(readers));
        let shared = Shared {
            database,
            log,
            tasks,
            thread,
            readers,
            counters,
            options,
            marks,
            previous_shutdown,
            deferred,
            opened_empty,
            write_ahead,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Queues a batch. The reply arrives when the batch has reached its requested durability.
    ///
    /// Batches are applied in the order of the calls. The queue has no limit of its own: callers bound it by
    /// keeping one batch in flight for each session.
    pub fn commit(&self, batch: Batch) -> oneshot::Receiver<Result<(), CommitError>> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::Commit(Box::new(batch), reply));
        answer
    }

    /// Waits until all batches queued before this call are committed or refused.
    pub async fn barrier(&self, session: SessionId) {
        // Batches are applied in order, and an empty batch is answered after those before it.
        let _ = self.commit(Batch::new(session)).await;
    }

    /// Appends a batch that consists only of events to the write-ahead file; returns whether it did.
    ///
    /// The events then survive the end of this process, and reach the database by themselves. Otherwise commit the
    /// batch. The call does not wait. `after` is the position of the last event of the session that was committed
    /// or appended; no batch of the session may be in flight.
    pub fn append(&self, batch: &Batch, after: Seq) -> bool {
        let is_open = !self.has_failed() && !self.is_full();
        is_open && self.shared.write_ahead.as_ref().is_some_and(|write_ahead| write_ahead.append(batch, after))
    }

    /// Notifies the writer, unless it knows, that events were appended.
    ///
    /// Separate from [`Journal::append`], because waking the writer's thread takes processor time from the
    /// subscribers that the new events have just woken.
    pub fn schedule_flush(&self) {
        if self.shared.write_ahead.as_ref().is_some_and(|write_ahead| write_ahead.must_notify_writer()) {
            self.send(Task::ScheduleFlush);
        }
    }

    /// Returns the events of a session that are not known to be stored.
    fn unstored(&self, session: &SessionId) -> Vec<Block> {
        self.shared.write_ahead.as_ref().map_or_else(Vec::new, |write_ahead| write_ahead.blocks_of(session))
    }

    /// Deletes a session and all its data. The reply arrives when no byte of it is left in the journal's files.
    ///
    /// The session disappears for all readers at once, even if removing its rows takes a while or is interrupted.
    pub fn delete(&self, session: SessionId) -> oneshot::Receiver<Result<(), JobError>> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::Delete { session, reply });
        answer
    }

    /// Removes the oldest blocks of a session: those that end at or before `up_to` and are contained in its
    /// checkpoint.
    ///
    /// Returns the last removed position.
    pub fn retain_after(&self, session: SessionId, up_to: Seq, at: Now) -> oneshot::Receiver<Result<Seq, JobError>> {
        let (reply, answer) = oneshot::channel();
        let line = self.shared.options.lost_line;
        self.send(Task::Job(Box::new(RetainJob { session, up_to, line, at, floor: Seq::ZERO, reply })));
        answer
    }

    /// Repairs a history that does not verify, and returns the losses.
    pub async fn repair(&self, session: SessionId) -> Result<Vec<Loss>, ReadError> {
        for again in 0..REPAIR_ATTEMPTS {
            if again == REPAIR_ATTEMPTS - 1 {
                // Concurrent changes cannot conflict that often: an index contradicts its table, so replace the
                // database.
                self.replace_database(self.shared.readers.generation()).await?;
            }
            let (marks, name) = (Arc::clone(&self.shared.marks), session.clone());
            let plan = self.read(move |connection| repair::plan(connection, &name, &marks, EndEvidence::Mark)).await?;
            let Some(plan) = plan else { return Ok(Vec::new()) };
            let (reply, answer) = oneshot::channel();
            self.send(Task::Repair { session: session.clone(), plan: Box::new(plan), at: now(), reply });
            match answer.await.unwrap_or(Err(CommitError::Closed)) {
                Err(CommitError::Conflict(Conflict::Changed)) => {}
                outcome => return outcome.map_err(ReadError::Repair),
            }
        }
        Err(ReadError::Repair(Conflict::Changed.into()))
    }

    /// Repairs the damage that `error` reports, so that the caller can read again. Any other error is returned
    /// unchanged.
    async fn recover_from_error(
        &self,
        session: &SessionId,
        generation: u64,
        error: ReadError,
    ) -> Result<(), ReadError> {
        if error.is_corrupt() {
            tracing::error!(%error, "the database is corrupt; replacing it");
            self.replace_database(generation).await?;
        } else if !matches!(error, ReadError::Damaged { .. }) {
            return Err(error);
        }
        match self.repair(session.clone()).await {
            // Nothing of the session was recovered. The next read reports that it does not exist.
            Err(ReadError::NoSuchSession { .. }) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn send(&self, task: Task) {
        if let Err(mpsc::SendError(task)) = self.shared.tasks.send(task) {
            task::refuse(task, CommitError::Closed);
        }
    }

    /// Commits and syncs all tasks queued before this call, checkpoints the log into the database and stops the
    /// writer.
    ///
    /// Other clones return `Closed` afterwards.
    pub async fn close(self) -> Result<(), CommitError> {
        let (reply, answer) = oneshot::channel();
        self.shared.readers.close().await;
        self.shared.tasks.send(Task::Close(reply)).map_err(|_| CommitError::Closed)?;
        let result = answer.await.unwrap_or(Err(CommitError::Closed));
        let thread = self.shared.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread ends right after it replies, so this does not block.
            let _ = thread.join();
        }
        result
    }

    /// Loads everything needed to restore a session; `None` if there is no such session.
    ///
    /// A history that does not verify, or is shorter than it should be, is repaired first.
    pub async fn load(&self, session: SessionId) -> Result<Option<StoredSession>, ReadError> {
        let (generation, unstored) = (self.shared.readers.generation(), self.unstored(&session));
        let read = || {
            let (session, marks) = (session.clone(), Arc::clone(&self.shared.marks));
            self.shared.readers.run(move |connection| reader::load(connection, &session, &marks))
        };
        let stored = match read().await {
            Err(error) => {
                self.recover_from_error(&session, generation, error).await?;
                read().await
            }
            Ok(None) if self.shared.marks.contains_session(&session).unwrap_or(false) => {
                tracing::error!(%session, "a session with a mark is missing from the database; replacing the database");
                self.replace_database(generation).await?;
                read().await
            }
            outcome => outcome,
        };
        stored.map(|stored| {
            stored.map(|mut stored| {
                stored.add_unstored(unstored);
                stored
            })
        })
    }

    /// Reads whole blocks that hold events after `after`: at most `max_bytes`, but at least one block if there is
    /// any.
    ///
    /// The first block may begin with events up to `after`, because a block is never split; the caller skips them. A
    /// history that does not verify is repaired first.
    pub async fn page(&self, session: SessionId, after: Seq, max_bytes: usize) -> Result<Page, ReadError> {
        let (generation, unstored) = (self.shared.readers.generation(), self.unstored(&session));
        let read = || {
            let session = session.clone();
            self.shared.readers.run(move |connection| reader::page(connection, &session, after, max_bytes))
        };
        let mut page = match read().await {
            Err(error) => {
                self.recover_from_error(&session, generation, error).await?;
                read().await
            }
            outcome => outcome,
        }?;
        page.add_unstored(after, max_bytes, unstored);
        Ok(page)
    }

    /// Lists the recorded losses, newest first.
    pub async fn losses(&self, limit: u32) -> Result<Vec<LossRecord>, ReadError> {
        self.read(move |connection| reader::losses(connection, 0, limit)).await
    }

    /// Waits until the disk has free space.
    pub async fn wait_for_space(&self) {
        // `self` holds the sender, so the channel cannot be closed.
        let _ = self.shared.counters.full.subscribe().wait_for(|full| !full).await;
    }

    /// Returns whether the last write found the disk full.
    pub fn is_full(&self) -> bool {
        *self.shared.counters.full.borrow()
    }

    /// Returns whether a sync has failed; the journal then refuses all writes.
    pub fn has_failed(&self) -> bool {
        self.shared.counters.failed.load(Ordering::Relaxed)
    }

    /// Returns whether the previous epoch was closed cleanly, or the journal had no sessions when it was opened.
    pub fn was_closed_cleanly(&self) -> bool {
        self.shared.previous_shutdown == PreviousShutdown::Clean || self.shared.opened_empty
    }

    /// Reads the lines of the events after `after`, for callers that forward them unparsed.
    ///
    /// A page is large while few large pages are in use, and otherwise about `small` bytes. `spent` is a used page
    /// whose memory is reused. A history that does not verify is repaired first.
    pub async fn lines(
        &self,
        session: SessionId,
        after: Seq,
        small: usize,
        spent: Option<LinePage>,
    ) -> Result<LinePage, ReadError> {
        let (generation, unstored) = (self.shared.readers.generation(), self.unstored(&session));
        let read = |spent| {
            let (session, page) = (session.clone(), self.shared.readers.page_buffer(spent, small));
            self.shared.readers.run(move |connection| reader::lines(connection, &session, after, page))
        };
        let mut page = match read(spent).await {
            Err(error) => {
                self.recover_from_error(&session, generation, error).await?;
                read(None).await
            }
            outcome => outcome,
        }?;
        page.add_unstored(&unstored);
        Ok(page)
    }

    /// Lists sessions, most recently updated first.
    pub async fn list(&self, query: ListQuery) -> Result<Vec<Meta>, ReadError> {
        self.read(move |connection| reader::list(connection, &query)).await
    }

    /// Returns the sessions whose last metadata names an unfinished run.
    pub async fn active_sessions(&self) -> Result<Vec<SessionId>, ReadError> {
        self.read(reader::active).await
    }

    /// Returns the list entry of one session.
    pub async fn meta(&self, session: SessionId) -> Result<Option<Meta>, ReadError> {
        self.read(move |connection| reader::meta_of(connection, &session)).await
    }

    /// Returns the session that was started with an idempotency key.
    pub async fn started_by_key(&self, key: impl Into<String>) -> Result<Option<(Fingerprint, SessionId)>, ReadError> {
        let key = key.into();
        self.read(move |connection| reader::started_by_key(connection, &key)).await
    }

    /// Returns the counters of this journal. The call costs two `stat` calls.
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
            full: self.is_full(),
            marks_enabled: self.shared.marks.are_enabled(),
        }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("database", &self.shared.database).finish_non_exhaustive()
    }
}

/// The file name of the database in the state directory.
const DATABASE: &str = "pushd.db";
/// The file name that SQLite gives to the write-ahead log.
const LOG: &str = "pushd.db-wal";
/// The file name of the marks, which are stored outside the database.
const MARKS: &str = "pushd.marks";
/// The file name of the disk reserve.
const RESERVE: &str = "pushd.spare";
/// The file name of the write-ahead file.
const WRITE_AHEAD: &str = "pushd.ahead";
/// How many times a repair is attempted while the history changes concurrently.
const REPAIR_ATTEMPTS: usize = 5;

/// Returns the current time, for records that the journal writes itself.
fn now() -> Now {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
