//! The start of a journal: stores what the previous process left in the write-ahead file.

use std::collections::BTreeMap;
use std::io;

use rusqlite::{Connection, OptionalExtension};

use super::record::{Record, RegionEnd, scan};
use super::{is_of_epoch, join};
use crate::journal::apply::{self, Epoch};
use crate::journal::error::CommitError;
use crate::journal::files::StorageEnv;
use crate::journal::high_water_marks::EpochId;
use crate::journal::record::{Batch, Block, LossRecord, Options};
use crate::journal::reserve::DiskReserve;
use crate::journal::writer::apply_in_savepoint;
use crate::journal::{RESERVE, WRITE_AHEAD, now, repair, row};
use crate::kernel::id::{Seq, SessionId};

/// What the previous epoch says about the file.
#[derive(Debug, Clone, Copy)]
pub(in crate::journal) struct PreviousEpoch {
    /// Which one it was, if known. Records of another epoch belong to another journal or are stored already.
    pub(in crate::journal) epoch: Option<EpochId>,
    /// Whether its process was killed and the machine kept running, so that every written byte is there.
    pub(in crate::journal) was_killed: bool,
}

/// Stores the events that are missing in the database; nothing is changed in the file.
///
/// A file that cannot be read or does not verify is reported, and the journal opens without its events.
pub(in crate::journal) fn replay(
    env: &StorageEnv,
    connection: &Connection,
    options: &Options,
    epoch: &Epoch,
    previous: PreviousEpoch,
) -> Result<(), CommitError> {
    let records = match read_records(env, previous.epoch) {
        Ok((records, end)) => {
            report_end(connection, end, previous)?;
            records
        }
        Err(error) => {
            tracing::error!(%error, "cannot read the write-ahead file; events that were shown may be missing");
            return Ok(());
        }
    };
    let missing = missing_blocks(connection, records)?;
    if missing.is_empty() {
        return Ok(());
    }
    loop {
        match store(connection, epoch, &missing) {
            Ok(events) => tracing::info!(events, "stored the events that the previous process left"),
            Err(CommitError::Full) => {
                let reserve = DiskReserve::new((env.open_file)(&env.path(RESERVE)).ok(), options.reserve_bytes);
                if reserve.release() {
                    continue;
                }
                tracing::error!("the disk is full; events that were shown before the restart are lost");
            }
            Err(error) => return Err(error),
        }
        return Ok(());
    }
}

/// Reads the records of the previous epoch in the order in which they were written.
fn read_records(env: &StorageEnv, epoch: Option<EpochId>) -> io::Result<(Vec<Record>, RegionEnd)> {
    let file = (env.open_file)(&env.path(WRITE_AHEAD))?;
    let mut bytes = vec![0; usize::try_from(file.len()?.min(MAX_FILE_BYTES)).unwrap_or(0)];
    let read = file.read_at(0, &mut bytes)?;
    let (first, second) = bytes[..read].split_at(read / 2);
    let mut regions = [scan(first), scan(second)];
    regions.sort_by_key(|region| region.written_in.map(|(_, generation)| generation));
    let (mut records, mut end) = (Vec::new(), RegionEnd::Clean);
    for region in regions {
        match region.written_in {
            Some((found, generation)) if epoch.is_some_and(|epoch| !is_of_epoch(found, generation, epoch)) => {
                let count = region.records.len();
                tracing::warn!(found, generation, records = count, "the write-ahead file is not of the previous epoch");
            }
            Some(_) | None => {
                records.extend(region.records);
                end = end.max(region.end);
            }
        }
    }
    Ok((records, end))
}

fn report_end(connection: &Connection, end: RegionEnd, previous: PreviousEpoch) -> Result<(), CommitError> {
    match end {
        RegionEnd::Clean => Ok(()),
        // A record that was not written completely was not shown. After a power loss any part may be missing.
        RegionEnd::Damaged if previous.was_killed => {
            let detail = "the write-ahead file is damaged: the newest events that were shown may be missing".to_owned();
            tracing::error!("{detail}");
            let (after, until) = (Seq::ZERO, Seq::ZERO);
            let cause = "damage".to_owned();
            repair::record_loss(
                connection,
                &LossRecord { at: now(), session: String::new(), after, until, cause, detail },
            )
        }
        RegionEnd::Torn | RegionEnd::Damaged => {
            tracing::warn!("the end of the write-ahead file does not verify and is ignored");
            Ok(())
        }
    }
}

/// Returns the blocks of each session that continue its stored history.
fn missing_blocks(connection: &Connection, records: Vec<Record>) -> rusqlite::Result<Vec<(SessionId, Block)>> {
    let mut sessions: BTreeMap<SessionId, (Option<Seq>, Vec<Block>)> = BTreeMap::new();
    for Record { session, after, block } in records {
        if !sessions.contains_key(&session) {
            let reached = reached(connection, &session)?;
            sessions.insert(session.clone(), (reached, Vec::new()));
        }
        // A session that is not stored was deleted.
        let Some((Some(reached), blocks)) = sessions.get_mut(&session) else { continue };
        if *reached == after {
            *reached = block.last;
            blocks.push(block);
        } else if *reached < block.last {
            tracing::warn!(%session, %after, stored = %reached, "events of the write-ahead file do not continue a session");
        }
    }
    let joined = sessions
        .into_iter()
        .flat_map(|(session, (_, blocks))| join(blocks).into_iter().map(move |block| (session.clone(), block)));
    Ok(joined.collect())
}

/// Returns the position of the last stored event; `None` if there is no such session.
fn reached(connection: &Connection, session: &SessionId) -> rusqlite::Result<Option<Seq>> {
    let Some(key) = apply::key(connection, session)? else { return Ok(None) };
    let last: Option<i64> = connection
        .prepare_cached("SELECT last FROM block WHERE session = ?1 ORDER BY first DESC LIMIT 1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(Some(Seq::new(last.map_or(0, row::unsigned))))
}

/// Stores the blocks in one transaction; returns how many events were stored.
fn store(connection: &Connection, epoch: &Epoch, blocks: &[(SessionId, Block)]) -> Result<u64, CommitError> {
    let transaction = connection.unchecked_transaction()?;
    let mut events = 0;
    for (session, block) in blocks {
        let batch = Batch { block: Some(block.clone()), ..Batch::new(session.clone()) };
        match apply_in_savepoint(&transaction, &batch, epoch)? {
            Ok(_) => events += u64::from(block.count),
            Err(error) if error.is_corrupt() => return Err(error),
            Err(error) => tracing::error!(%session, %error, "dropped events of the write-ahead file"),
        }
    }
    transaction.commit()?;
    Ok(events)
}

/// The largest file that is read; every version writes a smaller one.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
