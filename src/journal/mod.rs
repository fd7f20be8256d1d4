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

mod ahead;
mod apply;
mod begin;
mod behind;
mod check;
mod chores;
mod commands;
mod erase;
mod error;
mod files;
mod inspect;
mod marking;
mod marks;
mod mend;
mod merge;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod reader;
mod record;
mod rescue;
mod row;
mod salvage;
mod schema;
mod spare;
mod task;
#[cfg(test)]
mod tests;
mod upkeep;
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

pub use ahead::Early;
pub use commands::CommandWrite;
pub use error::{CommitError, Conflict, MergeError, OpenError, ReadError};
pub use inspect::{Sizes, Survey, Walk, Weight};
pub use record::{
    Batch, Block, Cause, Checkpoint, Create, Durability, Found, Lines, ListQuery, Loss, LostLine,
    LostSummary, Merged, Meta, Options, Page, Stats, Stored,
};

use ahead::Ahead;
use begin::Begun;
use behind::{Behind, Pending};
use erase::Cut;
use files::Ground;
use marking::Marking;
use marks::{Before, Marks};
use mend::Trust;
use merge::Merge;
use reader::Readers;
use spare::Spare;
use task::Task;
use writer::{Counters, Tidiness, Writer};

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
    options: Options,
    marks: Arc<Marks>,
    before: Before,
    behind: Arc<Behind>,
    began_empty: bool,
    ahead: Option<Arc<Ahead>>,
}

impl Journal {
    /// Opens the journal in `dir`, which exists and belongs to its user alone, and creates or migrates it if need be.
    ///
    /// It blocks, and everything that it finds is synced when it returns. A database of a newer major schema is left
    /// as it is.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        Self::open_on(Ground::real(dir), options)
    }

    /// The same, with a directory whose files lie in memory: there, batches can be put ahead.
    pub fn open_with_memory(dir: &Path, memory: Option<&Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_on(Ground { memory: memory.map(Path::to_path_buf), ..Ground::real(dir) }, options)
    }

    /// The same, with a log that `sync` makes durable.
    #[cfg(test)]
    pub(crate) fn open_with_sync(
        dir: &Path,
        options: Options,
        sync: impl FnMut() -> io::Result<()> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let ground = Ground::real(dir);
        let (connection, begun) = rescue::open(&ground, &options)?;
        Self::start(ground, connection, options, begun, Box::new(sync))
    }

    /// Opens the journal on any ground.
    fn open_on(ground: Ground, options: Options) -> Result<Self, OpenError> {
        let log = ground.path(LOG);
        os::prepare(&ground.path(DATABASE)).map_err(OpenError::io("prepare", &ground.path(DATABASE)))?;
        let (connection, begun) = rescue::open(&ground, &options)?;
        let handle = (ground.open)(&log).map_err(OpenError::io("open", &log))?;
        Self::start(ground, connection, options, begun, Box::new(move || handle.sync()))
    }

    /// Starts the writer on an open database; `sync` makes the log durable.
    fn start(
        ground: Ground,
        connection: rusqlite::Connection,
        options: Options,
        begun: Begun,
        mut sync: Box<dyn FnMut() -> io::Result<()> + Send>,
    ) -> Result<Self, OpenError> {
        let (database, log) = (ground.path(DATABASE), ground.path(LOG));
        os::sync_directory(&ground.dir).map_err(OpenError::io("sync", &ground.dir))?;
        let generation = Arc::new(AtomicU64::new(0));
        let counters = Arc::new(Counters::starting_with(begun.sessions));
        let marks = Arc::new(begun.marks);
        let readers = Readers::new(database.clone(), ground.layer.clone(), &options, Arc::clone(&generation));
        let (tasks, inbox) = mpsc::channel();
        let behind = Arc::new(Behind::default());
        let spare = Spare::new((ground.open)(&ground.path(SPARE)).ok(), options.spare_bytes);
        let (ahead, taken_up) = Ahead::begin(&ground, &connection, &begun.life, &spare);
        if taken_up > 0 {
            sync().map_err(OpenError::io("sync", &log))?;
        }
        let writer = Writer {
            ground,
            generation,
            connection,
            sync,
            options,
            counters: Arc::clone(&counters),
            life: begun.life,
            marking: Marking::new(Arc::clone(&marks)),
            spare,
            dirty: None,
            behind: Arc::clone(&behind),
            pending: Pending::default(),
            chores: begun.chores,
            tidiness: Tidiness::default(),
        };
        let thread = thread::Builder::new()
            .name("journal".into())
            .spawn(move || writer.run(inbox))
            .map_err(OpenError::io("start the writer of", &database))?;
        let thread = Mutex::new(Some(thread));
        let (before, began_empty, readers) = (begun.before, begun.sessions == 0, Arc::new(readers));
        let shared = Shared {
            database,
            log,
            tasks,
            thread,
            readers,
            counters,
            options,
            marks,
            before,
            behind,
            began_empty,
            ahead,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Hands in a batch; the answer comes when it is as durable as it asked to be.
    ///
    /// Batches are applied in the order in which they were handed in. The queue is as long as callers make it: one batch
    /// in flight a session is the rule which bounds it.
    pub fn commit(&self, batch: Batch) -> oneshot::Receiver<Result<(), CommitError>> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::Commit(Box::new(batch), reply));
        answer
    }

    /// Waits until everything that was handed in before is committed or refused.
    pub async fn barrier(&self, session: SessionId) {
        // Batches are taken in order, and one that holds nothing is answered when those before it are.
        let _ = self.commit(Batch::new(session)).await;
    }

    /// Puts a batch of plain events where the end of this process cannot take it, so that it may be shown before it is committed.
    ///
    /// It does not wait. Where it returns nothing, the batch is to be shown when it is committed. `after` is the position of the
    /// last event that is committed; the batch is handed in as ever, and nothing of its session before it.
    pub fn put_ahead(&self, batch: &Batch, after: Seq) -> Option<Early> {
        self.shared.ahead.as_ref()?.put(batch, after)
    }

    /// Merges runs of small adjacent blocks of `session` which end at or before `up_to`.
    ///
    /// It happens between batches, a slice and a transaction at a time. Every byte and its order stay; only blocks which
    /// end in a line feed and leave no gap in the numbers are joined to what follows them.
    pub fn merge(&self, session: SessionId, up_to: Seq) -> oneshot::Receiver<Result<Merged, MergeError>> {
        self.merge_after(session, Seq::ZERO, up_to)
    }

    /// The same for blocks which begin behind `after`: what is before is not looked at again.
    pub fn merge_after(
        &self,
        session: SessionId,
        after: Seq,
        up_to: Seq,
    ) -> oneshot::Receiver<Result<Merged, MergeError>> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::Chore(Box::new(Merge::new(session, (after, up_to), &self.shared.options, reply))));
        answer
    }

    /// Deletes a session and everything of it; the answer comes when no byte of it is left in the journal's files.
    ///
    /// It is gone for everybody at once, also if the rest takes a while or is interrupted.
    pub fn delete(&self, session: SessionId) -> oneshot::Receiver<Result<(), MergeError>> {
        let (reply, answer) = oneshot::channel();
        if let Some(ahead) = &self.shared.ahead {
            ahead.forget(&session);
        }
        self.send(Task::Delete { session, reply });
        answer
    }

    /// Removes the oldest blocks of a session, those that end at or before `up_to` and are in its checkpoint.
    ///
    /// Returns the last position that is gone.
    pub fn cut(&self, session: SessionId, up_to: Seq, at: Now) -> oneshot::Receiver<Result<Seq, MergeError>> {
        let (reply, answer) = oneshot::channel();
        let line = self.shared.options.lost_line;
        self.send(Task::Chore(Box::new(Cut { session, up_to, line, at, floor: Seq::ZERO, reply })));
        answer
    }

    /// Makes a history honest that cannot be proven as a whole, and returns what is missing.
    pub async fn mend(&self, session: SessionId) -> Result<Vec<Loss>, ReadError> {
        for again in 0..MENDINGS {
            if again == MENDINGS - 1 {
                // Nobody changes it that often: an index says something else every time it is asked.
                self.rescue(self.shared.readers.generation()).await?;
            }
            let (marks, name) = (Arc::clone(&self.shared.marks), session.clone());
            let plan =
                self.read(move |connection| mend::plan(connection, &name, &marks, Trust::Mark)).await?;
            let Some(plan) = plan else { return Ok(Vec::new()) };
            let (reply, answer) = oneshot::channel();
            self.send(Task::Mend { session: session.clone(), plan: Box::new(plan), at: present(), reply });
            match answer.await.unwrap_or(Err(CommitError::Closed)) {
                Err(CommitError::Conflict(Conflict::Changed)) => {}
                outcome => return outcome.map_err(ReadError::Mend),
            }
        }
        Err(ReadError::Mend(Conflict::Changed.into()))
    }

    /// Mends what an error tells of, so that reading again makes sense; any other error is given back.
    async fn repair(&self, session: &SessionId, generation: u64, error: ReadError) -> Result<(), ReadError> {
        if error.is_corrupt() {
            tracing::error!(%error, "the database is broken");
            self.rescue(generation).await?;
        } else if !matches!(error, ReadError::Damaged { .. }) {
            return Err(error);
        }
        match self.mend(session.clone()).await {
            // Nothing of it could be brought back: whoever reads again hears that it is gone.
            Err(ReadError::NoSuchSession { .. }) => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    fn send(&self, task: Task) {
        if let Err(mpsc::SendError(task)) = self.shared.tasks.send(task) {
            task::refuse(task, CommitError::Closed);
        }
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
        if let Some(ahead) = &self.shared.ahead {
            ahead.end();
        }
        result
    }

    /// Reads everything that restores a session: `None` if there is no such session.
    ///
    /// A history that cannot be proven, or is shorter than it should be, is mended first.
    pub async fn load(&self, session: SessionId) -> Result<Option<Stored>, ReadError> {
        let generation = self.shared.readers.generation();
        let read = || {
            let (session, marks) = (session.clone(), Arc::clone(&self.shared.marks));
            self.shared.readers.run(move |connection| reader::load(connection, &session, &marks))
        };
        match read().await {
            Err(error) => {
                self.repair(&session, generation, error).await?;
                read().await
            }
            Ok(None) if self.shared.marks.know(&session).unwrap_or(false) => {
                tracing::error!(%session, "a session that was on disk is not found");
                self.rescue(generation).await?;
                read().await
            }
            outcome => outcome,
        }
    }

    /// Reads whole blocks which hold events after `after`: at most `max_bytes`, but one block if there is any.
    ///
    /// The first block may begin with events up to `after`, as blocks are merged; the caller skips them. A history that
    /// cannot be proven is mended first.
    pub async fn page(&self, session: SessionId, after: Seq, max_bytes: usize) -> Result<Page, ReadError> {
        let generation = self.shared.readers.generation();
        let read = || {
            let session = session.clone();
            self.shared.readers.run(move |connection| reader::page(connection, &session, after, max_bytes))
        };
        match read().await {
            Err(error) => {
                self.repair(&session, generation, error).await?;
                read().await
            }
            outcome => outcome,
        }
    }

    /// Lists what was lost, the newest first.
    pub async fn losses(&self, limit: u32) -> Result<Vec<Found>, ReadError> {
        self.read(move |connection| reader::losses(connection, 0, limit)).await
    }

    /// Waits until the disk is not full.
    pub async fn room(&self) {
        // The sender is ours, so that it cannot be gone.
        let _ = self.shared.counters.full.subscribe().wait_for(|full| !full).await;
    }

    /// Tells whether the disk is full, as far as is known.
    pub fn is_full(&self) -> bool {
        *self.shared.counters.full.borrow()
    }

    /// Tells whether a sync has failed, so that nothing is taken any more.
    pub fn has_failed(&self) -> bool {
        self.shared.counters.failed.load(Ordering::Relaxed)
    }

    /// Tells whether the life before ended in good order, or left nothing that could be out of it.
    pub fn was_left_in_order(&self) -> bool {
        self.shared.before == Before::Clean || self.shared.began_empty
    }

    /// Reads the lines of the events after `after`, for somebody who only passes them on.
    ///
    /// A page is large as long as few are out, and else about `small`. A spent page lends its memory to the new one. A
    /// history that cannot be proven is mended first.
    pub async fn lines(
        &self,
        session: SessionId,
        after: Seq,
        small: usize,
        spent: Option<Lines>,
    ) -> Result<Lines, ReadError> {
        let generation = self.shared.readers.generation();
        let read = |spent| {
            let (session, page) = (session.clone(), self.shared.readers.page(spent, small));
            self.shared.readers.run(move |connection| reader::lines(connection, &session, after, page))
        };
        match read(spent).await {
            Err(error) => {
                self.repair(&session, generation, error).await?;
                read(None).await
            }
            outcome => outcome,
        }
    }

    /// Lists sessions, the newest updated first.
    pub async fn list(&self, query: ListQuery) -> Result<Vec<Meta>, ReadError> {
        self.read(move |connection| reader::list(connection, &query)).await
    }

    /// Names the sessions whose last meta says that a run is unfinished.
    pub async fn active(&self) -> Result<Vec<SessionId>, ReadError> {
        self.read(reader::active).await
    }

    /// Returns what lists say about one session.
    pub async fn meta(&self, session: SessionId) -> Result<Option<Meta>, ReadError> {
        self.read(move |connection| reader::meta_of(connection, &session)).await
    }

    /// Finds the session which was started under an idempotency key.
    pub async fn started_by_key(
        &self,
        key: impl Into<String>,
    ) -> Result<Option<(Fingerprint, SessionId)>, ReadError> {
        let key = key.into();
        self.read(move |connection| reader::started_by_key(connection, &key)).await
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
            full: self.is_full(),
            marked: self.shared.marks.are_kept(),
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
/// The name of the marks, which stand outside the database.
const MARKS: &str = "pushd.marks";
/// The name of the room that is kept for a full disk.
const SPARE: &str = "pushd.spare";
/// The name of the key to what is written ahead.
const AHEAD: &str = "pushd.ahead";
/// How often a history that changes while it is looked at is looked at again.
const MENDINGS: usize = 5;

/// The time, for what is written down by the journal itself.
fn present() -> Now {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
