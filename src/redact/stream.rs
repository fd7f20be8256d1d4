//! Redaction of a text that arrives in chunks.
//!
//! A stream buffers the text that a secret might still claim and a few bytes before it.

use std::{fmt, sync::Arc};

use super::{
    MARKER,
    scan::{LOOK_BEHIND, PatternSet, Region, Scanner},
};

/// Released text is dropped from the buffer once it reaches this size.
const SLACK: usize = 1024;

/// Redacts a text as it arrives.
///
/// For every way to split a text into chunks, the concatenated results equal what [`Redactor::redact`] returns for
/// the complete text.
///
/// [`Redactor::redact`]: super::Redactor::redact
pub struct RedactionStream {
    patterns: Arc<PatternSet>,
    scanner: Scanner,
    writer: MarkerWriter,
    buffer: String,
    /// The offset of `buffer` in the complete text.
    base: usize,
}

impl RedactionStream {
    pub(super) fn new(patterns: Arc<PatternSet>) -> Self {
        Self {
            scanner: Scanner::new(&patterns),
            writer: MarkerWriter::default(),
            buffer: String::new(),
            base: 0,
            patterns,
        }
    }

    /// Adds the next chunk and returns the text that is safe to show.
    pub fn push(&mut self, chunk: &str) -> String {
        let from = self.buffer.len();
        self.buffer.push_str(chunk);
        self.scanner.scan(&self.patterns, self.buffer.as_bytes(), from);
        let mut shown = String::with_capacity(chunk.len());
        let (frontier, regions) = self.scanner.take_settled(&self.patterns);
        self.writer.show(&regions, &self.buffer, self.base, frontier, &mut shown);
        self.drop_before(frontier.min(self.scanner.settled_offset(&self.patterns)));
        shown
    }

    /// Returns the buffered text and resets the stream for another text.
    pub fn finish(&mut self) -> String {
        let mut shown = String::new();
        self.scanner.finish();
        let (frontier, regions) = self.scanner.take_settled(&self.patterns);
        self.writer.show(&regions, &self.buffer, self.base, frontier, &mut shown);
        *self = Self::new(Arc::clone(&self.patterns));
        shown
    }

    /// Drops text before an offset, except for the bytes that a shape may inspect.
    ///
    /// The offset may be before the released text: a longer secret may have started under a marker.
    fn drop_before(&mut self, before: usize) {
        let unneeded = before.saturating_sub(self.base).saturating_sub(LOOK_BEHIND);
        if unneeded >= SLACK {
            let cut = self.buffer.floor_char_boundary(unneeded);
            self.buffer.drain(..cut);
            self.base += cut;
            self.scanner.rebase(self.base);
            self.buffer.shrink_to(4 * SLACK);
        }
    }
}

impl fmt::Debug for RedactionStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("held", &self.buffer.len()).finish_non_exhaustive()
    }
}

/// Writes text with one marker for each group of regions that overlap or touch.
#[derive(Default)]
pub(super) struct MarkerWriter {
    shown: usize,
    /// The end of the text that the last marker covers.
    covered: Option<usize>,
}

impl MarkerWriter {
    /// Appends the text up to `frontier` to `out`; `text` starts at `base`.
    ///
    /// `regions` are sorted and include all that start before the frontier.
    pub(super) fn show(&mut self, regions: &[Region], text: &str, base: usize, frontier: usize, out: &mut String) {
        let slice = |from: usize, to: usize| text.get(from - base..to - base).unwrap_or_default();
        for region in regions {
            match self.covered {
                Some(covered) if region.start <= covered => self.covered = Some(covered.max(region.end)),
                _ => {
                    out.push_str(slice(self.next_offset(), region.start));
                    out.push_str(MARKER);
                    self.covered = Some(region.end);
                    self.shown = region.start;
                }
            }
        }
        let begin = self.next_offset();
        if begin < frontier {
            out.push_str(slice(begin, frontier));
        }
        self.shown = frontier;
    }

    fn next_offset(&self) -> usize {
        self.covered.map_or(self.shown, |covered| covered.max(self.shown))
    }
}
