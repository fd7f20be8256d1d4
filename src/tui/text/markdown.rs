//! Renders Markdown while it arrives.
//!
//! Finished rows never change, so they can be printed into the scrollback of the terminal. The cost is linear in the
//! length of the text: each complete line is parsed once, and the open block is bounded in [`MarkdownStream::tail_rows`].

use ratatui::text::Line;

use super::blocks::BlockParser;
use super::containers::RowBuffer;
use super::theme::Theme;

/// A Markdown document that arrives in deltas.
#[derive(Debug)]
pub(crate) struct MarkdownStream {
    parser: BlockParser,
    /// What was not parsed yet.
    pending: String,
    /// How much of it is known to have no line feed.
    scanned: usize,
}

/// A longer line is divided, so that the work for it is bounded.
const LONGEST_LINE: usize = 64 * 1024;
/// How much of an unfinished line a preview shows, in bytes.
const PREVIEW_LINE: usize = 8 * 1024;

impl MarkdownStream {
    /// Begins a document.
    pub(crate) fn new(theme: Theme) -> Self {
        Self { parser: BlockParser::new(theme), pending: String::new(), scanned: 0 }
    }

    /// Adds text; it may be divided anywhere.
    pub(crate) fn push(&mut self, delta: &str) {
        self.pending.push_str(delta);
    }

    /// Returns the rows that can no longer change and were not returned before.
    ///
    /// A row is returned when its block ends, a row of code when its line ends.
    pub(crate) fn take_finished(&mut self, width: u16) -> Vec<Line<'static>> {
        let mut out = RowBuffer { width: width.max(1), rows: Vec::new() };
        let mut start = 0;
        while let Some((end, next)) = self.next_line(start) {
            let line = self.pending.get(start..end).unwrap_or_default();
            self.parser.line(line.strip_suffix('\r').unwrap_or(line), &mut out);
            start = next;
            self.scanned = next;
        }
        self.pending.drain(..start);
        self.scanned = self.pending.len();
        out.rows
    }

    /// Returns where the line that starts at `start` ends, and where the next one starts; none if it is not complete.
    ///
    /// A very long line is divided at a space.
    fn next_line(&self, start: usize) -> Option<(usize, usize)> {
        let feed = self.pending.get(self.scanned..)?.find('\n').map(|length| self.scanned + length);
        if feed.unwrap_or(self.pending.len()) - start <= LONGEST_LINE {
            return feed.map(|end| (end, end + 1));
        }
        let limit = self.pending.floor_char_boundary(start + LONGEST_LINE);
        let space = self.pending.get(start..limit)?.rfind(' ').filter(|length| *length > 0);
        Some(space.map_or((limit, limit), |length| (start + length, start + length + 1)))
    }

    /// Returns the unfinished rows as they look now: all of the open block.
    #[cfg(test)]
    pub(crate) fn tail(&self, width: u16) -> Vec<Line<'static>> {
        self.tail_rows(width, usize::MAX)
    }

    /// Returns the last `max_rows` of the unfinished rows as they look now.
    ///
    /// Of a very long paragraph, line or table only the end is considered, so that the cost is bounded. A last line of
    /// which only a marker has arrived is left out: it could make a heading of a paragraph for a moment.
    pub(crate) fn tail_rows(&self, width: u16, max_rows: usize) -> Vec<Line<'static>> {
        let mut out = RowBuffer { width: width.max(1), rows: Vec::new() };
        let mut parser = self.parser.preview();
        let lines = self.pending.split('\n').count();
        for (at, line) in self.pending.split('\n').enumerate() {
            let is_last = at + 1 == lines;
            let line = line.strip_suffix('\r').unwrap_or(line);
            if is_last && (line.is_empty() || is_ambiguous(line)) {
                break;
            }
            let cut = line.ceil_char_boundary(line.len().saturating_sub(PREVIEW_LINE));
            parser.line(line.get(cut..).unwrap_or_default(), &mut out);
        }
        parser.finish(&mut out);
        let surplus = out.rows.len().saturating_sub(max_rows);
        out.rows.drain(..surplus);
        out.rows
    }

    /// Ends the document and returns the rows that were not returned before.
    ///
    /// The stream can be used for the next document.
    pub(crate) fn finish(&mut self, width: u16) -> Vec<Line<'static>> {
        let mut rows = self.take_finished(width);
        let mut out = RowBuffer { width: width.max(1), rows: Vec::new() };
        let line = std::mem::take(&mut self.pending);
        self.scanned = 0;
        if !line.is_empty() {
            self.parser.line(line.strip_suffix('\r').unwrap_or(&line), &mut out);
        }
        self.parser.finish(&mut out);
        rows.append(&mut out.rows);
        rows
    }
}

/// Returns whether the beginning of a line may be a marker or an underline.
fn is_ambiguous(line: &str) -> bool {
    let is_marker = |c: char| c.is_ascii_digit() || " -=*_`~#+>|:.)".contains(c);
    line.len() < 12 && line.chars().all(is_marker)
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
