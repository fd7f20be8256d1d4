//! Opening the journal: recovers the state that the previous epoch left, and records its losses.

use std::cell::Cell;
use std::io;

use rusqlite::{Connection, params};

use super::apply::{self, Life};
use super::chores::Chores;
use super::erase::{self, Erase};
use super::error::{CommitError, OpenError};
use super::files::{self, Ground};
use super::marks::{Before, Ending, Mark, Marks};
use super::mend;
use super::record::{Found, Options};
use super::{DATABASE, LOG, MARKS, present, row, schema};
use crate::kernel::id::{Seq, SessionId};

/// The state of a journal that has just been opened.
pub(super) struct Begun {
    pub(super) sessions: u64,
    pub(super) marks: Marks,
    pub(super) before: Before,
    pub(super) life: Life,
    pub(super) chores: Chores,
}

impl Begun {
    /// Recovers the state from an open database and its marks, and makes everything found durable.
    pub(super) fn on(ground: &Ground, connection: &Connection, options: &Options) -> Result<Self, OpenError> {
        let (database, path, log) = (ground.path(DATABASE), ground.path(MARKS), ground.path(LOG));
        let failed = OpenError::sqlite(&database);
        let file = (ground.open)(&path).map_err(OpenError::io("open", &path))?;
        let (marks, before) =
            Marks::open(file, options.boot, present().0 / 1000).map_err(OpenError::io("read", &path))?;
        let highest = marks.highest().map_err(OpenError::io("read", &path))?;
        let newest = newest_key(connection).map_err(&failed)?;
        let lost = lost_sessions(&marks, newest, highest).map_err(OpenError::io("read", &path))?;
        write_down(connection, before, &lost)
            .map_err(|error| OpenError::Begin { path: database.clone(), error })?;
        let handle = (ground.open)(&log).map_err(OpenError::io("open", &log))?;
        if matches!(before, Before::Unsure { .. }) {
            files::write_again(handle.as_ref()).map_err(OpenError::io("write", &log))?;
        }
        handle.sync().map_err(OpenError::io("sync", &log))?;
        if before == Before::Killed {
            mark_unanswered(connection, &marks).map_err(OpenError::io("write", &path))?;
        }
        marks.cover(newest.max(highest));
        // Written last: an unclean shutdown must not be forgotten before its consequences are on disk.
        marks.end(Ending::Open).map_err(OpenError::io("write", &path))?;
        for (key, found) in &lost {
            tracing::error!(session = %found.session, until = %found.until, "a session is missing from the journal");
            marks.bury(*key).map_err(OpenError::io("write", &path))?;
        }
        let mut chores = Chores::default();
        for key in erase::doomed(connection).map_err(&failed)? {
            chores.add(Box::new(Erase { key, unused: None, reply: None }));
        }
        let life = Life { number: marks.life(), last_key: Cell::new(newest.max(highest)) };
        let sessions = schema::sessions(connection).map_err(&failed)?;
        Ok(Self { sessions, marks, before, life, chores })
    }
}

/// Writes the first mark of sessions whose process was killed before their first reply.
///
/// No client has seen anything of them that is missing, and without a mark they would count as truncated.
fn mark_unanswered(connection: &Connection, marks: &Marks) -> io::Result<()> {
    let Some(marked) = marks.marked_before() else { return Ok(()) };
    let found: rusqlite::Result<Vec<(i64, String, i64, i64)>> = connection
        .prepare(
            "SELECT key, id, reserved, coalesce((SELECT max(last) FROM block WHERE session = key), 0)
             FROM session WHERE key > ?1",
        )
        .and_then(|mut rows| {
            rows.query_map([marked], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
                .collect()
        });
    for (key, session, reserved, reached) in found.map_err(io::Error::other)? {
        if marks.read(key)?.is_none() {
            let (seq, reserved) = (Seq::new(row::unsigned(reached)), Seq::new(row::unsigned(reserved)));
            marks.raise(key, &SessionId::from(session), seq, reserved)?;
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
fn lost_sessions(marks: &Marks, newest: i64, highest: i64) -> io::Result<Vec<(i64, Found)>> {
    let mut lost = Vec::new();
    for key in newest.saturating_add(1)..=highest {
        if let Some(Mark::Reaches { session, seq, reserved: _ }) = marks.read(key)? {
            let detail = "the whole session is missing, although its events were synced".to_owned();
            let cause = "session".to_owned();
            lost.push((key, Found { at: present(), session, after: Seq::ZERO, until: seq, cause, detail }));
        }
    }
    Ok(lost)
}

fn write_down(connection: &Connection, before: Before, lost: &[(i64, Found)]) -> Result<(), CommitError> {
    if let Before::Unsure { since, until } = before {
        // In an empty journal no client has seen anything.
        connection.execute(
            "INSERT INTO unsure (since, until) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM session)",
            params![apply::stored(since)?, apply::stored(until)?],
        )?;
    }
    for (_, found) in lost {
        mend::note(connection, found)?;
    }
    Ok(())
}
