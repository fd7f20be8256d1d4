//! The journal's rows, recognised by the types of their columns, and plausibility checks for rows without a checksum.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::journal::checksum::BlockHeader;
use crate::kernel::id::SessionId;

/// A row of a table, which borrows its bytes.
pub(super) enum TableRow<'a> {
    /// A row of `session`; its key is the rowid.
    Session(Session),
    /// A row of `block`.
    Block { session: i64, header: BlockHeader, seal: u32, bytes: &'a [u8] },
    /// A row of `checkpoint`; its session is the rowid.
    Checkpoint { seq: u64, checksum: u32, bytes: &'a [u8] },
    /// A row of `unsure`: a range of epochs in which something may have been lost.
    UncertainEpochs(u64, u64),
}

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

impl<'a> TableRow<'a> {
    /// Recognises a row; the first column of `row` is its rowid.
    pub(super) fn read(row: &'a Row<'_>) -> Option<Self> {
        use ValueRef::{Blob, Integer, Null, Text};
        let mut columns = [Null; 10];
        for (at, column) in columns.iter_mut().enumerate() {
            *column = row.get_ref(at + 1).ok()?;
        }
        match columns {
            [Null, Text(_), Blob(_), Integer(_), Integer(_), Text(_), Null | Text(_), Text(_), Integer(_), _] => {
                Session::read(&columns).map(Self::Session)
            }
            [
                Integer(session),
                Integer(first),
                Integer(last),
                Integer(count),
                Integer(prev),
                Integer(checksum),
                Integer(seal),
                Blob(bytes),
                ..,
            ] => {
                let header = BlockHeader {
                    first: long(first)?,
                    last: long(last)?,
                    count: short(count)?,
                    prev: short(prev)?,
                    checksum: short(checksum)?,
                };
                // The splice of a retention begins before the first event.
                let runs = header.first <= header.last && (header.first > 0 || header.is_splice());
                runs.then_some(Self::Block { session, header, seal: short(seal)?, bytes })
            }
            [Null, Integer(seq), Integer(checksum), Blob(bytes), ..] => {
                Some(Self::Checkpoint { seq: long(seq)?, checksum: short(checksum)?, bytes })
            }
            [Integer(since), Integer(until), Null, ..] if (0..=until).contains(&since) => {
                Some(Self::UncertainEpochs(long(since)?, long(until)?))
            }
            [..] => None,
        }
    }
}

impl TableRow<'_> {
    pub(super) fn into_session(self) -> Option<Session> {
        let Self::Session(session) = self else { return None };
        Some(session)
    }
}

impl Session {
    /// Reads a plausible row: these texts become lines, so none holds a control character.
    fn read(columns: &[ValueRef<'_>; 10]) -> Option<Self> {
        let [_, id, token_hash, opened_at, updated_at, state, active_run, summary, reserved, epoch] = columns;
        let number = |value: &ValueRef<'_>| value.as_i64().ok().and_then(long);
        let text = |value: &ValueRef<'_>| {
            value.as_str().ok().filter(|text| !text.contains(char::is_control)).map(str::to_owned)
        };
        Some(Self {
            id: parse_id(id.as_str().ok()?)?,
            token_hash: token_hash.as_blob().ok()?.try_into().ok()?,
            opened_at: number(opened_at)?,
            updated_at: number(updated_at)?,
            state: text(state)?,
            active_run: if matches!(active_run, ValueRef::Null) { None } else { Some(text(active_run)?) },
            summary: text(summary)?,
            reserved: number(reserved)?,
            epoch: number(epoch).unwrap_or(0),
        })
    }
}

/// An entry of an index, or a row of a table without rowids.
pub(super) enum IndexEntry {
    /// An entry of an index over the names.
    Name { key: i64, id: SessionId },
    /// A row of `start_key`.
    StartKey { key: String, fingerprint: [u8; 16], session: i64 },
}

impl IndexEntry {
    pub(super) fn read(row: &Row<'_>) -> Option<Self> {
        use ValueRef::{Blob, Integer, Null, Text};
        match (row.get_ref(0).ok()?, row.get_ref(1).ok()?, row.get_ref(2).ok()?) {
            (Text(id), Integer(key), Null) | (Integer(_), Text(id), Integer(key)) => {
                Some(Self::Name { key, id: parse_id(std::str::from_utf8(id).ok()?)? })
            }
            (Text(key), Blob(fingerprint), Integer(session)) => Some(Self::StartKey {
                key: std::str::from_utf8(key).ok()?.to_owned(),
                fingerprint: fingerprint.try_into().ok()?,
                session,
            }),
            _ => None,
        }
    }
}

fn long(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}

fn short(number: i64) -> Option<u32> {
    u32::try_from(number).ok()
}

/// Converts a text to a session id if it can be one.
fn parse_id(text: &str) -> Option<SessionId> {
    let fits = !text.is_empty() && text.chars().all(|letter| letter.is_ascii_graphic());
    fits.then(|| SessionId::from(text))
}
