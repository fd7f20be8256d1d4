//! Conversion between Rust's unsigned integers and SQLite's signed ones.
//!
//! Reading is lenient: a number that cannot have been written is clamped, and the seal detects it.

use rusqlite::Row;

use super::check::Numbers;

/// Reads the header of a block and its seal from the first six columns of a row.
pub(super) fn numbers(row: &Row<'_>) -> rusqlite::Result<(Numbers, u32)> {
    let numbers = Numbers {
        first: unsigned(row.get(0)?),
        last: unsigned(row.get(1)?),
        count: short(row.get(2)?),
        prev: short(row.get(3)?),
        checksum: short(row.get(4)?),
    };
    Ok((numbers, short(row.get(5)?)))
}

/// Reads a number; negative values become zero.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Reads a 32-bit number; values out of range become the maximum.
pub(super) fn short(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Converts a number for a comparison; a number that is too large sorts after all stored ones.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
