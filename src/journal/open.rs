//! Opening the journal: recovers the state that the previous epoch left, and records its losses.

use std::cell::Cell;
use std::io;

use rusqlite::{Connection, params};

use super::apply::{self, Epoch};
use super::error::{CommitError, OpenError};
use super::files::{self, StorageEnv};
use super::high_water_marks::{HighWaterMark, HighWaterMarks, PreviousShutdown, ShutdownState};
use super::jobs::JobQueue;
use super::record::{LossRecord, Options};
use super::repair;
use super::secure_delete::{self, DeleteJob};
use super::{DATABASE, LOG, MARKS, now, row, schema, write_ahead};
use crate::kernel::id::{Seq, SessionId};

/// The state of a journal that has just been opened.
pub(super) struct OpenState {
    pub(super) sessions: u64,
    pub(super) marks: HighWaterMarks,
    pub(super) previous_shutdown: PreviousShutdown,
    pub(super) epoch: Epoch,
    pub(super) jobs: JobQueue,
}

impl OpenState {
    /// Recovers the state from an open database and its marks, and makes everything found durable.
    pub(super) fn recover(env: &StorageEnv, connection: &Connection, options: &Options) -> Result<Self, OpenError> {
        let (database, path, log) = (env.path(DATABASE), env.path(MARKS), env.path(LOG));
        let failed = OpenError::sqlite(&database);
        let file = (env.open_file)(&path).map_err(OpenError::io("open", &path))?;
        let (marks, previous_shutdown) =
            HighWaterMarks::open(file, options.boot, now().0 / 1000).map_err(OpenError::io("read", &path))?;
        let highest = marks.highest_key().map_err(OpenError::io("read", &path))?;
        let newest = newest_key(connection).map_err(&failed)?;
        let lost = lost_sessions(&marks, newest, highest).map_err(OpenError::io("read", &path))?;
        record_losses(connection, previous_shutdown, &lost)
            .map_err(|error| OpenError::RecordLosses { path: database.clone(), error })?;
        let epoch = Epoch { number: marks.epoch(), last_key: Cell::new(newest.max(highest)) };
        // Before the epoch begins: the file is that of the previous one. The sync below covers what is stored here.
        let was_killed = previous_shutdown == PreviousShutdown::Killed;
        let previous = write_ahead::PreviousEpoch { epoch: marks.previous_epoch(), was_killed };
        write_ahead::replay(env, connection, options, &epoch, previous)
            .map_err(|error| OpenError::Replay { path: database.clone(), error })?;
        let handle = (env.open_file)(&log).map_err(OpenError::io("open", &log))?;
        if matches!(previous_shutdown, PreviousShutdown::Uncertain { .. }) {
            files::rewrite(handle.as_ref()).map_err(OpenError::io("write", &log))?;
        }
        handle.sync().map_err(OpenError::io("sync", &log))?;
        if previous_shutdown == PreviousShutdown::Killed {
            mark_unacknowledged(connection, &marks).map_err(OpenError::io("write", &path))?;
        }
        marks.set_highest_marked(newest.max(highest));
        // Written last: an unclean shutdown must not be forgotten before its consequences are on disk.
        marks.set_shutdown_state(ShutdownState::Open).map_err(OpenError::io("write", &path))?;
        for (key, loss) in &lost {
            tracing::error!(session = %loss.session, until = %loss.until, "a session is missing from the journal");
            marks.retire(*key).map_err(OpenError::io("write", &path))?;
        }
        let mut jobs = JobQueue::default();
        for key in secure_delete::pending_deletions(connection).map_err(&failed)? {
            jobs.add(Box::new(DeleteJob { key, pages_to_vacuum: None, reply: None }));
        }
        let sessions = schema::session_count(connection).map_err(&failed)?;
        Ok(Self { sessions, marks, previous_shutdown, epoch, jobs })
    }
}

/// Writes the first mark of sessions whose process was killed before their first reply.
///
/// No client has seen anything of them that is missing, and without a mark they would count as truncated.
fn mark_unacknowledged(connection: &Connection, marks: &HighWaterMarks) -> io::Result<()> {
    let Some(marked) = marks.marked_before() else { return Ok(()) };
    let found: rusqlite::Result<Vec<(i64, String, i64, i64)>> = connection
        .prepare(
            "SELECT key, id, reserved, coalesce((SELECT max(last) FROM block WHERE session = key), 0)
             FROM session WHERE key > ?1",
        )
        .and_then(|mut rows| {
            rows.query_map([marked], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?.collect()
        });
    for (key, session, reserved, reached) in found.map_err(io::Error::other)? {
        if marks.read(key)?.is_none() {
            let (seq, reserved) = (Seq::new(row::unsigned(reached)), Seq::new(row::unsigned(reserved)));
            marks.write_mark(key, &SessionId::from(session), seq, reserved)?;
        }
    }
    Ok(())
}

/// Returns the highest session key that any row uses.
fn newest_key(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row(
        "SELECT max(coalesce((SELECT max(key) FROM session), 0), coalesce((SELECT max(session) FROM block), 0),
                    coalesce((SELECT max(session) FROM doomed), 0))",
        [],
        |row| row.get(0),
    )
}

/// Finds sessions that were on disk and whose keys are higher than any in the database.
fn lost_sessions(marks: &HighWaterMarks, newest: i64, highest: i64) -> io::Result<Vec<(i64, LossRecord)>> {
    let mut lost = Vec::new();
    for key in newest.saturating_add(1)..=highest {
        if let Some(HighWaterMark::Synced { session, seq, reserved: _ }) = marks.read(key)? {
            let detail = "the whole session is missing, although its events were synced".to_owned();
            let cause = "session".to_owned();
            lost.push((key, LossRecord { at: now(), session, after: Seq::ZERO, until: seq, cause, detail }));
        }
    }
    Ok(lost)
}

fn record_losses(
    connection: &Connection,
    previous_shutdown: PreviousShutdown,
    lost: &[(i64, LossRecord)],
) -> Result<(), CommitError> {
    if let PreviousShutdown::Uncertain { since, until } = previous_shutdown {
        // In an empty journal no client has seen anything.
        connection.execute(
            "INSERT INTO unsure (since, until) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM session)",
            params![apply::to_sql_integer(since)?, apply::to_sql_integer(until)?],
        )?;
    }
    for (_, loss) in lost {
        repair::record_loss(connection, loss)?;
    }
    Ok(())
}
