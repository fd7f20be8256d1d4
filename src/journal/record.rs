//! The values that go into the journal and come out of it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::CommandWrite;
use super::reader::LargePagePermit;
use crate::kernel::id::{Fingerprint, Seq, SessionId};
use crate::kernel::time::Now;

/// The limits of a journal, and facts that its owner provides.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Identifies the current boot of the machine, zero if unknown.
    ///
    /// As long as it stays the same, all written data is there, even after the process that wrote it has ended.
    pub boot: u128,
    /// Encodes the line of a splice, which replaces lost events.
    pub lost_line: LostLine,
    /// Encodes the list entry of a session whose row is lost.
    pub lost_summary: LostSummary,
    /// The size of the disk reserve, for writes that are necessary when the disk is full.
    pub reserve_bytes: u64,
    /// How long a transaction waits for a writer outside this process.
    pub busy_timeout: Duration,
    /// How many bytes one commit collects before it accepts no further batch.
    pub group_bytes: usize,
    /// How long written data may stay unsynced.
    pub sync_within: Duration,
    /// How long deferred outcomes of commands are collected before they are written.
    pub deferred_delay: Duration,
    /// How many bytes of large answers are kept among the deferred outcomes.
    pub deferred_bytes: usize,
    /// The largest answer of a command that is stored.
    pub answer_bytes: usize,
    /// How many pages of 4 KiB the log may hold before it is checkpointed into the database.
    pub checkpoint_pages: u32,
    /// How many reads run at once.
    pub readers: u32,
    /// The size of a large page of lines.
    pub page_bytes: usize,
    /// How many large pages of lines may be in use at once.
    pub large_pages: usize,
    /// How long events stay in the write-ahead file alone.
    pub flush_after: Duration,
    /// How many bytes the write-ahead file holds before they are stored in the database.
    pub flush_bytes: usize,
    /// A write to the write-ahead file that takes so long is slow: the file is not used for a while.
    pub slow_write: Duration,
    /// The size of each of the two regions of the write-ahead file.
    pub region_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            boot: 0,
            lost_line: plain_lost_line,
            lost_summary: |session| format!("{{\"sessionId\":\"{session}\"}}"),
            reserve_bytes: 2 * 1024 * 1024,
            busy_timeout: Duration::from_secs(2),
            group_bytes: 4 * 1024 * 1024,
            sync_within: Duration::from_millis(50),
            deferred_delay: Duration::from_millis(500),
            deferred_bytes: 4 * 1024 * 1024,
            answer_bytes: 64 * 1024,
            checkpoint_pages: 2_000,
            readers: 4,
            page_bytes: 256 * 1024,
            large_pages: 4,
            flush_after: Duration::from_millis(250),
            flush_bytes: 64 * 1024,
            slow_write: Duration::from_millis(20),
            region_bytes: 128 * 1024,
        }
    }
}

/// Encodes the event for lost events as a line, with its line feed; its sequence number is the last lost one.
pub type LostLine = fn(&SessionId, &Loss, Now) -> Vec<u8>;

fn plain_lost_line(_: &SessionId, loss: &Loss, at: Now) -> Vec<u8> {
    let Loss { after, until, cause } = loss;
    let cause = cause.as_str();
    format!("{{\"seq\":{until},\"ts\":{},\"lost\":{{\"after\":{after},\"cause\":\"{cause}\"}}}}\n", at.0).into_bytes()
}

/// Encodes the list entry of a session of which only the name and the events are left.
pub type LostSummary = fn(&SessionId) -> String;

/// A range of lost events: those after `after`, up to `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The last position before the loss.
    pub after: Seq,
    /// The last lost position. If the newest events are lost, it is a number that was never issued.
    pub until: Seq,
    /// The cause.
    pub cause: LossReason,
}

/// Why events are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossReason {
    /// They do not verify, or are missing although they were synced.
    Damage,
    /// They were written and not synced when the machine stopped, if there were any.
    Power,
    /// Retention removed them.
    Retention,
}

impl LossReason {
    /// Returns the stored spelling of the cause.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Damage => "damage",
            Self::Power => "power",
            Self::Retention => "retention",
        }
    }
}

/// A recorded loss, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossRecord {
    /// When the loss was found.
    pub at: Now,
    /// The session; empty if unknown.
    pub session: String,
    /// The last position before the loss.
    pub after: Seq,
    /// The last position that may be lost.
    pub until: Seq,
    /// What happened: a [`LossReason`], `session` or `database`.
    pub cause: String,
    /// Details for people.
    pub detail: String,
}

/// When a batch counts as committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It survives the end of this process.
    Written,
    /// It survives a power loss, and so does everything committed before it.
    Synced,
}

/// An atomic change of one session.
///
/// An empty batch that requests [`Durability::Synced`] is a barrier.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The session.
    pub session: SessionId,
    /// Set in the first batch of a session.
    pub create: Option<Create>,
    /// The digest of a new attach token, which replaces the old one.
    pub token_hash: Option<[u8; 32]>,
    /// The highest sequence number that may be issued; stored as given, even if it is lower than before.
    pub reserved_seq: Option<Seq>,
    /// The events, which begin after the last stored one.
    pub block: Option<Block>,
    /// The new list entry of the session.
    pub meta: Option<Meta>,
    /// The state to restore from; it replaces the previous checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The admissions and outcomes of the commands whose effect this is.
    pub commands: Vec<CommandWrite>,
    /// When the reply is sent.
    pub durability: Durability,
    /// Whether the batch may use the disk reserve: it ends something, and is small.
    pub urgent: bool,
}

impl Batch {
    /// Creates an empty batch with [`Durability::Written`].
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            create: None,
            token_hash: None,
            reserved_seq: None,
            block: None,
            meta: None,
            checkpoint: None,
            commands: Vec::new(),
            durability: Durability::Written,
            urgent: false,
        }
    }

    /// Returns whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.block.is_none() && self.has_no_other_changes()
    }

    const fn has_no_other_changes(&self) -> bool {
        self.create.is_none()
            && self.token_hash.is_none()
            && self.reserved_seq.is_none()
            && self.meta.is_none()
            && self.checkpoint.is_none()
            && self.commands.is_empty()
    }

    /// Returns whether the batch holds only events and need not be synced.
    pub(super) fn is_events_only(&self) -> bool {
        self.block.is_some() && self.has_no_other_changes() && self.durability == Durability::Written && !self.urgent
    }

    /// Returns about how many bytes the batch adds to a commit.
    pub(super) fn estimated_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.bytes.len());
        let meta = self.meta.as_ref().map_or(0, |meta| meta.summary.len());
        let checkpoint = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.bytes.len());
        block.saturating_add(meta).saturating_add(checkpoint).saturating_add(256)
    }
}

/// The initial data of a session; its state and summary are empty until the first metadata arrives.
#[derive(Clone)]
pub struct Create {
    /// The digest of the attach token.
    pub token_hash: [u8; 32],
    /// The idempotency key of its start, and the fingerprint of the start request.
    pub start_key: Option<(String, Fingerprint)>,
    /// When it was opened.
    pub opened_at: Now,
}

impl fmt::Debug for Create {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Create").field("opened_at", &self.opened_at).finish_non_exhaustive()
    }
}

/// A run of consecutive events, as bytes that the journal does not interpret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The position of the first event.
    pub first: Seq,
    /// The position of the last event.
    pub last: Seq,
    /// How many events there are.
    pub count: u32,
    /// The events; a block that may be joined to the next one ends in a line feed.
    pub bytes: Bytes,
}

/// The list entry of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The session.
    pub session: SessionId,
    /// Its state, spelled by the caller.
    pub state: String,
    /// When it was last updated.
    pub updated_at: Now,
    /// When it was opened; set by its creation, and a batch does not change it.
    pub opened_at: Now,
    /// The unfinished run, if any; [`Meta::NO_RUN`] if something else is unfinished, such as an open approval. Sessions
    /// with either are loaded when the daemon starts.
    pub active_run: Option<String>,
    /// The encoded entry, produced by the caller.
    pub summary: String,
}

impl Meta {
    /// Stands for the run where something is unfinished that belongs to no run.
    pub const NO_RUN: &str = "";

    /// Returns whether a run is unfinished.
    pub fn has_run(&self) -> bool {
        self.active_run.as_deref().is_some_and(|run| run != Self::NO_RUN)
    }
}

/// The state of a session at one position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last event that it contains.
    pub seq: Seq,
    /// The state.
    pub bytes: Bytes,
}

/// Everything needed to restore a session.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// Its list entry.
    pub meta: Meta,
    /// The highest sequence number that may have been issued.
    pub reserved: Seq,
    /// The digest of the attach token.
    pub token_hash: [u8; 32],
    /// The last checkpoint. `None` also if it was damaged; the tail is then the whole history.
    pub checkpoint: Option<Checkpoint>,
    /// The blocks with events after the checkpoint; the first may begin with events up to it.
    pub tail: Vec<Block>,
    /// The last position that retention removed.
    pub floor: Seq,
    /// The other lost ranges: the last position before each, and the last one in it.
    pub holes: Vec<(Seq, Seq)>,
}

impl StoredSession {
    /// Adds blocks that were not stored when the session was read; those that it has already are skipped.
    pub(super) fn add_unstored(&mut self, blocks: Vec<Block>) {
        let in_checkpoint = self.checkpoint.as_ref().map_or(Seq::ZERO, |checkpoint| checkpoint.seq);
        let reached = self.tail.last().map_or(in_checkpoint, |block| block.last.max(in_checkpoint));
        self.tail.extend(blocks.into_iter().filter(|block| block.last > reached));
    }
}

impl fmt::Debug for StoredSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("meta", &self.meta)
            .field("reserved", &self.reserved)
            .field("checkpoint", &self.checkpoint.as_ref().map(|checkpoint| checkpoint.seq))
            .field("tail", &self.tail.len())
            .finish_non_exhaustive()
    }
}

/// A part of a session's history, as blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// Whether further blocks followed when the page was read.
    pub more: bool,
}

/// A part of a session's history as consecutive lines, in reusable memory.
///
/// Blocks are read whole, so the page may begin with events before the requested ones; the caller skips them.
#[derive(Debug, Default)]
pub struct LinePage {
    /// The position of the first event.
    pub first: Seq,
    /// The position of the last event; the requested position if there is none.
    pub last: Seq,
    /// The events.
    pub bytes: Vec<u8>,
    /// Whether further events may follow.
    pub more: bool,
    /// About how many bytes fit, unless a single block is larger.
    pub(super) limit: usize,
    pub(super) permit: LargePagePermit,
}

impl Page {
    /// Adds blocks that were not stored when the page of the events after `after` was read, as many as fit; those
    /// that the page has already are skipped.
    pub(super) fn add_unstored(&mut self, after: Seq, max_bytes: usize, blocks: Vec<Block>) {
        let reached = self.blocks.last().map_or(after, |block| block.last);
        let mut size: usize = self.blocks.iter().map(|block| block.bytes.len()).sum();
        for block in blocks.into_iter().filter(|block| block.last > reached) {
            size = size.saturating_add(block.bytes.len());
            self.more |= size > max_bytes && !self.blocks.is_empty();
            if self.more {
                break;
            }
            self.blocks.push(block);
        }
    }
}

impl LinePage {
    /// Adds blocks that were not stored when the page was read, as many as fit; those that it has already are
    /// skipped.
    pub(super) fn add_unstored(&mut self, blocks: &[Block]) {
        for block in blocks {
            if block.last <= self.last {
                continue;
            }
            self.more |= !self.bytes.is_empty() && self.bytes.len().saturating_add(block.bytes.len()) > self.limit;
            if self.more {
                break;
            }
            if self.bytes.is_empty() {
                self.first = block.first;
            }
            self.last = block.last;
            self.bytes.extend_from_slice(&block.bytes);
        }
    }

    /// Creates the page of a history with no event after `after`.
    pub fn empty_after(after: Seq) -> Self {
        Self { first: after.next(), last: after, ..Self::default() }
    }

    /// Returns whether the page holds a permit for a large page.
    pub const fn is_large(&self) -> bool {
        self.permit.is_some()
    }
}

/// A query for a list of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// The maximum number of entries.
    pub limit: usize,
    /// The last entry of the previous page: its time and its name.
    pub after: Option<(Now, SessionId)>,
    /// A prefix of the names.
    pub prefix: Option<String>,
}

/// The counters of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// How many sessions are stored.
    pub sessions: u64,
    /// How many events this journal has written since it was opened.
    pub events: u64,
    /// How many transactions it has committed.
    pub commits: u64,
    /// How many times it has synced the log, on request or because `sync_within` had passed.
    pub syncs: u64,
    /// The size of the database and of its log.
    pub bytes: u64,
    /// Whether a sync has failed; the journal then refuses all writes.
    pub failed: bool,
    /// Whether the disk is full.
    pub full: bool,
    /// Whether the marks outside the database are in use.
    pub marks_enabled: bool,
}
