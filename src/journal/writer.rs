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

use super::apply::{Life, apply};
use super::behind::{Behind, Pending};
use super::chores::Chores;
use super::commands::Keeping;
use super::error::{CommitError, Conflict};
use super::files::Ground;
use super::marking::Marking;
use super::marks::Ending;
use super::mend::Plan;
use super::record::{Batch, Durability, Loss, Options};
use super::spare::Spare;
use super::task::{Reply, Task, refuse};
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
    pub(super) fn starting_with(sessions: u64) -> Self {
        Self { sessions: AtomicU64::new(sessions), ..Self::default() }
    }
}

/// The state of the writer thread.
pub(super) struct Writer {
    pub(super) ground: Ground,
    /// Counts how often the database was replaced.
    pub(super) generation: Arc<AtomicU64>,
    pub(super) connection: Connection,
    pub(super) sync: Box<dyn FnMut() -> io::Result<()> + Send>,
    pub(super) options: Options,
    pub(super) counters: Arc<Counters>,
    pub(super) life: Life,
    pub(super) marking: Marking,
    pub(super) spare: Spare,
    /// When the oldest unsynced commit was made.
    pub(super) dirty: Option<Instant>,
    pub(super) behind: Arc<Behind>,
    pub(super) pending: Pending,
    pub(super) chores: Chores,
    pub(super) tidiness: Tidiness,
}

/// Pending work on the files, done when the writer is idle.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Tidiness {
    /// Whether the disk reserve has been checked in this epoch.
    pub(super) spare_seen_to: bool,
    /// Whether the log still holds erased data.
    pub(super) log_holds_erased: bool,
    /// How many attempts to truncate the log have failed.
    pub(super) log_tries: u32,
    /// Whether the database file may have unused pages to return.
    pub(super) loose: bool,
}

enum Wake {
    Task(Task),
    Nothing,
    Gone,
}

impl Writer {
    /// Processes tasks until [`Task::Close`] arrives or all senders are gone.
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
            self.marking.sync_when_due();
            self.look_for_room();
            self.do_slice();
            self.write_behind();
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
        if self.has_chores() || self.is_untidy() || self.is_behind() {
            return match inbox.try_recv() {
                Ok(task) => Wake::Task(task),
                Err(TryRecvError::Empty) => Wake::Nothing,
                Err(TryRecvError::Disconnected) => Wake::Gone,
            };
        }
        let log = self.dirty.map(|since| self.options.sync_within.saturating_sub(since.elapsed()));
        let room = self.is_full().then_some(ROOM_PAUSE);
        let Some(pause) = [log, self.marking.due(), self.behind_due(), room].into_iter().flatten().min()
        else {
            return inbox.recv().map_or(Wake::Gone, Wake::Task);
        };
        match inbox.recv_timeout(pause) {
            Ok(task) => Wake::Task(task),
            Err(RecvTimeoutError::Timeout) => Wake::Nothing,
            Err(RecvTimeoutError::Disconnected) => Wake::Gone,
        }
    }

    /// Collects the tasks queued behind `task` and commits them. Returns the reply of a close request, if there
    /// was one.
    fn take(&mut self, task: Task, inbox: &Receiver<Task>) -> Option<Reply> {
        let (mut group, mut commands) = (Vec::new(), Vec::new());
        let mut bytes = 0_usize;
        let mut next = Some(task);
        let mut closing = None;
        while let Some(task) = next {
            match task {
                Task::Commit(batch, reply) => {
                    bytes = bytes.saturating_add(batch.weight());
                    group.push((batch, reply));
                }
                Task::KeepCommands(keeping) => {
                    bytes = bytes.saturating_add(keeping.weight());
                    commands.push(keeping);
                }
                Task::WriteBehind => self.gather(),
                Task::Chore(chore) => self.add_chore(chore),
                // Repair, replacement and deletion run in their own transactions, so the collected group is
                // committed first.
                Task::Mend { session, plan, at, reply } => {
                    self.commit_all(std::mem::take(&mut group), std::mem::take(&mut commands));
                    let _ = reply.send(self.mend(&session, &plan, at));
                }
                Task::Rescue { generation, reply } => {
                    self.commit_all(std::mem::take(&mut group), std::mem::take(&mut commands));
                    let _ = reply.send(self.rescue(generation));
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
    fn commit_all(&mut self, group: Vec<(Box<Batch>, Reply)>, commands: Vec<Keeping>) {
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
        match self.transact(&group) {
            Ok(results) => self.answer(group, results),
            Err(CommitError::Full) => self.make_do(group),
            Err(error) => {
                self.note(&error);
                refuse_group(group, &error);
                // The refused callers reload their sessions from the salvaged database.
                self.rescued(&error);
            }
        }
    }

    /// Handles a full disk: commits urgent batches with space from the disk reserve, and refuses the others.
    fn make_do(&mut self, group: Vec<(Box<Batch>, Reply)>) {
        self.became_full();
        let (urgent, others): (Vec<_>, Vec<_>) = group.into_iter().partition(|(batch, _)| batch.urgent);
        refuse_group(others, &CommitError::Full);
        while !urgent.is_empty() && self.spare.spend() {
            match self.transact(&urgent) {
                Ok(results) => return self.answer(urgent, results),
                Err(CommitError::Full) => {}
                Err(error) => {
                    self.note(&error);
                    refuse_group(urgent, &error);
                    self.rescued(&error);
                    return;
                }
            }
        }
        refuse_group(urgent, &CommitError::Full);
    }

    /// Replies to a committed group, each batch when it has reached its requested durability.
    fn answer(&mut self, group: Vec<(Box<Batch>, Reply)>, results: Vec<Applied>) {
        let mut waiting = Vec::new();
        let broken = results
            .iter()
            .find_map(|result| result.as_ref().err().filter(|error| error.is_corrupt()).cloned());
        for ((batch, reply), result) in group.into_iter().zip(results) {
            if let Ok(key) = &result {
                self.count(&batch);
                if let Some(key) = key {
                    self.marking.note(*key, &batch);
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
            self.rescued(&error);
        }
    }

    /// Applies a group in one transaction. An outer error concerns the whole group, an inner result one batch.
    fn transact(&mut self, group: &[(Box<Batch>, Reply)]) -> Result<Vec<Applied>, CommitError> {
        if group.iter().all(|(batch, _)| batch.is_empty()) {
            return Ok(group.iter().map(|_| Ok(None)).collect());
        }
        self.in_transaction(|connection, life| {
            group.iter().map(|(batch, _)| apply_alone(connection, batch, life)).collect()
        })
    }

    /// Repairs a damaged history and syncs the result.
    fn mend(&mut self, session: &SessionId, plan: &Plan, at: Now) -> Result<Vec<Loss>, CommitError> {
        if self.failed() {
            return Err(CommitError::StorageFailed);
        }
        let line = self.options.lost_line;
        let losses = self.in_transaction(|connection, _| plan.carry_out(connection, session, line, at));
        let losses = match losses {
            Err(error) if self.rescued(&error) => return Err(Conflict::Changed.into()),
            outcome => outcome.inspect_err(|error| self.note(error))?,
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
        work: impl FnOnce(&Connection, &Life) -> Result<T, E>,
    ) -> Result<T, E> {
        let changes = self.connection.total_changes();
        let outcome = self.execute("BEGIN IMMEDIATE").map_err(E::from).and_then(|()| {
            let value = work(&self.connection, &self.life)?;
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
            self.note(&error);
            return Err(error);
        }
        self.marking.raise();
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
        self.chores.refuse(&CommitError::Closed);
        if let Err(error) = self.put_away() {
            // After a failed sync only the log is reliable. Closing must neither checkpoint it nor sync it again.
            self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            return Err(error);
        }
        self.connection.flush_prepared_statement_cache();
        let marks = Arc::clone(self.marking.marks());
        self.connection.close().map_err(|(_, error)| CommitError::from(error))?;
        if let Err(error) = marks.end(Ending::Clean) {
            tracing::warn!(%error, "cannot record the clean shutdown");
        }
        Ok(())
    }

    /// Syncs everything and checkpoints it into the database.
    fn put_away(&mut self) -> Result<(), CommitError> {
        if self.failed() {
            return Err(CommitError::StorageFailed);
        }
        self.catch_up();
        self.sync_log()?;
        loop {
            match self.checkpoint("TRUNCATE").map_err(CommitError::from) {
                Ok(_) => return Ok(()),
                // The log may stay: it holds everything and is synced.
                Err(CommitError::Full) if !self.spare.spend() => {
                    self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
                    return Ok(());
                }
                Err(CommitError::Full) => {}
                Err(error) => {
                    self.note(&error);
                    return Err(error);
                }
            }
        }
    }

    pub(super) fn failed(&self) -> bool {
        self.counters.failed.load(Ordering::Relaxed)
    }

    /// Records a failed sync permanently; other errors are ignored.
    pub(super) fn note(&self, error: &CommitError) {
        if let CommitError::SyncFailed { source } = error
            && !self.failed()
        {
            tracing::error!(%source, "a sync failed; the journal refuses all writes until the daemon is restarted");
            self.fail_for_good();
        }
    }

    /// Refuses all further writes, and records the failure for the next epoch.
    pub(super) fn fail_for_good(&self) {
        self.counters.failed.store(true, Ordering::Relaxed);
        // Data written from here on counts as uncertain in this epoch, even if the machine keeps running.
        if let Err(error) = self.marking.marks().end(Ending::Failed) {
            tracing::warn!(%error, "cannot record the failed shutdown");
        }
    }
}

/// The key of the session that a batch changed, if any, or the conflict.
type Applied = Result<Option<i64>, CommitError>;

/// Applies one batch in a savepoint, so that a refused batch leaves no changes. An outer error invalidates the
/// transaction.
fn apply_alone(connection: &Connection, batch: &Batch, life: &Life) -> Result<Applied, CommitError> {
    connection.prepare_cached("SAVEPOINT batch")?.execute([])?;
    let result = match apply(connection, batch, life) {
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
const ROOM_PAUSE: Duration = Duration::from_millis(200);
