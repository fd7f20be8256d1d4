//! Repair of a damaged history: blocks that do not verify are removed, and a splice records each loss.
//!
//! Reading produces a plan, and the writer executes it if nothing has changed meanwhile. Nothing is discarded:
//! removed blocks move to the table `set_aside`. Blocks after a damaged one are verified on their own and stay.

use rusqlite::{Connection, OptionalExtension, params};

use super::apply;
use super::checksum::{self, BlockHeader};
use super::error::{CommitError, Conflict, ReadError};
use super::high_water_marks::{HighWaterMark, HighWaterMarks};
use super::record::{Loss, LossReason, LossRecord, LostLine};
use super::row;
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;

/// The changes that repair a history.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RepairPlan {
    key: i64,
    /// The newest row when the plan was made.
    newest_row: Option<i64>,
    /// The rows that do not verify.
    unverified_rows: Vec<i64>,
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
pub(super) enum EndEvidence {
    /// The session's mark.
    Mark,
    /// There is none: the history may be shorter than it was.
    Missing,
}

/// What is known about the extent of a session besides its blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionExtent {
    pub(super) key: i64,
    /// The highest sequence number that may have been issued.
    pub(super) reserved: u64,
    /// The highest sequence number that is known to have been synced.
    pub(super) marked: u64,
    /// Whether written events may be lost to a power failure.
    pub(super) uncertain: bool,
}

impl SessionExtent {
    /// Loads it from the session's row and its mark.
    pub(super) fn load(
        connection: &Connection,
        session: &SessionId,
        marks: &HighWaterMarks,
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
        (key, reserved, epoch): (i64, i64, i64),
        marks: &HighWaterMarks,
    ) -> Result<Self, ReadError> {
        let mut unmarked = false;
        let (marked, mark_reserved) = match marks.read(key) {
            Ok(Some(HighWaterMark::Synced { session: name, seq, reserved })) if session.as_str().starts_with(&name) => {
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
        let reserved = plausible_reservation(row::unsigned(reserved), mark_reserved.max(marked));
        // Without a mark, the end of a history that was not closed cleanly proves nothing.
        let unsure = row::unsigned(epoch) != marks.epoch()
            && (unmarked
                || connection
                    .prepare_cached("SELECT EXISTS (SELECT 1 FROM unsure WHERE ?1 BETWEEN since AND until)")?
                    .query_row([epoch], |row| row.get(0))?);
        Ok(Self { key, reserved, marked, uncertain: unsure })
    }

    /// Returns why a history that ends at `reached` is shorter than it should be; `None` if it is complete.
    pub(super) const fn truncation_cause(&self, reached: u64) -> Option<LossReason> {
        if self.marked > reached {
            Some(LossReason::Damage)
        } else if self.uncertain && self.reserved > reached {
            Some(LossReason::Power)
        } else {
            None
        }
    }
}

/// Clamps a reservation to a plausible value: a flipped bit must not move a session to the end of the number
/// range.
const fn plausible_reservation(stored: u64, marked: u64) -> u64 {
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
    marks: &HighWaterMarks,
    evidence: EndEvidence,
) -> Result<Option<RepairPlan>, ReadError> {
    let moment = connection.unchecked_transaction()?;
    let Some(extent) = SessionExtent::load(&moment, session, marks)? else {
        return Err(ReadError::NoSuchSession { session: session.clone() });
    };
    let mut plan = RepairPlan { key: extent.key, newest_row: None, unverified_rows: Vec::new(), splices: Vec::new() };
    let (mut reached, mut chain) = (0, checksum::genesis(session));
    // Unverified rows are the end of the history if no verified row follows them.
    let mut broken_end = false;
    let mut statement = moment.prepare_cached(
        "SELECT first, last, count, prev, checksum, seal, bytes, rowid
         FROM block WHERE session = ?1 ORDER BY first",
    )?;
    let mut rows = statement.query([extent.key])?;
    while let Some(row) = rows.next()? {
        let (header, seal) = row::block_header(row)?;
        let bytes = row.get_ref(6)?.as_blob().unwrap_or_default();
        let rowid = row.get(7)?;
        plan.newest_row = Some(rowid);
        let begins = chain == checksum::genesis(session) && reached == 0;
        let fits = (header.first > reached || (begins && header.first == 0))
            && header.last >= header.first
            && header.verify_unchained(session, seal, bytes)
            // Missing bytes imply missing numbers; without them there is no room for a splice.
            && (header.prev == chain || header.first > reached.saturating_add(1));
        broken_end = !fits;
        if !fits {
            plan.unverified_rows.push(rowid);
            continue;
        }
        if header.prev != chain {
            plan.add_splice(reached, header.first.saturating_sub(1), LossReason::Damage, (chain, header.prev));
        }
        (reached, chain) = (header.last, header.checksum);
    }
    let damaged = broken_end || evidence == EndEvidence::Missing;
    let cause = if damaged { Some(LossReason::Damage) } else { extent.truncation_cause(reached) };
    if let Some(cause) = cause {
        let until = extent.reserved.max(extent.marked).max(reached).saturating_add(1);
        plan.add_splice(reached, until, cause, (chain, chain));
    }
    Ok((!plan.splices.is_empty() || !plan.unverified_rows.is_empty()).then_some(plan))
}

impl RepairPlan {
    fn add_splice(&mut self, after: u64, until: u64, cause: LossReason, (prev, checksum): (u32, u32)) {
        let loss = Loss { after: Seq::new(after), until: Seq::new(until), cause };
        self.splices.push(Splice { loss, prev, checksum });
    }

    /// Executes the plan inside a transaction of the writer; returns the losses.
    pub(super) fn execute(
        &self,
        connection: &Connection,
        session: &SessionId,
        line: LostLine,
        at: Now,
    ) -> Result<Vec<Loss>, CommitError> {
        if apply::key(connection, session)? != Some(self.key) || self.newest_row(connection)? != self.newest_row {
            return Err(Conflict::Changed.into());
        }
        for rowid in &self.unverified_rows {
            let copied = connection
                .prepare_cached(
                    "INSERT INTO set_aside SELECT session, first, last, count, prev, checksum, seal, bytes
                     FROM block WHERE rowid = ?1",
                )?
                .execute([rowid])?;
            if copied == 0 {
                // Another reader found the same damage, and its plan was executed first.
                return Err(Conflict::Changed.into());
            }
            connection.prepare_cached("DELETE FROM block WHERE rowid = ?1")?.execute([rowid])?;
        }
        for Splice { loss, prev, checksum } in &self.splices {
            let (first, last) = (loss.after.next().number(), loss.until.number());
            let header = BlockHeader { first, last, count: 0, prev: *prev, checksum: *checksum };
            if self.has_block(connection, first)? {
                return Err(Conflict::Changed.into());
            }
            apply::insert_block(connection, session, self.key, &header, &line(session, loss, at))?;
            connection
                .prepare_cached("UPDATE session SET reserved = max(reserved, ?2) WHERE key = ?1")?
                .execute(params![self.key, apply::to_sql_integer(last)?])?;
            let Loss { after, until, cause } = *loss;
            let (session, cause) = (session.as_str().to_owned(), cause.as_str().to_owned());
            record_loss(connection, &LossRecord { at, session, after, until, cause, detail: String::new() })?;
        }
        Ok(self.splices.iter().map(|splice| splice.loss).collect())
    }

    /// Returns whether a block begins where a splice of this plan does.
    fn has_block(&self, connection: &Connection, first: u64) -> Result<bool, CommitError> {
        let first = apply::to_sql_integer(first)?;
        Ok(connection
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM block WHERE session = ?1 AND first = ?2)")?
            .query_row(params![self.key, first], |row| row.get(0))?)
    }

    fn newest_row(&self, connection: &Connection) -> rusqlite::Result<Option<i64>> {
        connection
            .prepare_cached("SELECT rowid FROM block WHERE session = ?1 ORDER BY first DESC LIMIT 1")?
            .query_row([self.key], |row| row.get(0))
            .optional()
    }
}

/// Records a loss for the operator.
pub(super) fn record_loss(connection: &Connection, found: &LossRecord) -> Result<(), CommitError> {
    let LossRecord { at, session, after, until, cause, detail } = found;
    let (after, until) = (apply::to_sql_integer(after.number())?, apply::to_sql_integer(until.number())?);
    connection
        .prepare_cached("INSERT INTO loss (at, session, after, until, cause, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![apply::to_sql_integer(at.0)?, session, after, until, cause, detail])?;
    Ok(())
}
