//! The writer thread: collects batches, commits them together, syncs, and replies.
//!
//! It waits without a timeout when nothing is unsynced. It makes no decisions: each task is applied in order or
//! refused with the reason.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::watch;

use super::apply::{Epoch, apply};
use super::commands::CommandBatch;
use super::deferred::{DeferredWrites, PendingWrites};
use super::error::{CommitError, Conflict};
use super::files::StorageEnv;
use super::high_water_marks::ShutdownState;
use super::jobs::JobQueue;
use super::mark_writer::MarkWriter;
use super::record::{Batch, Durability, Loss, Options};
use super::repair::RepairPlan;
use super::reserve::DiskReserve;
use super::task::{Reply, Task, refuse};
use super::write_ahead::WriteAhead;
use crate::kernel::id::SessionId;
use crate::kernel::time::Now;

/// The writer's counters.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) sessions: AtomicU64,
    pub(super) events: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) failed: AtomicBool,
    /// Whether the disk is full. Waiters for free space subscribe to it.
    pub(super) full: watch::Sender<bool>,
}

impl Counters {
    pub(super) fn with_sessions(sessions: u64) -> Self {
        Self { sessions: AtomicU64::new(sessions), ..Self::default() }
    }
}

/// The state of the writer thread.
pub(super) struct Writer {
    pub(super) env: StorageEnv,
    /// Counts how often the database was replaced.
    pub(super) generation: Arc<AtomicU64>,
    pub(super) connection: Connection,
    pub(super) sync: Box<dyn FnMut() -> io::Result<()> + Send>,
    pub(super) options: Options,
    pub(super) counters: Arc<Counters>,
    pub(super) epoch: Epoch,
    pub(super) mark_writer: MarkWriter,
    pub(super) reserve: DiskReserve,
    /// When the oldest unsynced commit was made.
    pub(super) dirty: Option<Instant>,
    pub(super) deferred: Arc<DeferredWrites>,
    pub(super) pending: PendingWrites,
    pub(super) write_ahead: Option<Arc<WriteAhead>>,
    /// When the events of the write-ahead file are to be stored.
    pub(super) flush_at: Option<Instant>,
    pub(super) jobs: JobQueue,
    pub(super) file_maintenance: FileMaintenance,
}

/// Pending work on the files, done when the writer is idle.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct FileMaintenance {
    /// Whether the disk reserve has been checked in this epoch.
    pub(super) reserve_checked: bool,
    /// Whether the log still holds erased data.
    pub(super) log_holds_erased: bool,
    /// How many attempts to truncate the log have failed.
    pub(super) truncate_tries: u32,
    /// Whether the database file may have unused pages to return.
    pub(super) may_shrink: bool,
}

enum Wake {
    Task(Task),
    Idle,
    Disconnected,
}

impl Writer {
    /// Processes tasks until [`Task::Close`] arrives or all senders are gone.
    pub(super) fn run(mut self, inbox: Receiver<Task>) {
        let closing = loop {
            match self.wait(&inbox) {
                Wake::Task(task) => {
                    if let Some(reply) = self.process(task, &inbox) {
                        break Some(reply);
                    }
                }
                Wake::Idle => {}
                Wake::Disconnected => break None,
            }
            self.sync_when_due();
            self.mark_writer.sync_when_due();
            self.probe_space();
            self.run_job_slice();
            self.flush_when_due();
            self.write_deferred();
            self.checkpoint_log();
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
        if self.has_runnable_jobs() || self.needs_file_maintenance() || self.has_pending_writes() {
            return match inbox.try_recv() {
                Ok(task) => Wake::Task(task),
                Err(TryRecvError::Empty) => Wake::Idle,
                Err(TryRecvError::Disconnected) => Wake::Disconnected,
            };
        }
        let log = self.dirty.map(|since| self.options.sync_within.saturating_sub(since.elapsed()));
        let space_probe = self.is_full().then_some(SPACE_PROBE_INTERVAL);
        let due = [log, self.mark_writer.sync_due(), self.deferred_due(), self.flush_due(), space_probe];
        let Some(pause) = due.into_iter().flatten().min() else {
            return inbox.recv().map_or(Wake::Disconnected, Wake::Task);
        };
        match inbox.recv_timeout(pause) {
            Ok(task) => Wake::Task(task),
            Err(RecvTimeoutError::Timeout) => Wake::Idle,
            Err(RecvTimeoutError::Disconnected) => Wake::Disconnected,
        }
    }

    /// Collects the tasks queued behind `task` and commits them. Returns the reply of a close request, if there
    /// was one.
    fn process(&mut self, task: Task, inbox: &Receiver<Task>) -> Option<Reply> {
        let (mut group, mut commands) = (Vec::new(), Vec::new());
        let mut bytes = 0_usize;
        let mut next = Some(task);
        let mut closing = None;
        while let Some(task) = next {
            match task {
                Task::Commit(batch, reply) => {
                    bytes = bytes.saturating_add(batch.estimated_bytes());
                    group.push((batch, reply));
                }
                Task::WriteCommands(command_batch) => {
                    bytes = bytes.saturating_add(command_batch.estimated_bytes());
                    commands.push(command_batch);
                }
                Task::WriteDeferred => self.start_deferral(),
                Task::ScheduleFlush => self.schedule_flush(),
                Task::Job(job) => self.add_job(job),
                // Repair, replacement and deletion run in their own transactions, so the collected group is
                // committed first.
                Task::Repair { session, plan, at, reply } => {
                    self.commit_all(std::mem::take(&mut group), std::mem::take(&mut commands));
                    let _ = reply.send(self.repair(&session, &plan, at));
                }
                Task::Replace { generation, reply } => {
                    self.commit_all(std::mem::take(&mut group), std::mem::take(&mut commands));
                    let _ = reply.send(self.replace_generation(generation));
                }
                Task::Delete { session, reply } => {
                    self.commit_all(std::mem::take(&mut group), std::mem::take(&mut commands));
                    self.delete(&session, reply);
                }
                Task::Close(reply) => {
                    closing = Some(reply);
                    break;
                }
            }
            next = if bytes < self.options.group_bytes { inbox.try_recv().ok() } else { None };
        }
        self.commit_all(group, commands);
        closing
    }

    /// Commits batches and commands; all that need a sync share one.
    fn commit_all(&mut self, group: Vec<(Box<Batch>, Reply)>, commands: Vec<CommandBatch>) {
        let waiting = self.write_commands(commands);
        self.commit(group);
        self.sync_commands(waiting);
    }

    fn commit(&mut self, group: Vec<(Box<Batch>, Reply)>) {
        if group.is_empty() {
            return;
        }
        if self.failed() {
            for (_, reply) in group {
                let _ = reply.send(Err(CommitError::StorageFailed));
            }
            return;
        }
        let group = self.with_write_ahead(group);
        match self.transact(&group) {
            Ok(results) => self.reply_to_group(group, results),
            Err(CommitError::Full) => self.commit_urgent(group),
            Err(error) => {
                self.note_sync_failure(&error);
                refuse_group(group, &error);
                // The refused callers reload their sessions from the salvaged database.
                self.replace_if_corrupt(&error);
            }
        }
    }

    /// Handles a full disk: commits urgent batches with space from the disk reserve, and refuses the others.
    fn commit_urgent(&mut self, group: Vec<(Box<Batch>, Reply)>) {
        self.set_full();
        let (urgent, others): (Vec<_>, Vec<_>) = group.into_iter().partition(|(batch, _)| batch.urgent);
        refuse_group(others, &CommitError::Full);
        while !urgent.is_empty() && self.reserve.release() {
            match self.transact(&urgent) {
                Ok(results) => return self.reply_to_group(urgent, results),
                Err(CommitError::Full) => {}
                Err(error) => {
                    self.note_sync_failure(&error);
                    refuse_group(urgent, &error);
                    self.replace_if_corrupt(&error);
                    return;
                }
            }
        }
        refuse_group(urgent, &CommitError::Full);
    }

    /// Replies to a committed group, each batch when it has reached its requested durability.
    pub(super) fn reply_to_group(&mut self, group: Vec<(Box<Batch>, Reply)>, results: Vec<ApplyResult>) {
        let mut waiting = Vec::new();
        let broken =
            results.iter().find_map(|result| result.as_ref().err().filter(|error| error.is_corrupt()).cloned());
        for ((batch, reply), result) in group.into_iter().zip(results) {
            if let Ok(key) = &result {
                self.count(&batch);
                if let Some(key) = key {
                    self.mark_writer.record(*key, &batch);
                }
                if let (Some(write_ahead), Some(block)) = (&self.write_ahead, &batch.block) {
                    write_ahead.remove_stored(&batch.session, block.last);
                }
            }
            match (batch.durability, result) {
                (Durability::Synced, Ok(_)) => waiting.push(reply),
                (Durability::Synced | Durability::Written, result) => {
                    let _ = reply.send(result.map(drop));
                }
            }
        }
        if !waiting.is_empty() {
            let result = self.sync_log();
            for reply in waiting {
                let _ = reply.send(result.clone());
            }
        }
        if let Some(error) = broken {
            self.replace_if_corrupt(&error);
        }
    }

    /// Applies a group in one transaction. An outer error concerns the whole group, an inner result one batch.
    pub(super) fn transact(&mut self, group: &[(Box<Batch>, Reply)]) -> Result<Vec<ApplyResult>, CommitError> {
        if group.iter().all(|(batch, _)| batch.is_empty()) {
            return Ok(group.iter().map(|_| Ok(None)).collect());
        }
        self.in_transaction(|connection, epoch| {
            group.iter().map(|(batch, _)| apply_in_savepoint(connection, batch, epoch)).collect()
        })
    }

    /// Repairs a damaged history and syncs the result.
    fn repair(&mut self, session: &SessionId, plan: &RepairPlan, at: Now) -> Result<Vec<Loss>, CommitError> {
        if self.failed() {
            return Err(CommitError::StorageFailed);
        }
        let line = self.options.lost_line;
        let losses = self.in_transaction(|connection, _| plan.execute(connection, session, line, at));
        let losses = match losses {
            Err(error) if self.replace_if_corrupt(&error) => return Err(Conflict::Changed.into()),
            outcome => outcome.inspect_err(|error| self.note_sync_failure(error))?,
        };
        self.sync_log()?;
        for Loss { after, until, cause } in &losses {
            tracing::warn!(%session, %after, %until, cause = cause.as_str(), "events of a session are lost");
        }
        Ok(losses)
    }

    /// Runs `work` in its own transaction; commits it, or rolls it back on error.
    pub(super) fn in_transaction<T, E: From<rusqlite::Error>>(
        &mut self,
        work: impl FnOnce(&Connection, &Epoch) -> Result<T, E>,
    ) -> Result<T, E> {
        let changes = self.connection.total_changes();
        let outcome = self.execute("BEGIN IMMEDIATE").map_err(E::from).and_then(|()| {
            let value = work(&self.connection, &self.epoch)?;
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
            tracing::warn!(%error, "cannot roll back a failed transaction");
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

    /// Syncs all committed data.
    pub(super) fn sync_log(&mut self) -> Result<(), CommitError> {
        if self.dirty.is_none() {
            return Ok(());
        }
        self.dirty = None;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        if let Err(source) = (self.sync)() {
            let error = CommitError::SyncFailed { source: Arc::new(source) };
            self.note_sync_failure(&error);
            return Err(error);
        }
        self.mark_writer.write_pending();
        Ok(())
    }

    fn sync_when_due(&mut self) {
        if self.dirty.is_some_and(|since| since.elapsed() >= self.options.sync_within) {
            // No caller waits for this sync; later callers get `StorageFailed`.
            let _ = self.sync_log();
        }
    }

    /// Syncs, truncates the log and closes the database.
    fn finish(mut self) -> Result<(), CommitError> {
        self.jobs.refuse(&CommitError::Closed);
        if let Some(write_ahead) = &self.write_ahead {
            write_ahead.close();
        }
        if let Err(error) = self.flush_to_database() {
            // After a failed sync only the log is reliable. Closing must neither checkpoint it nor sync it again.
            self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            return Err(error);
        }
        self.connection.flush_prepared_statement_cache();
        let marks = Arc::clone(self.mark_writer.marks());
        self.connection.close().map_err(|(_, error)| CommitError::from(error))?;
        if let Err(error) = marks.set_shutdown_state(ShutdownState::Clean) {
            tracing::warn!(%error, "cannot record the clean shutdown");
        }
        Ok(())
    }

    /// Syncs everything and checkpoints it into the database.
    fn flush_to_database(&mut self) -> Result<(), CommitError> {
        if self.failed() {
            return Err(CommitError::StorageFailed);
        }
        self.flush_deferred();
        // If it fails, the next start stores the events.
        while !self.flush_write_ahead() && self.is_full() && self.reserve.release() {}
        self.sync_log()?;
        loop {
            match self.checkpoint("TRUNCATE").map_err(CommitError::from) {
                Ok(_) => return Ok(()),
                // The log may stay: it holds everything and is synced.
                Err(CommitError::Full) if !self.reserve.release() => {
                    self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
                    return Ok(());
                }
                Err(CommitError::Full) => {}
                Err(error) => {
                    self.note_sync_failure(&error);
                    return Err(error);
                }
            }
        }
    }

    pub(super) fn failed(&self) -> bool {
        self.counters.failed.load(Ordering::Relaxed)
    }

    /// Records a failed sync permanently; other errors are ignored.
    pub(super) fn note_sync_failure(&self, error: &CommitError) {
        if let CommitError::SyncFailed { source } = error
            && !self.failed()
        {
            tracing::error!(%source, "a sync failed; the journal refuses all writes until the daemon is restarted");
            self.fail_permanently();
        }
    }

    /// Refuses all further writes, and records the failure for the next epoch.
    pub(super) fn fail_permanently(&self) {
        self.counters.failed.store(true, Ordering::Relaxed);
        // Data written from here on counts as uncertain in this epoch, even if the machine keeps running.
        if let Err(error) = self.mark_writer.marks().set_shutdown_state(ShutdownState::Failed) {
            tracing::warn!(%error, "cannot record the failed shutdown");
        }
    }
}

/// The key of the session that a batch changed, if any, or the conflict.
pub(super) type ApplyResult = Result<Option<i64>, CommitError>;

/// Applies one batch in a savepoint, so that a refused batch leaves no changes. An outer error invalidates the
/// transaction.
pub(super) fn apply_in_savepoint(
    connection: &Connection,
    batch: &Batch,
    epoch: &Epoch,
) -> Result<ApplyResult, CommitError> {
    connection.prepare_cached("SAVEPOINT batch")?.execute([])?;
    let result = match apply(connection, batch, epoch) {
        Ok(key) => Ok(key),
        Err(CommitError::Conflict(conflict)) => {
            connection.prepare_cached("ROLLBACK TO batch")?.execute([])?;
            Err(CommitError::Conflict(conflict))
        }
        Err(error) => return Err(error),
    };
    connection.prepare_cached("RELEASE batch")?.execute([])?;
    Ok(result)
}

fn refuse_group(group: Vec<(Box<Batch>, Reply)>, error: &CommitError) {
    if !group.is_empty() {
        tracing::warn!(%error, batches = group.len(), "a commit failed");
    }
    for (_, reply) in group {
        let _ = reply.send(Err(error.clone()));
    }
}

/// How often free space is probed while the disk is full.
const SPACE_PROBE_INTERVAL: Duration = Duration::from_millis(200);
