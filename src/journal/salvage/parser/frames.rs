//! The frames of a write-ahead log: which pages they hold, and which of them can be trusted.
//!
//! SQLite stops at the first frame with a wrong checksum. Each checksum continues the one stored in the previous
//! frame, so a frame after damage can still be verified on its own, which this module does.

use std::collections::BTreeMap;

use crate::journal::files::RawFile;

/// One frame of the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// The number of its page, starting at one.
    pub(super) page: u32,
    /// The salts, which change when the log restarts.
    pub(super) salts: u64,
    /// Whether its checksum continues that of the previous frame.
    pub(super) checksum_ok: bool,
    /// Whether it belongs to the log since its last restart.
    pub(super) current: bool,
    /// The commit frame of its transaction, if it was committed.
    pub(super) committed: Option<u32>,
    /// Whether it is a commit frame.
    is_commit: bool,
}

impl Frame {
    /// Returns whether SQLite would accept the frame if everything before it were intact.
    pub(super) const fn is_trusted(&self) -> bool {
        self.checksum_ok && self.current && self.committed.is_some()
    }
}

/// Returns the offset of a frame.
pub(super) fn frame_offset(frame: u32, page_size: usize) -> u64 {
    LOG_HEADER as u64 + u64::from(frame) * (FRAME_HEADER + page_size) as u64
}

/// Reads the frames of a log of `length` bytes; the last may be truncated.
pub(super) fn read(log: &dyn RawFile, length: u64, page_size: usize) -> Vec<Frame> {
    let mut head = [0; LOG_HEADER];
    if !log.read_at(0, &mut head).is_ok_and(|read| read == LOG_HEADER) {
        return Vec::new();
    }
    let mut before = read_u64(&head, 24);
    let mut frames = Vec::new();
    let mut buffer = vec![0; FRAME_HEADER + page_size];
    for number in 0..u32::MAX {
        let at = frame_offset(number, page_size);
        if at.saturating_add(FRAME_HEADER as u64) > length {
            break;
        }
        // An unreadable frame is read as zeros, so that later frames keep their numbers.
        let read = log.read_at(at, &mut buffer).unwrap_or(0);
        buffer.get_mut(read..).unwrap_or_default().fill(0);
        let stored = read_u64(&buffer, 16);
        let (page, salts) = ((read_u64(&buffer, 0) >> 32) as u32, read_u64(&buffer, 8));
        // A frame of zeros has a valid checksum too; no page has the number zero.
        let checksum_ok = page != 0
            && read == buffer.len()
            && BYTE_ORDERS.into_iter().any(|order| frame_checksum(before, &buffer, order) == stored);
        let ends = read_u64(&buffer, 0) & 0xffff_ffff != 0;
        frames.push(Frame { page, salts, checksum_ok, current: false, committed: None, is_commit: ends });
        before = stored;
    }
    classify(&mut frames, read_u64(&head, 16), BYTE_ORDERS.into_iter().any(|order| is_valid_header(&head, order)));
    frames
}

/// Determines which frames are committed, and which belong to the log since its last restart.
fn classify(frames: &mut [Frame], said: u64, head_is_sound: bool) {
    let first = frames.first().map_or(said, |frame| frame.salts);
    let current = if head_is_sound { said } else { first };
    let mut uses: BTreeMap<u64, u32> = BTreeMap::from([(current, 2)]);
    for frame in frames.iter() {
        *uses.entry(frame.salts).or_default() += 1;
    }
    // Salts that occur in only one frame are probably damaged: the frame counts to the surrounding transaction.
    let known = |salts: u64| uses.get(&salts).is_some_and(|uses| *uses > 1);
    let mut end: Option<(u32, u64)> = None;
    let count = u32::try_from(frames.len()).unwrap_or(u32::MAX);
    for (number, frame) in (0..count).rev().zip(frames.iter_mut().rev()) {
        if frame.is_commit {
            end = Some((number, frame.salts));
        }
        let same = |end: u64| end == frame.salts || !known(end) || !known(frame.salts);
        frame.committed = end.filter(|(_, salts)| same(*salts)).map(|(number, _)| number);
        frame.current = frame.salts == current;
    }
    let last = frames.iter().rposition(|frame| frame.current && frame.checksum_ok).unwrap_or(0);
    for frame in frames.iter_mut().take(last) {
        frame.current = true;
    }
}

/// Continues the checksum `before` over the header of a frame, without its salts and checksum, and over its page.
fn frame_checksum(before: u64, frame: &[u8], order: fn([u8; 4]) -> u32) -> u64 {
    let (head, page) = (frame.get(..8).unwrap_or_default(), frame.get(FRAME_HEADER..).unwrap_or_default());
    log_checksum(log_checksum(before, head, order), page, order)
}

fn is_valid_header(head: &[u8; LOG_HEADER], order: fn([u8; 4]) -> u32) -> bool {
    log_checksum(0, head.get(..24).unwrap_or_default(), order) == read_u64(head, 24)
}

/// The checksum algorithm of the SQLite log: two 32-bit sums, packed into one number.
fn log_checksum(before: u64, bytes: &[u8], order: fn([u8; 4]) -> u32) -> u64 {
    let (mut one, mut two) = ((before >> 32) as u32, before as u32);
    for words in bytes.chunks_exact(8) {
        if let [a, b, c, d, e, f, g, h] = *words {
            one = one.wrapping_add(order([a, b, c, d])).wrapping_add(two);
            two = two.wrapping_add(order([e, f, g, h])).wrapping_add(one);
        }
    }
    u64::from(one) << 32 | u64::from(two)
}

/// Reads eight bytes; missing ones are zero.
fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|eight| <[u8; 8]>::try_from(eight).ok());
    u64::from_be_bytes(eight.unwrap_or_default())
}

/// The size of a frame header.
pub(super) const FRAME_HEADER: usize = 24;
/// The size of the log header.
const LOG_HEADER: usize = 32;
/// Both byte orders; the log header says which one applies, if it can be read.
const BYTE_ORDERS: [fn([u8; 4]) -> u32; 2] = [u32::from_le_bytes, u32::from_be_bytes];
