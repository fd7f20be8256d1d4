//! A model of the contents of a journal after a number of batches, and the contents of a real one.

use std::collections::BTreeMap;

use super::super::super::{Batch, Block, Checkpoint, Journal, ListQuery, Meta, ReadError, StoredSession};
use super::ledger::block_on;
use crate::kernel::id::Seq;
use crate::kernel::time::Now;

/// Everything that can be read from a journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in super::super) struct JournalContents {
    pub(in super::super) sessions: BTreeMap<String, SessionContents>,
    /// The session count that the journal reports.
    pub(in super::super) count: u64,
}

/// Everything that can be read from a session.
#[derive(Clone, PartialEq, Eq)]
pub(in super::super) struct SessionContents {
    pub(in super::super) meta: Meta,
    pub(in super::super) reserved: Seq,
    pub(in super::super) token_hash: [u8; 32],
    pub(in super::super) checkpoint: Option<Checkpoint>,
    /// The first and last number of each block, and how many events and bytes it has.
    pub(in super::super) blocks: Vec<(u64, u64, u32, usize)>,
    /// The first and last number of each lost range.
    pub(in super::super) holes: Vec<(u64, u64)>,
    /// The events.
    pub(in super::super) text: Vec<u8>,
}

impl std::fmt::Debug for SessionContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = self.blocks.last().map(|block| block.1);
        let checkpoint = self.checkpoint.as_ref().map(|checkpoint| checkpoint.seq);
        write!(
            f,
            "meta {:?}, reserved {}, checkpoint {checkpoint:?}, {} blocks up to {last:?}, {} bytes, holes {:?}",
            self.meta.updated_at,
            self.reserved,
            self.blocks.len(),
            self.text.len(),
            self.holes
        )
    }
}

impl JournalContents {
    /// Reads everything, in pages of about `page` bytes.
    pub(in super::super) fn read(journal: &Journal, page: usize) -> Result<Self, ReadError> {
        let all = ListQuery { limit: usize::MAX, after: None, prefix: None };
        let mut seen = Self { count: journal.stats().sessions, ..Self::default() };
        for meta in block_on(journal.list(all))? {
            let stored = block_on(journal.load(meta.session.clone()))?.expect("what is listed is there");
            assert_eq!(stored.meta, meta, "a list says what the session says");
            let session = SessionContents::read(journal, stored, page)?;
            seen.sessions.insert(meta.session.as_str().to_owned(), session);
        }
        Ok(seen)
    }
}

impl SessionContents {
    fn read(journal: &Journal, stored: StoredSession, page: usize) -> Result<Self, ReadError> {
        let StoredSession { meta, reserved, token_hash, checkpoint, tail, floor, holes: known } = stored;
        assert_eq!(floor, Seq::ZERO, "nothing was removed");
        let after = checkpoint.as_ref().map_or(Seq::ZERO, |checkpoint| checkpoint.seq);
        let rest = block_on(journal.page(meta.session.clone(), after, usize::MAX))?;
        assert_eq!(rest.blocks, tail, "the tail is what follows the checkpoint");
        let (mut blocks, mut holes, mut text, mut after) = (Vec::new(), Vec::new(), Vec::new(), Seq::ZERO);
        loop {
            let page = block_on(journal.page(meta.session.clone(), after, page))?;
            for Block { first, last, count, bytes } in &page.blocks {
                assert!(*first > after, "blocks do not overlap");
                after = *last;
                if *count == 0 {
                    holes.push((first.number(), last.number()));
                    continue;
                }
                blocks.push((first.number(), last.number(), *count, bytes.len()));
                text.extend_from_slice(bytes);
            }
            if !page.more {
                break;
            }
        }
        let gaps: Vec<_> = known.iter().map(|(after, last)| (after.number() + 1, last.number())).collect();
        assert_eq!(gaps, holes, "what restores a session knows its holes");
        Ok(Self { meta, reserved, token_hash, checkpoint, blocks, holes, text })
    }

    /// Returns the last number in use.
    pub(in super::super) fn end(&self) -> u64 {
        let block = self.blocks.last().map_or(0, |block| block.1);
        block.max(self.holes.last().map_or(0, |hole| hole.1))
    }
}

/// The expected states of each session after the batches.
pub(in super::super) struct Model {
    sessions: BTreeMap<String, History>,
}

/// A session after each batch that changes it.
struct History {
    text: Vec<u8>,
    /// The number of each event and where its line ends in the text.
    events: Vec<(u64, usize)>,
    steps: Vec<Step>,
}

#[derive(Clone)]
struct Step {
    /// The number of batches, of all sessions, after which this state holds.
    after: usize,
    /// How many events there are.
    events: usize,
    meta: Meta,
    reserved: Seq,
    /// The highest number ever used or reserved.
    highest: Seq,
    token_hash: [u8; 32],
    checkpoint: Option<Checkpoint>,
}

impl Model {
    /// Computes the states after each of `batches`, all of which were committed.
    pub(in super::super) fn of<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> Self {
        let mut model = Self { sessions: BTreeMap::new() };
        for (index, batch) in batches.into_iter().enumerate() {
            if !batch.is_empty() {
                model.add(index + 1, batch);
            }
        }
        model
    }

    /// Finds after how many batches, from `least` to `most`, the journal would have the contents `seen`.
    pub(in super::super) fn find(&self, seen: &JournalContents, least: usize, most: usize) -> Option<usize> {
        (least..=most).rev().find(|count| self.matches(seen, *count))
    }

    /// Describes the differences from the state after `count` batches.
    pub(in super::super) fn describe_differences(&self, seen: &JournalContents, count: usize) -> String {
        let mut text = String::new();
        for (name, history) in &self.sessions {
            let expected = history.at(count);
            let found = seen.sessions.get(name);
            if !history.matches(found, count) {
                text += &format!(
                    "  {name}: expected {:?} with {:?} events, found {found:?}\n",
                    expected.map(|step| (step.after, step.meta.updated_at, step.reserved)),
                    expected.map(|step| (step.events, history.end(step.events))),
                );
            }
        }
        text
    }

    /// Returns the events written by `batches` that are neither there nor in a hole.
    pub(in super::super) fn unexplained<'a>(
        seen: &JournalContents,
        batches: impl Iterator<Item = &'a Batch>,
    ) -> Vec<String> {
        let mut missing = Vec::new();
        for batch in batches {
            let Some(Block { first, last, .. }) = &batch.block else { continue };
            let (name, first, last) = (batch.session.as_str(), first.number(), last.number());
            let covered = seen.sessions.get(name).is_some_and(|session| {
                let holes = session.holes.iter().copied();
                let blocks = session.blocks.iter().map(|block| (block.0, block.1));
                holes.chain(blocks).any(|(from, to)| from <= first && last <= to)
            });
            if !covered {
                missing.push(format!("{name} {first}..={last}"));
            }
        }
        missing
    }

    fn matches(&self, seen: &JournalContents, count: usize) -> bool {
        let there = self.sessions.values().filter(|history| history.at(count).is_some()).count();
        seen.sessions.len() == there
            && seen.count == there as u64
            && self.sessions.iter().all(|(name, history)| history.matches(seen.sessions.get(name), count))
    }

    fn add(&mut self, after: usize, batch: &Batch) {
        let name = batch.session.as_str().to_owned();
        if let Some(create) = &batch.create {
            let meta = Meta {
                session: batch.session.clone(),
                state: String::new(),
                updated_at: create.opened_at,
                opened_at: create.opened_at,
                active_run: None,
                summary: String::new(),
            };
            let (reserved, highest, token_hash) = (Seq::ZERO, Seq::ZERO, create.token_hash);
            let step = Step { after, events: 0, meta, reserved, highest, token_hash, checkpoint: None };
            let history = History { text: Vec::new(), events: Vec::new(), steps: vec![step] };
            assert!(self.sessions.insert(name.clone(), history).is_none(), "a session is created once");
        }
        let history = self.sessions.get_mut(&name).expect("a created session");
        let mut step = history.steps.last().expect("a first step").clone();
        if let Some(block) = &batch.block {
            let start = history.text.len();
            history.text.extend_from_slice(&block.bytes);
            let lines = block.bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            let ends: Vec<usize> = lines.map(|(at, _)| start + at + 1).collect();
            assert_eq!(ends.len() as u64, block.last.number() - block.first.number() + 1, "a line an event");
            history.events.extend((block.first.number()..).zip(ends));
        }
        step.after = after;
        step.events = history.events.len();
        step.meta = batch.meta.clone().map_or(step.meta, |meta| Meta { opened_at: Now(OPENED), ..meta });
        step.reserved = batch.reserved_seq.unwrap_or(step.reserved);
        let last = batch.block.as_ref().map_or(Seq::ZERO, |block| block.last);
        step.highest = step.highest.max(step.reserved).max(last);
        step.token_hash = batch.token_hash.unwrap_or(step.token_hash);
        step.checkpoint = batch.checkpoint.clone().or(step.checkpoint);
        if batch.create.is_some() {
            history.steps.clear();
        }
        history.steps.push(step);
    }
}

impl History {
    /// Returns the state after `count` batches; `None` before the session is created.
    fn at(&self, count: usize) -> Option<&Step> {
        let steps = self.steps.partition_point(|step| step.after <= count);
        steps.checked_sub(1).map(|last| &self.steps[last])
    }

    /// Returns the upper bound of a reservation: a mark may hold a higher one, and a hole ends above it.
    fn highest(&self, seen: &SessionContents) -> u64 {
        let mentioned = self.steps.iter().map(|step| step.highest.number()).max().unwrap_or(0);
        mentioned.max(seen.end()) + 1
    }

    fn end(&self, events: usize) -> usize {
        events.checked_sub(1).map_or(0, |last| self.events[last].1)
    }

    fn matches(&self, seen: Option<&SessionContents>, count: usize) -> bool {
        let (step, seen) = match (self.at(count), seen) {
            (None, None) => return true,
            (Some(step), Some(seen)) => (step, seen),
            (None, Some(_)) | (Some(_), None) => return false,
        };
        seen.meta == step.meta
            && (step.reserved <= seen.reserved && seen.reserved.number() <= self.highest(seen))
            && seen.token_hash == step.token_hash
            && seen.checkpoint == step.checkpoint
            && seen.text == self.text[..self.end(step.events)]
            && self.fits(&seen.blocks, step.events)
    }

    /// Returns whether the blocks hold `events` events in order, each under its number.
    fn fits(&self, blocks: &[(u64, u64, u32, usize)], events: usize) -> bool {
        let mut at = 0;
        blocks.iter().all(|(first, last, count, size)| {
            let from = at;
            at += *count as usize;
            at <= events
                && self.events[from].0 == *first
                && self.events[at - 1].0 == *last
                && self.end(at) - self.end(from) == *size
        }) && at == events
    }
}

/// When every session of these tests was opened.
pub(in super::super) const OPENED: u64 = 1;
