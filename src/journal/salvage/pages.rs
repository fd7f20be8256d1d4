//! The page file of a salvage: all images of all pages of a damaged database, in a file that SQLite can open.
//!
//! SQLite reads a page as the root of a table if the schema says so, and follows the overflow pages of its rows. The
//! page file therefore has a first page of its own, and every other page keeps its number. A page that is in the log
//! too has its newest committed image there; the images that this replaces, and older ones of the log, are appended.
//!
//! SQLite ignores a log after its first damaged frame, so the frames are read here. Their checksums are not verified:
//! the rows have their own. Only images of committed transactions count, because no other transaction was reported to a caller.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::journal::files::RawFile;

/// The pages of a page file that SQLite can read rows from.
#[derive(Default)]
pub(super) struct PageList {
    /// The leaf pages of tables.
    pub(super) tables: Vec<u32>,
    /// The pages of indexes.
    pub(super) indexes: Vec<u32>,
    /// The highest page of the database as it was last; the others are older images.
    pub(super) newest: u32,
    /// How many images were found, including those without rows.
    pub(super) images: u64,
    /// How many of them could not be read.
    pub(super) unreadable: u64,
}

/// Appends all images to a page file that has only its first page so far.
pub(super) fn collect(
    into: &dyn RawFile,
    database: Option<&dyn RawFile>,
    log: Option<&dyn RawFile>,
) -> io::Result<PageList> {
    let stored = database.map_or(Ok(0), |file| file.len())?.div_ceil(PAGE_BYTES as u64);
    let stored = u32::try_from(stored).unwrap_or(u32::MAX);
    let frames = log.map_or(Ok(Vec::new()), committed_frames)?;
    // The first frames are those since the log was last restarted.
    let salts = frames.first().map(|frame| frame.salts);
    // A damaged page number must not make the file huge.
    let limit = stored.saturating_add(u32::try_from(frames.len()).unwrap_or(u32::MAX)).saturating_mul(2);
    let current = frames.iter().filter(|frame| Some(frame.salts) == salts && frame.page <= limit.max(MIN_LIMIT));
    let logged: BTreeMap<u32, u64> = current.map(|frame| (frame.page, frame.at)).collect();
    let newest = stored.max(logged.last_key_value().map_or(1, |(page, _)| *page)).max(1);
    let list = PageList { newest, images: u64::from(stored) + frames.len() as u64, ..PageList::default() };
    let mut writer = PageWriter { into, list, end: newest.max(OWN_PAGES), buffer: vec![0; PAGE_BYTES] };
    for page in 2..=newest {
        let in_database = (page <= stored).then_some((database, u64::from(page - 1) * PAGE_BYTES as u64));
        match (logged.get(&page), in_database) {
            (Some(at), older) => {
                writer.write(page, log, *at)?;
                if let Some((file, at)) = older {
                    writer.append(file, at)?;
                }
            }
            (None, Some((file, at))) => writer.write(page, file, at)?,
            (None, None) => {}
        }
    }
    for frame in &frames {
        if logged.get(&frame.page) != Some(&frame.at) {
            writer.append(log, frame.at)?;
        }
    }
    into.set_len(u64::from(writer.end) * PAGE_BYTES as u64)?;
    into.write_at(PAGE_COUNT_AT, &writer.end.to_be_bytes())?;
    Ok(writer.list)
}

struct PageWriter<'a> {
    into: &'a dyn RawFile,
    list: PageList,
    /// The highest page number in use.
    end: u32,
    buffer: Vec<u8>,
}

impl PageWriter<'_> {
    fn append(&mut self, from: Option<&dyn RawFile>, at: u64) -> io::Result<()> {
        self.end = self.end.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
        self.write(self.end, from, at)
    }

    /// Copies a page; what cannot be read of it is zero.
    fn write(&mut self, page: u32, from: Option<&dyn RawFile>, at: u64) -> io::Result<()> {
        let read = from.and_then(|file| file.read_at(at, &mut self.buffer).ok());
        self.list.unreadable += u64::from(read != Some(PAGE_BYTES));
        self.buffer.get_mut(read.unwrap_or(0)..).unwrap_or_default().fill(0);
        match self.buffer.first() {
            Some(&TABLE_LEAF) => self.list.tables.push(page),
            Some(&(INDEX_LEAF | INDEX_NODE)) => self.list.indexes.push(page),
            Some(_) | None => {}
        }
        self.into.write_at(u64::from(page - 1) * PAGE_BYTES as u64, &self.buffer)
    }
}

/// A frame of a log: one image of a page.
struct Frame {
    page: u32,
    /// They change when the log is restarted.
    salts: u64,
    /// The offset of the image.
    at: u64,
    /// Whether it ends a transaction.
    is_commit: bool,
}

/// Reads the frames of committed transactions, in the order of the log.
fn committed_frames(log: &dyn RawFile) -> io::Result<Vec<Frame>> {
    let length = log.len()?;
    let mut frames = Vec::new();
    let mut at = LOG_HEADER;
    while at + FRAME_HEADER <= length {
        let mut head = [0; 16];
        // A header that cannot be read stays zero, and zero is no page number.
        let _ = log.read_at(at, &mut head);
        let [a, b, c, d, e, f, g, h, salts @ ..] = head;
        let (page, size) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        frames.push(Frame { page, salts: u64::from_be_bytes(salts), at: at + FRAME_HEADER, is_commit: size != 0 });
        at += FRAME_HEADER + PAGE_BYTES as u64;
    }
    // Before the last commit since a restart there is no frame of an aborted transaction: it was overwritten.
    let mut ended = BTreeSet::new();
    let mut committed: Vec<Frame> = Vec::new();
    for frame in frames.into_iter().rev() {
        if frame.is_commit {
            ended.insert(frame.salts);
        }
        if frame.page != 0 && ended.contains(&frame.salts) {
            committed.push(frame);
        }
    }
    committed.reverse();
    Ok(committed)
}

/// The page size of every database that the journal creates.
pub(super) const PAGE_BYTES: usize = 4096;
/// The offset of the number of pages in the first page.
const PAGE_COUNT_AT: u64 = 28;
/// How many pages the page file has before the others are added; its schema refers to them.
const OWN_PAGES: u32 = 3;
/// The page number up to which a frame is always accepted.
const MIN_LIMIT: u32 = 1024;
/// The size of the log header.
const LOG_HEADER: u64 = 32;
/// The size of a frame header.
const FRAME_HEADER: u64 = 24;
/// The type byte of a table leaf page.
const TABLE_LEAF: u8 = 0x0d;
/// The type byte of an index leaf page.
const INDEX_LEAF: u8 = 0x0a;
/// The type byte of an interior index page.
const INDEX_NODE: u8 = 0x02;
