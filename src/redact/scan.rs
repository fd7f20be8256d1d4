//! One pass over the bytes: finds the regions to hide, and the offset up to which they are final.
//!
//! One automaton finds the forms of known values, literal markers and the starts of shapes; active shapes are fed
//! every byte until they end. The result does not depend on how the text was split, and no text is buffered here.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    mem,
};

use aho_corasick::{
    Anchored,
    automaton::{Automaton, StateID},
    nfa::contiguous::NFA,
};

use super::{
    MARKER,
    shape::{self, ShapeMatcher, ShapeStart},
};

/// How many bytes before its start a shape may inspect.
pub(super) const LOOK_BEHIND: usize = 64;

/// A part of the text to hide, as offsets into the complete text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The patterns to match.
pub(super) struct PatternSet {
    matcher: Option<Matcher>,
}

struct Matcher {
    nfa: NFA,
    start: StateID,
    /// The shapes that start at the patterns after the forms and the marker.
    shape_starts: Vec<ShapeStart>,
    forms: usize,
    /// For each state, how many of the last bytes may be the start of a longer pattern.
    depths: HashMap<StateID, usize>,
}

impl PatternSet {
    /// Builds the patterns for `forms`, markers and shapes.
    pub(super) fn new(forms: BTreeSet<String>) -> Self {
        let mut patterns: Vec<&[u8]> = forms.iter().map(String::as_bytes).collect();
        patterns.push(MARKER.as_bytes());
        let forms = patterns.len();
        let (beginnings, starts): (Vec<&[u8]>, Vec<ShapeStart>) = shape::shape_starts().into_iter().unzip();
        patterns.extend(beginnings);
        // Standard matching: the leftmost match kinds do not report overlapping occurrences.
        let Ok(nfa) = NFA::builder().build(&patterns) else { return Self { matcher: None } };
        let Ok(start) = nfa.start_state(Anchored::No) else { return Self { matcher: None } };
        let depths = pending_depths(&nfa, start, &patterns);
        Self { matcher: Some(Matcher { nfa, start, shape_starts: starts, forms, depths }) }
    }

    /// Returns the regions of known values in `text`, sorted and merged where they overlap or touch.
    pub(super) fn known_regions(&self, text: &[u8]) -> Option<Vec<Region>> {
        let Matcher { nfa, start, forms, .. } = self.matcher.as_ref()?;
        // The last of the forms is the marker, which is not a value.
        let values = forms.saturating_sub(1);
        let mut regions: Vec<Region> = Vec::new();
        let mut state = *start;
        for (at, byte) in text.iter().enumerate() {
            state = nfa.next_state(Anchored::No, state, *byte);
            if !nfa.is_match(state) {
                continue;
            }
            for index in 0..nfa.match_len(state) {
                let pattern = nfa.match_pattern(state, index);
                if pattern.as_usize() < values {
                    push_merged(&mut regions, Region { start: at + 1 - nfa.pattern_len(pattern), end: at + 1 });
                }
            }
        }
        Some(regions)
    }
}

/// Adds a region that ends after all others, merged with those that it overlaps or touches.
fn push_merged(regions: &mut Vec<Region>, mut region: Region) {
    while let Some(last) = regions.pop_if(|last| region.start <= last.end) {
        region.start = region.start.min(last.start);
    }
    regions.push(region);
}

/// Returns for each state how many of the last bytes may be the start of a longer pattern.
fn pending_depths(nfa: &NFA, start: StateID, patterns: &[&[u8]]) -> HashMap<StateID, usize> {
    let step = |state, byte: &u8| nfa.next_state(Anchored::No, state, *byte);
    let mut depths = HashMap::new();
    let mut ends = Vec::new();
    for pattern in patterns {
        let mut state = start;
        for (seen, byte) in pattern.iter().enumerate() {
            if seen > 0 {
                depths.insert(state, seen);
            }
            state = step(state, byte);
        }
        ends.push((pattern.len(), state, *pattern));
    }
    // The final state of a pattern that is no prefix of another continues with the longest pattern prefix at its
    // end. Shorter patterns come first, since longer ones depend on them.
    ends.sort_unstable_by_key(|(length, ..)| *length);
    for (_, end, pattern) in ends {
        if !depths.contains_key(&end) {
            let shorter = pattern.iter().skip(1).fold(start, step);
            depths.insert(end, depths.get(&shorter).copied().unwrap_or(0));
        }
    }
    depths
}

/// The state of the pass over one text.
pub(super) struct Scanner {
    state: Option<StateID>,
    /// The offset of the next byte.
    position: usize,
    /// The offset of the buffer in the complete text.
    base: usize,
    shapes: Vec<ShapeMatcher>,
    regions: Vec<Region>,
}

impl Scanner {
    pub(super) fn new(patterns: &PatternSet) -> Self {
        let state = patterns.matcher.as_ref().map(|matcher| matcher.start);
        Self { state, position: 0, base: 0, shapes: Vec::new(), regions: Vec::new() }
    }

    /// Scans `buffer` from index `from` on; the bytes before were scanned already.
    pub(super) fn scan(&mut self, patterns: &PatternSet, buffer: &[u8], from: usize) {
        let (Some(matcher), Some(mut state)) = (&patterns.matcher, self.state) else {
            // Too many values for an automaton: nothing may be shown.
            self.regions.push(Region { start: self.position, end: self.base + buffer.len() });
            self.position = self.base + buffer.len();
            return;
        };
        let mut at = from;
        while let Some(byte) = buffer.get(at) {
            state = matcher.nfa.next_state(Anchored::No, state, *byte);
            if !self.shapes.is_empty() {
                self.feed(*byte, self.base + at);
            }
            at += 1;
            if matcher.nfa.is_match(state) {
                self.handle_matches(matcher, state, buffer, at);
            }
        }
        self.state = Some(state);
        self.position = self.base + at;
    }

    /// Ends the text for all active shapes.
    pub(super) fn finish(&mut self) {
        for mut shape in mem::take(&mut self.shapes) {
            shape.finish();
            self.regions.extend(shape.cover());
        }
        self.state = None;
    }

    /// Sets the offset at which the buffer starts.
    pub(super) fn rebase(&mut self, base: usize) {
        self.base = base;
    }

    /// Returns the offset up to which the text is final, and the regions that start before it, sorted.
    ///
    /// A shape that may still grow is included with its current region, and again when it has grown.
    pub(super) fn take_settled(&mut self, patterns: &PatternSet) -> (usize, Vec<Region>) {
        let mut regions = mem::take(&mut self.regions);
        regions.extend(self.shapes.iter().filter_map(ShapeMatcher::cover));
        // Of the regions with the same start the longest comes first and replaces the others.
        regions.sort_unstable_by_key(|region| (region.start, Reverse(region.end)));
        regions.dedup_by_key(|region| region.start);
        let mut frontier = self.settled_offset(patterns);
        let mut finished = 0;
        for region in &regions {
            // A match inside a region can only extend it, so the text it covers is final too.
            if region.start > frontier {
                break;
            }
            frontier = frontier.max(region.end);
            finished += 1;
        }
        self.regions = regions.split_off(finished);
        (frontier, regions)
    }

    /// Whether there is nothing to hide.
    pub(super) fn is_clean(&self) -> bool {
        self.regions.is_empty()
    }

    /// Returns the offset before which no further region can start.
    pub(super) fn settled_offset(&self, patterns: &PatternSet) -> usize {
        let depth = match (&patterns.matcher, self.state) {
            (Some(matcher), Some(state)) if state != matcher.start => matcher.depths.get(&state).copied().unwrap_or(0),
            (Some(_) | None, Some(_) | None) => 0,
        };
        let held = self.shapes.iter().map(ShapeMatcher::held_from).min().unwrap_or(self.position);
        held.min(self.position - depth)
    }

    fn feed(&mut self, byte: u8, at: usize) {
        let regions = &mut self.regions;
        let mut open_ended = false;
        self.shapes.retain_mut(|shape| {
            let mut goes_on = shape.feed(byte, at);
            if goes_on && shape.is_open_ended() {
                goes_on = !open_ended;
                open_ended = true;
            }
            if !goes_on {
                regions.extend(shape.cover());
            }
            goes_on
        });
    }

    /// Handles the patterns that end before index `at`.
    fn handle_matches(&mut self, matcher: &Matcher, state: StateID, buffer: &[u8], at: usize) {
        let nfa = &matcher.nfa;
        for index in 0..nfa.match_len(state) {
            let pattern = nfa.match_pattern(state, index);
            let start = at - nfa.pattern_len(pattern);
            let Some(start_kind) =
                pattern.as_usize().checked_sub(matcher.forms).and_then(|id| matcher.shape_starts.get(id))
            else {
                self.regions.push(Region { start: self.base + start, end: self.base + at });
                continue;
            };
            let before = &buffer[start.saturating_sub(LOOK_BEHIND)..start];
            if let Some(shape) = start_kind.start_shape(before, self.base + start, self.base + at)
                && !self.shapes.iter().any(|running| running.subsumes(&shape))
            {
                self.shapes.push(shape);
            }
        }
    }
}
