//! Searches every image of every page of a damaged database, and verifies what it finds.
//!
//! The first pass collects names, because the checksum of a block includes the name of its session. The second
//! pass collects blocks and checkpoints. Only their locations are kept in memory (about 80 bytes a block), so a
//! database of any size can be searched.

use std::collections::{BTreeMap, BTreeSet};

use super::Outside;
use super::images::{Images, Place, Spot, Trust};
use super::record::{HIGHEST_HEADER, Record, Shape};
use super::rows::{self, Head};
use crate::journal::check;
use crate::kernel::id::SessionId;

/// All findings, by the key of their session.
pub(super) struct Findings {
    /// The candidates for each session key.
    pub(super) sessions: BTreeMap<i64, Vec<Candidate>>,
    /// The idempotency key with which a session was started.
    pub(super) starts: BTreeMap<i64, Start>,
    /// The ranges of epochs in which something may have been lost.
    pub(super) unsure: BTreeSet<(u64, u64)>,
    /// How many images were searched.
    pub(super) pages: u64,
    /// How many of them SQLite cannot have written.
    pub(super) unreadable: u64,
}

/// One possible name of a key, and what verifies under it.
pub(super) struct Candidate {
    pub(super) id: SessionId,
    /// Whether a source besides the row assigns the name to the key.
    confirmed: bool,
    /// The best row, and its location.
    row: Option<(Rank, Place)>,
    /// The highest reservation in a trusted row.
    pub(super) reserved: u64,
    pub(super) blocks: BTreeMap<Head, Place>,
    /// The checkpoints, by the last event that they contain.
    pub(super) checkpoints: BTreeMap<u64, Place>,
}

/// The quality of a row without a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// A row without a pointer in its page was removed or replaced.
    listed: bool,
    trust: Trust,
    updated_at: u64,
    /// The frame of the log that holds it.
    frame: u32,
}

/// A row of `start_key`.
pub(super) struct Start {
    rank: (Trust, u32),
    pub(super) place: Place,
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
    pub(super) fn row(&self) -> Option<Place> {
        self.row.filter(|_| self.confirmed || self.is_proven()).map(|(_, place)| place)
    }

    /// Ranks the names of a key: verified data first, then the newest row, then the amount of verified data.
    pub(super) fn standing(&self) -> impl Ord + use<> {
        (self.is_proven(), self.row.map(|(rank, _)| rank), self.confirmed, self.blocks.len())
    }
}

/// Searches all images.
pub(super) fn survey(images: &Images, outside: &Outside<'_>) -> Findings {
    let (sessions, starts, unsure) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    let found = Findings { sessions, starts, unsure, pages: 0, unreadable: 0 };
    let mut search = Search { images, outside, found };
    let mut image = Vec::new();
    for spot in images.spots() {
        images.read(spot, &mut image);
        search.found.pages += 1;
        search.found.unreadable += u64::from(!images.is_readable(spot, &image));
        each_record(&image, |record| search.name(spot, &image, record));
    }
    for spot in images.spots() {
        images.read(spot, &mut image);
        each_record(&image, |record| search.prove(spot, &image, record));
    }
    search.found
}

/// Calls `take` for everything in an image that may be a record.
fn each_record(image: &[u8], mut take: impl FnMut(&Record)) {
    for (at, byte) in image.iter().enumerate() {
        // Most bytes belong to events, which are printable text; this loop dominates the run time.
        if *byte <= HIGHEST_HEADER
            && let Some(record) = Record::at(image, at)
        {
            take(&record);
        }
    }
}

struct Search<'a> {
    images: &'a Images,
    outside: &'a Outside<'a>,
    found: Findings,
}

impl Search<'_> {
    /// Handles a record in the first pass, which collects names.
    fn name(&mut self, spot: Spot, image: &[u8], record: &Record) {
        match record.shape {
            Shape::Session => self.session(spot, image, record),
            Shape::Name | Shape::NameByTime => self.entry(spot, image, record),
            Shape::StartKey => self.start(spot, image, record),
            Shape::Unsure => self.unsure(spot, image, record),
            Shape::Block | Shape::Checkpoint => {}
        }
    }

    /// Handles a record in the second pass, which verifies blocks and checkpoints.
    fn prove(&mut self, spot: Spot, image: &[u8], record: &Record) {
        match record.shape {
            Shape::Block => self.block(spot, image, record),
            Shape::Checkpoint => self.checkpoint(spot, image, record),
            Shape::Session | Shape::Name | Shape::NameByTime | Shape::StartKey | Shape::Unsure => {}
        }
    }

    fn session(&mut self, spot: Spot, image: &[u8], record: &Record) {
        let Some(cell) = record.cell(image) else { return };
        let Some((place, row)) =
            self.images.find(spot, image, record, |payload| rows::Session::read(record, payload))
        else {
            return;
        };
        let trust = self.images.trust(spot);
        let Some(candidate) = self.candidate(cell.row, &row.id) else { return };
        // The checksum of the log covers the whole page.
        candidate.confirmed |= trust == Trust::Log && cell.listed;
        if trust > Trust::Doubtful && cell.listed {
            candidate.reserved = candidate.reserved.max(row.reserved);
        }
        let frame = frame_of(spot);
        let rank = Rank { listed: cell.listed, trust, updated_at: row.updated_at, frame };
        if candidate.row.is_none_or(|(best, _)| best < rank) {
            candidate.row = Some((rank, place));
        }
    }

    /// Handles an index entry, which confirms the name of a key.
    fn entry(&mut self, spot: Spot, image: &[u8], record: &Record) {
        if record.cell(image).is_none() {
            return;
        }
        let found = self.images.find(spot, image, record, |payload| rows::name(record, payload));
        if let Some((_, (key, id))) = found
            && let Some(candidate) = self.candidate(key, &id)
        {
            candidate.confirmed = true;
        }
    }

    fn start(&mut self, spot: Spot, image: &[u8], record: &Record) {
        if !record.cell(image).is_some_and(|cell| cell.listed) {
            return;
        }
        let found = self.images.find(spot, image, record, |payload| rows::Start::read(record, payload));
        let Some((place, row)) = found else { return };
        if row.session < 1 || (self.outside.deleted)(row.session) {
            return;
        }
        let rank = (self.images.trust(spot), frame_of(spot));
        if self.found.starts.get(&row.session).is_none_or(|best| best.rank < rank) {
            self.found.starts.insert(row.session, Start { rank, place });
        }
    }

    /// Collects ranges of uncertain epochs; a wrong one only causes a needless loss report.
    fn unsure(&mut self, spot: Spot, image: &[u8], record: &Record) {
        let listed = record.cell(image).is_some_and(|cell| cell.listed);
        if listed && self.images.trust(spot) > Trust::Doubtful && self.found.unsure.len() < LIVES {
            let found = self.images.find(spot, image, record, |payload| rows::unsure(record, payload));
            self.found.unsure.extend(found.map(|(_, lives)| lives));
        }
    }

    fn block(&mut self, spot: Spot, image: &[u8], record: &Record) {
        let local = record.at.saturating_add(record.local(self.images.page_size()));
        let Some((key, head, seal)) = image.get(record.at..local).and_then(|part| rows::block(record, part))
        else {
            return;
        };
        let images = self.images;
        for candidate in self.candidates(key) {
            if candidate.blocks.contains_key(&head) || !head.may_stand(&candidate.id, seal) {
                continue;
            }
            let stands = |payload: &[u8]| {
                let bytes = record.bytes(payload, rows::BLOCK_BYTES)?;
                head.numbers().stands(&candidate.id, seal, bytes).then_some(())
            };
            if let Some((place, ())) = images.find(spot, image, record, stands) {
                candidate.blocks.insert(head, place);
            }
        }
    }

    fn checkpoint(&mut self, spot: Spot, image: &[u8], record: &Record) {
        let Some(cell) = record.cell(image) else { return };
        let images = self.images;
        for candidate in self.candidates(cell.row) {
            let stands = |payload: &[u8]| {
                let row = rows::Checkpoint::read(record, payload)?;
                (check::checkpoint(&candidate.id, row.seq, row.bytes) == row.checksum).then_some(row.seq)
            };
            if let Some((place, seq)) = images.find(spot, image, record, stands) {
                candidate.checkpoints.entry(seq).or_insert(place);
            }
        }
    }

    /// Returns the possible names of a key; a name known from outside the database is certain.
    fn candidates(&mut self, key: i64) -> &mut [Candidate] {
        if key < 1 || (self.outside.deleted)(key) {
            return &mut [];
        }
        if !self.found.sessions.contains_key(&key)
            && let Some(id) = (self.outside.names)(key)
        {
            self.found.sessions.insert(key, vec![Candidate::new(id, true)]);
        }
        self.found.sessions.get_mut(&key).map_or(&mut [], Vec::as_mut_slice)
    }

    /// Finds or adds a name of a key; `None` if the key is deleted or known to have another name.
    fn candidate(&mut self, key: i64, id: &SessionId) -> Option<&mut Candidate> {
        if self.candidates(key).is_empty() && (key < 1 || (self.outside.deleted)(key)) {
            return None;
        }
        let certain = (self.outside.names)(key).is_some();
        let names = self.found.sessions.entry(key).or_default();
        let known = names.iter().position(|candidate| candidate.id == *id);
        if known.is_none() && (certain || names.len() >= NAMES) {
            return None;
        }
        let at = known.unwrap_or(names.len());
        if known.is_none() {
            names.push(Candidate::new(id.clone(), false));
        }
        names.get_mut(at)
    }
}

fn frame_of(spot: Spot) -> u32 {
    match spot {
        Spot::Page(_) => 0,
        Spot::Frame(frame) => frame,
    }
}

/// How many names a key may have: its own, and those of damaged or removed rows.
const NAMES: usize = 8;
/// How many ranges of epochs are kept.
const LIVES: usize = 10_000;
