//! Numbers between Rust, which has unsigned ones, and SQLite, which has not.
//!
//! Reading is lenient: a number that cannot have been written becomes another one, and the seal finds it.

use rusqlite::Row;

use super::check::Numbers;

/// Reads the numbers of a block and its seal from the first six columns of a row.
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

/// Reads a number; those below zero become zero.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Reads a number of 32 bits; those outside become the highest.
pub(super) fn short(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Spells a number to compare with: what is too large lies beyond all that is stored.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
