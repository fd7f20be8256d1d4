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
use crate::kernel::command_log::record::{
    CommandOutcome, CommandRecord, OutcomeRecord, ReplyBody, RowId, StoredCommand,
};
use crate::kernel::id::{Fingerprint, SessionId};
use crate::kernel::time::Now;

/// A write to the row of a command.
#[derive(Debug, Clone)]
pub enum CommandWrite {
    /// The command was admitted.
    Admitted(Arc<CommandRecord>),
    /// The command has its outcome.
    Settled(OutcomeRecord),
}

/// Command writes that a caller waits for.
pub(super) struct CommandBatch {
    pub(super) writes: Vec<CommandWrite>,
    pub(super) durability: Durability,
    pub(super) reply: Reply,
}

impl Journal {
    /// Writes admissions and outcomes. The reply arrives when they have the requested durability.
    ///
    /// Calls are applied in order together with the batches, and each call is atomic.
    pub fn write_commands(
        &self,
        writes: Vec<CommandWrite>,
        durability: Durability,
    ) -> oneshot::Receiver<Result<(), CommitError>> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::WriteCommands(CommandBatch { writes, durability, reply }));
        answer
    }

    /// Writes outcomes and removes rows later, without a reply.
    ///
    /// The caller only takes a lock that is never held for long. An outcome that is removed before it is written
    /// is never written. A crash may lose all of it.
    pub fn defer_commands(
        &self,
        settled: impl IntoIterator<Item = OutcomeRecord>,
        forgotten: impl IntoIterator<Item = RowId>,
    ) {
        if self.shared.deferred.add(settled, forgotten) {
            self.send(Task::WriteDeferred);
        }
    }

    /// Loads the rows of all commands, in order.
    ///
    /// Rows that do not verify are dropped and removed. Call it once, before any command is written.
    pub async fn load_commands(&self) -> Result<Vec<StoredCommand>, ReadError> {
        let (found, broken) = self.read(load).await?;
        let highest = found.iter().map(|stored| stored.record.row).chain(broken.iter().copied()).max();
        self.shared.deferred.set_previous_rows(highest.unwrap_or(RowId(0)));
        if !broken.is_empty() {
            tracing::warn!(rows = broken.len(), "command rows do not verify; their outcomes are lost");
            self.defer_commands([], broken);
        }
        Ok(found)
    }
}

impl CommandBatch {
    /// Returns about how many bytes the batch adds to a commit.
    pub(super) fn estimated_bytes(&self) -> usize {
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
    pub(super) fn write_commands(&mut self, group: Vec<CommandBatch>) -> Vec<Reply> {
        if group.is_empty() {
            return Vec::new();
        }
        if self.failed() {
            refuse(group, &CommitError::StorageFailed);
            return Vec::new();
        }
        match self.transact_commands(&group) {
            Ok(()) => reply_written(group),
            Err(CommitError::Full) => {
                self.set_full();
                let (urgent, others): (Vec<_>, Vec<_>) = group.into_iter().partition(CommandBatch::is_urgent);
                refuse(others, &CommitError::Full);
                self.write_urgent_commands(urgent)
            }
            Err(error) => {
                self.fail_commands(group, &error);
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
    fn write_urgent_commands(&mut self, urgent: Vec<CommandBatch>) -> Vec<Reply> {
        while !urgent.is_empty() && self.reserve.release() {
            match self.transact_commands(&urgent) {
                Ok(()) => return reply_written(urgent),
                Err(CommitError::Full) => {}
                Err(error) => {
                    self.fail_commands(urgent, &error);
                    return Vec::new();
                }
            }
        }
        refuse(urgent, &CommitError::Full);
        Vec::new()
    }

    fn fail_commands(&mut self, group: Vec<CommandBatch>, error: &CommitError) {
        self.note_sync_failure(error);
        refuse(group, error);
        self.replace_if_corrupt(error);
    }

    fn transact_commands(&mut self, group: &[CommandBatch]) -> Result<(), CommitError> {
        let max_answer = self.options.answer_bytes;
        self.in_transaction(|connection, _| {
            for write in group.iter().flat_map(|batch| &batch.writes) {
                match write {
                    CommandWrite::Admitted(record) => admit(connection, record)?,
                    CommandWrite::Settled(settlement) => settle(connection, settlement, max_answer)?,
                }
            }
            Ok(())
        })
    }
}

fn reply_written(group: Vec<CommandBatch>) -> Vec<Reply> {
    let mut waiting = Vec::new();
    for CommandBatch { durability, reply, .. } in group {
        match durability {
            Durability::Synced => waiting.push(reply),
            Durability::Written => {
                let _ = reply.send(Ok(()));
            }
        }
    }
    waiting
}

fn refuse(group: Vec<CommandBatch>, error: &CommitError) {
    for batch in group {
        let _ = batch.reply.send(Err(error.clone()));
    }
}

/// Inserts the row of an admitted command, unless its outcome is written already.
fn admit(connection: &Connection, record: &CommandRecord) -> Result<(), CommitError> {
    connection
        .prepare_cached(
            "INSERT INTO command (row, id, repeat_key, kind, session, fingerprint, admitted, seal)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            apply::to_sql_integer(record.row.0)?,
            record.id.as_deref(),
            record.key.as_deref(),
            record.kind,
            record.session.as_ref().map(SessionId::as_str),
            record.fingerprint.0.to_be_bytes().as_slice(),
            apply::to_sql_integer(record.admitted_at.0)?,
            seal(record, None)
        ])?;
    Ok(())
}

/// Writes the outcome of a command, whether its admission was written or not.
pub(super) fn settle(connection: &Connection, it: &OutcomeRecord, max_answer: usize) -> Result<(), CommitError> {
    insert_outcome(connection, it, max_answer, "")
}

/// Writes the admission or the outcome of a command in the transaction of its effect. A command that has timed out
/// meanwhile keeps the outcome that its sender got.
pub(super) fn write_with_effect(connection: &Connection, write: &CommandWrite) -> Result<(), CommitError> {
    match write {
        CommandWrite::Admitted(record) => admit(connection, record),
        CommandWrite::Settled(it) => insert_outcome(connection, it, usize::MAX, "WHERE settled IS NULL"),
    }
}

fn insert_outcome(
    connection: &Connection,
    it: &OutcomeRecord,
    max_answer: usize,
    replaced: &str,
) -> Result<(), CommitError> {
    let (record, outcome) = (&*it.record, &it.outcome);
    let (body, too_large) = match &outcome.body {
        ReplyBody::Text(text) if text.len() <= max_answer => (Some(&**text), None),
        ReplyBody::Text(text) => (None, Some(text.len() as u64)),
        ReplyBody::TooLarge(bytes) => (None, Some(*bytes)),
        ReplyBody::Removed => (None, None),
    };
    let too_large = too_large.map(apply::to_sql_integer).transpose()?;
    let version = outcome.version.map(apply::to_sql_integer).transpose()?;
    connection
        .prepare_cached(&format!(
            "INSERT INTO command (row, id, repeat_key, kind, session, fingerprint, admitted, settled, success,
                 timed_out, version, too_large, seal, body_seal, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT DO UPDATE SET settled = ?8, success = ?9, timed_out = ?10, version = ?11,
                 too_large = ?12, seal = ?13, body_seal = ?14, body = ?15 {replaced}",
        ))?
        .execute(params![
            apply::to_sql_integer(record.row.0)?,
            record.id.as_deref(),
            record.key.as_deref(),
            record.kind,
            record.session.as_ref().map(SessionId::as_str),
            record.fingerprint.0.to_be_bytes().as_slice(),
            apply::to_sql_integer(record.admitted_at.0)?,
            apply::to_sql_integer(it.at.0)?,
            outcome.success,
            outcome.timed_out,
            version,
            too_large,
            seal(record, Some(&SealedOutcome { at: it.at, outcome, too_large })),
            body.map(|body| body_seal(record.row, body)),
            body
        ])?;
    Ok(())
}

pub(super) fn remove(connection: &Connection, row: RowId) -> Result<(), CommitError> {
    connection.prepare_cached("DELETE FROM command WHERE row = ?1")?.execute([row::signed(row.0)])?;
    Ok(())
}

/// Reads all rows, and returns the numbers of those that do not verify.
fn load(connection: &Connection) -> Result<(Vec<StoredCommand>, Vec<RowId>), ReadError> {
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
            None => broken.push(RowId(row::unsigned(row.get(0)?))),
        }
    }
    Ok((found, broken))
}

/// Reads a row; `None` if it does not verify.
fn read(row: &SqlRow<'_>) -> Option<StoredCommand> {
    let number = |column| row.get::<_, Option<i64>>(column).ok();
    let text = |column| row.get::<_, Option<String>>(column).ok();
    let record = CommandRecord {
        row: RowId(row::unsigned(number(0)??)),
        id: text(1)?.map(Into::into),
        key: text(2)?.map(Into::into),
        kind: text(3)??.into(),
        session: text(4)?.map(Into::into),
        fingerprint: Fingerprint(u128::from_be_bytes(row.get::<_, [u8; 16]>(5).ok()?)),
        admitted_at: Now(row::unsigned(number(6)??)),
    };
    let too_large = number(11)?;
    let settled = match number(7)? {
        None => None,
        Some(at) => {
            let outcome = CommandOutcome {
                success: number(8)?? != 0,
                body: too_large.map_or(ReplyBody::Removed, |bytes| ReplyBody::TooLarge(row::unsigned(bytes))),
                version: number(10)?.map(row::unsigned),
                timed_out: number(9)?? != 0,
            };
            Some((outcome, Now(row::unsigned(at))))
        }
    };
    let ended = settled.as_ref().map(|(outcome, at)| SealedOutcome { at: *at, outcome, too_large });
    if i64::from(seal(&record, ended.as_ref())) != number(12)?? {
        return None;
    }
    let body = text(14).flatten().filter(|body| number(13).flatten() == Some(i64::from(body_seal(record.row, body))));
    let settled = settled.map(|(outcome, at)| match body {
        Some(body) => (CommandOutcome { body: ReplyBody::Text(body.into()), ..outcome }, at),
        None => (outcome, at),
    });
    Some(StoredCommand { record, settled })
}

/// The sealed part of an outcome: everything but the text of the answer.
struct SealedOutcome<'a> {
    at: Now,
    outcome: &'a CommandOutcome,
    too_large: Option<i64>,
}

/// Returns the checksum of a row without the text of its answer, which may be removed alone.
fn seal(record: &CommandRecord, ended: Option<&SealedOutcome<'_>>) -> u32 {
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
    hasher.update(&record.admitted_at.0.to_be_bytes());
    if let Some(SealedOutcome { at, outcome, too_large }) = ended {
        hasher.update(&[1, u8::from(outcome.success), u8::from(outcome.timed_out)]);
        hasher.update(&at.0.to_be_bytes());
        hasher.update(&outcome.version.map_or([0xff; 8], u64::to_be_bytes));
        hasher.update(&too_large.map_or([0xff; 8], i64::to_be_bytes));
    }
    hasher.finalize()
}

fn body_seal(row: RowId, body: &str) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&row.0.to_be_bytes());
    hasher.update(body.as_bytes());
    hasher.finalize()
}
