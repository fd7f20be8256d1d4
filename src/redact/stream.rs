//! Chunks in, safe text out.
//!
//! A stream keeps what a secret might still claim and a few bytes of what came before, nothing else.

use std::{fmt, sync::Arc};

use super::{
    MARKER, boundary,
    scan::{LOOK_BEHIND, Region, Scan, Words},
};

/// Shown text is dropped from the buffer when at least this much has gathered.
const SLACK: usize = 1024;

/// A text that is redacted while it arrives.
///
/// For every way to cut a text into chunks, what the calls return adds up to what [`Redactor::text`] returns for the
/// whole of it.
///
/// [`Redactor::text`]: super::Redactor::text
pub struct Stream {
    words: Arc<Words>,
    scan: Scan,
    paint: Paint,
    kept: String,
    /// Where in the whole text `kept` begins.
    base: usize,
}

impl Stream {
    pub(super) fn new(words: Arc<Words>) -> Self {
        Self { scan: Scan::new(&words), paint: Paint::default(), kept: String::new(), base: 0, words }
    }

    /// Takes the next chunk and returns what has become safe to show.
    pub fn push(&mut self, chunk: &str) -> String {
        let from = self.kept.len();
        self.kept.push_str(chunk);
        self.scan.read(&self.words, self.kept.as_bytes(), from);
        let mut shown = String::with_capacity(chunk.len());
        let (frontier, regions) = self.scan.settled(&self.words);
        self.paint.show(&regions, &self.kept, self.base, frontier, &mut shown);
        self.forget(frontier.min(self.scan.unclaimed(&self.words)));
        shown
    }

    /// Returns what was held back; the stream can then be used for another text.
    pub fn finish(&mut self) -> String {
        let mut shown = String::new();
        self.scan.end();
        let (frontier, regions) = self.scan.settled(&self.words);
        self.paint.show(&regions, &self.kept, self.base, frontier, &mut shown);
        *self = Self::new(Arc::clone(&self.words));
        shown
    }

    /// Drops text before an offset, except for what a shape may look back at.
    ///
    /// The offset may lie before what was shown: under a marker a secret may have begun that is longer than the one
    /// it stands for.
    fn forget(&mut self, before: usize) {
        let unneeded = before.saturating_sub(self.base).saturating_sub(LOOK_BEHIND);
        if unneeded >= SLACK {
            let cut = boundary(&self.kept, unneeded);
            self.kept.drain(..cut);
            self.base += cut;
            self.scan.rebase(self.base);
            self.kept.shrink_to(4 * SLACK);
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("held", &self.kept.len()).finish_non_exhaustive()
    }
}

/// Shows text with one marker for each group of regions which overlap or touch.
#[derive(Default)]
pub(super) struct Paint {
    shown: usize,
    /// Up to where the last marker stands for the text.
    covered: Option<usize>,
}

impl Paint {
    /// Appends the text up to `frontier` to `out`; `text` begins at `base`.
    ///
    /// `regions` come in order and are all that begin up to the frontier.
    pub(super) fn show(
        &mut self,
        regions: &[Region],
        text: &str,
        base: usize,
        frontier: usize,
        out: &mut String,
    ) {
        let slice = |from: usize, to: usize| text.get(from - base..to - base).unwrap_or_default();
        for region in regions {
            match self.covered {
                Some(covered) if region.start <= covered => self.covered = Some(covered.max(region.end)),
                _ => {
                    out.push_str(slice(self.begin(), region.start));
                    out.push_str(MARKER);
                    self.covered = Some(region.end);
                    self.shown = region.start;
                }
            }
        }
        let begin = self.begin();
        if begin < frontier {
            out.push_str(slice(begin, frontier));
        }
        self.shown = frontier;
    }

    fn begin(&self) -> usize {
        self.covered.map_or(self.shown, |covered| covered.max(self.shown))
    }
}
