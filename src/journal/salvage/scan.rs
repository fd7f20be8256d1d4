//! Searches all pages of a damaged database, and verifies what it finds.
//!
//! The first pass collects names, because the checksum of a block includes the name of its session. The second
//! pass collects blocks and checkpoints. Only their locations are kept in memory (about 80 bytes a block), so a
//! database of any size can be searched.

use std::collections::{BTreeMap, BTreeSet};

use super::SalvageContext;
use super::reader::{PageReader, RowLocation};
use super::rows::{IndexEntry, Session, TableRow};
use crate::journal::checksum::{self, BlockHeader};
use crate::kernel::id::SessionId;

/// All findings, by the key of their session.
pub(super) struct ScanResults {
    /// The candidates for each session key.
    pub(super) sessions: BTreeMap<i64, Vec<Candidate>>,
    /// The idempotency key with which a session was started.
    pub(super) start_keys: BTreeMap<i64, StartKey>,
    /// The ranges of epochs in which something may have been lost.
    pub(super) uncertain_epochs: BTreeSet<(u64, u64)>,
    /// How many images were searched.
    pub(super) pages: u64,
    /// How many of them cannot be read completely.
    pub(super) unreadable_pages: u64,
}

/// One possible name of a key, and what verifies under it.
pub(super) struct Candidate {
    pub(super) id: SessionId,
    /// Whether a source besides the row assigns the name to the key.
    confirmed: bool,
    /// The best row, and its location.
    row: Option<(RowRank, RowLocation)>,
    /// The highest reservation in a row that was not replaced.
    pub(super) reserved: u64,
    pub(super) blocks: BTreeMap<BlockHeader, RowLocation>,
    /// The checkpoints, by the last event that they contain.
    pub(super) checkpoints: BTreeMap<u64, RowLocation>,
}

/// The quality of a row without a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RowRank {
    /// Whether it is in the newest image of its page.
    newest: bool,
    updated_at: u64,
    /// Of older images, the later ones in the log have higher numbers.
    page: u32,
}

/// A row of `start_key`.
pub(super) struct StartKey {
    newest: bool,
    pub(super) key: String,
    pub(super) fingerprint: [u8; 16],
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
    pub(super) fn row(&self) -> Option<RowLocation> {
        self.row.filter(|_| self.confirmed || self.is_proven()).map(|(_, location)| location)
    }

    /// Ranks the names of a key: verified data first, then the newest row, then the amount of verified data.
    pub(super) fn score(&self) -> impl Ord + use<> {
        (self.is_proven(), self.row.map(|(rank, _)| rank), self.confirmed, self.blocks.len())
    }
}

/// Searches all pages.
pub(super) fn scan(pages: &PageReader, context: &SalvageContext<'_>) -> rusqlite::Result<ScanResults> {
    let list = &pages.list;
    let found = ScanResults {
        sessions: BTreeMap::new(),
        start_keys: BTreeMap::new(),
        uncertain_epochs: BTreeSet::new(),
        pages: list.images,
        unreadable_pages: list.unreadable,
    };
    let mut search = Scanner { newest: list.newest, context, found };
    for page in &list.tables {
        let whole = pages.rows(*page, |location, row| search.first_pass(location, row))?;
        search.found.unreadable_pages += u64::from(!whole && *page <= list.newest);
    }
    for page in &list.indexes {
        let whole = pages.entries(*page, |row| search.entry(*page, IndexEntry::read(row)))?;
        search.found.unreadable_pages += u64::from(!whole && *page <= list.newest);
    }
    for page in &list.tables {
        pages.rows(*page, |location, row| search.second_pass(location, &row))?;
    }
    Ok(search.found)
}

struct Scanner<'a> {
    /// The highest page that is not an older image.
    newest: u32,
    context: &'a SalvageContext<'a>,
    found: ScanResults,
}

impl Scanner<'_> {
    /// Handles a row in the first pass, which collects names.
    fn first_pass(&mut self, location: RowLocation, row: TableRow<'_>) {
        let newest = location.page <= self.newest;
        match row {
            TableRow::Session(row) => self.session(location, &row),
            // A wrong range only causes a needless loss report.
            TableRow::UncertainEpochs(since, until) => {
                if newest && self.found.uncertain_epochs.len() < MAX_EPOCH_RANGES {
                    self.found.uncertain_epochs.insert((since, until));
                }
            }
            TableRow::Block { .. } | TableRow::Checkpoint { .. } => {}
        }
    }

    /// Handles a row in the second pass, which verifies blocks and checkpoints.
    fn second_pass(&mut self, location: RowLocation, row: &TableRow<'_>) {
        match *row {
            TableRow::Block { session, header, seal, bytes } => {
                for candidate in self.candidates(session) {
                    if header.verify_unchained(&candidate.id, seal, bytes) {
                        candidate.blocks.entry(header).or_insert(location);
                    }
                }
            }
            TableRow::Checkpoint { seq, checksum, bytes } => {
                for candidate in self.candidates(location.row) {
                    if checksum::checkpoint(&candidate.id, seq, bytes) == checksum {
                        candidate.checkpoints.entry(seq).or_insert(location);
                    }
                }
            }
            TableRow::Session(_) | TableRow::UncertainEpochs(..) => {}
        }
    }

    fn session(&mut self, location: RowLocation, row: &Session) {
        let newest = location.page <= self.newest;
        let Some(candidate) = self.candidate(location.row, &row.id) else { return };
        if newest {
            candidate.reserved = candidate.reserved.max(row.reserved);
        }
        let rank = RowRank { newest, updated_at: row.updated_at, page: location.page };
        if candidate.row.is_none_or(|(best, _)| best < rank) {
            candidate.row = Some((rank, location));
        }
    }

    /// Handles an entry of an index, which confirms the name of a key, or of the table of idempotency keys.
    fn entry(&mut self, page: u32, entry: Option<IndexEntry>) {
        match entry {
            Some(IndexEntry::Name { key, id }) => {
                if let Some(candidate) = self.candidate(key, &id) {
                    candidate.confirmed = true;
                }
            }
            Some(IndexEntry::StartKey { key, fingerprint, session }) => {
                let newest = page <= self.newest;
                let better = self.found.start_keys.get(&session).is_none_or(|best| newest >= best.newest);
                if session >= 1 && !(self.context.is_deleted)(session) && better {
                    self.found.start_keys.insert(session, StartKey { newest, key, fingerprint });
                }
            }
            None => {}
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

/// How many names a key may have: its own, and those of damaged or removed rows.
const MAX_NAMES: usize = 8;
/// How many ranges of epochs are kept.
const MAX_EPOCH_RANGES: usize = 10_000;
