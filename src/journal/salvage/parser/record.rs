//! Records in SQLite's format, recognised by their header anywhere in a page.
//!
//! Neither the cell pointers of a page nor its type is trusted: a record is recognised by the types of its
//! columns, and its content is verified elsewhere. All reads are bounds-checked; anything that does not fit is not
//! a record.

use super::images::local_payload;

/// The table or index that a record belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    /// A row of `block`.
    Block,
    /// A row of `session`; its key is the rowid.
    Session,
    /// A row of `checkpoint`; its session is the rowid.
    Checkpoint,
    /// An entry of an index over the names: name, key.
    Name,
    /// An entry of the index over the times: time, name, key.
    NameByTime,
    /// A row of `start_key`.
    StartKey,
    /// A row of `unsure`.
    Unsure,
}

impl RowKind {
    /// Returns whether such records are in an index, where they have no rowid.
    pub(super) const fn in_index(self) -> bool {
        match self {
            Self::Block | Self::Session | Self::Checkpoint | Self::Unsure => false,
            Self::Name | Self::NameByTime | Self::StartKey => true,
        }
    }

    /// Recognises a record by its column types; a newer schema may have appended columns to a table.
    fn from_types(types: &[u64]) -> Option<Self> {
        let integers = |kinds: &[u64]| kinds.iter().all(|kind| is_integer(*kind));
        let texts = |kinds: &[u64]| kinds.iter().all(|kind| is_text(*kind));
        match *types {
            [0, name, TOKEN, opened, updated, state, run, summary, reserved, ..]
                if integers(&[opened, updated, reserved])
                    && texts(&[name, state, summary])
                    && (run == 0 || is_text(run)) =>
            {
                Some(Self::Session)
            }
            [session, first, last, count, prev, checksum, seal, bytes, ..]
                if integers(&[session, first, last, count, prev, checksum, seal]) && is_blob(bytes) =>
            {
                Some(Self::Block)
            }
            [0, seq, checksum, bytes, ..] if integers(&[seq, checksum]) && is_blob(bytes) => Some(Self::Checkpoint),
            [name, key] if is_text(name) && is_integer(key) => Some(Self::Name),
            [time, name, key] if is_text(name) && integers(&[time, key]) => Some(Self::NameByTime),
            [text, FINGERPRINT, key] if is_text(text) && is_integer(key) => Some(Self::StartKey),
            [since, until] if integers(&[since, until]) => Some(Self::Unsure),
            [..] => None,
        }
    }
}

/// A record found in a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) row_kind: RowKind,
    /// The offset of its header in the page.
    pub(super) at: usize,
    /// Its length, including the header.
    pub(super) total: u64,
    header: usize,
    types: [u64; MAX_COLUMNS],
}

/// What the page says about a record.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellInfo {
    /// The rowid; zero in an index.
    pub(super) row: i64,
    /// Whether the page has a pointer to the cell. A removed or moved row may still be there without one.
    pub(super) listed: bool,
}

impl Record {
    /// Parses the header at `at`, if one of our records could begin there.
    pub(super) fn parse_at(page: &[u8], at: usize) -> Option<Self> {
        let header = usize::from(*page.get(at).filter(|length| (3..=MAX_HEADER).contains(*length))?);
        let mut rest = page.get(at.checked_add(1)?..at.checked_add(header)?)?;
        let (mut types, mut columns, mut total) = ([0; MAX_COLUMNS], 0_usize, header as u64);
        while !rest.is_empty() {
            let (kind, used) = varint(rest)?;
            *types.get_mut(columns)? = kind;
            columns += 1;
            total = total.checked_add(column_size(kind)?)?;
            rest = rest.get(used..)?;
        }
        let row_kind = RowKind::from_types(types.get(..columns)?)?;
        Some(Self { row_kind, at, total, header, types })
    }

    /// Returns how many bytes of the record are stored in its page.
    pub(super) fn local(&self, page_size: usize) -> usize {
        local_payload(page_size, self.total, self.row_kind.in_index())
    }

    /// Reads what precedes the record: its length, which must match the header, and the rowid.
    pub(super) fn cell(&self, page: &[u8]) -> Option<CellInfo> {
        let (row, end) = if self.row_kind.in_index() {
            (0, self.at)
        } else {
            let start = varint_before(page, self.at)?;
            let (row, _) = varint(page.get(start..self.at)?)?;
            (i64::from_ne_bytes(row.to_ne_bytes()), start)
        };
        let start = end.checked_sub(varint_length(self.total))?;
        if varint(page.get(start..end)?)? != (self.total, end - start) {
            return None;
        }
        let start = match (page.first(), self.row_kind.in_index()) {
            (Some(&TABLE_LEAF), false) | (Some(&INDEX_LEAF), true) => Some(start),
            // An interior page of an index holds entries too, each after a child page number.
            (Some(&INDEX_NODE), true) => start.checked_sub(4),
            (Some(_) | None, _) => None,
        };
        Some(CellInfo { row, listed: start.is_some_and(|start| has_pointer(page, start)) })
    }

    /// Reads an integer column from the bytes of the record.
    pub(super) fn integer(&self, record: &[u8], column: usize) -> Option<i64> {
        let kind = *self.types.get(column)?;
        if matches!(kind, 8 | 9) {
            return Some(i64::from(kind == 9));
        }
        let bytes = self.bytes(record, column).filter(|_| is_integer(kind))?;
        let sign: u8 = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
        let mut wide = [sign; 8];
        wide.get_mut(8_usize.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
        Some(i64::from_be_bytes(wide))
    }

    /// Reads a text column; `None` also if it is not UTF-8.
    pub(super) fn text<'a>(&self, record: &'a [u8], column: usize) -> Option<&'a str> {
        self.types.get(column).filter(|kind| is_text(**kind))?;
        std::str::from_utf8(self.bytes(record, column)?).ok()
    }

    /// Reads the bytes of a column.
    pub(super) fn bytes<'a>(&self, record: &'a [u8], column: usize) -> Option<&'a [u8]> {
        let mut start = self.header;
        for kind in self.types.get(..column)? {
            start = start.checked_add(usize::try_from(column_size(*kind)?).ok()?)?;
        }
        let length = usize::try_from(column_size(*self.types.get(column)?)?).ok()?;
        record.get(start..start.checked_add(length)?)
    }
}

/// Returns whether `page` has the header of a leaf and cell pointers within the page.
pub(super) fn is_leaf(page: &[u8]) -> bool {
    matches!(page.first(), Some(&(TABLE_LEAF | INDEX_LEAF)))
        && cells(page).is_some_and(|cells| {
            let lowest = cells.len().saturating_add(LEAF_HEADER);
            !cells.is_empty() && pointers(cells).all(|at| (lowest..page.len()).contains(&at))
        })
}

/// Returns whether SQLite can have written `page`: a B-tree page, or one whose first word is a page number.
pub(super) fn is_plausible(page: &[u8], pages: u32) -> bool {
    match page {
        [TABLE_LEAF | INDEX_LEAF, ..] => is_leaf(page) || page.get(3..5) == Some(&[0, 0]),
        [TABLE_NODE | INDEX_NODE, ..] => cells(page).is_some(),
        [a, b, c, d, ..] => u32::from_be_bytes([*a, *b, *c, *d]) <= pages && page.iter().any(|byte| *byte != 0),
        [..] => false,
    }
}

/// Returns whether `page` can be a pointer map: entries of a type and a page number.
pub(super) fn is_pointer_map(page: &[u8]) -> bool {
    page.first().is_some_and(|kind| *kind != 0) && page.chunks_exact(5).all(|entry| entry.first() <= Some(&5))
}

/// Reads a variable-length integer and how many bytes it takes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(9).enumerate() {
        if index == 8 {
            return Some((value << 8 | u64::from(*byte), 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Finds the start of the variable-length integer that ends before `end`.
fn varint_before(page: &[u8], end: usize) -> Option<usize> {
    let mut start = end.checked_sub(1)?;
    // A negative number takes nine bytes, and its last byte can have any value; our rows have none.
    page.get(start).filter(|byte| **byte & 0x80 == 0)?;
    while end - start < 8 && start > 0 && page.get(start - 1).is_some_and(|byte| byte & 0x80 != 0) {
        start -= 1;
    }
    Some(start)
}

fn varint_length(value: u64) -> usize {
    let bits = 64 - value.leading_zeros() as usize;
    bits.div_ceil(7).clamp(1, 9)
}

fn has_pointer(page: &[u8], start: usize) -> bool {
    cells(page).is_some_and(|cells| pointers(cells).any(|at| at == start))
}

/// Returns the cell pointers of a page, two bytes each.
fn cells(page: &[u8]) -> Option<&[u8]> {
    let head = if matches!(page.first(), Some(&(TABLE_NODE | INDEX_NODE))) { NODE_HEADER } else { LEAF_HEADER };
    let count = usize::from(u16::from_be_bytes([*page.get(3)?, *page.get(4)?]));
    page.get(head..head + count * 2)
}

fn pointers(cells: &[u8]) -> impl Iterator<Item = usize> {
    cells.chunks_exact(2).map(|at| match at {
        [high, low] => usize::from(u16::from_be_bytes([*high, *low])),
        [..] => 0,
    })
}

/// Returns how many bytes a column of a serial type takes; `None` for types that are never written.
const fn column_size(kind: u64) -> Option<u64> {
    match kind {
        0 | 8 | 9 => Some(0),
        1..=4 => Some(kind),
        5 => Some(6),
        6 | 7 => Some(8),
        10 | 11 => None,
        12.. => Some((kind - 12) / 2),
    }
}

const fn is_integer(kind: u64) -> bool {
    matches!(kind, 1..=6 | 8 | 9)
}

const fn is_text(kind: u64) -> bool {
    kind >= 13 && kind % 2 == 1
}

const fn is_blob(kind: u64) -> bool {
    kind >= 12 && kind.is_multiple_of(2)
}

/// How many columns are parsed: those of the widest row, and some that a newer schema may have added.
const MAX_COLUMNS: usize = 16;
/// The maximum length of our record headers; no byte of printable text is as low.
pub(super) const MAX_HEADER: u8 = 24;
/// The serial type of a digest of 32 bytes.
const TOKEN: u64 = 12 + 2 * 32;
/// The serial type of a fingerprint of 16 bytes.
const FINGERPRINT: u64 = 12 + 2 * 16;
/// The type byte of a table leaf page.
const TABLE_LEAF: u8 = 0x0d;
/// The type byte of an index leaf page.
const INDEX_LEAF: u8 = 0x0a;
/// The type byte of an interior table page.
const TABLE_NODE: u8 = 0x05;
/// The type byte of an interior index page.
const INDEX_NODE: u8 = 0x02;
/// The header size of a leaf page.
const LEAF_HEADER: usize = 8;
/// The header size of an interior page.
const NODE_HEADER: usize = 12;
