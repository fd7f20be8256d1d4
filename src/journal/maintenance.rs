//! Maintenance between the batches: deletions, background jobs, WAL checkpoints, free space, and the size of the
//! file.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::apply;
use super::error::{CommitError, Conflict, JobError};
use super::jobs::{Job, Progress};
use super::secure_delete::{self, DeleteJob};
use super::writer::Writer;
use crate::kernel::id::SessionId;

impl Writer {
    /// Deletes a session; a background job removes its rows in slices.
    pub(super) fn delete(&mut self, session: &SessionId, reply: oneshot::Sender<Result<(), JobError>>) {
        let doomed = if self.failed() { Err(CommitError::StorageFailed) } else { self.remove_session(session) };
        match doomed {
            Ok(key) => self.jobs.add(Box::new(DeleteJob { key, pages_to_vacuum: None, reply: Some(reply) })),
            Err(error) => {
                let _ = reply.send(Err(JobError::Commit(error)));
            }
        }
    }

    fn remove_session(&mut self, session: &SessionId) -> Result<i64, CommitError> {
        self.drop_deferred(session);
        if let Some(write_ahead) = &self.write_ahead {
            write_ahead.forget(session);
        }
        let known = apply::key(&self.connection, session)?;
        // A session whose mark outlives it would be reported as lost.
        known.into_iter().for_each(|key| self.mark_writer.retire(key));
        self.set_secure_delete(true);
        let key = self.in_transaction(|connection, _| secure_delete::delete_session_row(connection, session));
        self.set_secure_delete(false);
        let key = match key {
            // Its mark is retired, so the salvage has left the session out.
            Err(error) if self.replace_if_corrupt(&error) => return Err(Conflict::NoSuchSession.into()),
            outcome => outcome.inspect_err(|error| self.note_sync_failure(error))?,
        };
        self.sync_log()?;
        self.counters.sessions.fetch_sub(1, Ordering::Relaxed);
        Ok(key)
    }

    /// Queues a job. On a full disk only a job that frees space is accepted.
    pub(super) fn add_job(&mut self, job: Box<dyn Job>) {
        if self.is_full() && !job.erases_data() {
            return job.complete(Err(JobError::Commit(CommitError::Full)));
        }
        self.jobs.add(job);
    }

    /// Returns whether a job can run. On a full disk jobs wait for free space.
    pub(super) fn has_runnable_jobs(&self) -> bool {
        !self.jobs.is_empty() && !self.is_full()
    }

    /// Runs a slice of the next job.
    pub(super) fn run_job_slice(&mut self) {
        if self.is_full() && !self.failed() {
            return;
        }
        let Some(mut job) = self.jobs.next() else { return self.maintain_files() };
        if self.failed() {
            return job.complete(Err(JobError::Commit(CommitError::StorageFailed)));
        }
        if job.erases_data() {
            self.set_secure_delete(true);
        }
        let outcome = self.in_transaction(|connection, _| job.slice(connection));
        if job.erases_data() {
            self.set_secure_delete(false);
            self.file_maintenance.log_holds_erased = true;
        }
        self.file_maintenance.may_shrink = true;
        match outcome {
            Ok(Progress::More) => self.jobs.add(job),
            // The caller may search the files for the bytes as soon as it gets the reply.
            Ok(Progress::Done) if job.erases_data() && !(self.erase_write_ahead() && self.truncate_log()) => {
                self.jobs.add(job);
            }
            Ok(Progress::Done) => job.complete(Ok(())),
            // A started erasure continues when there is free space again.
            Err(JobError::Commit(CommitError::Full)) if job.erases_data() => {
                self.set_full();
                self.jobs.add(job);
            }
            Err(error) => {
                if let JobError::Commit(error) = &error {
                    self.note_sync_failure(error);
                    self.replace_if_corrupt(error);
                }
                job.complete(Err(error));
            }
        }
    }

    /// Checkpoints the log into the database when it has grown long enough.
    pub(super) fn checkpoint_log(&mut self) {
        // On a full disk it would fail each time.
        if self.failed() || self.is_full() {
            return;
        }
        let limit = i64::from(self.options.checkpoint_pages);
        let outcome = self.checkpoint("NOOP").and_then(|(length, moved)| {
            if length.saturating_sub(moved) >= limit {
                self.checkpoint("PASSIVE")?;
            } else if length >= limit.saturating_mul(4) {
                // Overlapping readers keep the log from restarting: wait for a moment without readers.
                self.with_reader_timeout(|writer| writer.checkpoint("RESTART"))?;
            }
            Ok(())
        });
        self.report_failure("cannot checkpoint the log", outcome);
    }

    /// Runs a WAL checkpoint. Returns how many pages the log has, and how many of them are checkpointed.
    pub(super) fn checkpoint(&self, mode: &str) -> rusqlite::Result<(i64, i64)> {
        self.connection
            .prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?
            .query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
    }

    /// Probes whether a full disk has free space again.
    pub(super) fn probe_space(&self) {
        if self.is_full() && self.reserve.probe().is_ok() {
            tracing::info!("the disk has free space again");
            self.counters.full.send_replace(false);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        *self.counters.full.borrow()
    }

    pub(super) fn set_full(&self) {
        if !self.counters.full.send_replace(true) {
            tracing::error!("the disk is full; new work is refused until there is free space");
        }
    }

    /// Returns whether the files need maintenance.
    pub(super) fn needs_file_maintenance(&self) -> bool {
        let maintenance = &self.file_maintenance;
        !self.failed() && !self.is_full() && (!maintenance.reserve_checked || maintenance.may_shrink)
    }

    /// Runs one maintenance step on the files; called when no job is waiting.
    fn maintain_files(&mut self) {
        if !self.needs_file_maintenance() {
            return;
        }
        if !self.file_maintenance.reserve_checked {
            self.file_maintenance.reserve_checked = true;
            if let Err(error) = self.reserve.refill() {
                tracing::warn!(%error, "cannot fill the disk reserve");
            }
            return;
        }
        match unused_pages(&self.connection) {
            Ok(free) if free > MAX_UNUSED_PAGES => {
                let outcome = self.in_transaction(|connection, _| vacuum_slice(connection));
                // A database created without incremental vacuum keeps its free pages for later use.
                let still = unused_pages(&self.connection);
                self.file_maintenance.may_shrink = outcome.is_ok() && still.is_ok_and(|still| still < free);
                self.report_failure("cannot return unused pages to the file system", outcome);
            }
            Ok(_) | Err(_) => self.file_maintenance.may_shrink = false,
        }
    }

    /// Truncates the log if it holds erased data. Returns false if the attempt should be repeated.
    fn truncate_log(&mut self) -> bool {
        if !self.file_maintenance.log_holds_erased || self.sync_log().is_err() {
            return true;
        }
        let emptied = match self.with_reader_timeout(|writer| writer.checkpoint("TRUNCATE")) {
            Ok((length, _)) => length == 0,
            Err(error) => {
                self.report_failure("cannot truncate the log, which still holds erased data", Err(error));
                return true;
            }
        };
        self.file_maintenance.truncate_tries = if emptied { 0 } else { self.file_maintenance.truncate_tries + 1 };
        if self.file_maintenance.truncate_tries >= LOG_TRUNCATE_TRIES {
            self.file_maintenance.truncate_tries = 0;
            tracing::warn!(
                "readers prevented the log from being truncated; it holds erased data until the next checkpoint"
            );
            return true;
        }
        self.file_maintenance.log_holds_erased = !emptied;
        emptied
    }

    /// Sets whether SQLite also overwrites freed pages.
    pub(super) fn set_secure_delete(&self, carefully: bool) {
        let what = if carefully { "ON" } else { "FAST" };
        let outcome = self.connection.pragma_update(None, "secure_delete", what);
        self.report_failure("cannot change the secure_delete setting", outcome);
    }

    /// Runs `work` with a longer busy timeout; readers use short transactions.
    fn with_reader_timeout<T>(&self, work: impl FnOnce(&Self) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        self.connection.busy_timeout(READERS_WAIT)?;
        let outcome = work(self);
        self.connection.busy_timeout(self.options.busy_timeout)?;
        outcome
    }

    /// Logs a failed maintenance step; only a failed sync has further consequences.
    fn report_failure(&self, what: &'static str, outcome: rusqlite::Result<()>) {
        if let Err(error) = outcome {
            let error = CommitError::from(error);
            self.note_sync_failure(&error);
            tracing::warn!(%error, "{what}");
        }
    }
}

/// Returns how many pages of the file are unused.
pub(super) fn unused_pages(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "freelist_count", |row| row.get(0))
}

/// Truncates unused pages from the end of the file, after moving used ones forward.
pub(super) fn vacuum_slice(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut pages = statement.query([])?;
    while pages.next()?.is_some() {}
    Ok(())
}

/// How long a WAL checkpoint may wait for readers.
const READERS_WAIT: Duration = Duration::from_millis(50);
/// How many times truncating the log is attempted while readers hold it.
const LOG_TRUNCATE_TRIES: u32 = 20;
/// How many unused pages the file may keep for the next events.
const MAX_UNUSED_PAGES: i64 = 1_024;
/// How many pages one slice returns to the file system.
const VACUUM_PAGES: i64 = 128;
