//! Applies one batch inside a transaction: its preconditions, and the rows it becomes.
//!
//! It begins and ends no transaction; the caller rolls back a refused batch.

use std::cell::Cell;

use rusqlite::{Connection, OptionalExtension, params};

use super::checksum::{self, BlockHeader};
use super::commands;
use super::error::{CommitError, Conflict};
use super::record::{Batch, Block, Checkpoint, Create, Meta};
use crate::kernel::id::{Seq, SessionId};

/// The epoch of the journal: one opening of it, which marks the rows written since.
#[derive(Debug)]
pub(super) struct Epoch {
    /// The epoch's number.
    pub(super) number: u64,
    /// The last key given to a session. No key is ever reused, because rows may outlive their session for a while.
    pub(super) last_key: Cell<i64>,
}

/// Applies every part of `batch`, and returns the key of its session unless it changes nothing.
pub(super) fn apply(connection: &Connection, batch: &Batch, epoch: &Epoch) -> Result<Option<i64>, CommitError> {
    if batch.is_empty() {
        return Ok(None);
    }
    let key = match (&batch.create, key(connection, &batch.session)?) {
        (None, Some(key)) => key,
        (Some(create), None) => insert_session(connection, &batch.session, create, epoch)?,
        (Some(_), Some(_)) => return Err(Conflict::SessionExists.into()),
        (None, None) => return Err(Conflict::NoSuchSession.into()),
    };
    if let Some(block) = &batch.block {
        append_block(connection, &batch.session, key, block)?;
    }
    if let Some(meta) = &batch.meta {
        update_meta(connection, &batch.session, key, meta)?;
    }
    if let Some(seq) = batch.reserved_seq {
        let reserved = to_sql_integer(seq.number())?;
        connection.prepare_cached("UPDATE session SET reserved = ?2, life = ?3 WHERE key = ?1")?.execute(params![
            key,
            reserved,
            to_sql_integer(epoch.number)?
        ])?;
    }
    if let Some(hash) = &batch.token_hash {
        connection
            .prepare_cached("UPDATE session SET token_hash = ?2 WHERE key = ?1")?
            .execute(params![key, hash.as_slice()])?;
    }
    if let Some(checkpoint) = &batch.checkpoint {
        replace_checkpoint(connection, &batch.session, key, checkpoint)?;
    }
    for write in &batch.commands {
        commands::write_with_effect(connection, write)?;
    }
    Ok(Some(key))
}

/// Returns the key of `session`.
pub(super) fn key(connection: &Connection, session: &SessionId) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT key FROM session WHERE id = ?1")?
        .query_row([session.as_str()], |row| row.get(0))
        .optional()
}

/// Inserts a block whose header has been validated.
pub(super) fn insert_block(
    connection: &Connection,
    session: &SessionId,
    key: i64,
    header: &BlockHeader,
    bytes: &[u8],
) -> Result<(), CommitError> {
    connection
        .prepare_cached(
            "INSERT INTO block (session, first, last, count, prev, checksum, seal, bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            key,
            to_sql_integer(header.first)?,
            to_sql_integer(header.last)?,
            header.count,
            header.prev,
            header.checksum,
            header.seal(session, bytes),
            bytes
        ])?;
    Ok(())
}

/// Converts a number to SQLite's integer type.
pub(super) fn to_sql_integer(number: u64) -> Result<i64, Conflict> {
    i64::try_from(number).map_err(|_| Conflict::TooLarge)
}

fn insert_session(
    connection: &Connection,
    session: &SessionId,
    create: &Create,
    epoch: &Epoch,
) -> Result<i64, CommitError> {
    let opened_at = to_sql_integer(create.opened_at.0)?;
    let key = epoch.last_key.get().checked_add(1).ok_or(Conflict::TooLarge)?;
    epoch.last_key.set(key);
    connection
        .prepare_cached(
            "INSERT INTO session (key, id, token_hash, opened_at, updated_at, state, summary, reserved, life)
             VALUES (?1, ?2, ?3, ?4, ?4, '', '', 0, ?5)",
        )?
        .execute(params![
            key,
            session.as_str(),
            create.token_hash.as_slice(),
            opened_at,
            to_sql_integer(epoch.number)?
        ])?;
    if let Some((start_key, fingerprint)) = &create.start_key {
        let added = connection
            .prepare_cached(
                "INSERT INTO start_key (start_key, fingerprint, session) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![start_key, fingerprint.0.to_be_bytes().as_slice(), key])?;
        if added == 0 {
            return Err(Conflict::StartKeyTaken.into());
        }
    }
    connection.prepare_cached("UPDATE tally SET sessions = sessions + 1")?.execute([])?;
    Ok(key)
}

fn append_block(connection: &Connection, session: &SessionId, key: i64, block: &Block) -> Result<(), CommitError> {
    let (first, last) = (block.first.number(), block.last.number());
    let capacity = last.checked_sub(first).map(|distance| distance.saturating_add(1));
    let fits = first > 0
        && block.count > 0
        && !block.bytes.is_empty()
        && capacity.is_some_and(|capacity| u64::from(block.count) <= capacity);
    if !fits {
        return Err(Conflict::Malformed { first: block.first }.into());
    }
    let tail: Option<(i64, u32)> = connection
        .prepare_cached("SELECT last, checksum FROM block WHERE session = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let prev = match tail {
        Some((reached, _)) if to_sql_integer(first)? <= reached => {
            let last = Seq::new(u64::try_from(reached).unwrap_or(0));
            return Err(Conflict::Overlap { first: block.first, last }.into());
        }
        Some((_, checksum)) => checksum,
        None => checksum::genesis(session),
    };
    let checksum = checksum::chain(prev, &block.bytes);
    let header = BlockHeader { first, last, count: block.count, prev, checksum };
    insert_block(connection, session, key, &header, &block.bytes)
}

fn update_meta(connection: &Connection, session: &SessionId, key: i64, meta: &Meta) -> Result<(), CommitError> {
    if meta.session != *session {
        return Err(Conflict::OtherSession.into());
    }
    let updated_at = to_sql_integer(meta.updated_at.0)?;
    connection
        .prepare_cached("UPDATE session SET state = ?2, updated_at = ?3, active_run = ?4, summary = ?5 WHERE key = ?1")?
        .execute(params![key, meta.state, updated_at, meta.active_run, meta.summary])?;
    Ok(())
}

fn replace_checkpoint(
    connection: &Connection,
    session: &SessionId,
    key: i64,
    checkpoint: &Checkpoint,
) -> Result<(), CommitError> {
    let seq = to_sql_integer(checkpoint.seq.number())?;
    let checksum = checksum::checkpoint(session, checkpoint.seq.number(), &checkpoint.bytes);
    connection
        .prepare_cached("REPLACE INTO checkpoint (session, seq, checksum, bytes) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![key, seq, checksum, checkpoint.bytes.as_ref()])?;
    Ok(())
}
