//! One pass over the bytes: which regions are to be hidden, and up to where that is settled.
//!
//! One automaton finds the forms of known values, literal markers and the beginnings of shapes; shapes that have begun
//! are fed every byte until they end. Nothing here depends on where chunks were cut, and nothing here holds text.

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
    shape::{self, Begin, Shape},
};

/// How many bytes before a shape it may look at.
pub(super) const LOOK_BEHIND: usize = 64;

/// A part of the text to hide, by offsets into the whole text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What the automaton looks for.
pub(super) struct Words {
    automaton: Option<Machine>,
}

struct Machine {
    nfa: NFA,
    start: StateID,
    /// What the patterns after the forms and the marker begin.
    begins: Vec<Begin>,
    forms: usize,
    /// How many of the last bytes may be the beginning of a pattern that goes on, by state.
    depths: HashMap<StateID, usize>,
}

impl Words {
    /// Looks for `forms`, for markers and for the shapes.
    pub(super) fn new(forms: BTreeSet<String>) -> Self {
        let mut patterns: Vec<&[u8]> = forms.iter().map(String::as_bytes).collect();
        patterns.push(MARKER.as_bytes());
        let forms = patterns.len();
        let (beginnings, begins): (Vec<&[u8]>, Vec<Begin>) = shape::beginnings().into_iter().unzip();
        patterns.extend(beginnings);
        // Standard matching: leftmost kinds would hide overlapping occurrences from us.
        let Ok(nfa) = NFA::builder().build(&patterns) else { return Self { automaton: None } };
        let Ok(start) = nfa.start_state(Anchored::No) else { return Self { automaton: None } };
        let depths = depths(&nfa, start, &patterns);
        Self { automaton: Some(Machine { nfa, start, begins, forms, depths }) }
    }

    /// Returns where the forms of known values stand in `text`, in order and joined where they overlap or touch.
    pub(super) fn known(&self, text: &[u8]) -> Option<Vec<Region>> {
        let Machine { nfa, start, forms, .. } = self.automaton.as_ref()?;
        // The last of the forms is the marker, which is no value.
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
                    add(&mut regions, Region { start: at + 1 - nfa.pattern_len(pattern), end: at + 1 });
                }
            }
        }
        Some(regions)
    }
}

/// Adds a region that ends behind all others, joined with those which it overlaps or touches.
fn add(regions: &mut Vec<Region>, mut region: Region) {
    while let Some(last) = regions.pop_if(|last| region.start <= last.end) {
        region.start = region.start.min(last.start);
    }
    regions.push(region);
}

/// Returns for each state how many of the last bytes may be the beginning of a pattern that goes on.
fn depths(nfa: &NFA, start: StateID, patterns: &[&[u8]]) -> HashMap<StateID, usize> {
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
    // The last state of a pattern which begins no other goes on with what its own end begins; shorter ones first, as
    // longer ones build on them.
    ends.sort_unstable_by_key(|(length, ..)| *length);
    for (_, end, pattern) in ends {
        if !depths.contains_key(&end) {
            let shorter = pattern.iter().skip(1).fold(start, step);
            depths.insert(end, depths.get(&shorter).copied().unwrap_or(0));
        }
    }
    depths
}

/// The state of a pass over one text.
pub(super) struct Scan {
    state: Option<StateID>,
    /// How far the pass has come.
    position: usize,
    /// Where in the whole text the buffer begins.
    base: usize,
    shapes: Vec<Shape>,
    regions: Vec<Region>,
}

impl Scan {
    pub(super) fn new(words: &Words) -> Self {
        let state = words.automaton.as_ref().map(|machine| machine.start);
        Self { state, position: 0, base: 0, shapes: Vec::new(), regions: Vec::new() }
    }

    /// Reads `buffer` from index `from` on; what is before it was read already.
    pub(super) fn read(&mut self, words: &Words, buffer: &[u8], from: usize) {
        let (Some(machine), Some(mut state)) = (&words.automaton, self.state) else {
            // Too many values for an automaton: then nothing at all may be shown.
            self.regions.push(Region { start: self.position, end: self.base + buffer.len() });
            self.position = self.base + buffer.len();
            return;
        };
        let mut at = from;
        while let Some(byte) = buffer.get(at) {
            state = machine.nfa.next_state(Anchored::No, state, *byte);
            if !self.shapes.is_empty() {
                self.feed(*byte, self.base + at);
            }
            at += 1;
            if machine.nfa.is_match(state) {
                self.found(machine, state, buffer, at);
            }
        }
        self.state = Some(state);
        self.position = self.base + at;
    }

    /// Tells the shapes that the text ends here.
    pub(super) fn end(&mut self) {
        for mut shape in mem::take(&mut self.shapes) {
            shape.end();
            self.regions.extend(shape.cover());
        }
        self.state = None;
    }

    /// Says that the buffer begins at `base` from here on.
    pub(super) fn rebase(&mut self, base: usize) {
        self.base = base;
    }

    /// Returns the offset up to which the text is settled, and the regions that begin before it, in order.
    ///
    /// A shape that may still grow is among them as far as it has come, and again when it has grown.
    pub(super) fn settled(&mut self, words: &Words) -> (usize, Vec<Region>) {
        let mut regions = mem::take(&mut self.regions);
        regions.extend(self.shapes.iter().filter_map(Shape::cover));
        // Of those which begin together the longest comes first and stands for the others.
        regions.sort_unstable_by_key(|region| (region.start, Reverse(region.end)));
        regions.dedup_by_key(|region| region.start);
        let mut frontier = self.unclaimed(words);
        let mut taken = 0;
        for region in &regions {
            // What begins inside a region can only make it longer, so the text under it is settled too.
            if region.start > frontier {
                break;
            }
            frontier = frontier.max(region.end);
            taken += 1;
        }
        self.regions = regions.split_off(taken);
        (frontier, regions)
    }

    /// Whether nothing is to be hidden.
    pub(super) fn is_clean(&self) -> bool {
        self.regions.is_empty()
    }

    /// Returns the offset before which no further region can begin.
    pub(super) fn unclaimed(&self, words: &Words) -> usize {
        let depth = match (&words.automaton, self.state) {
            (Some(machine), Some(state)) if state != machine.start => {
                machine.depths.get(&state).copied().unwrap_or(0)
            }
            (Some(_) | None, Some(_) | None) => 0,
        };
        let held = self.shapes.iter().map(Shape::held_from).min().unwrap_or(self.position);
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

    /// Deals with the patterns that end before index `at`.
    fn found(&mut self, machine: &Machine, state: StateID, buffer: &[u8], at: usize) {
        let nfa = &machine.nfa;
        for index in 0..nfa.match_len(state) {
            let pattern = nfa.match_pattern(state, index);
            let start = at - nfa.pattern_len(pattern);
            let Some(begin) =
                pattern.as_usize().checked_sub(machine.forms).and_then(|id| machine.begins.get(id))
            else {
                self.regions.push(Region { start: self.base + start, end: self.base + at });
                continue;
            };
            let before = &buffer[start.saturating_sub(LOOK_BEHIND)..start];
            if let Some(shape) = begin.shape(before, self.base + start, self.base + at)
                && !self.shapes.iter().any(|running| running.stands_for(&shape))
            {
                self.shapes.push(shape);
            }
        }
    }
}
