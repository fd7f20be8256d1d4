//! What the writer does between the batches: removals, chores, the log's length, room on the disk, and the size of the file.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::apply;
use super::chores::{Chore, Progress};
use super::erase::{self, Erase};
use super::error::{CommitError, Conflict, MergeError};
use super::writer::Writer;
use crate::kernel::id::SessionId;

impl Writer {
    /// Makes a session disappear; its rows are removed bit by bit.
    pub(super) fn delete(&mut self, session: &SessionId, reply: oneshot::Sender<Result<(), MergeError>>) {
        let doomed = if self.failed() { Err(CommitError::StorageFailed) } else { self.doom(session) };
        match doomed {
            Ok(key) => self.chores.add(Box::new(Erase { key, unused: None, reply: Some(reply) })),
            Err(error) => {
                let _ = reply.send(Err(MergeError::Commit(error)));
            }
        }
    }

    fn doom(&mut self, session: &SessionId) -> Result<i64, CommitError> {
        self.leave_out(session);
        let known = apply::key(&self.connection, session)?;
        // A session whose mark outlives it would be reported as lost.
        known.into_iter().for_each(|key| self.marking.bury(key));
        self.erase_carefully(true);
        let key = self.in_transaction(|connection, _| erase::doom(connection, session));
        self.erase_carefully(false);
        let key = match key {
            // Its mark is buried, so that a salvage has left it out.
            Err(error) if self.rescued(&error) => return Err(Conflict::NoSuchSession.into()),
            outcome => outcome.inspect_err(|error| self.note(error))?,
        };
        self.sync_log()?;
        self.counters.sessions.fetch_sub(1, Ordering::Relaxed);
        Ok(key)
    }

    /// Takes a chore on; on a full disk only what frees room is worth waiting for.
    pub(super) fn add_chore(&mut self, chore: Box<dyn Chore>) {
        if self.is_full() && !chore.erases() {
            return chore.end(Err(MergeError::Commit(CommitError::Full)));
        }
        self.chores.add(chore);
    }

    /// Tells whether there is a chore that can be gone on with: on a full disk they wait for room.
    pub(super) fn has_chores(&self) -> bool {
        !self.chores.is_empty() && !self.is_full()
    }

    /// Does a slice of the next chore.
    pub(super) fn do_slice(&mut self) {
        if self.is_full() && !self.failed() {
            return;
        }
        let Some(mut chore) = self.chores.next() else { return self.tidy() };
        if self.failed() {
            return chore.end(Err(MergeError::Commit(CommitError::StorageFailed)));
        }
        if chore.erases() {
            self.erase_carefully(true);
        }
        let outcome = self.in_transaction(|connection, _| chore.slice(connection));
        if chore.erases() {
            self.erase_carefully(false);
            self.tidiness.log_holds_erased = true;
        }
        self.tidiness.loose = true;
        match outcome {
            Ok(Progress::More) => self.chores.add(chore),
            // Whoever asked for it may look for the bytes as soon as it is answered.
            Ok(Progress::Done) if chore.erases() && !self.empty_log() => self.chores.add(chore),
            Ok(Progress::Done) => chore.end(Ok(())),
            // What was begun to be erased is erased when there is room again.
            Err(MergeError::Commit(CommitError::Full)) if chore.erases() => {
                self.became_full();
                self.chores.add(chore);
            }
            Err(error) => {
                if let MergeError::Commit(error) = &error {
                    self.note(error);
                    self.rescued(error);
                }
                chore.end(Err(error));
            }
        }
    }

    /// Moves the log into the database when it has grown long enough.
    pub(super) fn shorten_log(&mut self) {
        // On a full disk it would fail again and again.
        if self.failed() || self.is_full() {
            return;
        }
        let limit = i64::from(self.options.checkpoint_pages);
        let outcome = self.checkpoint("NOOP").and_then(|(length, moved)| {
            if length.saturating_sub(moved) >= limit {
                self.checkpoint("PASSIVE")?;
            } else if length >= limit.saturating_mul(4) {
                // Readers follow each other so closely that the log never begins anew: wait for a gap between them.
                self.patiently(|writer| writer.checkpoint("RESTART"))?;
            }
            Ok(())
        });
        self.mind("the log cannot be moved into the database", outcome);
    }

    /// Runs a checkpoint and returns how many pages are in the log and how many of them are in the database as well.
    pub(super) fn checkpoint(&self, mode: &str) -> rusqlite::Result<(i64, i64)> {
        self.connection
            .prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?
            .query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
    }

    /// Asks a full disk whether there is room again.
    pub(super) fn look_for_room(&self) {
        if self.is_full() && self.spare.probe().is_ok() {
            tracing::info!("there is room on the disk again");
            self.counters.full.send_replace(false);
        }
    }

    pub(super) fn is_full(&self) -> bool {
        *self.counters.full.borrow()
    }

    pub(super) fn became_full(&self) {
        if !self.counters.full.send_replace(true) {
            tracing::error!("the disk is full; nothing new is taken until there is room");
        }
    }

    /// Tells whether something remains to be done to the files.
    pub(super) fn is_untidy(&self) -> bool {
        let tidiness = &self.tidiness;
        !self.failed() && !self.is_full() && (!tidiness.spare_seen_to || tidiness.loose)
    }

    /// Does one thing to the files, as nothing else is to be done.
    fn tidy(&mut self) {
        if !self.is_untidy() {
            return;
        }
        if !self.tidiness.spare_seen_to {
            self.tidiness.spare_seen_to = true;
            if let Err(error) = self.spare.fill() {
                tracing::warn!(%error, "no room can be kept for a full disk");
            }
            return;
        }
        match unused_pages(&self.connection) {
            Ok(free) if free > LOOSE_PAGES => {
                let outcome = self.in_transaction(|connection, _| give_back(connection));
                // A database from before room could be given back keeps it for later use.
                let still = unused_pages(&self.connection);
                self.tidiness.loose = outcome.is_ok() && still.is_ok_and(|still| still < free);
                self.mind("room cannot be given back", outcome);
            }
            Ok(_) | Err(_) => self.tidiness.loose = false,
        }
    }

    /// Leaves nothing in the log that was erased from the database; returns false if that is worth another try.
    fn empty_log(&mut self) -> bool {
        if !self.tidiness.log_holds_erased || self.sync_log().is_err() {
            return true;
        }
        let emptied = match self.patiently(|writer| writer.checkpoint("TRUNCATE")) {
            Ok((length, _)) => length == 0,
            Err(error) => {
                self.mind("the log still holds what was erased", Err(error));
                return true;
            }
        };
        self.tidiness.log_tries = if emptied { 0 } else { self.tidiness.log_tries + 1 };
        if self.tidiness.log_tries >= LOG_TRIES {
            self.tidiness.log_tries = 0;
            tracing::warn!("the log is read without a pause, and holds what was erased for a while");
            return true;
        }
        self.tidiness.log_holds_erased = !emptied;
        emptied
    }

    /// Has pages that are freed overwritten, too.
    pub(super) fn erase_carefully(&self, carefully: bool) {
        let what = if carefully { "ON" } else { "FAST" };
        let outcome = self.connection.pragma_update(None, "secure_delete", what);
        self.mind("freed bytes cannot be overwritten", outcome);
    }

    /// Waits a moment for readers, which read in short transactions.
    fn patiently<T>(&self, work: impl FnOnce(&Self) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        self.connection.busy_timeout(READERS_WAIT)?;
        let outcome = work(self);
        self.connection.busy_timeout(self.options.busy_timeout)?;
        outcome
    }

    /// Says that upkeep failed; only a failed sync has consequences.
    fn mind(&self, what: &'static str, outcome: rusqlite::Result<()>) {
        if let Err(error) = outcome {
            let error = CommitError::from(error);
            self.note(&error);
            tracing::warn!(%error, "{what}");
        }
    }
}

/// Returns how many pages of the file hold nothing.
pub(super) fn unused_pages(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "freelist_count", |row| row.get(0))
}

/// Cuts unused pages off the end of the file, after moving used ones forward.
pub(super) fn give_back(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut pages = statement.query([])?;
    while pages.next()?.is_some() {}
    Ok(())
}

/// How long the log's restart may wait for readers.
const READERS_WAIT: Duration = Duration::from_millis(50);
/// How often the log is tried to be emptied while somebody reads it.
const LOG_TRIES: u32 = 20;
/// How many pages may lie unused in the file, for the next events.
const LOOSE_PAGES: i64 = 1_024;
/// How many pages are given back in one slice.
const VACUUM_PAGES: i64 = 128;
