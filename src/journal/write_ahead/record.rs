//! The format of the write-ahead file: pure functions on bytes.
//!
//! The file has two regions of equal size. A region is empty (zeros) or begins with a header, and records follow
//! without gaps. All numbers are little-endian:
//!
//! - header: `pushwaf1`, number of the epoch (8 bytes), generation (8), checksum of these (4); generations are counted
//!   in the lower half, and the upper half is the nonce of the epoch;
//! - record: length of what follows the checksum (4), checksum (4), position before it, of its first and of its last
//!   event (8 each), number of events (4), length of the session's name (4), name, events.
//!
//! The checksum of a record is a CRC-32 of its other bytes that continues the checksum before it. A record therefore
//! verifies only in its own region and generation and behind the same predecessors, and whatever an earlier
//! generation left there ends the scan.

use bytes::Bytes;
use crc32fast::Hasher;

use crate::journal::checksum;
use crate::journal::record::Block;
use crate::kernel::id::{Seq, SessionId};

/// Events of a session that follow those up to `after`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) session: SessionId,
    pub(super) after: Seq,
    pub(super) block: Block,
}

/// Where the next record of a region begins, and the checksum that it continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) end: usize,
    chain: u32,
}

impl Cursor {
    /// Begins a region: appends its header to `into`.
    pub(super) fn begin(epoch: u64, generation: u64, into: &mut Vec<u8>) -> Self {
        let from = into.len();
        into.extend_from_slice(MAGIC);
        into.extend_from_slice(&epoch.to_le_bytes());
        into.extend_from_slice(&generation.to_le_bytes());
        let chain = crc32fast::hash(&into[from..]);
        into.extend_from_slice(&chain.to_le_bytes());
        Self { end: HEADER_BYTES, chain }
    }

    /// A position behind which nothing fits.
    pub(super) const fn at_end(region_bytes: usize) -> Self {
        Self { end: region_bytes, chain: 0 }
    }

    /// Appends a record to `into`, and returns the position behind it; `None` if it is too long for the format.
    pub(super) fn encode(self, session: &SessionId, after: Seq, block: &Block, into: &mut Vec<u8>) -> Option<Self> {
        let name = session.as_str().as_bytes();
        let length = FIELDS_BYTES + name.len() + block.bytes.len();
        let from = into.len();
        into.extend_from_slice(&u32::try_from(length).ok()?.to_le_bytes());
        into.extend_from_slice(&[0; 4]);
        into.extend_from_slice(&after.number().to_le_bytes());
        into.extend_from_slice(&block.first.number().to_le_bytes());
        into.extend_from_slice(&block.last.number().to_le_bytes());
        into.extend_from_slice(&block.count.to_le_bytes());
        into.extend_from_slice(&u32::try_from(name.len()).ok()?.to_le_bytes());
        into.extend_from_slice(name);
        into.extend_from_slice(&block.bytes);
        let chain = record_checksum(self.chain, &into[from..from + 4], &into[from + PREFIX_BYTES..]);
        into[from + 4..from + PREFIX_BYTES].copy_from_slice(&chain.to_le_bytes());
        Some(Self { end: self.end + PREFIX_BYTES + length, chain })
    }

    /// Decodes the record at this position; `None` if there is no valid one.
    fn decode(self, region: &[u8]) -> Option<(Record, Self)> {
        let mut rest = region.get(self.end..)?;
        let length = *take_array::<4>(&mut rest)?;
        let stored = u32::from_le_bytes(*take_array(&mut rest)?);
        let body = rest.get(..usize::try_from(u32::from_le_bytes(length)).ok()?)?;
        let chain = record_checksum(self.chain, &length, body);
        if chain != stored {
            return None;
        }
        let mut rest = body;
        let after = Seq::new(u64::from_le_bytes(*take_array(&mut rest)?));
        let first = Seq::new(u64::from_le_bytes(*take_array(&mut rest)?));
        let last = Seq::new(u64::from_le_bytes(*take_array(&mut rest)?));
        let count = u32::from_le_bytes(*take_array(&mut rest)?);
        let name = u32::from_le_bytes(*take_array(&mut rest)?);
        let (name, bytes) = rest.split_at_checked(usize::try_from(name).ok()?)?;
        let session = SessionId::from(std::str::from_utf8(name).ok()?);
        let block = Block { first, last, count, bytes: Bytes::copy_from_slice(bytes) };
        Some((Record { session, after, block }, Self { end: self.end + PREFIX_BYTES + body.len(), chain }))
    }
}

/// What a region holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// The epoch and the generation, if there is a header.
    pub(super) written_in: Option<(u64, u64)>,
    pub(super) records: Vec<Record>,
    pub(super) end: RegionEnd,
}

/// What follows the last valid record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RegionEnd {
    /// Nothing.
    Clean,
    /// A record that does not verify, and nothing behind it: the process may have been killed while writing it.
    Torn,
    /// Bytes that no interrupted write leaves.
    Damaged,
}

/// Reads the records of a region, up to the first one that does not verify.
pub(super) fn scan(region: &[u8]) -> Region {
    let Some((written_in, mut cursor)) = read_header(region) else {
        let end = if is_zero(region) { RegionEnd::Clean } else { RegionEnd::Damaged };
        return Region { written_in: None, records: Vec::new(), end };
    };
    let mut records = Vec::new();
    while let Some((record, next)) = cursor.decode(region) {
        records.push(record);
        cursor = next;
    }
    Region { written_in: Some(written_in), records, end: classify_end(&region[cursor.end..]) }
}

fn read_header(region: &[u8]) -> Option<((u64, u64), Cursor)> {
    let (head, mut rest) = region.split_at_checked(HEADER_BYTES - 4)?;
    let chain = crc32fast::hash(head);
    let mut fields = head.strip_prefix(MAGIC)?;
    let epoch = u64::from_le_bytes(*take_array(&mut fields)?);
    let generation = u64::from_le_bytes(*take_array(&mut fields)?);
    let stored = u32::from_le_bytes(*take_array(&mut rest)?);
    (stored == chain).then_some(((epoch, generation), Cursor { end: HEADER_BYTES, chain }))
}

fn classify_end(rest: &[u8]) -> RegionEnd {
    if is_zero(rest) {
        return RegionEnd::Clean;
    }
    let mut body = rest;
    let length = take_array(&mut body).map_or(u32::MAX, |length| u32::from_le_bytes(*length));
    let behind = usize::try_from(length).ok().and_then(|length| rest.get(PREFIX_BYTES.checked_add(length)?..));
    if behind.is_some_and(is_zero) { RegionEnd::Torn } else { RegionEnd::Damaged }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn record_checksum(chain: u32, length: &[u8], body: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(checksum::chain(chain, length));
    hasher.update(body);
    hasher.finalize()
}

/// Takes the next bytes.
fn take_array<'a, const LENGTH: usize>(from: &mut &'a [u8]) -> Option<&'a [u8; LENGTH]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(taken)
}

/// The name of the format and its version.
const MAGIC: &[u8; 8] = b"pushwaf1";
/// The size of a header.
const HEADER_BYTES: usize = 8 + 2 * 8 + 4;
/// The length and the checksum of a record.
const PREFIX_BYTES: usize = 2 * 4;
/// Three positions, the number of events and the length of the name precede the name.
const FIELDS_BYTES: usize = 3 * 8 + 2 * 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Encodes records into a region of `size` bytes; returns it and where each record ends.
    fn region(generation: u64, records: &[Record], size: usize) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut cursor = Cursor::begin(3, generation, &mut bytes);
        let mut ends = vec![cursor.end];
        for Record { session, after, block } in records {
            cursor = cursor.encode(session, *after, block, &mut bytes).unwrap();
            ends.push(cursor.end);
        }
        assert_eq!(cursor.end, bytes.len());
        bytes.resize(size, 0);
        (bytes, ends)
    }

    fn random_records(random: &mut Random) -> Vec<Record> {
        let mut last = 0;
        let mut record = || {
            let (after, first) = (last, last + 1 + random.below(2) * random.below(9));
            let count = 1 + random.below(5);
            last = first + count - 1;
            let session = SessionId::from(format!("ses_{}", random.below(3)));
            let bytes: Vec<u8> = (0..random.below(90)).map(|_| random.below(256) as u8).collect();
            let (first, last, count) = (Seq::new(first), Seq::new(last), u32::try_from(count).unwrap());
            Record { session, after: Seq::new(after), block: Block { first, last, count, bytes: bytes.into() } }
        };
        (0..5).map(|_| record()).collect()
    }

    #[test]
    fn a_region_is_read_as_it_was_written() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let records = random_records(&mut random);
            let count = random.below(6) as usize;
            let (bytes, _) = region(seed, &records[..count], 2_000);
            let wanted =
                Region { written_in: Some((3, seed)), records: records[..count].to_vec(), end: RegionEnd::Clean };
            assert_eq!(scan(&bytes), wanted, "seed {seed}");
        }
        assert_eq!(scan(&[0; 500]), Region { written_in: None, records: Vec::new(), end: RegionEnd::Clean });
        assert_eq!(scan(&[]).end, RegionEnd::Clean);
    }

    #[test]
    fn a_torn_record_ends_a_region_cut_anywhere() {
        let records = random_records(&mut Random::new(1));
        let (bytes, ends) = region(7, &records, 2_000);
        for cut in 0..=*ends.last().unwrap() {
            let torn: Vec<u8> = bytes[..cut].iter().copied().chain([0; 500]).collect();
            let found = scan(&torn);
            // Trailing zeros of a record may be missing: it is whole all the same.
            let there = ends.iter().skip(1).filter(|end| is_zero(&bytes[cut.min(**end)..**end])).count();
            assert_eq!(found.records, records[..there], "cut at {cut}");
            assert_eq!(found.end == RegionEnd::Damaged, (1..ends[0]).contains(&cut), "cut at {cut}");
            let whole = ends.iter().skip(1).filter(|end| **end <= cut).count();
            assert_eq!(scan(&bytes[..cut]).records, records[..whole], "a file cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_ends_a_region_and_is_noticed() {
        let records = random_records(&mut Random::new(2));
        let (bytes, ends) = region(7, &records, 700);
        let written = *ends.last().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let found = scan(&changed);
            let before = ends.iter().filter(|end| **end * 8 <= bit).count().saturating_sub(1);
            assert_eq!(found.records, records[..before], "bit {bit}");
            assert_ne!(found.end, RegionEnd::Clean, "bit {bit}");
            // A wrong length can make everything behind look like one record that was being written.
            let in_length = ends.iter().any(|end| (*end..*end + 4).contains(&(bit / 8)));
            let in_last = (ends[ends.len() - 2]..written + PREFIX_BYTES).contains(&(bit / 8));
            assert!(in_length || in_last || found.end == RegionEnd::Damaged, "bit {bit}");
        }
    }

    #[test]
    fn records_of_an_earlier_generation_are_not_read_behind_a_new_header() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let old = random_records(&mut random);
            let (mut bytes, _) = region(6, &old, 2_000);
            let new = random_records(&mut random);
            let count = random.below(4) as usize;
            let (written, ends) = region(7, &new[..count], 2_000);
            let end = *ends.last().unwrap();
            bytes[..end].copy_from_slice(&written[..end]);
            assert_eq!(scan(&bytes).records, new[..count], "seed {seed}");
            // The same records in both generations: only their place in the chain differs.
            let (same, _) = region(6, &new, 2_000);
            bytes[end..].copy_from_slice(&same[end..]);
            assert_eq!(scan(&bytes).records, new[..count], "seed {seed}");
        }
    }
}
