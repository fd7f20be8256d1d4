//! Rows for admitted commands and their outcomes, so that a repeated command is recognised after a restart.
//!
//! A row is written when a command is admitted and again when it is settled; the second write is complete without
//! the first. `seal` covers the row, and `body_seal` its answer. A row that does not verify is dropped. An answer
//! that does not verify is dropped alone, because the outcome is known without it. An answer above the size limit
//! is not written.
//!
//! A trigger removes the rows of a session together with it, even if a program with an older schema deletes the
//! session. It also removes all other answers that name the session.

use std::sync::Arc;

use crc32fast::Hasher;
use rusqlite::{Connection, Row as SqlRow, params};
use tokio::sync::oneshot;

use super::error::{CommitError, ReadError};
use super::record::Durability;
use super::task::{Reply, Task};
use super::writer::Writer;
use super::{Journal, apply, row};
use crate::kernel::book::record::{Body, Outcome, Record, Row, Settlement, Stored};
use crate::kernel::id::{Fingerprint, SessionId};
use crate::kernel::time::Now;

/// A write to the row of a command.
#[derive(Debug, Clone)]
pub enum CommandWrite {
    /// The command was admitted.
    Admitted(Arc<Record>),
    /// The command has its outcome.
    Settled(Settlement),
}

/// Command writes that a caller waits for.
pub(super) struct Keeping {
    pub(super) writes: Vec<CommandWrite>,
    pub(super) durability: Durability,
    pub(super) reply: Reply,
}

impl Journal {
    /// Writes admissions and outcomes. The reply arrives when they have the requested durability.
    ///
    /// Calls are applied in order together with the batches, and each call is atomic.
    pub fn keep_commands(
        &self,
        writes: Vec<CommandWrite>,
        durability: Durability,
    ) -> oneshot::Receiver<Result<(), CommitError>> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::KeepCommands(Keeping { writes, durability, reply }));
        answer
    }

    /// Writes outcomes and removes rows later, without a reply.
    ///
    /// The caller only takes a lock that is never held for long. An outcome that is removed before it is written
    /// is never written. A crash may lose all of it.
    pub fn keep_commands_later(
        &self,
        settled: impl IntoIterator<Item = Settlement>,
        forgotten: impl IntoIterator<Item = Row>,
    ) {
        if self.shared.behind.add(settled, forgotten) {
            self.send(Task::WriteBehind);
        }
    }

    /// Loads the rows of all commands, in order.
    ///
    /// Rows that do not verify are dropped and removed. Call it once, before any command is written.
    pub async fn load_commands(&self) -> Result<Vec<Stored>, ReadError> {
        let (found, broken) = self.read(load).await?;
        let highest = found.iter().map(|stored| stored.record.row).chain(broken.iter().copied()).max();
        self.shared.behind.begin_above(highest.unwrap_or(Row(0)));
        if !broken.is_empty() {
            tracing::warn!(rows = broken.len(), "command rows do not verify; their outcomes are lost");
            self.keep_commands_later([], broken);
        }
        Ok(found)
    }
}

impl Keeping {
    /// Returns about how many bytes the batch adds to a commit.
    pub(super) fn weight(&self) -> usize {
        let one = |write: &CommandWrite| match write {
            CommandWrite::Admitted(_) => 256,
            CommandWrite::Settled(settlement) => settlement.outcome.body.len() + 256,
        };
        self.writes.iter().map(one).sum()
    }

    /// Returns whether the batch holds only outcomes, so that it may use the disk reserve.
    fn is_urgent(&self) -> bool {
        self.writes.iter().all(|write| match write {
            CommandWrite::Admitted(_) => false,
            CommandWrite::Settled(_) => true,
        })
    }
}

impl Writer {
    /// Writes command batches, and returns the replies that wait for a sync.
    pub(super) fn write_commands(&mut self, group: Vec<Keeping>) -> Vec<Reply> {
        if group.is_empty() {
            return Vec::new();
        }
        if self.failed() {
            refuse(group, &CommitError::StorageFailed);
            return Vec::new();
        }
        match self.transact_commands(&group) {
            Ok(()) => answer(group),
            Err(CommitError::Full) => {
                self.became_full();
                let (urgent, others): (Vec<_>, Vec<_>) = group.into_iter().partition(Keeping::is_urgent);
                refuse(others, &CommitError::Full);
                self.make_do_with(urgent)
            }
            Err(error) => {
                self.give_up_on(group, &error);
                Vec::new()
            }
        }
    }

    /// Syncs, and sends the result to the waiting callers.
    pub(super) fn sync_commands(&mut self, waiting: Vec<Reply>) {
        if waiting.is_empty() {
            return;
        }
        // If a sync failed in the meantime, nothing is left to be synced.
        let result = if self.failed() { Err(CommitError::StorageFailed) } else { self.sync_log() };
        for reply in waiting {
            let _ = reply.send(result.clone());
        }
    }

    /// Writes outcomes on a full disk, with space from the disk reserve.
    fn make_do_with(&mut self, urgent: Vec<Keeping>) -> Vec<Reply> {
        while !urgent.is_empty() && self.spare.spend() {
            match self.transact_commands(&urgent) {
                Ok(()) => return answer(urgent),
                Err(CommitError::Full) => {}
                Err(error) => {
                    self.give_up_on(urgent, &error);
                    return Vec::new();
                }
            }
        }
        refuse(urgent, &CommitError::Full);
        Vec::new()
    }

    fn give_up_on(&mut self, group: Vec<Keeping>, error: &CommitError) {
        self.note(error);
        refuse(group, error);
        self.rescued(error);
    }

    fn transact_commands(&mut self, group: &[Keeping]) -> Result<(), CommitError> {
        let most = self.options.answer_bytes;
        self.in_transaction(|connection, _| {
            for write in group.iter().flat_map(|keeping| &keeping.writes) {
                match write {
                    CommandWrite::Admitted(record) => admit(connection, record)?,
                    CommandWrite::Settled(settlement) => settle(connection, settlement, most)?,
                }
            }
            Ok(())
        })
    }
}

fn answer(group: Vec<Keeping>) -> Vec<Reply> {
    let mut waiting = Vec::new();
    for Keeping { durability, reply, .. } in group {
        match durability {
            Durability::Synced => waiting.push(reply),
            Durability::Written => {
                let _ = reply.send(Ok(()));
            }
        }
    }
    waiting
}

fn refuse(group: Vec<Keeping>, error: &CommitError) {
    for keeping in group {
        let _ = keeping.reply.send(Err(error.clone()));
    }
}

/// Inserts the row of an admitted command, unless its outcome is written already.
fn admit(connection: &Connection, record: &Record) -> Result<(), CommitError> {
    connection
        .prepare_cached(
            "INSERT INTO command (row, id, repeat_key, kind, session, fingerprint, admitted, seal)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            apply::stored(record.row.0)?,
            record.id.as_deref(),
            record.key.as_deref(),
            record.kind,
            record.session.as_ref().map(SessionId::as_str),
            record.fingerprint.0.to_be_bytes().as_slice(),
            apply::stored(record.admitted.0)?,
            seal(record, None)
        ])?;
    Ok(())
}

/// Writes the outcome of a command, whether its admission was written or not.
pub(super) fn settle(connection: &Connection, it: &Settlement, most: usize) -> Result<(), CommitError> {
    let (record, outcome) = (&*it.record, &it.outcome);
    let (body, too_large) = match &outcome.body {
        Body::Text(text) if text.len() <= most => (Some(&**text), None),
        Body::Text(text) => (None, Some(text.len() as u64)),
        Body::TooLarge(bytes) => (None, Some(*bytes)),
        Body::Gone => (None, None),
    };
    let too_large = too_large.map(apply::stored).transpose()?;
    let version = outcome.version.map(apply::stored).transpose()?;
    connection
        .prepare_cached(
            "INSERT INTO command (row, id, repeat_key, kind, session, fingerprint, admitted, settled, success,
                 timed_out, version, too_large, seal, body_seal, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT DO UPDATE SET settled = ?8, success = ?9, timed_out = ?10, version = ?11,
                 too_large = ?12, seal = ?13, body_seal = ?14, body = ?15",
        )?
        .execute(params![
            apply::stored(record.row.0)?,
            record.id.as_deref(),
            record.key.as_deref(),
            record.kind,
            record.session.as_ref().map(SessionId::as_str),
            record.fingerprint.0.to_be_bytes().as_slice(),
            apply::stored(record.admitted.0)?,
            apply::stored(it.at.0)?,
            outcome.success,
            outcome.timed_out,
            version,
            too_large,
            seal(record, Some(&Ended { at: it.at, outcome, too_large })),
            body.map(|body| body_seal(record.row, body)),
            body
        ])?;
    Ok(())
}

pub(super) fn forget(connection: &Connection, row: Row) -> Result<(), CommitError> {
    connection.prepare_cached("DELETE FROM command WHERE row = ?1")?.execute([row::signed(row.0)])?;
    Ok(())
}

/// Reads all rows, and returns the numbers of those that do not verify.
fn load(connection: &Connection) -> Result<(Vec<Stored>, Vec<Row>), ReadError> {
    let mut statement = connection.prepare(
        "SELECT row, id, repeat_key, kind, session, fingerprint, admitted, settled, success, timed_out, version,
                too_large, seal, body_seal, body
         FROM command ORDER BY row",
    )?;
    let mut rows = statement.query([])?;
    let (mut found, mut broken) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        match read(row) {
            Some(stored) => found.push(stored),
            None => broken.push(Row(row::unsigned(row.get(0)?))),
        }
    }
    Ok((found, broken))
}

/// Reads a row; `None` if it does not verify.
fn read(row: &SqlRow<'_>) -> Option<Stored> {
    let number = |column| row.get::<_, Option<i64>>(column).ok();
    let text = |column| row.get::<_, Option<String>>(column).ok();
    let record = Record {
        row: Row(row::unsigned(number(0)??)),
        id: text(1)?.map(Into::into),
        key: text(2)?.map(Into::into),
        kind: text(3)??.into(),
        session: text(4)?.map(Into::into),
        fingerprint: Fingerprint(u128::from_be_bytes(row.get::<_, [u8; 16]>(5).ok()?)),
        admitted: Now(row::unsigned(number(6)??)),
    };
    let too_large = number(11)?;
    let settled = match number(7)? {
        None => None,
        Some(at) => {
            let outcome = Outcome {
                success: number(8)?? != 0,
                body: too_large.map_or(Body::Gone, |bytes| Body::TooLarge(row::unsigned(bytes))),
                version: number(10)?.map(row::unsigned),
                timed_out: number(9)?? != 0,
            };
            Some((outcome, Now(row::unsigned(at))))
        }
    };
    let ended = settled.as_ref().map(|(outcome, at)| Ended { at: *at, outcome, too_large });
    if i64::from(seal(&record, ended.as_ref())) != number(12)?? {
        return None;
    }
    let body = text(14)
        .flatten()
        .filter(|body| number(13).flatten() == Some(i64::from(body_seal(record.row, body))));
    let settled = settled.map(|(outcome, at)| match body {
        Some(body) => (Outcome { body: Body::Text(body.into()), ..outcome }, at),
        None => (outcome, at),
    });
    Some(Stored { record, settled })
}

/// The sealed part of an outcome: everything but the text of the answer.
struct Ended<'a> {
    at: Now,
    outcome: &'a Outcome,
    too_large: Option<i64>,
}

/// Returns the checksum of a row without the text of its answer, which may be removed alone.
fn seal(record: &Record, ended: Option<&Ended<'_>>) -> u32 {
    let mut hasher = Hasher::new();
    let mut text = |text: Option<&str>| {
        let length = text.map_or(u64::MAX, |text| text.len() as u64);
        hasher.update(&length.to_be_bytes());
        hasher.update(text.unwrap_or_default().as_bytes());
    };
    text(record.id.as_deref());
    text(record.key.as_deref());
    text(Some(&record.kind));
    text(record.session.as_ref().map(SessionId::as_str));
    hasher.update(&record.row.0.to_be_bytes());
    hasher.update(&record.fingerprint.0.to_be_bytes());
    hasher.update(&record.admitted.0.to_be_bytes());
    if let Some(Ended { at, outcome, too_large }) = ended {
        hasher.update(&[1, u8::from(outcome.success), u8::from(outcome.timed_out)]);
        hasher.update(&at.0.to_be_bytes());
        hasher.update(&outcome.version.map_or([0xff; 8], u64::to_be_bytes));
        hasher.update(&too_large.map_or([0xff; 8], i64::to_be_bytes));
    }
    hasher.finalize()
}

fn body_seal(row: Row, body: &str) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&row.0.to_be_bytes());
    hasher.update(body.as_bytes());
    hasher.finalize()
}
