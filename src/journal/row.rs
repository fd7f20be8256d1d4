//! Conversion between Rust's unsigned integers and SQLite's signed ones.
//!
//! Reading is lenient: a number that cannot have been written is clamped, and the seal detects it.

use rusqlite::Row;

use super::checksum::BlockHeader;

/// Reads the header of a block and its seal from the first six columns of a row.
pub(super) fn block_header(row: &Row<'_>) -> rusqlite::Result<(BlockHeader, u32)> {
    let header = BlockHeader {
        first: unsigned(row.get(0)?),
        last: unsigned(row.get(1)?),
        count: unsigned32(row.get(2)?),
        prev: unsigned32(row.get(3)?),
        checksum: unsigned32(row.get(4)?),
    };
    Ok((header, unsigned32(row.get(5)?)))
}

/// Reads a number; negative values become zero.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Reads a 32-bit number; values out of range become the maximum.
pub(super) fn unsigned32(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Converts a number for a comparison; a number that is too large sorts after all stored ones.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
