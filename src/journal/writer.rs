//! The one thread that writes: it gathers batches, commits them together, syncs, and answers.
//!
//! It sleeps without a timer when nothing is unsynced, and it decides nothing: what it is handed is applied in order,
//! or refused with the reason.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::oneshot;

use super::apply::apply;
use super::error::{CommitError, MergeError};
use super::merge::Merges;
use super::record::{Batch, Durability, Merged, Options};
use crate::kernel::id::{Seq, SessionId};

/// Where the answer to a batch goes.
pub(super) type Reply = oneshot::Sender<Result<(), CommitError>>;

/// What the writer is asked to do.
pub(super) enum Task {
    Commit(Box<Batch>, Reply),
    Merge { session: SessionId, up_to: Seq, reply: oneshot::Sender<Result<Merged, MergeError>> },
    Close(Reply),
}

/// What the writer has done, for whoever asks.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) sessions: AtomicU64,
    pub(super) events: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) failed: AtomicBool,
}

impl Counters {
    pub(super) fn starting_with(sessions: u64) -> Self {
        Self { sessions: AtomicU64::new(sessions), ..Self::default() }
    }
}

/// The state of the writer's thread.
pub(super) struct Writer {
    connection: Connection,
    sync: Box<dyn FnMut() -> io::Result<()> + Send>,
    options: Options,
    counters: Arc<Counters>,
    /// When the oldest unsynced commit was made.
    dirty: Option<Instant>,
    merges: Merges,
}

enum Wake {
    Task(Task),
    Nothing,
    Gone,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        sync: Box<dyn FnMut() -> io::Result<()> + Send>,
        options: Options,
        counters: Arc<Counters>,
    ) -> Self {
        let merges = Merges::new(&options);
        Self { connection, sync, options, counters, dirty: None, merges }
    }

    /// Works until it is told to close or nobody is left who could ask.
    pub(super) fn run(mut self, inbox: Receiver<Task>) {
        let closing = loop {
            match self.wait(&inbox) {
                Wake::Task(task) => {
                    if let Some(reply) = self.take(task, &inbox) {
                        break Some(reply);
                    }
                }
                Wake::Nothing => {}
                Wake::Gone => break None,
            }
            self.sync_when_due();
            self.merge_slice();
            self.shorten_log();
        };
        while let Ok(task) = inbox.try_recv() {
            refuse(task, CommitError::Closed);
        }
        let result = self.finish();
        if let Some(reply) = closing {
            let _ = reply.send(result);
        }
    }

    fn wait(&self, inbox: &Receiver<Task>) -> Wake {
        if !self.merges.is_empty() {
            return match inbox.try_recv() {
                Ok(task) => Wake::Task(task),
                Err(TryRecvError::Empty) => Wake::Nothing,
                Err(TryRecvError::Disconnected) => Wake::Gone,
            };
        }
        let Some(since) = self.dirty else {
            return inbox.recv().map_or(Wake::Gone, Wake::Task);
        };
        match inbox.recv_timeout(self.options.sync_within.saturating_sub(since.elapsed())) {
            Ok(task) => Wake::Task(task),
            Err(RecvTimeoutError::Timeout) => Wake::Nothing,
            Err(RecvTimeoutError::Disconnected) => Wake::Gone,
        }
    }

    /// Gathers what waits behind `task` and commits it; returns whom to answer if closing was among it.
    fn take(&mut self, task: Task, inbox: &Receiver<Task>) -> Option<Reply> {
        let mut group = Vec::new();
        let mut bytes = 0_usize;
        let mut next = Some(task);
        let mut closing = None;
        while let Some(task) = next {
            match task {
                Task::Commit(batch, reply) => {
                    bytes = bytes.saturating_add(batch.weight());
                    group.push((batch, reply));
                }
                Task::Merge { session, up_to, reply } => self.merges.add(session, up_to, reply),
                Task::Close(reply) => {
                    closing = Some(reply);
                    break;
                }
            }
            next = if bytes < self.options.group_bytes { inbox.try_recv().ok() } else { None };
        }
        if !group.is_empty() {
            self.commit(group);
        }
        closing
    }

    fn commit(&mut self, group: Vec<(Box<Batch>, Reply)>) {
        if self.failed() {
            for (_, reply) in group {
                let _ = reply.send(Err(CommitError::StorageFailed));
            }
            return;
        }
        let results = match self.transact(&group) {
            Ok(results) => results,
            Err(error) => {
                self.note(&error);
                tracing::warn!(%error, batches = group.len(), "a commit failed");
                for (_, reply) in group {
                    let _ = reply.send(Err(error.clone()));
                }
                return;
            }
        };
        let mut waiting = Vec::new();
        for ((batch, reply), result) in group.into_iter().zip(results) {
            if result.is_ok() {
                self.count(&batch);
            }
            match (batch.durability, &result) {
                (Durability::Synced, Ok(())) => waiting.push(reply),
                (Durability::Synced, Err(_)) | (Durability::Written, _) => {
                    let _ = reply.send(result);
                }
            }
        }
        if !waiting.is_empty() {
            let result = self.sync_log();
            for reply in waiting {
                let _ = reply.send(result.clone());
            }
        }
    }

    /// Applies a group in one transaction; an error concerns all of it, a result inside concerns one batch.
    fn transact(
        &mut self,
        group: &[(Box<Batch>, Reply)],
    ) -> Result<Vec<Result<(), CommitError>>, CommitError> {
        if group.iter().all(|(batch, _)| batch.is_empty()) {
            return Ok(group.iter().map(|_| Ok(())).collect());
        }
        self.in_transaction(|connection| {
            group.iter().map(|(batch, _)| apply_alone(connection, batch)).collect()
        })
    }

    /// Runs `work` in a transaction of its own and commits it, or leaves nothing behind.
    fn in_transaction<T, E: From<rusqlite::Error>>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let changes = self.connection.total_changes();
        let outcome = self.execute("BEGIN IMMEDIATE").map_err(E::from).and_then(|()| {
            let value = work(&self.connection)?;
            self.execute("COMMIT")?;
            Ok(value)
        });
        if outcome.is_ok() {
            self.counters.commits.fetch_add(1, Ordering::Relaxed);
            if self.connection.total_changes() != changes {
                self.dirty.get_or_insert_with(Instant::now);
            }
        } else if !self.connection.is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::warn!(%error, "a failed transaction cannot be rolled back");
        }
        outcome
    }

    fn execute(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(statement)?.execute([]).map(drop)
    }

    fn count(&self, batch: &Batch) {
        if batch.create.is_some() {
            self.counters.sessions.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(block) = &batch.block {
            self.counters.events.fetch_add(block.count.into(), Ordering::Relaxed);
        }
    }

    /// Makes everything committed durable.
    fn sync_log(&mut self) -> Result<(), CommitError> {
        if self.dirty.is_none() {
            return Ok(());
        }
        self.dirty = None;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        (self.sync)().map_err(|source| {
            let error = CommitError::SyncFailed { source: Arc::new(source) };
            self.note(&error);
            error
        })
    }

    fn sync_when_due(&mut self) {
        if self.dirty.is_some_and(|since| since.elapsed() >= self.options.sync_within) {
            // Nobody waits for it; those who come later are told that the storage failed.
            let _ = self.sync_log();
        }
    }

    fn merge_slice(&mut self) {
        let Some(mut merge) = self.merges.next() else { return };
        if self.failed() {
            merge.end(Err(MergeError::Commit(CommitError::StorageFailed)));
            return;
        }
        match self.in_transaction(|connection| merge.slice(connection)) {
            Ok(true) => self.merges.resume(merge),
            Ok(false) => merge.end(Ok(())),
            Err(error) => {
                if let MergeError::Commit(error) = &error {
                    self.note(error);
                }
                merge.end(Err(error));
            }
        }
    }

    /// Moves the log into the database when it has grown long enough.
    fn shorten_log(&mut self) {
        if self.failed() {
            return;
        }
        let limit = i64::from(self.options.checkpoint_pages);
        let outcome = self.checkpoint("NOOP").and_then(|(length, moved)| {
            if length.saturating_sub(moved) >= limit {
                self.checkpoint("PASSIVE")?;
            } else if length >= limit.saturating_mul(4) {
                // Readers follow each other so closely that the log never begins anew: wait for a gap between them.
                self.connection.busy_timeout(RESTART_WAIT)?;
                let outcome = self.checkpoint("RESTART");
                self.connection.busy_timeout(self.options.busy_timeout)?;
                outcome?;
            }
            Ok(())
        });
        if let Err(error) = outcome {
            let error = CommitError::from(error);
            self.note(&error);
            tracing::warn!(%error, "the log cannot be moved into the database");
        }
    }

    /// Runs a checkpoint and returns how many pages are in the log and how many of them are in the database as well.
    fn checkpoint(&self, mode: &str) -> rusqlite::Result<(i64, i64)> {
        self.connection
            .prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?
            .query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
    }

    /// Syncs, empties the log and closes the database.
    fn finish(mut self) -> Result<(), CommitError> {
        self.merges.refuse(&CommitError::Closed);
        if let Err(error) = self.empty_log() {
            // What the log holds is all that is certain; closing must neither move it nor sync it in hope.
            self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            return Err(error);
        }
        self.connection.flush_prepared_statement_cache();
        self.connection.close().map_err(|(_, error)| error.into())
    }

    /// Makes everything durable and moves it into the database.
    fn empty_log(&mut self) -> Result<(), CommitError> {
        if self.failed() {
            return Err(CommitError::StorageFailed);
        }
        self.sync_log()?;
        self.checkpoint("TRUNCATE")?;
        Ok(())
    }

    fn failed(&self) -> bool {
        self.counters.failed.load(Ordering::Relaxed)
    }

    /// Remembers a failed sync for good.
    fn note(&self, error: &CommitError) {
        if let CommitError::SyncFailed { source } = error {
            tracing::error!(%source, "a sync failed; the journal takes nothing until the daemon is restarted");
            self.counters.failed.store(true, Ordering::Relaxed);
        }
    }
}

/// Applies one batch so that its refusal leaves no trace; an outer error has broken the transaction.
fn apply_alone(connection: &Connection, batch: &Batch) -> Result<Result<(), CommitError>, CommitError> {
    connection.prepare_cached("SAVEPOINT batch")?.execute([])?;
    let result = match apply(connection, batch) {
        Ok(()) => Ok(()),
        Err(CommitError::Conflict(conflict)) => {
            connection.prepare_cached("ROLLBACK TO batch")?.execute([])?;
            Err(CommitError::Conflict(conflict))
        }
        Err(error) => return Err(error),
    };
    connection.prepare_cached("RELEASE batch")?.execute([])?;
    Ok(result)
}

fn refuse(task: Task, error: CommitError) {
    match task {
        Task::Commit(_, reply) | Task::Close(reply) => drop(reply.send(Err(error))),
        Task::Merge { reply, .. } => drop(reply.send(Err(MergeError::Commit(error)))),
    }
}

/// How long the log's restart may wait for readers, which read in short transactions.
const RESTART_WAIT: Duration = Duration::from_millis(50);
