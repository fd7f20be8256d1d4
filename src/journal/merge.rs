//! Merging of small blocks, as a slow stream produces them, into fewer large ones.
//!
//! A slice reads a bounded number of rows and creates at most one block, inside a transaction that the writer
//! commits between two groups of batches. All bytes and their order stay the same; damaged blocks are left alone.

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::apply;
use super::check::Numbers;
use super::chores::{Chore, Progress};
use super::error::{Conflict, MergeError};
use super::record::{Merged, Options};
use super::row;
use crate::kernel::id::{Seq, SessionId};

/// The merge of one session.
pub(super) struct Merge {
    session: SessionId,
    up_to: u64,
    /// Where the next slice starts.
    at: u64,
    small: usize,
    whole: usize,
    done: Merged,
    reply: Reply,
}

/// Receives the result of a merge.
pub(super) type Reply = oneshot::Sender<Result<Merged, MergeError>>;

/// What a slice knows about a block before it reads the bytes.
struct Head {
    first: u64,
    last: u64,
    /// The size in bytes; a splice never counts as small.
    size: usize,
    /// Whether the bytes end in a line feed, so that another block may be appended.
    ends: bool,
}

impl Chore for Merge {
    /// Reads the next blocks and merges the first mergeable run.
    fn slice(&mut self, connection: &Connection) -> Result<Progress, MergeError> {
        let Some(key) = apply::key(connection, &self.session)? else {
            return Err(MergeError::Commit(Conflict::NoSuchSession.into()));
        };
        let heads = self.heads(connection, key)?;
        let run = self.run(&heads);
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            let Some(end) = heads.last().filter(|_| heads.len() >= ROWS) else { return Ok(Progress::Done) };
            // The last block of this slice may be merged with the next ones.
            self.at = end.first;
            return Ok(Progress::More);
        };
        let size = self.join(connection, key, run)?;
        self.at = if size < self.small { first.first } else { last.last.saturating_add(1) };
        self.done.joined = self.done.joined.saturating_add(run.len() as u64);
        self.done.made = self.done.made.saturating_add(1);
        Ok(Progress::More)
    }

    fn end(self: Box<Self>, outcome: Result<(), MergeError>) {
        let Self { reply, done, .. } = *self;
        let _ = reply.send(outcome.map(|()| done));
    }
}

impl Merge {
    pub(super) fn new(
        session: SessionId,
        (after, up_to): (Seq, Seq),
        options: &Options,
        reply: Reply,
    ) -> Self {
        let (small, whole) = (options.small_block, options.merged_block);
        let (at, up_to) = (after.next().number(), up_to.number());
        Self { session, up_to, at, small, whole, done: Merged::default(), reply }
    }

    fn heads(&self, connection: &Connection, key: i64) -> Result<Vec<Head>, MergeError> {
        // The second CASE keeps SQLite from reading large blocks only for their last byte.
        let mut statement = connection.prepare_cached(
            "SELECT first, last, CASE count WHEN 0 THEN ?4 ELSE length(bytes) END,
                    CASE WHEN count > 0 AND length(bytes) < ?4 THEN substr(bytes, -1) = x'0a' ELSE 0 END
             FROM block WHERE session = ?1 AND first >= ?2 AND last <= ?3 ORDER BY first LIMIT ?5",
        )?;
        let at = row::signed(self.at);
        let up_to = row::signed(self.up_to);
        let small = i64::try_from(self.small).unwrap_or(i64::MAX);
        let rows = i64::try_from(ROWS).unwrap_or(i64::MAX);
        let heads = statement.query_map(params![key, at, up_to, small, rows], |row| {
            Ok(Head {
                first: row::unsigned(row.get(0)?),
                last: row::unsigned(row.get(1)?),
                size: usize::try_from(row.get::<_, i64>(2)?).unwrap_or(usize::MAX),
                ends: row.get(3)?,
            })
        })?;
        Ok(heads.collect::<rusqlite::Result<_>>()?)
    }

    /// Finds the first run of at least two mergeable blocks; empty if there is none.
    fn run<'heads>(&self, heads: &'heads [Head]) -> &'heads [Head] {
        let (mut start, mut size) = (0, 0_usize);
        for (index, head) in heads.iter().enumerate() {
            let joins = index > start
                && head.size < self.small
                && size.saturating_add(head.size) <= self.whole
                && heads.get(index.wrapping_sub(1)).is_some_and(|before| {
                    before.ends && before.size < self.small && before.last.checked_add(1) == Some(head.first)
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
    fn join(&self, connection: &Connection, key: i64, run: &[Head]) -> Result<usize, MergeError> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(0) };
        let range = params![key, row::signed(first.first), row::signed(last.first)];
        let mut joined: Option<(Numbers, Vec<u8>)> = None;
        let mut statement = connection.prepare_cached(
            "SELECT first, last, count, prev, checksum, seal, bytes
             FROM block WHERE session = ?1 AND first BETWEEN ?2 AND ?3 ORDER BY first",
        )?;
        let mut rows = statement.query(range)?;
        while let Some(row) = rows.next()? {
            let (numbers, seal) = row::numbers(row)?;
            let bytes = row.get_ref(6)?.as_blob().map_err(rusqlite::Error::from)?;
            let prev = joined.as_ref().map_or(numbers.prev, |(before, _)| before.checksum);
            if !numbers.prove(&self.session, seal, prev, bytes) {
                return Err(self.damaged(numbers.first));
            }
            match &mut joined {
                None => joined = Some((numbers, bytes.to_vec())),
                Some((whole, text)) => {
                    whole.last = numbers.last;
                    whole.count =
                        whole.count.checked_add(numbers.count).ok_or_else(|| self.damaged(numbers.first))?;
                    whole.checksum = numbers.checksum;
                    text.extend_from_slice(bytes);
                }
            }
        }
        drop(rows);
        let Some((numbers, bytes)) = joined else { return Ok(0) };
        connection
            .prepare_cached("DELETE FROM block WHERE session = ?1 AND first BETWEEN ?2 AND ?3")?
            .execute(range)?;
        apply::insert_block(connection, &self.session, key, &numbers, &bytes).map_err(MergeError::Commit)?;
        Ok(bytes.len())
    }

    fn damaged(&self, first: u64) -> MergeError {
        MergeError::Damaged { session: self.session.clone(), first: Seq::new(first) }
    }
}

/// How many blocks a slice reads.
const ROWS: usize = 256;
