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

/// The high-water marks of a journal.
pub(super) struct HighWaterMarks {
    file: Box<dyn RawFile>,
    /// This epoch. Each opening of the journal gets a higher number.
    epoch: EpochId,
    boot: u128,
    /// The previous epoch, if known.
    previous_epoch: Option<EpochId>,
    /// The schema of the database at the last shutdown.
    schema_before: Option<i64>,
    /// The highest key that had a mark at the last shutdown, if known.
    marked_before: Option<i64>,
    /// The highest key that has a mark.
    marked: AtomicI64,
    shutdown: AtomicU8,
    disabled: AtomicBool,
}

/// What is known about the extent of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HighWaterMark {
    /// Its history is synced up to `seq`.
    Synced {
        /// The name of the session; a very long name is truncated.
        session: String,
        /// The last synced position.
        seq: Seq,
        /// The highest sequence number that may have been issued.
        reserved: Seq,
    },
    /// The session was deleted, or its loss has been reported.
    Retired,
}

/// Distinguishes an epoch from all others, also from those of other journals.
///
/// The numbers of two journals may be equal, because they begin with the time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EpochId {
    pub(super) number: u64,
    /// A random number; zero if there was none, and in earlier versions.
    pub(super) nonce: u32,
}

/// How the previous epoch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreviousShutdown {
    /// The journal was closed cleanly.
    Clean,
    /// The process ended, but the machine kept running: all written data is there.
    Killed,
    /// Unsynced data of these epochs may be lost.
    Uncertain {
        /// The first epoch.
        since: u64,
        /// The last epoch.
        until: u64,
    },
}

/// How this epoch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ShutdownState {
    /// The journal is open; what remains when the process is killed.
    Open = 0,
    /// The journal was closed cleanly.
    Clean = 1,
    /// A sync failed.
    Failed = 2,
}

impl HighWaterMarks {
    /// Reads how the previous epoch ended. This epoch begins when its [`ShutdownState::Open`] is written.
    ///
    /// `boot` identifies the current boot of the machine, zero if unknown; `seconds` is the current time.
    pub(super) fn open(file: Box<dyn RawFile>, boot: u128, seconds: u64) -> io::Result<(Self, PreviousShutdown)> {
        let header = read_slot(file.as_ref(), 0)?.and_then(|slot| Header::read(&slot));
        let previous_epoch = header.as_ref().map(|header| header.epoch);
        let schema_before = header.as_ref().map(|header| header.schema);
        let marked_before = header.as_ref().and_then(|header| header.marked);
        let number = previous_epoch.map_or(1, |previous| previous.number.saturating_add(1)).max(seconds);
        let previous = match header {
            None => PreviousShutdown::Uncertain { since: 0, until: number.saturating_sub(1) },
            Some(Header { shutdown: ShutdownState::Clean, .. }) => PreviousShutdown::Clean,
            Some(Header { shutdown: ShutdownState::Open, boot: then, .. }) if then == boot && boot != 0 => {
                PreviousShutdown::Killed
            }
            Some(Header { epoch: EpochId { number, .. }, .. }) => {
                PreviousShutdown::Uncertain { since: number, until: number }
            }
        };
        let marks = Self {
            file,
            epoch: EpochId { number, nonce: getrandom::u32().unwrap_or(0) },
            boot,
            previous_epoch,
            schema_before,
            marked_before,
            marked: AtomicI64::new(marked_before.unwrap_or(0)),
            shutdown: AtomicU8::new(ShutdownState::Open as u8),
            disabled: AtomicBool::new(false),
        };
        Ok((marks, previous))
    }

    /// Returns the number of this epoch.
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch.number
    }

    /// Returns this epoch.
    pub(super) const fn epoch_id(&self) -> EpochId {
        self.epoch
    }

    /// Returns the previous epoch, if known.
    pub(super) const fn previous_epoch(&self) -> Option<EpochId> {
        self.previous_epoch
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
    pub(super) fn set_highest_marked(&self, key: i64) {
        self.marked.fetch_max(key, Ordering::Relaxed);
    }

    /// Returns the highest key that has a slot.
    pub(super) fn highest_key(&self) -> io::Result<i64> {
        let slots = self.file.len()?.div_ceil(SLOT_BYTES as u64);
        Ok(i64::try_from(slots).unwrap_or(i64::MAX).saturating_sub(1).max(0))
    }

    /// Reads the mark of a session; `None` if there is no valid one.
    pub(super) fn read(&self, key: i64) -> io::Result<Option<HighWaterMark>> {
        let Some(slot) = read_slot(self.file.as_ref(), slot_offset(key)?)? else { return Ok(None) };
        Ok(decode(&slot))
    }

    /// Returns whether a mark names this session; it reads every slot.
    pub(super) fn contains_session(&self, session: &SessionId) -> io::Result<bool> {
        let mut chunk = vec![0; SLOT_BYTES * 1024];
        let mut at = 0;
        loop {
            let read = self.file.read_at(at, &mut chunk)?;
            for (index, slot) in chunk[..read].chunks_exact(SLOT_BYTES).enumerate() {
                let offset = at + (index * SLOT_BYTES) as u64;
                let Ok(slot) = <&[u8; SLOT_BYTES]>::try_from(slot) else { continue };
                let holds = offset > 0 && slot[4] == LIVE && slot[..4] == slot_checksum(offset, slot).to_le_bytes();
                if holds
                    && let Some(HighWaterMark::Synced { session: name, .. }) = decode(slot)
                    && (name == session.as_str() || (may_be_truncated(&name) && session.as_str().starts_with(&name)))
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

    /// Writes the mark of a session: its last synced position and its highest reserved one.
    pub(super) fn write_mark(&self, key: i64, session: &SessionId, seq: Seq, reserved: Seq) -> io::Result<()> {
        let mut slot = [0; SLOT_BYTES];
        slot[4] = LIVE;
        let name = session.as_str().as_bytes();
        let length = session.as_str().floor_char_boundary(NAME_BYTES);
        slot[5] = u8::try_from(length).unwrap_or(0);
        slot[8..16].copy_from_slice(&seq.number().to_le_bytes());
        slot[16..24].copy_from_slice(&reserved.number().to_le_bytes());
        slot[24..24 + length].copy_from_slice(&name[..length]);
        self.write(key, slot)?;
        // The header follows the slot, so that a kill between the two writes does not claim too much.
        if self.marked.fetch_max(key, Ordering::Relaxed) < key { self.write_header() } else { Ok(()) }
    }

    /// Retires the mark of a session permanently.
    pub(super) fn retire(&self, key: i64) -> io::Result<()> {
        let mut slot = [0; SLOT_BYTES];
        slot[4] = RETIRED;
        self.write(key, slot)
    }

    /// Syncs the marks.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Records how this epoch ends, and syncs it.
    pub(super) fn set_shutdown_state(&self, shutdown: ShutdownState) -> io::Result<()> {
        self.shutdown.store(shutdown as u8, Ordering::Relaxed);
        self.write_header()?;
        self.file.sync()
    }

    fn write_header(&self) -> io::Result<()> {
        let mut slot = [0; SLOT_BYTES];
        slot[4..12].copy_from_slice(MAGIC);
        slot[12] = VERSION;
        slot[16] = self.shutdown.load(Ordering::Relaxed);
        slot[20..24].copy_from_slice(&self.epoch.nonce.to_le_bytes());
        slot[24..32].copy_from_slice(&self.epoch.number.to_le_bytes());
        slot[32..48].copy_from_slice(&self.boot.to_le_bytes());
        slot[48..56].copy_from_slice(&schema::CURRENT_SCHEMA.to_le_bytes());
        // Stored plus one, because zero stands for an old header without this field.
        let marked = self.marked.load(Ordering::Relaxed).saturating_add(1);
        slot[56..64].copy_from_slice(&marked.to_le_bytes());
        self.write(0, slot)
    }

    /// Stops using the marks after a failed write; returns whether they were in use.
    pub(super) fn disable(&self) -> bool {
        !self.disabled.swap(true, Ordering::Relaxed)
    }

    /// Returns whether the marks are in use.
    pub(super) fn are_enabled(&self) -> bool {
        !self.disabled.load(Ordering::Relaxed)
    }

    fn write(&self, key: i64, mut slot: [u8; SLOT_BYTES]) -> io::Result<()> {
        let at = slot_offset(key)?;
        let sum = slot_checksum(at, &slot);
        slot[..4].copy_from_slice(&sum.to_le_bytes());
        self.file.write_at(at, &slot)
    }
}

/// Returns whether a name in a slot may be the beginning of a longer one.
pub(super) const fn may_be_truncated(name: &str) -> bool {
    // Names are truncated at a character boundary, at most three bytes early.
    name.len() + 3 >= NAME_BYTES
}

struct Header {
    shutdown: ShutdownState,
    epoch: EpochId,
    boot: u128,
    schema: i64,
    marked: Option<i64>,
}

impl Header {
    fn read(slot: &[u8; SLOT_BYTES]) -> Option<Self> {
        if &slot[4..12] != MAGIC || slot[12] != VERSION {
            return None;
        }
        let shutdown = match slot[16] {
            0 => ShutdownState::Open,
            1 => ShutdownState::Clean,
            _ => ShutdownState::Failed,
        };
        let nonce = u32::from_le_bytes(slot[20..24].try_into().ok()?);
        let epoch = EpochId { number: u64::from_le_bytes(slot[24..32].try_into().ok()?), nonce };
        let boot = u128::from_le_bytes(slot[32..48].try_into().ok()?);
        let schema = i64::from_le_bytes(slot[48..56].try_into().ok()?);
        let marked = i64::from_le_bytes(slot[56..64].try_into().ok()?).checked_sub(1).filter(|key| *key >= 0);
        Some(Self { shutdown, epoch, boot, schema, marked })
    }
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Option<HighWaterMark> {
    match slot[4] {
        LIVE => {
            let name = slot.get(24..24 + usize::from(slot[5]))?;
            let session = std::str::from_utf8(name).ok()?.to_owned();
            let number = |bytes: &[u8]| Some(Seq::new(u64::from_le_bytes(bytes.try_into().ok()?)));
            let (seq, reserved) = (number(&slot[8..16])?, number(&slot[16..24])?);
            Some(HighWaterMark::Synced { session, seq, reserved })
        }
        RETIRED => Some(HighWaterMark::Retired),
        _ => None,
    }
}

/// Reads a slot and verifies its checksum.
fn read_slot(file: &dyn RawFile, at: u64) -> io::Result<Option<[u8; SLOT_BYTES]>> {
    let mut slot = [0; SLOT_BYTES];
    if file.read_at(at, &mut slot)? < SLOT_BYTES {
        return Ok(None);
    }
    Ok((slot[..4] == slot_checksum(at, &slot).to_le_bytes()).then_some(slot))
}

/// Returns the checksum of a slot and its offset.
fn slot_checksum(at: u64, slot: &[u8; SLOT_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&at.to_le_bytes());
    hasher.update(&slot[4..]);
    hasher.finalize()
}

fn slot_offset(key: i64) -> io::Result<u64> {
    let key = u64::try_from(key).ok().filter(|key| *key < u64::MAX / SLOT_BYTES as u64);
    key.map(|key| key * SLOT_BYTES as u64).ok_or_else(|| io::Error::other("the session key is out of range"))
}

const SLOT_BYTES: usize = 64;
/// How many bytes of a name a slot holds; the names that pushd generates are shorter.
const NAME_BYTES: usize = 40;
const LIVE: u8 = 1;
const RETIRED: u8 = 2;
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
            let (marks, previous) = HighWaterMarks::open(Box::new(file.clone().open(&path).unwrap()), boot, 5).unwrap();
            marks.set_shutdown_state(ShutdownState::Open).unwrap();
            (marks, previous)
        };
        let (marks, previous) = open(7);
        assert_eq!(previous, PreviousShutdown::Uncertain { since: 0, until: 4 });
        marks.write_mark(3, &"sess_a".into(), Seq::new(9), Seq::new(20)).unwrap();
        assert_eq!(marks.highest_key().unwrap(), 3);
        assert_eq!(
            marks.read(3).unwrap(),
            Some(HighWaterMark::Synced { session: "sess_a".into(), seq: Seq::new(9), reserved: Seq::new(20) })
        );
        assert_eq!(marks.read(2).unwrap(), None, "a slot that was never written");
        assert_eq!(open(7).1, PreviousShutdown::Killed, "the same boot, and no clean shutdown");
        assert_eq!(open(8).1, PreviousShutdown::Uncertain { since: 6, until: 6 }, "the machine was rebooted");
        let (marks, previous) = open(0);
        assert_eq!(previous, PreviousShutdown::Uncertain { since: 7, until: 7 }, "an unknown boot id");
        marks.set_shutdown_state(ShutdownState::Failed).unwrap();
        let (marks, previous) = open(0);
        assert_eq!(previous, PreviousShutdown::Uncertain { since: 8, until: 8 });
        marks.set_shutdown_state(ShutdownState::Clean).unwrap();
        assert_eq!(open(1).1, PreviousShutdown::Clean);
        let whole = std::fs::read(&path).unwrap();
        for bit in 0..SLOT_BYTES * 8 {
            let mut bytes = whole.clone();
            bytes[3 * SLOT_BYTES + bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(open(1).0.read(3).unwrap(), None, "bit {bit}");
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (marks, previous) = open(1);
            assert_eq!(matches!(previous, PreviousShutdown::Uncertain { .. }), length < SLOT_BYTES, "cut at {length}");
            assert_eq!(marks.read(3).unwrap(), None);
        }
        marks.retire(3).unwrap();
    }
}
