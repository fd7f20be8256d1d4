//! Merging of small blocks, as a slow stream produces them, into fewer large ones.
//!
//! A slice reads a bounded number of rows and creates at most one block, inside a transaction that the writer
//! commits between two groups of batches. All bytes and their order stay the same; damaged blocks are left alone.

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::apply;
use super::checksum::BlockHeader;
use super::error::{Conflict, MergeError};
use super::jobs::{Job, Progress};
use super::record::{MergeStats, Options};
use super::row;
use crate::kernel::id::{Seq, SessionId};

/// The merge of one session.
pub(super) struct MergeJob {
    session: SessionId,
    up_to: u64,
    /// Where the next slice starts.
    at: u64,
    small_bytes: usize,
    max_bytes: usize,
    stats: MergeStats,
    reply: Reply,
}

/// Receives the result of a merge.
pub(super) type Reply = oneshot::Sender<Result<MergeStats, MergeError>>;

/// What a slice knows about a block before it reads the bytes.
struct BlockInfo {
    first: u64,
    last: u64,
    /// The size in bytes; a splice never counts as small.
    size: usize,
    /// Whether the bytes end in a line feed, so that another block may be appended.
    ends_line: bool,
}

impl Job for MergeJob {
    /// Reads the next blocks and merges the first mergeable run.
    fn slice(&mut self, connection: &Connection) -> Result<Progress, MergeError> {
        let Some(key) = apply::key(connection, &self.session)? else {
            return Err(MergeError::Commit(Conflict::NoSuchSession.into()));
        };
        let heads = self.next_blocks(connection, key)?;
        let run = self.mergeable_run(&heads);
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            let Some(end) = heads.last().filter(|_| heads.len() >= SLICE_ROWS) else {
                return Ok(Progress::Done);
            };
            // The last block of this slice may be merged with the next ones.
            self.at = end.first;
            return Ok(Progress::More);
        };
        let size = self.merge_run(connection, key, run)?;
        self.at = if size < self.small_bytes { first.first } else { last.last.saturating_add(1) };
        self.stats.merged_blocks = self.stats.merged_blocks.saturating_add(run.len() as u64);
        self.stats.result_blocks = self.stats.result_blocks.saturating_add(1);
        Ok(Progress::More)
    }

    fn complete(self: Box<Self>, outcome: Result<(), MergeError>) {
        let Self { reply, stats: done, .. } = *self;
        let _ = reply.send(outcome.map(|()| done));
    }
}

impl MergeJob {
    pub(super) fn new(session: SessionId, (after, up_to): (Seq, Seq), options: &Options, reply: Reply) -> Self {
        let (small_bytes, max_bytes) = (options.small_block, options.merged_block);
        let (at, up_to) = (after.next().number(), up_to.number());
        Self { session, up_to, at, small_bytes, max_bytes, stats: MergeStats::default(), reply }
    }

    fn next_blocks(&self, connection: &Connection, key: i64) -> Result<Vec<BlockInfo>, MergeError> {
        // The second CASE keeps SQLite from reading large blocks only for their last byte.
        let mut statement = connection.prepare_cached(
            "SELECT first, last, CASE count WHEN 0 THEN ?4 ELSE length(bytes) END,
                    CASE WHEN count > 0 AND length(bytes) < ?4 THEN substr(bytes, -1) = x'0a' ELSE 0 END
             FROM block WHERE session = ?1 AND first >= ?2 AND last <= ?3 ORDER BY first LIMIT ?5",
        )?;
        let at = row::signed(self.at);
        let up_to = row::signed(self.up_to);
        let small = i64::try_from(self.small_bytes).unwrap_or(i64::MAX);
        let rows = i64::try_from(SLICE_ROWS).unwrap_or(i64::MAX);
        let heads = statement.query_map(params![key, at, up_to, small, rows], |row| {
            Ok(BlockInfo {
                first: row::unsigned(row.get(0)?),
                last: row::unsigned(row.get(1)?),
                size: usize::try_from(row.get::<_, i64>(2)?).unwrap_or(usize::MAX),
                ends_line: row.get(3)?,
            })
        })?;
        Ok(heads.collect::<rusqlite::Result<_>>()?)
    }

    /// Finds the first run of at least two mergeable blocks; empty if there is none.
    fn mergeable_run<'heads>(&self, heads: &'heads [BlockInfo]) -> &'heads [BlockInfo] {
        let (mut start, mut size) = (0, 0_usize);
        for (index, head) in heads.iter().enumerate() {
            let joins = index > start
                && head.size < self.small_bytes
                && size.saturating_add(head.size) <= self.max_bytes
                && heads.get(index.wrapping_sub(1)).is_some_and(|before| {
                    before.ends_line && before.size < self.small_bytes && before.last.checked_add(1) == Some(head.first)
                });
            if joins {
                size = size.saturating_add(head.size);
            } else if index.saturating_sub(start) >= 2 {
                return heads.get(start..index).unwrap_or_default();
            } else {
                (start, size) = (index, head.size);
            }
        }
        heads.get(start..).filter(|run| run.len() >= 2).unwrap_or_default()
    }

    /// Replaces the blocks of `run` by one and returns its size.
    fn merge_run(&self, connection: &Connection, key: i64, run: &[BlockInfo]) -> Result<usize, MergeError> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(0) };
        let range = params![key, row::signed(first.first), row::signed(last.first)];
        let mut joined: Option<(BlockHeader, Vec<u8>)> = None;
        let mut statement = connection.prepare_cached(
            "SELECT first, last, count, prev, checksum, seal, bytes
             FROM block WHERE session = ?1 AND first BETWEEN ?2 AND ?3 ORDER BY first",
        )?;
        let mut rows = statement.query(range)?;
        while let Some(row) = rows.next()? {
            let (header, seal) = row::block_header(row)?;
            let bytes = row.get_ref(6)?.as_blob().map_err(rusqlite::Error::from)?;
            let prev = joined.as_ref().map_or(header.prev, |(before, _)| before.checksum);
            if !header.verify(&self.session, seal, prev, bytes) {
                return Err(self.damaged(header.first));
            }
            match &mut joined {
                None => joined = Some((header, bytes.to_vec())),
                Some((whole, text)) => {
                    whole.last = header.last;
                    whole.count = whole.count.checked_add(header.count).ok_or_else(|| self.damaged(header.first))?;
                    whole.checksum = header.checksum;
                    text.extend_from_slice(bytes);
                }
            }
        }
        drop(rows);
        let Some((header, bytes)) = joined else { return Ok(0) };
        connection
            .prepare_cached("DELETE FROM block WHERE session = ?1 AND first BETWEEN ?2 AND ?3")?
            .execute(range)?;
        apply::insert_block(connection, &self.session, key, &header, &bytes).map_err(MergeError::Commit)?;
        Ok(bytes.len())
    }

    fn damaged(&self, first: u64) -> MergeError {
        MergeError::Damaged { session: self.session.clone(), first: Seq::new(first) }
    }
}

/// How many blocks a slice reads.
const SLICE_ROWS: usize = 256;
