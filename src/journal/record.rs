//! What goes into the journal and what comes out of it: plain values, no behaviour.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::reader::Room;
use crate::kernel::id::{Fingerprint, Seq, SessionId};
use crate::kernel::time::Now;

/// The bounds of a journal, and what it cannot know itself.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Names the time since the machine was started, zero where that cannot be told.
    ///
    /// While it stays the same, whatever was written is there, also after the end of the process that wrote it.
    pub boot: u128,
    /// Writes the line that stands in a history where events were lost.
    pub lost_line: LostLine,
    /// Writes what lists say of a session whose own row is lost.
    pub lost_summary: LostSummary,
    /// How many bytes are kept from use, for what must still be written when the disk is full.
    pub spare_bytes: u64,
    /// How long a transaction waits for a writer outside this process.
    pub busy_timeout: Duration,
    /// How many bytes one commit gathers before it takes no further batch.
    pub group_bytes: usize,
    /// How long something written may stay unsynced.
    pub sync_within: Duration,
    /// How long outcomes of commands that nobody waits for gather before they are written.
    pub write_behind: Duration,
    /// How many bytes of large answers are written of what has gathered.
    pub behind_bytes: usize,
    /// How large an answer of a command may be to be written.
    pub answer_bytes: usize,
    /// How many pages of 4 KiB wait in the log before they are moved into the database.
    pub checkpoint_pages: u32,
    /// How many reads run at once.
    pub readers: u32,
    /// How large a page of lines is while there is room for large ones.
    pub page_bytes: usize,
    /// How many large pages of lines there may be at once.
    pub large_pages: usize,
    /// The size from which a block is too large to be merged into another.
    pub small_block: usize,
    /// How large a merged block may become.
    pub merged_block: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            boot: 0,
            lost_line: plain_lost_line,
            lost_summary: |session| format!("{{\"sessionId\":\"{session}\"}}"),
            spare_bytes: 2 * 1024 * 1024,
            busy_timeout: Duration::from_secs(2),
            group_bytes: 4 * 1024 * 1024,
            sync_within: Duration::from_millis(50),
            write_behind: Duration::from_millis(500),
            behind_bytes: 4 * 1024 * 1024,
            answer_bytes: 64 * 1024,
            checkpoint_pages: 2_000,
            readers: 4,
            page_bytes: 256 * 1024,
            large_pages: 4,
            small_block: 16 * 1024,
            merged_block: 64 * 1024,
        }
    }
}

/// Writes the event for lost events as its line, with its line feed; its number is the last one lost.
pub type LostLine = fn(&SessionId, &Loss, Now) -> Vec<u8>;

fn plain_lost_line(_: &SessionId, loss: &Loss, at: Now) -> Vec<u8> {
    let Loss { after, until, cause } = loss;
    let cause = cause.as_str();
    format!("{{\"seq\":{until},\"ts\":{},\"lost\":{{\"after\":{after},\"cause\":\"{cause}\"}}}}\n", at.0)
        .into_bytes()
}

/// Writes the text for lists of a session of which nothing but its name and its events is left.
pub type LostSummary = fn(&SessionId) -> String;

/// Events that are not there any more: those after `after`, up to `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The last position before them.
    pub after: Seq,
    /// The last of them; where they were the newest, a number that was never given out.
    pub until: Seq,
    /// Why.
    pub cause: Cause,
}

/// Why events are not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// They were found changed, or are missing though they had been on disk.
    Damage,
    /// They were written and not yet on disk when the machine stopped, if there were any.
    Power,
    /// They were removed on purpose, as old ones are.
    Retention,
}

impl Cause {
    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Damage => "damage",
            Self::Power => "power",
            Self::Retention => "retention",
        }
    }
}

/// A loss that was found, for whoever looks after the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// When it was found.
    pub at: Now,
    /// The session; empty when it is not known which.
    pub session: String,
    /// The last position before the loss.
    pub after: Seq,
    /// The last position that may be lost.
    pub until: Seq,
    /// A word for what happened: a cause, `session` or `database`.
    pub cause: String,
    /// The particulars, for people.
    pub detail: String,
}

/// When a batch counts as kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It survives the end of this process.
    Written,
    /// It survives the loss of power, and so does everything committed before it.
    Synced,
}

/// What changes in one session, all of it or nothing.
///
/// A batch without any change that asks for [`Durability::Synced`] is a barrier.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The session that changes.
    pub session: SessionId,
    /// Set in the first batch of a session.
    pub create: Option<Create>,
    /// The digest of another token that attaches to it, in place of the one before.
    pub token_hash: Option<[u8; 32]>,
    /// The highest number that may be given out; stored as it is, also when it is lower than before.
    pub reserve: Option<Seq>,
    /// The events, which begin after the last stored one.
    pub block: Option<Block>,
    /// What lists say about the session from then on.
    pub meta: Option<Meta>,
    /// The state to restore from; it replaces the one before it.
    pub checkpoint: Option<Checkpoint>,
    /// When the answer may come.
    pub durability: Durability,
    /// Whether it may use what is kept for a full disk: it ends something, and is small.
    pub urgent: bool,
}

impl Batch {
    /// Begins a batch which changes nothing yet and asks to be written.
    pub fn new(session: SessionId) -> Self {
        Self {
            session,
            create: None,
            token_hash: None,
            reserve: None,
            block: None,
            meta: None,
            checkpoint: None,
            durability: Durability::Written,
            urgent: false,
        }
    }

    /// Returns whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.block.is_none() && self.adds_nothing_to_events()
    }

    const fn adds_nothing_to_events(&self) -> bool {
        self.create.is_none()
            && self.token_hash.is_none()
            && self.reserve.is_none()
            && self.meta.is_none()
            && self.checkpoint.is_none()
    }

    /// Returns whether the batch is nothing but events, which need not be synced.
    pub(super) fn is_plain(&self) -> bool {
        self.block.is_some()
            && self.adds_nothing_to_events()
            && self.durability == Durability::Written
            && !self.urgent
    }

    /// Returns about how many bytes the batch adds to a commit.
    pub(super) fn weight(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.bytes.len());
        let meta = self.meta.as_ref().map_or(0, |meta| meta.summary.len());
        let checkpoint = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.bytes.len());
        block.saturating_add(meta).saturating_add(checkpoint).saturating_add(256)
    }
}

/// What a session begins with; its state and summary are empty until a meta comes.
#[derive(Clone)]
pub struct Create {
    /// The digest of the token that attaches to it.
    pub token_hash: [u8; 32],
    /// The idempotency key under which it was started, and what tells two such starts apart.
    pub start_key: Option<(String, Fingerprint)>,
    /// When it was opened.
    pub opened_at: Now,
}

impl fmt::Debug for Create {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Create").field("opened_at", &self.opened_at).finish_non_exhaustive()
    }
}

/// A run of consecutive events, as bytes which the journal does not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The position of the first event.
    pub first: Seq,
    /// The position of the last event.
    pub last: Seq,
    /// How many events there are.
    pub count: u32,
    /// The events; a block that may be merged ends in a line feed.
    pub bytes: Bytes,
}

/// What lists say about a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The session.
    pub session: SessionId,
    /// The word for its state.
    pub state: String,
    /// When something happened to it last.
    pub updated_at: Now,
    /// When it was opened; fixed by its creation and not changed by a batch.
    pub opened_at: Now,
    /// The run that is not finished.
    pub active_run: Option<String>,
    /// A text for lists, made by the caller.
    pub summary: String,
}

/// The state of a session at one position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last event which it contains.
    pub seq: Seq,
    /// The state.
    pub bytes: Bytes,
}

/// Everything that restores a session.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// What lists say about it.
    pub meta: Meta,
    /// The highest number that may have been given out.
    pub reserved: Seq,
    /// The digest of the token that attaches to it.
    pub token_hash: [u8; 32],
    /// The last checkpoint; absent also when it was found damaged, the tail is the whole history then.
    pub checkpoint: Option<Checkpoint>,
    /// The blocks with events after the checkpoint; the first may begin with events up to it.
    pub tail: Vec<Block>,
    /// The last position that was removed on purpose.
    pub floor: Seq,
    /// Where else events were lost: the last position before each hole, and the last one in it.
    pub holes: Vec<(Seq, Seq)>,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("meta", &self.meta)
            .field("reserved", &self.reserved)
            .field("checkpoint", &self.checkpoint.as_ref().map(|checkpoint| checkpoint.seq))
            .field("tail", &self.tail.len())
            .finish_non_exhaustive()
    }
}

/// A part of a session's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The blocks, in order.
    pub blocks: Vec<Block>,
    /// Whether further blocks followed when the page was read.
    pub more: bool,
}

/// A part of a session's history as one run of lines, in memory that is used again for the next.
///
/// What stands before the first event that was asked for is in it, as blocks are read whole; the caller skips it.
#[derive(Debug, Default)]
pub struct Lines {
    /// The position of the first event.
    pub first: Seq,
    /// The position of the last event; the one that was asked for when there is none.
    pub last: Seq,
    /// The events.
    pub bytes: Vec<u8>,
    /// Whether further events may follow.
    pub more: bool,
    /// About how many bytes fit, but for a block that is larger.
    pub(super) limit: usize,
    pub(super) room: Room,
}

impl Lines {
    /// Makes a page for a history of which nothing follows `after`.
    pub fn none_after(after: Seq) -> Self {
        Self { first: after.next(), last: after, ..Self::default() }
    }

    /// Tells whether the page is one of the few that are large.
    pub const fn is_large(&self) -> bool {
        self.room.is_some()
    }
}

/// Which sessions a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// At most how many.
    pub limit: usize,
    /// The last entry of the page before: its time and its name.
    pub after: Option<(Now, SessionId)>,
    /// What the names begin with.
    pub prefix: Option<String>,
}

/// What a merge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Merged {
    /// How many blocks were joined.
    pub joined: u64,
    /// How many blocks they became.
    pub made: u64,
}

/// The figures of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// How many sessions are stored.
    pub sessions: u64,
    /// How many events this journal has written since it was opened.
    pub events: u64,
    /// How many transactions it has committed.
    pub commits: u64,
    /// How many times it has synced the log on request or because it was time.
    pub syncs: u64,
    /// The size of the database and of its log.
    pub bytes: u64,
    /// Whether a sync has failed, so that nothing is taken any more.
    pub failed: bool,
    /// Whether the disk is full.
    pub full: bool,
    /// Whether marks are kept outside the database.
    pub marked: bool,
}
