//! Removal of a whole session, or of the oldest part of its history.
//!
//! A deleted session disappears for all readers with the first transaction. Its rows are removed in slices, and a
//! restart continues with them. Retention replaces the oldest blocks of a history by one splice in every slice, so
//! that the checksum chain holds at all times. It never removes a block that the last checkpoint does not contain.

use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;

use super::apply;
use super::checksum::{self, BlockHeader};
use super::error::{CommitError, Conflict, JobError};
use super::jobs::{Job, Progress};
use super::record::{Loss, LossReason, LostLine};
use super::{maintenance, row};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;

/// Removes the row of a session at once; its other rows remain for a [`DeleteJob`].
pub(super) fn delete_session_row(connection: &Connection, session: &SessionId) -> Result<i64, CommitError> {
    let Some(key) = apply::key(connection, session)? else { return Err(Conflict::NoSuchSession.into()) };
    connection.prepare_cached("DELETE FROM start_key WHERE session = ?1")?.execute([key])?;
    connection.prepare_cached("DELETE FROM loss WHERE session = ?1")?.execute([session.as_str()])?;
    connection.prepare_cached("DELETE FROM session WHERE key = ?1")?.execute([key])?;
    connection.prepare_cached("INSERT INTO doomed (session) VALUES (?1)")?.execute([key])?;
    connection.prepare_cached("UPDATE tally SET sessions = max(sessions - 1, 0)")?.execute([])?;
    Ok(key)
}

/// Returns the keys of deleted sessions whose rows are not removed yet.
pub(super) fn pending_deletions(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    connection.prepare("SELECT session FROM doomed")?.query_map([], |row| row.get(0))?.collect()
}

/// Removes the rows of a deleted session.
pub(super) struct DeleteJob {
    pub(super) key: i64,
    /// How many unused pages are still to leave the file: pages freed earlier may hold old content.
    pub(super) pages_to_vacuum: Option<i64>,
    /// `None` for a deletion that a restart continues.
    pub(super) reply: Option<oneshot::Sender<Result<(), JobError>>>,
}

impl Job for DeleteJob {
    fn slice(&mut self, connection: &Connection) -> Result<Progress, JobError> {
        let removed = connection
            .prepare_cached("DELETE FROM block WHERE rowid IN (SELECT rowid FROM block WHERE session = ?1 LIMIT ?2)")?
            .execute(params![self.key, SLICE_ROWS])?;
        if removed > 0 {
            return Ok(Progress::More);
        }
        let Some(unused) = self.pages_to_vacuum else {
            connection.prepare_cached("DELETE FROM checkpoint WHERE session = ?1")?.execute([self.key])?;
            connection.prepare_cached("DELETE FROM set_aside WHERE session = ?1")?.execute([self.key])?;
            self.pages_to_vacuum = Some(maintenance::unused_pages(connection)?);
            return Ok(Progress::More);
        };
        if unused > 0 {
            let before = maintenance::unused_pages(connection)?;
            maintenance::vacuum_slice(connection)?;
            let gone = before.saturating_sub(maintenance::unused_pages(connection)?);
            // Other transactions may use and free pages meanwhile. A file that cannot shrink keeps its size.
            self.pages_to_vacuum = Some(if gone > 0 { unused.saturating_sub(gone) } else { 0 });
            return Ok(Progress::More);
        }
        connection.prepare_cached("DELETE FROM doomed WHERE session = ?1")?.execute([self.key])?;
        Ok(Progress::Done)
    }

    fn complete(self: Box<Self>, outcome: Result<(), JobError>) {
        if let Some(reply) = self.reply {
            let _ = reply.send(outcome);
        }
    }

    fn erases_data(&self) -> bool {
        true
    }
}

/// Removes the oldest blocks of a session, up to a position.
pub(super) struct RetainJob {
    pub(super) session: SessionId,
    pub(super) up_to: Seq,
    pub(super) line: LostLine,
    pub(super) at: Now,
    pub(super) floor: Seq,
    pub(super) reply: oneshot::Sender<Result<Seq, JobError>>,
}

impl Job for RetainJob {
    fn slice(&mut self, connection: &Connection) -> Result<Progress, JobError> {
        let Some(key) = apply::key(connection, &self.session)? else {
            return Err(JobError::Commit(Conflict::NoSuchSession.into()));
        };
        // Events that no checkpoint contains are needed to restore the session.
        let checkpoint: Option<i64> = connection
            .prepare_cached("SELECT seq FROM checkpoint WHERE session = ?1")?
            .query_row([key], |row| row.get(0))
            .optional()?;
        let end = row::signed(self.up_to.number()).min(checkpoint.unwrap_or(0));
        let oldest = self.oldest(connection, key, end)?;
        let Some(last) =
            oldest.last().copied().filter(|_| oldest.len() > usize::from(self.starts_with_splice(&oldest)))
        else {
            return Ok(Progress::Done);
        };
        connection
            .prepare_cached("DELETE FROM block WHERE session = ?1 AND first <= ?2")?
            .execute(params![key, row::signed(last.first)])?;
        let loss = Loss { after: Seq::ZERO, until: Seq::new(last.last), cause: LossReason::Retention };
        let prev = checksum::genesis(&self.session);
        let header = BlockHeader { first: 0, last: last.last, count: 0, prev, checksum: last.checksum };
        let bytes = (self.line)(&self.session, &loss, self.at);
        apply::insert_block(connection, &self.session, key, &header, &bytes).map_err(JobError::Commit)?;
        self.floor = loss.until;
        Ok(Progress::More)
    }

    fn complete(self: Box<Self>, outcome: Result<(), JobError>) {
        let Self { reply, floor, .. } = *self;
        let _ = reply.send(outcome.map(|()| floor));
    }

    fn erases_data(&self) -> bool {
        true
    }
}

impl RetainJob {
    /// Returns the headers of the oldest blocks that end at or before `end`. The splice of an earlier retention is
    /// the first of them.
    fn oldest(&self, connection: &Connection, key: i64, end: i64) -> Result<Vec<BlockHeader>, JobError> {
        let mut statement = connection.prepare_cached(
            "SELECT first, last, count, prev, checksum, seal FROM block
             WHERE session = ?1 AND last <= ?2 ORDER BY first LIMIT ?3",
        )?;
        let rows = statement.query_map(params![key, end, SLICE_ROWS], row::block_header)?;
        let mut oldest = Vec::new();
        for found in rows {
            let (header, seal) = found?;
            // The floor must be a number that was written. Damage is repaired before anything is removed.
            if !header.is_splice() && header.seal(&self.session, &[]) != seal {
                let first = Seq::new(header.first);
                return Err(JobError::Damaged { session: self.session.clone(), first });
            }
            oldest.push(header);
        }
        Ok(oldest)
    }

    fn starts_with_splice(&self, oldest: &[BlockHeader]) -> bool {
        oldest.first().is_some_and(|header| header.first == 0)
    }
}

/// How many rows a slice removes.
const SLICE_ROWS: i64 = 64;
