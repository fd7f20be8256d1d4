//! Repair of a damaged history: blocks that do not verify are removed, and a splice records each loss.
//!
//! Reading produces a plan, and the writer executes it if nothing has changed meanwhile. Nothing is discarded:
//! removed blocks move to the table `set_aside`. Blocks after a damaged one are verified on their own and stay.

use rusqlite::{Connection, OptionalExtension, params};

use super::apply;
use super::check::{self, Numbers};
use super::error::{CommitError, Conflict, ReadError};
use super::marks::{Mark, Marks};
use super::record::{Cause, Found, Loss, LostLine};
use super::row;
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;

/// The changes that repair a history.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    key: i64,
    /// The newest row when the plan was made.
    newest: Option<i64>,
    /// The rows that do not verify.
    broken: Vec<i64>,
    splices: Vec<Splice>,
}

#[derive(Debug, PartialEq, Eq)]
struct Splice {
    loss: Loss,
    prev: u32,
    checksum: u32,
}

/// The evidence for how far a history should reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// The session's mark.
    Mark,
    /// There is none: the history may be shorter than it was.
    Nothing,
}

/// What is known about the extent of a session besides its blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) key: i64,
    /// The highest sequence number that may have been issued.
    pub(super) reserved: u64,
    /// The highest sequence number that is known to have been synced.
    pub(super) marked: u64,
    /// Whether written events may be lost to a power failure.
    pub(super) unsure: bool,
}

impl Known {
    /// Loads it from the session's row and its mark.
    pub(super) fn of(
        connection: &Connection,
        session: &SessionId,
        marks: &Marks,
    ) -> Result<Option<Self>, ReadError> {
        let found: Option<(i64, i64, i64)> = connection
            .prepare_cached("SELECT key, reserved, life FROM session WHERE id = ?1")?
            .query_row([session.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        found.map(|row| Self::from_row(connection, session, row, marks)).transpose()
    }

    /// Combines the session's row (its key, its reservation and its epoch) with its mark.
    pub(super) fn from_row(
        connection: &Connection,
        session: &SessionId,
        (key, reserved, life): (i64, i64, i64),
        marks: &Marks,
    ) -> Result<Self, ReadError> {
        let mut unmarked = false;
        let (marked, mark_reserved) = match marks.read(key) {
            Ok(Some(Mark::Reaches { session: name, seq, reserved }))
                if session.as_str().starts_with(&name) =>
            {
                (seq.number(), reserved.number())
            }
            Ok(_) => {
                unmarked = true;
                (0, 0)
            }
            Err(error) => {
                tracing::warn!(%session, %error, "cannot read the mark of a session");
                (0, 0)
            }
        };
        let reserved = plausible(row::unsigned(reserved), mark_reserved.max(marked));
        // Without a mark, the end of a history that was not closed cleanly proves nothing.
        let unsure = row::unsigned(life) != marks.life()
            && (unmarked
                || connection
                    .prepare_cached("SELECT EXISTS (SELECT 1 FROM unsure WHERE ?1 BETWEEN since AND until)")?
                    .query_row([life], |row| row.get(0))?);
        Ok(Self { key, reserved, marked, unsure })
    }

    /// Returns why a history that ends at `reached` is shorter than it should be; `None` if it is complete.
    pub(super) const fn misses(&self, reached: u64) -> Option<Cause> {
        if self.marked > reached {
            Some(Cause::Damage)
        } else if self.unsure && self.reserved > reached {
            Some(Cause::Power)
        } else {
            None
        }
    }
}

/// Clamps a reservation to a plausible value: a flipped bit must not move a session to the end of the number
/// range.
const fn plausible(stored: u64, marked: u64) -> u64 {
    if stored > marked && stored - marked > u32::MAX as u64 {
        marked + u16::MAX as u64
    } else if stored < marked {
        marked
    } else {
        stored
    }
}

/// Finds all damage of a history; `None` if there is none.
pub(super) fn plan(
    connection: &Connection,
    session: &SessionId,
    marks: &Marks,
    trust: Trust,
) -> Result<Option<Plan>, ReadError> {
    let moment = connection.unchecked_transaction()?;
    let Some(known) = Known::of(&moment, session, marks)? else {
        return Err(ReadError::NoSuchSession { session: session.clone() });
    };
    let mut plan = Plan { key: known.key, newest: None, broken: Vec::new(), splices: Vec::new() };
    let (mut reached, mut chain) = (0, check::genesis(session));
    // Unverified rows are the end of the history if no verified row follows them.
    let mut broken_end = false;
    let mut statement = moment.prepare_cached(
        "SELECT first, last, count, prev, checksum, seal, bytes, rowid
         FROM block WHERE session = ?1 ORDER BY first",
    )?;
    let mut rows = statement.query([known.key])?;
    while let Some(row) = rows.next()? {
        let (numbers, seal) = row::numbers(row)?;
        let bytes = row.get_ref(6)?.as_blob().unwrap_or_default();
        let rowid = row.get(7)?;
        plan.newest = Some(rowid);
        let begins = chain == check::genesis(session) && reached == 0;
        let fits = (numbers.first > reached || (begins && numbers.first == 0))
            && numbers.last >= numbers.first
            && numbers.stands(session, seal, bytes)
            // Missing bytes imply missing numbers; without them there is no room for a splice.
            && (numbers.prev == chain || numbers.first > reached.saturating_add(1));
        broken_end = !fits;
        if !fits {
            plan.broken.push(rowid);
            continue;
        }
        if numbers.prev != chain {
            plan.miss(reached, numbers.first.saturating_sub(1), Cause::Damage, (chain, numbers.prev));
        }
        (reached, chain) = (numbers.last, numbers.checksum);
    }
    let damaged = broken_end || trust == Trust::Nothing;
    let cause = if damaged { Some(Cause::Damage) } else { known.misses(reached) };
    if let Some(cause) = cause {
        let until = known.reserved.max(known.marked).max(reached).saturating_add(1);
        plan.miss(reached, until, cause, (chain, chain));
    }
    Ok((!plan.splices.is_empty() || !plan.broken.is_empty()).then_some(plan))
}

impl Plan {
    fn miss(&mut self, after: u64, until: u64, cause: Cause, (prev, checksum): (u32, u32)) {
        let loss = Loss { after: Seq::new(after), until: Seq::new(until), cause };
        self.splices.push(Splice { loss, prev, checksum });
    }

    /// Executes the plan inside a transaction of the writer; returns the losses.
    pub(super) fn carry_out(
        &self,
        connection: &Connection,
        session: &SessionId,
        line: LostLine,
        at: Now,
    ) -> Result<Vec<Loss>, CommitError> {
        if apply::key(connection, session)? != Some(self.key) || self.newest(connection)? != self.newest {
            return Err(Conflict::Changed.into());
        }
        for rowid in &self.broken {
            connection
                .prepare_cached(
                    "INSERT INTO set_aside SELECT session, first, last, count, prev, checksum, seal, bytes
                     FROM block WHERE rowid = ?1",
                )?
                .execute([rowid])?;
            connection.prepare_cached("DELETE FROM block WHERE rowid = ?1")?.execute([rowid])?;
        }
        for Splice { loss, prev, checksum } in &self.splices {
            let (first, last) = (loss.after.next().number(), loss.until.number());
            let numbers = Numbers { first, last, count: 0, prev: *prev, checksum: *checksum };
            apply::insert_block(connection, session, self.key, &numbers, &line(session, loss, at))?;
            connection
                .prepare_cached("UPDATE session SET reserved = max(reserved, ?2) WHERE key = ?1")?
                .execute(params![self.key, apply::stored(last)?])?;
            let Loss { after, until, cause } = *loss;
            let (session, cause) = (session.as_str().to_owned(), cause.as_str().to_owned());
            note(connection, &Found { at, session, after, until, cause, detail: String::new() })?;
        }
        Ok(self.splices.iter().map(|splice| splice.loss).collect())
    }

    fn newest(&self, connection: &Connection) -> rusqlite::Result<Option<i64>> {
        connection
            .prepare_cached("SELECT rowid FROM block WHERE session = ?1 ORDER BY first DESC LIMIT 1")?
            .query_row([self.key], |row| row.get(0))
            .optional()
    }
}

/// Records a loss for the operator.
pub(super) fn note(connection: &Connection, found: &Found) -> Result<(), CommitError> {
    let Found { at, session, after, until, cause, detail } = found;
    let (after, until) = (apply::stored(after.number())?, apply::stored(until.number())?);
    connection
        .prepare_cached(
            "INSERT INTO loss (at, session, after, until, cause, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![apply::stored(at.0)?, session, after, until, cause, detail])?;
    Ok(())
}
