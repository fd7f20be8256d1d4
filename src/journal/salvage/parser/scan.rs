//! Searches every image of every page of a damaged database, and verifies what it finds.
//!
//! The first pass collects names, because the checksum of a block includes the name of its session. The second
//! pass collects blocks and checkpoints. Only their locations are kept in memory (about 80 bytes a block), so a
//! database of any size can be searched.

use std::collections::{BTreeMap, BTreeSet};

use super::images::{ImageId, Images, RecordLocation, Trust};
use super::record::{MAX_HEADER, Record, RowKind};
use super::rows;
use crate::journal::checksum;
use crate::journal::salvage::SalvageContext;
use crate::journal::salvage::rows::FoundBlock;
use crate::kernel::id::SessionId;

/// All findings, by the key of their session.
pub(super) struct ScanResults {
    /// The candidates for each session key.
    pub(super) sessions: BTreeMap<i64, Vec<Candidate>>,
    /// The idempotency key with which a session was started.
    pub(super) start_keys: BTreeMap<i64, StartKeyCandidate>,
    /// The ranges of epochs in which something may have been lost.
    pub(super) uncertain_epochs: BTreeSet<(u64, u64)>,
    /// How many images were searched.
    pub(super) pages: u64,
    /// How many of them SQLite cannot have written.
    pub(super) unreadable_pages: u64,
}

/// One possible name of a key, and what verifies under it.
pub(super) struct Candidate {
    pub(super) id: SessionId,
    /// Whether a source besides the row assigns the name to the key.
    confirmed: bool,
    /// The best row, and its location.
    row: Option<(RowRank, RecordLocation)>,
    /// The highest reservation in a trusted row.
    pub(super) reserved: u64,
    pub(super) blocks: BTreeMap<FoundBlock, RecordLocation>,
    /// The checkpoints, by the last event that they contain.
    pub(super) checkpoints: BTreeMap<u64, RecordLocation>,
}

/// The quality of a row without a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowRank {
    /// A row without a pointer in its page was removed or replaced.
    listed: bool,
    trust: Trust,
    updated_at: u64,
    /// The frame of the log that holds it.
    frame: u32,
}

/// A row of `start_key`.
pub(super) struct StartKeyCandidate {
    rank: (Trust, u32),
    pub(super) location: RecordLocation,
}

impl Candidate {
    fn new(id: SessionId, confirmed: bool) -> Self {
        let (blocks, checkpoints) = (BTreeMap::new(), BTreeMap::new());
        Self { id, confirmed, row: None, reserved: 0, blocks, checkpoints }
    }

    /// Returns whether a block or checkpoint verifies under this name.
    pub(super) fn is_proven(&self) -> bool {
        !self.blocks.is_empty() || !self.checkpoints.is_empty()
    }

    /// Returns the location of its row, if the row can be attributed to the session.
    pub(super) fn row(&self) -> Option<RecordLocation> {
        self.row.filter(|_| self.confirmed || self.is_proven()).map(|(_, location)| location)
    }

    /// Ranks the names of a key: verified data first, then the newest row, then the amount of verified data.
    pub(super) fn score(&self) -> impl Ord + use<> {
        (self.is_proven(), self.row.map(|(rank, _)| rank), self.confirmed, self.blocks.len())
    }
}

/// Searches all images.
pub(super) fn scan(images: &Images, context: &SalvageContext<'_>) -> ScanResults {
    let (sessions, start_keys, unsure) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let found = ScanResults { sessions, start_keys, uncertain_epochs: unsure, pages: 0, unreadable_pages: 0 };
    let mut search = Scanner { images, context, found };
    let mut image = Vec::new();
    for image_id in images.image_ids() {
        images.read(image_id, &mut image);
        search.found.pages += 1;
        search.found.unreadable_pages += u64::from(!images.is_readable(image_id, &image));
        each_record(&image, |record| search.first_pass(image_id, &image, record));
    }
    for image_id in images.image_ids() {
        images.read(image_id, &mut image);
        each_record(&image, |record| search.second_pass(image_id, &image, record));
    }
    search.found
}

/// Calls `take` for everything in an image that may be a record.
fn each_record(image: &[u8], mut take: impl FnMut(&Record)) {
    for (at, byte) in image.iter().enumerate() {
        // Most bytes belong to events, which are printable text; this loop dominates the run time.
        if *byte <= MAX_HEADER
            && let Some(record) = Record::parse_at(image, at)
        {
            take(&record);
        }
    }
}

struct Scanner<'a> {
    images: &'a Images,
    context: &'a SalvageContext<'a>,
    found: ScanResults,
}

impl Scanner<'_> {
    /// Handles a record in the first pass, which collects names.
    fn first_pass(&mut self, image_id: ImageId, image: &[u8], record: &Record) {
        match record.row_kind {
            RowKind::Session => self.session(image_id, image, record),
            RowKind::Name | RowKind::NameByTime => self.index_entry(image_id, image, record),
            RowKind::StartKey => self.start_key(image_id, image, record),
            RowKind::Unsure => self.uncertain_epochs(image_id, image, record),
            RowKind::Block | RowKind::Checkpoint => {}
        }
    }

    /// Handles a record in the second pass, which verifies blocks and checkpoints.
    fn second_pass(&mut self, image_id: ImageId, image: &[u8], record: &Record) {
        match record.row_kind {
            RowKind::Block => self.block(image_id, image, record),
            RowKind::Checkpoint => self.checkpoint(image_id, image, record),
            RowKind::Session | RowKind::Name | RowKind::NameByTime | RowKind::StartKey | RowKind::Unsure => {}
        }
    }

    fn session(&mut self, image_id: ImageId, image: &[u8], record: &Record) {
        let Some(cell) = record.cell(image) else { return };
        let Some((location, row)) =
            self.images.find(image_id, image, record, |payload| rows::Session::read(record, payload))
        else {
            return;
        };
        let trust = self.images.trust(image_id);
        let Some(candidate) = self.candidate(cell.row, &row.id) else { return };
        // The checksum of the log covers the whole page.
        candidate.confirmed |= trust == Trust::Log && cell.listed;
        if trust > Trust::Doubtful && cell.listed {
            candidate.reserved = candidate.reserved.max(row.reserved);
        }
        let frame = frame_of(image_id);
        let rank = RowRank { listed: cell.listed, trust, updated_at: row.updated_at, frame };
        if candidate.row.is_none_or(|(best, _)| best < rank) {
            candidate.row = Some((rank, location));
        }
    }

    /// Handles an index entry, which confirms the name of a key.
    fn index_entry(&mut self, image_id: ImageId, image: &[u8], record: &Record) {
        if record.cell(image).is_none() {
            return;
        }
        let found = self.images.find(image_id, image, record, |payload| rows::name(record, payload));
        if let Some((_, (key, id))) = found
            && let Some(candidate) = self.candidate(key, &id)
        {
            candidate.confirmed = true;
        }
    }

    fn start_key(&mut self, image_id: ImageId, image: &[u8], record: &Record) {
        if !record.cell(image).is_some_and(|cell| cell.listed) {
            return;
        }
        let found = self.images.find(image_id, image, record, |payload| rows::StartKey::read(record, payload));
        let Some((location, row)) = found else { return };
        if row.session < 1 || (self.context.is_deleted)(row.session) {
            return;
        }
        let rank = (self.images.trust(image_id), frame_of(image_id));
        if self.found.start_keys.get(&row.session).is_none_or(|best| best.rank < rank) {
            self.found.start_keys.insert(row.session, StartKeyCandidate { rank, location });
        }
    }

    /// Collects ranges of uncertain epochs; a wrong one only causes a needless loss report.
    fn uncertain_epochs(&mut self, image_id: ImageId, image: &[u8], record: &Record) {
        let listed = record.cell(image).is_some_and(|cell| cell.listed);
        if listed
            && self.images.trust(image_id) > Trust::Doubtful
            && self.found.uncertain_epochs.len() < MAX_EPOCH_RANGES
        {
            let found = self.images.find(image_id, image, record, |payload| rows::uncertain_epochs(record, payload));
            self.found.uncertain_epochs.extend(found.map(|(_, lives)| lives));
        }
    }

    fn block(&mut self, image_id: ImageId, image: &[u8], record: &Record) {
        let local = record.at.saturating_add(record.local(self.images.page_size()));
        let Some((key, head, seal)) = image.get(record.at..local).and_then(|part| rows::block(record, part)) else {
            return;
        };
        let images = self.images;
        for candidate in self.candidates(key) {
            if candidate.blocks.contains_key(&head) {
                continue;
            }
            let stands = |payload: &[u8]| {
                let bytes = record.bytes(payload, rows::BLOCK_BYTES)?;
                head.header().verify_unchained(&candidate.id, seal, bytes).then_some(())
            };
            if let Some((location, ())) = images.find(image_id, image, record, stands) {
                candidate.blocks.insert(head, location);
            }
        }
    }

    fn checkpoint(&mut self, image_id: ImageId, image: &[u8], record: &Record) {
        let Some(cell) = record.cell(image) else { return };
        let images = self.images;
        for candidate in self.candidates(cell.row) {
            let stands = |payload: &[u8]| {
                let row = rows::Checkpoint::read(record, payload)?;
                (checksum::checkpoint(&candidate.id, row.seq, row.bytes) == row.checksum).then_some(row.seq)
            };
            if let Some((location, seq)) = images.find(image_id, image, record, stands) {
                candidate.checkpoints.entry(seq).or_insert(location);
            }
        }
    }

    /// Returns the possible names of a key; a name known from outside the database is certain.
    fn candidates(&mut self, key: i64) -> &mut [Candidate] {
        if key < 1 || (self.context.is_deleted)(key) {
            return &mut [];
        }
        if !self.found.sessions.contains_key(&key)
            && let Some(id) = (self.context.name_of)(key)
        {
            self.found.sessions.insert(key, vec![Candidate::new(id, true)]);
        }
        self.found.sessions.get_mut(&key).map_or(&mut [], Vec::as_mut_slice)
    }

    /// Finds or adds a name of a key; `None` if the key is deleted or known to have another name.
    fn candidate(&mut self, key: i64, id: &SessionId) -> Option<&mut Candidate> {
        if self.candidates(key).is_empty() && (key < 1 || (self.context.is_deleted)(key)) {
            return None;
        }
        let certain = (self.context.name_of)(key).is_some();
        let names = self.found.sessions.entry(key).or_default();
        let known = names.iter().position(|candidate| candidate.id == *id);
        if known.is_none() && (certain || names.len() >= MAX_NAMES) {
            return None;
        }
        let at = known.unwrap_or(names.len());
        if known.is_none() {
            names.push(Candidate::new(id.clone(), false));
        }
        names.get_mut(at)
    }
}

fn frame_of(image_id: ImageId) -> u32 {
    match image_id {
        ImageId::Page(_) => 0,
        ImageId::Frame(frame) => frame,
    }
}

/// How many names a key may have: its own, and those of damaged or removed rows.
const MAX_NAMES: usize = 8;
/// How many ranges of epochs are kept.
const MAX_EPOCH_RANGES: usize = 10_000;
