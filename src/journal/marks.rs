//! High-water marks outside the database: how far each session's history is synced, and how the journal was last
//! shut down.
//!
//! SQLite silently drops everything behind a damaged part of its log, and an emptied database is a valid one. A
//! session's mark advances only after the events it covers are synced, so a history shorter than its mark has lost
//! something. A mark may lag: it proves that something is missing, never that nothing is.
//!
//! The file holds one slot of 64 bytes for each session, at 64 times the session's key, each with a checksum. Slot
//! 0 is the header and records the shutdown state. An unreadable slot counts as a missing mark.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};

use super::files::RawFile;
use super::schema;
use crate::kernel::id::{Seq, SessionId};

/// The marks of a journal.
pub(super) struct Marks {
    file: Box<dyn RawFile>,
    /// The number of this epoch. Each opening of the journal gets a higher one.
    life: u64,
    boot: u128,
    /// The schema of the database at the last shutdown.
    schema_before: Option<i64>,
    /// The highest key that had a mark at the last shutdown, if known.
    marked_before: Option<i64>,
    /// The highest key that has a mark.
    marked: AtomicI64,
    ending: AtomicU8,
    broken: AtomicBool,
}

/// What is known about the extent of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// Its history is synced up to `seq`.
    Reaches {
        /// The name of the session; a very long name is truncated.
        session: String,
        /// The last synced position.
        seq: Seq,
        /// The highest sequence number that may have been issued.
        reserved: Seq,
    },
    /// The session was deleted, or its loss has been reported.
    Gone,
}

/// How the previous epoch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// The journal was closed cleanly.
    Clean,
    /// The process ended, but the machine kept running: all written data is there.
    Killed,
    /// Unsynced data of these epochs may be lost.
    Unsure {
        /// The first epoch.
        since: u64,
        /// The last epoch.
        until: u64,
    },
}

/// How this epoch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Ending {
    /// The journal is open; what remains when the process is killed.
    Open = 0,
    /// The journal was closed cleanly.
    Clean = 1,
    /// A sync failed.
    Failed = 2,
}

impl Marks {
    /// Reads how the previous epoch ended. This epoch begins when its [`ShutdownState::Open`] is written.
    ///
    /// `boot` identifies the current boot of the machine, zero if unknown; `seconds` is the current time.
    pub(super) fn open(file: Box<dyn RawFile>, boot: u128, seconds: u64) -> io::Result<(Self, Before)> {
        let header = read_slot(file.as_ref(), 0)?.and_then(|slot| Header::read(&slot));
        let schema_before = header.as_ref().map(|header| header.schema);
        let marked_before = header.as_ref().and_then(|header| header.marked);
        let life = header.as_ref().map_or(1, |header| header.life.saturating_add(1)).max(seconds);
        let before = match header {
            None => Before::Unsure { since: 0, until: life.saturating_sub(1) },
            Some(Header { ending: Ending::Clean, .. }) => Before::Clean,
            Some(Header { ending: Ending::Open, boot: then, .. }) if then == boot && boot != 0 => {
                Before::Killed
            }
            Some(Header { life, .. }) => Before::Unsure { since: life, until: life },
        };
        let marks = Self {
            file,
            life,
            boot,
            schema_before,
            marked_before,
            marked: AtomicI64::new(marked_before.unwrap_or(0)),
            ending: AtomicU8::new(Ending::Open as u8),
            broken: AtomicBool::new(false),
        };
        Ok((marks, before))
    }

    /// Returns the number of this epoch.
    pub(super) const fn life(&self) -> u64 {
        self.life
    }

    /// Returns the schema that the database had when it was last opened, if known.
    pub(super) const fn schema_before(&self) -> Option<i64> {
        self.schema_before
    }

    /// Returns the highest key that had a mark at the last shutdown, if known.
    ///
    /// The process of a session with a higher key was killed before its first reply: it has no mark, and has lost
    /// none.
    pub(super) const fn marked_before(&self) -> Option<i64> {
        self.marked_before
    }

    /// Sets the highest key that has a mark or should have one; stored by the next [`Self::set_shutdown_state`].
    pub(super) fn cover(&self, key: i64) {
        self.marked.fetch_max(key, Ordering::Relaxed);
    }

    /// Returns the highest key that has a slot.
    pub(super) fn highest(&self) -> io::Result<i64> {
        let slots = self.file.len()?.div_ceil(SLOT as u64);
        Ok(i64::try_from(slots).unwrap_or(i64::MAX).saturating_sub(1).max(0))
    }

    /// Reads the mark of a session; `None` if there is no valid one.
    pub(super) fn read(&self, key: i64) -> io::Result<Option<Mark>> {
        let Some(slot) = read_slot(self.file.as_ref(), place(key)?)? else { return Ok(None) };
        Ok(decode(&slot))
    }

    /// Returns whether a mark names this session; it reads every slot.
    pub(super) fn know(&self, session: &SessionId) -> io::Result<bool> {
        let mut chunk = vec![0; SLOT * 1024];
        let mut at = 0;
        loop {
            let read = self.file.read_at(at, &mut chunk)?;
            for (index, slot) in chunk[..read].chunks_exact(SLOT).enumerate() {
                let place = at + (index * SLOT) as u64;
                let Ok(slot) = <&[u8; SLOT]>::try_from(slot) else { continue };
                let holds = place > 0 && slot[4] == LIVE && slot[..4] == sum(place, slot).to_le_bytes();
                if holds
                    && let Some(Mark::Reaches { session: name, .. }) = decode(slot)
                    && (name == session.as_str()
                        || (may_be_cut(&name) && session.as_str().starts_with(&name)))
                {
                    return Ok(true);
                }
            }
            if read < chunk.len() {
                return Ok(false);
            }
            at += read as u64;
        }
    }

    /// Advances the mark of a session to `seq`.
    pub(super) fn raise(&self, key: i64, session: &SessionId, seq: Seq, reserved: Seq) -> io::Result<()> {
        let mut slot = [0; SLOT];
        slot[4] = LIVE;
        let name = session.as_str().as_bytes();
        let kept = (0..=name.len().min(NAME)).rev().find(|end| session.as_str().is_char_boundary(*end));
        let kept = kept.unwrap_or(0);
        slot[5] = u8::try_from(kept).unwrap_or(0);
        slot[8..16].copy_from_slice(&seq.number().to_le_bytes());
        slot[16..24].copy_from_slice(&reserved.number().to_le_bytes());
        slot[24..24 + kept].copy_from_slice(&name[..kept]);
        self.write(key, slot)?;
        // The header follows the slot, so that a kill between the two writes does not claim too much.
        if self.marked.fetch_max(key, Ordering::Relaxed) < key { self.write_header() } else { Ok(()) }
    }

    /// Retires the mark of a session permanently.
    pub(super) fn bury(&self, key: i64) -> io::Result<()> {
        let mut slot = [0; SLOT];
        slot[4] = GONE;
        self.write(key, slot)
    }

    /// Syncs the marks.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Records how this epoch ends, and syncs it.
    pub(super) fn end(&self, ending: Ending) -> io::Result<()> {
        self.ending.store(ending as u8, Ordering::Relaxed);
        self.write_header()?;
        self.file.sync()
    }

    fn write_header(&self) -> io::Result<()> {
        let mut slot = [0; SLOT];
        slot[4..12].copy_from_slice(MAGIC);
        slot[12] = VERSION;
        slot[16] = self.ending.load(Ordering::Relaxed);
        slot[24..32].copy_from_slice(&self.life.to_le_bytes());
        slot[32..48].copy_from_slice(&self.boot.to_le_bytes());
        slot[48..56].copy_from_slice(&schema::NEWEST.to_le_bytes());
        // Stored plus one, because zero stands for an old header without this field.
        let marked = self.marked.load(Ordering::Relaxed).saturating_add(1);
        slot[56..64].copy_from_slice(&marked.to_le_bytes());
        self.write(0, slot)
    }

    /// Stops using the marks after a failed write; returns whether they were in use.
    pub(super) fn give_up(&self) -> bool {
        !self.broken.swap(true, Ordering::Relaxed)
    }

    /// Returns whether the marks are in use.
    pub(super) fn are_kept(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
    }

    fn write(&self, key: i64, mut slot: [u8; SLOT]) -> io::Result<()> {
        let at = place(key)?;
        let sum = sum(at, &slot);
        slot[..4].copy_from_slice(&sum.to_le_bytes());
        self.file.write_at(at, &slot)
    }
}

/// Returns whether a name in a slot may be the beginning of a longer one.
pub(super) const fn may_be_cut(name: &str) -> bool {
    // Names are truncated at a character boundary, at most three bytes early.
    name.len() + 3 >= NAME
}

struct Header {
    ending: Ending,
    life: u64,
    boot: u128,
    schema: i64,
    marked: Option<i64>,
}

impl Header {
    fn read(slot: &[u8; SLOT]) -> Option<Self> {
        if &slot[4..12] != MAGIC || slot[12] != VERSION {
            return None;
        }
        let ending = match slot[16] {
            0 => Ending::Open,
            1 => Ending::Clean,
            _ => Ending::Failed,
        };
        let life = u64::from_le_bytes(slot[24..32].try_into().ok()?);
        let boot = u128::from_le_bytes(slot[32..48].try_into().ok()?);
        let schema = i64::from_le_bytes(slot[48..56].try_into().ok()?);
        let marked = i64::from_le_bytes(slot[56..64].try_into().ok()?).checked_sub(1).filter(|key| *key >= 0);
        Some(Self { ending, life, boot, schema, marked })
    }
}

fn decode(slot: &[u8; SLOT]) -> Option<Mark> {
    match slot[4] {
        LIVE => {
            let name = slot.get(24..24 + usize::from(slot[5]))?;
            let session = std::str::from_utf8(name).ok()?.to_owned();
            let number = |bytes: &[u8]| Some(Seq::new(u64::from_le_bytes(bytes.try_into().ok()?)));
            let (seq, reserved) = (number(&slot[8..16])?, number(&slot[16..24])?);
            Some(Mark::Reaches { session, seq, reserved })
        }
        GONE => Some(Mark::Gone),
        _ => None,
    }
}

/// Reads a slot and verifies its checksum.
fn read_slot(file: &dyn RawFile, at: u64) -> io::Result<Option<[u8; SLOT]>> {
    let mut slot = [0; SLOT];
    if file.read_at(at, &mut slot)? < SLOT {
        return Ok(None);
    }
    Ok((slot[..4] == sum(at, &slot).to_le_bytes()).then_some(slot))
}

/// Returns the checksum of a slot and its offset.
fn sum(at: u64, slot: &[u8; SLOT]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&at.to_le_bytes());
    hasher.update(&slot[4..]);
    hasher.finalize()
}

fn place(key: i64) -> io::Result<u64> {
    let key = u64::try_from(key).ok().filter(|key| *key < u64::MAX / SLOT as u64);
    key.map(|key| key * SLOT as u64).ok_or_else(|| io::Error::other("the session key is out of range"))
}

const SLOT: usize = 64;
/// How many bytes of a name a slot holds; the names that pushd generates are shorter.
const NAME: usize = 40;
const LIVE: u8 = 1;
const GONE: u8 = 2;
const MAGIC: &[u8; 8] = b"pushmark";
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_raised_and_a_damaged_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("marks");
        let open = |boot| {
            let mut file = std::fs::OpenOptions::new();
            let file = file.read(true).write(true).create(true).truncate(false);
            let (marks, before) = Marks::open(Box::new(file.clone().open(&path).unwrap()), boot, 5).unwrap();
            marks.end(Ending::Open).unwrap();
            (marks, before)
        };
        let (marks, before) = open(7);
        assert_eq!(before, Before::Unsure { since: 0, until: 4 });
        marks.raise(3, &"sess_a".into(), Seq::new(9), Seq::new(20)).unwrap();
        assert_eq!(marks.highest().unwrap(), 3);
        assert_eq!(
            marks.read(3).unwrap(),
            Some(Mark::Reaches { session: "sess_a".into(), seq: Seq::new(9), reserved: Seq::new(20) })
        );
        assert_eq!(marks.read(2).unwrap(), None, "a slot that was never written");
        assert_eq!(open(7).1, Before::Killed, "the same boot, and no clean shutdown");
        assert_eq!(open(8).1, Before::Unsure { since: 6, until: 6 }, "the machine was rebooted");
        let (marks, before) = open(0);
        assert_eq!(before, Before::Unsure { since: 7, until: 7 }, "an unknown boot id");
        marks.end(Ending::Failed).unwrap();
        let (marks, before) = open(0);
        assert_eq!(before, Before::Unsure { since: 8, until: 8 });
        marks.end(Ending::Clean).unwrap();
        assert_eq!(open(1).1, Before::Clean);
        let whole = std::fs::read(&path).unwrap();
        for bit in 0..SLOT * 8 {
            let mut bytes = whole.clone();
            bytes[3 * SLOT + bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(open(1).0.read(3).unwrap(), None, "bit {bit}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (marks, before) = open(1);
            assert_eq!(matches!(before, Before::Unsure { .. }), length < SLOT, "cut at {length}");
            assert_eq!(marks.read(3).unwrap(), None);
        }
        marks.bury(3).unwrap();
    }
}
