//! The pages of a damaged database, read from its file and its log without SQLite.
//!
//! A page may have many images: one in the database and one for each write to the log, including some that SQLite
//! would ignore. Reading never fails as a whole: unreadable parts count as missing. Nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::frames::{self, Frame};
use super::record::{self, Record};
use crate::journal::files::RawFile;

/// One image of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageId {
    /// A page of the database, starting at zero.
    Page(u32),
    /// A frame of the log, starting at zero.
    Frame(u32),
}

/// How far an image is trusted if no checksum covers its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// It is in the log, and its checksum is wrong or the log has restarted since.
    Doubtful,
    /// It is in the database.
    Database,
    /// It is in the log, is committed and has a valid checksum.
    Log,
}

/// Selects the images of the overflow pages of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// The images as of the commit of a log transaction; the number is its commit frame.
    AtCommit(u32),
    /// The newest trusted images.
    Newest,
    /// The images in the database.
    Database,
    /// The last images in the log, trusted or not.
    LastInLog,
}

/// The location of a record, and the view in which it is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordLocation {
    pub(super) image_id: ImageId,
    pub(super) at: u32,
    pub(super) view: View,
}

/// All images of all pages.
pub(super) struct Images {
    database: Option<Box<dyn RawFile>>,
    log: Option<Box<dyn RawFile>>,
    page_size: usize,
    /// How many pages the database has; the last may be truncated.
    pages: u32,
    frames: Vec<Frame>,
    /// The committed frames of each page, in order.
    by_page: BTreeMap<u32, Vec<u32>>,
    /// The total size of both files, an upper bound for any record.
    bytes: u64,
    /// The pages of the freelist, as far as it can be read; their content is irrelevant.
    freelist: BTreeSet<u32>,
}

impl Images {
    /// Opens both files; either may be missing.
    pub(super) fn open(database: Option<Box<dyn RawFile>>, log: Option<Box<dyn RawFile>>) -> io::Result<Self> {
        let length = |file: &Option<Box<dyn RawFile>>| file.as_ref().map_or(Ok(0), |file| file.len());
        let (stored, logged) = (length(&database)?, length(&log)?);
        let page_size = page_size(database.as_deref(), log.as_deref());
        let pages = u32::try_from(stored.div_ceil(page_size as u64)).unwrap_or(u32::MAX);
        let frames = log.as_deref().map_or_else(Vec::new, |log| frames::read(log, logged, page_size));
        let mut by_page: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, frame) in (0..).zip(&frames) {
            if frame.committed.is_some() {
                by_page.entry(frame.page).or_default().push(number);
            }
        }
        let bytes = stored.saturating_add(logged);
        let unused = BTreeSet::new();
        let mut images = Self { database, log, page_size, pages, frames, by_page, bytes, freelist: unused };
        images.freelist = images.read_freelist();
        Ok(images)
    }

    /// Returns all images to search, those of the log in the order of their writes.
    ///
    /// Uncommitted frames are left out: no caller was told that they are stored.
    pub(super) fn image_ids(&self) -> impl Iterator<Item = ImageId> {
        let committed = (0..).zip(&self.frames).filter(|(_, frame)| frame.committed.is_some());
        (0..self.pages).map(ImageId::Page).chain(committed.map(|(number, _)| ImageId::Frame(number)))
    }

    /// Returns the size of a page.
    pub(super) const fn page_size(&self) -> usize {
        self.page_size
    }

    /// Reads an image; it is shorter than a page at the end of the file, and empty if it cannot be read.
    pub(super) fn read(&self, image_id: ImageId, into: &mut Vec<u8>) {
        let (file, at) = match image_id {
            ImageId::Page(page) => (&self.database, u64::from(page) * self.page_size as u64),
            ImageId::Frame(frame) => {
                (&self.log, frames::frame_offset(frame, self.page_size) + frames::FRAME_HEADER as u64)
            }
        };
        into.resize(self.page_size, 0);
        let read = file.as_ref().and_then(|file| file.read_at(at, into).ok());
        into.truncate(read.unwrap_or(0));
    }

    /// Returns how far an image is trusted.
    pub(super) fn trust(&self, image_id: ImageId) -> Trust {
        match image_id {
            ImageId::Page(_) => Trust::Database,
            ImageId::Frame(frame) if self.frame(frame).is_some_and(|frame| frame.is_trusted()) => Trust::Log,
            ImageId::Frame(_) => Trust::Doubtful,
        }
    }

    /// Returns whether SQLite can have written the image.
    pub(super) fn is_readable(&self, image_id: ImageId, image: &[u8]) -> bool {
        match image_id {
            // The first page begins with the file header.
            ImageId::Page(0) => image.starts_with(MAGIC) && image.len() == self.page_size,
            ImageId::Page(page) => {
                let apart = self.page_size / 5 + 1;
                let maps = (page as usize).wrapping_sub(1).is_multiple_of(apart);
                image.len() == self.page_size
                    && (self.freelist.contains(&page)
                        || record::is_plausible(image, self.pages)
                        || (maps && record::is_pointer_map(image)))
            }
            ImageId::Frame(frame) => self.frame(frame).is_none_or(|frame| frame.checksum_ok || !frame.current),
        }
    }

    /// Reads all of `record`, which begins in `image`; tries one view after another until `accept` returns a
    /// value.
    ///
    /// Most records do not overflow and have only one view.
    pub(super) fn find<T>(
        &self,
        image_id: ImageId,
        image: &[u8],
        record: &Record,
        mut accept: impl FnMut(&[u8]) -> Option<T>,
    ) -> Option<(RecordLocation, T)> {
        let at = u32::try_from(record.at).ok()?;
        let views = match image_id {
            ImageId::Page(_) => [View::Newest, View::Database, View::LastInLog, View::LastInLog],
            ImageId::Frame(frame) => {
                let end = self.frame(frame)?.committed.unwrap_or(frame);
                [View::AtCommit(end), View::Newest, View::Database, View::LastInLog]
            }
        };
        let spills = record.total > record.local(self.page_size) as u64;
        views.into_iter().take(if spills { views.len() } else { 1 }).find_map(|view| {
            let found = self.payload(image, record, view).as_deref().and_then(&mut accept)?;
            Some((RecordLocation { image_id, at, view }, found))
        })
    }

    /// Reads the record at `location` again.
    pub(super) fn record(&self, location: RecordLocation, image: &mut Vec<u8>) -> Option<(Record, Vec<u8>)> {
        self.read(location.image_id, image);
        let record = Record::parse_at(image, usize::try_from(location.at).ok()?)?;
        let payload = self.payload(image, &record, location.view)?;
        Some((record, payload))
    }

    /// Reads a record, including its overflow pages.
    fn payload(&self, image: &[u8], record: &Record, view: View) -> Option<Vec<u8>> {
        if record.total > self.bytes {
            return None;
        }
        let total = usize::try_from(record.total).ok()?;
        let local = record.local(self.page_size);
        let end = record.at.checked_add(local)?;
        let mut payload = Vec::with_capacity(total);
        payload.extend_from_slice(image.get(record.at..end)?);
        let mut next = if local < total { read_u32(image, end)? } else { 0 };
        let mut page = Vec::new();
        // Each iteration adds to the payload, so a cycle of overflow pages ends too.
        while payload.len() < total {
            self.read(self.resolve_page(next, view)?, &mut page);
            let part = (total - payload.len()).min(self.page_size - 4);
            payload.extend_from_slice(page.get(4..4 + part)?);
            next = read_u32(&page, 0)?;
        }
        Some(payload)
    }

    /// Finds the image of a page; SQLite counts pages from one.
    fn resolve_page(&self, page: u32, view: View) -> Option<ImageId> {
        let stored = page.checked_sub(1).filter(|page| *page < self.pages).map(ImageId::Page);
        let logged = self.by_page.get(&page).map_or(&[][..], Vec::as_slice);
        let last = || logged.last().copied().map(ImageId::Frame);
        match view {
            View::AtCommit(end) => {
                let generation = self.frame(end)?.salts;
                let same = |frame: &u32| self.frame(*frame).is_some_and(|frame| frame.salts == generation);
                let then = logged.iter().rev().filter(|frame| **frame <= end).find(|frame| same(frame));
                then.copied().map(ImageId::Frame).or(stored)
            }
            View::Newest => {
                let trusted = |frame: &u32| self.frame(*frame).is_some_and(Frame::is_trusted);
                let newest = logged.iter().rev().find(|frame| trusted(frame));
                newest.copied().map(ImageId::Frame).or(stored).or_else(last)
            }
            View::Database => stored,
            View::LastInLog => last().or(stored),
        }
    }

    /// Reads the freelist: trunk pages that name the next trunk page and many leaf pages.
    fn read_freelist(&self) -> BTreeSet<u32> {
        let (mut unused, mut page) = (BTreeSet::new(), Vec::new());
        let mut at = 32;
        let mut next = Some(1);
        while let Some(image_id) = next.and_then(|next| self.resolve_page(next, View::Newest)) {
            self.read(image_id, &mut page);
            next = read_u32(&page, at).filter(|next| unused.insert(next.wrapping_sub(1)));
            if at == 0 {
                let count = read_u32(&page, 4).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
                let others = (0..count.min(page.len() / 4)).filter_map(|other| read_u32(&page, 8 + other * 4));
                unused.extend(others.map(|other| other.wrapping_sub(1)));
            }
            at = 0;
        }
        unused
    }

    fn frame(&self, number: u32) -> Option<&Frame> {
        self.frames.get(usize::try_from(number).ok()?)
    }
}

/// Returns how many bytes of a record of `total` bytes are stored in its own page.
///
/// The journal's databases reserve no bytes at the end of a page, so the usable size is the page size.
pub(super) fn local_payload(page_size: usize, total: u64, in_index: bool) -> usize {
    let usable = page_size as u64;
    let least = (usable - 12) * 32 / 255 - 23;
    let most = if in_index { (usable - 12) * 64 / 255 - 23 } else { usable - 35 };
    let local = if total <= most {
        total
    } else {
        let even = least + (total - least) % (usable - 4);
        if even <= most { even } else { least }
    };
    usize::try_from(local).unwrap_or(page_size)
}

/// Finds the page size: both headers state it, and if they differ, the one that fits the pages best is taken.
fn page_size(database: Option<&dyn RawFile>, log: Option<&dyn RawFile>) -> usize {
    let mut head = [0; 18];
    let read = |file: Option<&dyn RawFile>, into: &mut [u8]| {
        file.is_some_and(|file| file.read_at(0, into).is_ok_and(|read| read == into.len()))
    };
    let mut sizes = vec![DEFAULT_PAGE_SIZE];
    if read(database, &mut head) {
        let said = usize::from(u16::from_be_bytes([head[16], head[17]]));
        sizes.push(if said == 1 { 65_536 } else { said });
    }
    if read(log, &mut head) {
        let said = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        sizes.push(usize::try_from(said).unwrap_or(0));
    }
    sizes.retain(|size| size.is_power_of_two() && (512..=65_536).contains(size));
    sizes.dedup();
    if sizes.len() == 1 {
        return DEFAULT_PAGE_SIZE;
    }
    // `max_by_key` returns the last of equal elements, which is to be the default size.
    sizes.reverse();
    sizes.into_iter().max_by_key(|size| score_page_size(database, log, *size)).unwrap_or(DEFAULT_PAGE_SIZE)
}

/// Counts the plausible pages and valid frames at the beginning of both files for a page size.
fn score_page_size(database: Option<&dyn RawFile>, log: Option<&dyn RawFile>, page_size: usize) -> usize {
    let mut page = vec![0; page_size];
    let leaves = (0..SAMPLE_BYTES / page_size as u64).filter(|number| {
        let at = number * page_size as u64;
        let read = database.and_then(|file| file.read_at(at, &mut page).ok());
        read == Some(page_size) && record::is_leaf(&page)
    });
    let leaves = leaves.count();
    let frames = log.map_or(0, |log| {
        let sample = log.len().unwrap_or(0).min(SAMPLE_BYTES);
        frames::read(log, sample, page_size).iter().filter(|frame| frame.checksum_ok).count()
    });
    leaves.saturating_add(frames)
}

/// Reads a big-endian number of four bytes.
fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let four: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(u32::from_be_bytes(four))
}

/// The page size of every database that the journal creates.
const DEFAULT_PAGE_SIZE: usize = 4096;
/// How many bytes of a file are read to find its page size.
const SAMPLE_BYTES: u64 = 4 * 1024 * 1024;
/// The first bytes of a database.
const MAGIC: &[u8] = b"SQLite format 3\0";
