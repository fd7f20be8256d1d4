//! The columns of the journal's rows, read from a record, and plausibility checks for rows without a checksum.

use super::record::{Record, RowKind};
use crate::journal::salvage::rows::FoundBlock;
use crate::kernel::id::SessionId;

/// A row of `session`.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) token_hash: [u8; 32],
    pub(super) opened_at: u64,
    pub(super) updated_at: u64,
    pub(super) state: String,
    pub(super) active_run: Option<String>,
    pub(super) summary: String,
    pub(super) reserved: u64,
    /// The epoch in which numbers were last reserved; zero for a row of an older schema.
    pub(super) epoch: u64,
}

impl Session {
    /// Reads a plausible row: these texts become lines, so none holds a control character.
    pub(super) fn read(record: &Record, payload: &[u8]) -> Option<Self> {
        let number = |column| record.integer(payload, column).and_then(|number| u64::try_from(number).ok());
        let text = |column| record.text(payload, column).filter(|text| !text.contains(char::is_control));
        Some(Self {
            id: text(1).and_then(parse_id)?,
            token_hash: record.bytes(payload, 2)?.try_into().ok()?,
            opened_at: number(3)?,
            updated_at: number(4)?,
            state: text(5)?.to_owned(),
            active_run: match record.bytes(payload, 6)? {
                [] => text(6).map(str::to_owned),
                [..] => Some(text(6)?.to_owned()),
            },
            summary: text(7)?.to_owned(),
            reserved: number(8)?,
            epoch: number(9).unwrap_or(0),
        })
    }
}

/// A row of `checkpoint`; its session is the rowid.
pub(super) struct Checkpoint<'a> {
    pub(super) seq: u64,
    pub(super) checksum: u32,
    pub(super) bytes: &'a [u8],
}

impl<'a> Checkpoint<'a> {
    pub(super) fn read(record: &Record, payload: &'a [u8]) -> Option<Self> {
        let seq = u64::try_from(record.integer(payload, 1)?).ok()?;
        let checksum = u32::try_from(record.integer(payload, 2)?).ok()?;
        Some(Self { seq, checksum, bytes: record.bytes(payload, 3)? })
    }
}

/// A row of `start_key`.
pub(super) struct StartKey {
    pub(super) key: String,
    pub(super) fingerprint: [u8; 16],
    pub(super) session: i64,
}

impl StartKey {
    pub(super) fn read(record: &Record, payload: &[u8]) -> Option<Self> {
        let key = record.text(payload, 0)?.to_owned();
        let fingerprint = record.bytes(payload, 1)?.try_into().ok()?;
        Some(Self { key, fingerprint, session: record.integer(payload, 2)? })
    }
}

/// Reads an entry of an index over the names.
pub(super) fn name(record: &Record, payload: &[u8]) -> Option<(i64, SessionId)> {
    let (name, key) = if record.row_kind == RowKind::NameByTime { (1, 2) } else { (0, 1) };
    Some((record.integer(payload, key)?, record.text(payload, name).and_then(parse_id)?))
}

/// Reads a range of epochs in which something may have been lost.
pub(super) fn uncertain_epochs(record: &Record, payload: &[u8]) -> Option<(u64, u64)> {
    let number = |column| record.integer(payload, column).and_then(|number| u64::try_from(number).ok());
    Some((number(0)?, number(1)?)).filter(|(since, until)| since <= until)
}

/// Reads the session key, the header and the seal of a block, which precede its bytes.
pub(super) fn block(record: &Record, payload: &[u8]) -> Option<(i64, FoundBlock, u32)> {
    let long = |column| record.integer(payload, column).and_then(|number| u64::try_from(number).ok());
    let short = |column| record.integer(payload, column).and_then(|number| u32::try_from(number).ok());
    let head = FoundBlock { first: long(1)?, last: long(2)?, count: short(3)?, prev: short(4)?, checksum: short(5)? };
    // The splice of a retention begins before the first event.
    let runs = head.first <= head.last && (head.first > 0 || head.header().is_splice());
    Some((record.integer(payload, 0)?, head, short(6)?)).filter(|_| runs)
}

/// Converts a text to a session id if it can be one.
fn parse_id(text: &str) -> Option<SessionId> {
    let fits = !text.is_empty() && text.chars().all(|letter| letter.is_ascii_graphic());
    fits.then(|| SessionId::from(text))
}

/// The column of a block that holds its bytes.
pub(super) const BLOCK_BYTES: usize = 7;
