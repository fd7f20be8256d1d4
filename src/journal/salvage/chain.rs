//! Selects the blocks that make up the history of a session.
//!
//! Blocks that were merged, moved or removed may be found beside those that replaced them. Each is verified on its
//! own; the checksum chain tells which blocks follow each other. No event is taken twice.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::journal::checksum::BlockHeader;

/// Selects among `heads`, which are sorted, and returns the indexes of the selected blocks in order.
///
/// A block that continues the chain is preferred to all others. Among several, the one whose chain reaches
/// furthest wins, then the one that covers the most numbers, then the one with the fewest events and blocks. A
/// splice is preferred to the events that it replaces, because it was written later: removed events do not return.
/// Where nothing continues the chain there is a hole, and the history continues with the block that begins first.
pub(super) fn history(genesis: u32, heads: &[BlockHeader]) -> Vec<usize> {
    let links = Links::new(heads);
    let mut chosen = Vec::new();
    let (mut reached, mut passed) = (None, 0);
    let mut next = links.best(genesis, reached);
    loop {
        if next.is_none() {
            passed += heads
                .get(passed..)
                .unwrap_or_default()
                .partition_point(|head| reached.is_some_and(|reached| head.first <= reached));
            next = links.best_with_same_first(heads, passed);
        }
        let Some(at) = next else { return chosen };
        let Some(head) = heads.get(at) else { return chosen };
        chosen.push(at);
        reached = Some(head.last);
        next = links.next.get(at).copied().flatten();
    }
}

/// Returns whether a number lies between two selected blocks of which one continues the other, so that it was
/// never stored.
pub(super) fn is_skipped<'a>(chosen: impl Iterator<Item = &'a BlockHeader>, number: u64) -> bool {
    let mut before: Option<&BlockHeader> = None;
    for head in chosen {
        if head.first > number {
            return before.is_some_and(|before| before.last < number && before.checksum == head.prev);
        }
        before = Some(head);
    }
    false
}

/// The possible successors of each block, and how far they lead.
struct Links {
    scores: Vec<ChainScore>,
    next: Vec<Option<usize>>,
    /// For each checksum the blocks that continue it, in descending order of their first event; each with the best
    /// one so far.
    after: BTreeMap<u32, Vec<(u64, usize)>>,
}

/// The score of the chain that starts at a block; greater is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ChainScore {
    reaches: u64,
    covers: u64,
    events: Reverse<u64>,
    blocks: Reverse<u64>,
}

impl Links {
    fn new(heads: &[BlockHeader]) -> Self {
        let nothing = ChainScore { reaches: 0, covers: 0, events: Reverse(0), blocks: Reverse(0) };
        let mut links =
            Self { scores: vec![nothing; heads.len()], next: vec![None; heads.len()], after: BTreeMap::new() };
        for (at, head) in heads.iter().enumerate().rev() {
            let next = links.best(head.checksum, Some(head.last));
            let then = next.and_then(|next| links.scores.get(next)).copied();
            let then = then.unwrap_or(ChainScore { reaches: head.last, ..nothing });
            let score = ChainScore {
                reaches: then.reaches,
                covers: then.covers.saturating_add(head.last - head.first).saturating_add(1),
                events: Reverse(then.events.0.saturating_add(head.count.into())),
                blocks: Reverse(then.blocks.0.saturating_add(1)),
            };
            links.set(at, score, next);
            let best = match links.after.get(&head.prev).and_then(|after| after.last()) {
                Some((_, best)) if links.scores.get(*best).is_some_and(|known| *known >= score) => *best,
                Some(_) | None => at,
            };
            links.after.entry(head.prev).or_default().push((head.first, best));
        }
        links
    }

    fn set(&mut self, at: usize, score: ChainScore, next: Option<usize>) {
        if let (Some(known), Some(link)) = (self.scores.get_mut(at), self.next.get_mut(at)) {
            (*known, *link) = (score, next);
        }
    }

    /// Finds the best block that continues `checksum` and begins after `reached`; `None` allows any beginning.
    fn best(&self, checksum: u32, reached: Option<u64>) -> Option<usize> {
        let after = self.after.get(&checksum)?;
        let fitting = after.partition_point(|(first, _)| reached.is_none_or(|reached| *first > reached));
        after.get(fitting.checked_sub(1)?).map(|(_, best)| *best)
    }

    /// Finds the best of the blocks that begin with the same event as the one at `at`.
    fn best_with_same_first(&self, heads: &[BlockHeader], at: usize) -> Option<usize> {
        let first = heads.get(at)?.first;
        let alike = heads.get(at..)?.iter().take_while(|head| head.first == first).count();
        (at..at + alike).max_by_key(|at| self.scores.get(*at).copied())
    }
}
