//! The open quotes and list items of a Markdown document, and the rows inside them.
//!
//! Every row passes through here: it gets the bars of its quotes, the marker or the indentation of its list items, and
//! the blank row that is due before it.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::block_syntax::{ListMarker, check_box, indentation, quote_content, strip_spaces};
use super::theme::Theme;
use super::wrap::{display_width, wrap_exact};

/// Receives rendered rows.
#[derive(Debug)]
pub(super) struct RowBuffer {
    /// Columns of the terminal.
    pub(super) width: u16,
    /// The rows so far.
    pub(super) rows: Vec<Line<'static>>,
}

/// Which blank rows surround a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spacing {
    /// As the source has blank lines.
    AsWritten,
    /// Always, except in list items.
    Separate,
}

/// The open containers.
#[derive(Debug, Clone)]
pub(super) struct ContainerStack {
    theme: Theme,
    /// From the outermost to the innermost; the first is the document.
    frames: Vec<Frame>,
    /// Whether a blank line preceded.
    blank: bool,
    /// How many frames enclose the blank row that is due before the next row.
    gap: Option<usize>,
}

/// An open container.
#[derive(Debug, Clone)]
struct Frame {
    container: Container,
    /// The delimiter of the list that the next item may continue, and the number of that item.
    list: Option<(char, u32)>,
    /// The spacing of the block that was begun last.
    previous: Option<Spacing>,
    /// Whether the container has rows.
    has_rows: bool,
}

/// A block that contains blocks.
#[derive(Debug, Clone)]
enum Container {
    Document,
    Quote,
    Item {
        /// Spaces before the continuation lines of the item.
        indent: usize,
        /// What is shown before its first row.
        marker: Span<'static>,
        /// Whether its first row was rendered.
        shown: bool,
    },
}

/// Containers are not nested deeper; further markers are text.
const MAX_DEPTH: usize = 24;
/// Columns that indentation leaves to text, if they are not more than half of the terminal.
const MIN_TEXT_WIDTH: u16 = 12;
/// Bullets by depth.
const BULLETS: [&str; 3] = ["• ", "◦ ", "▪ "];

impl ContainerStack {
    /// Returns the containers of an empty document.
    pub(super) fn new(theme: Theme) -> Self {
        let document = Frame { container: Container::Document, list: None, previous: None, has_rows: false };
        Self { theme, frames: vec![document], blank: false, gap: None }
    }

    /// Returns how many containers are open, the document included.
    pub(super) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether a container may be opened inside the first `depth` ones.
    pub(super) fn may_nest(depth: usize) -> bool {
        depth < MAX_DEPTH
    }

    /// Notes a blank line.
    pub(super) fn set_blank(&mut self) {
        self.blank = true;
    }

    /// Returns how many containers the line continues, and the line without their markers.
    pub(super) fn match_line<'a>(&self, line: &'a str) -> (usize, &'a str) {
        let mut rest = line;
        for (at, frame) in self.frames.iter().enumerate() {
            match &frame.container {
                Container::Document => {}
                Container::Quote => match quote_content(rest) {
                    Some(content) => rest = content,
                    None => return (at, rest),
                },
                Container::Item { .. } if rest.trim_matches(' ').is_empty() => {
                    // An item that begins with a blank line has no second one.
                    if frame.previous.is_none() {
                        return (at, rest);
                    }
                }
                Container::Item { indent, .. } if indentation(rest) >= *indent => rest = strip_spaces(rest, *indent),
                Container::Item { .. } => return (at, rest),
            }
        }
        (self.frames.len(), rest)
    }

    /// Closes all but the first `depth` containers; their leaf is closed already.
    pub(super) fn truncate(&mut self, depth: usize, out: &mut RowBuffer) {
        while self.frames.len() > depth.max(1) {
            let empty = |frame: &Frame| matches!(&frame.container, Container::Item { shown: false, .. });
            if self.frames.last().is_some_and(empty) {
                self.emit([Line::default()], out);
            }
            self.frames.pop();
        }
    }

    /// Begins a block in the innermost container.
    pub(super) fn begin_block(&mut self, spacing: Spacing) {
        self.begin(spacing, None);
    }

    /// Changes the spacing of the block that was begun last and has no rows yet.
    pub(super) fn change_spacing(&mut self, spacing: Spacing) {
        let depth = self.frames.len();
        let Some(frame) = self.frames.last_mut() else { return };
        let in_item = matches!(frame.container, Container::Item { .. });
        frame.previous = Some(spacing);
        if frame.has_rows && spacing == Spacing::Separate && !in_item {
            self.gap = Some(depth);
        }
    }

    /// Opens a quote in the innermost container.
    pub(super) fn open_quote(&mut self) {
        self.begin(Spacing::Separate, None);
        self.frames.push(Frame { container: Container::Quote, list: None, previous: None, has_rows: false });
    }

    /// Opens a list item in the innermost container; returns the content of its first line.
    pub(super) fn open_item<'a>(&mut self, marker: ListMarker, line: &'a str) -> &'a str {
        let before = indentation(line) + marker.length;
        let rest = line.get(before..).unwrap_or_default();
        let (indent, content) = match indentation(rest) {
            spaces if spaces == rest.len() => (before + 1, ""),
            spaces @ 1..=4 => (before + spaces, strip_spaces(rest, spaces)),
            _ => (before + 1, strip_spaces(rest, 1)),
        };
        let continued = self.frames.last().and_then(|frame| frame.list).filter(|(kind, _)| *kind == marker.delimiter);
        let shown_marker = match (marker.number, continued) {
            (None, _) => {
                let lists = |frame: &&Frame| matches!(frame.container, Container::Item { .. });
                let depth = self.frames.iter().filter(lists).count();
                BULLETS.get(depth % BULLETS.len()).copied().unwrap_or_default().to_owned()
            }
            (Some(_), Some((_, number))) | (Some(number), None) => format!("{number}{} ", marker.delimiter),
        };
        let number = continued.map_or(marker.number.unwrap_or_default(), |(_, number)| number);
        self.begin(Spacing::AsWritten, Some((marker.delimiter, number.saturating_add(1))));
        let marker = Span::styled(shown_marker, self.theme.faint);
        let container = Container::Item { indent, marker, shown: false };
        self.frames.push(Frame { container, list: None, previous: None, has_rows: false });
        content
    }

    /// Takes the check box from the first paragraph of a list item and makes it the marker.
    pub(super) fn take_check_box<'a>(&mut self, text: &'a str) -> &'a str {
        let Some(Frame { container: Container::Item { marker, shown: false, .. }, .. }) = self.frames.last_mut() else {
            return text;
        };
        let Some((done, content)) = check_box(text) else { return text };
        let (shown_box, style) = if done { ("[x] ", self.theme.good) } else { ("[ ] ", self.theme.attention) };
        let number = if BULLETS.contains(&&*marker.content) { "" } else { &*marker.content };
        *marker = Span::styled(format!("{number}{shown_box}"), style);
        content
    }

    /// Returns the columns for the content of the innermost container.
    pub(super) fn text_width(&self, width: u16) -> u16 {
        let indent = self.frames.iter().map(|frame| frame.container.width()).sum::<usize>();
        width - u16::try_from(indent).unwrap_or(u16::MAX).min(indent_limit(width))
    }

    /// Adds rows to the innermost container; none is wider than [`Self::text_width`].
    pub(super) fn emit(&mut self, rows: impl IntoIterator<Item = Line<'static>>, out: &mut RowBuffer) {
        for row in rows {
            if let Some(depth) =
                self.gap.take().filter(|_| self.frames.first().is_some_and(|document| document.has_rows))
            {
                out.rows.push(self.blank_row(depth, out.width));
            }
            self.frames.iter_mut().for_each(|frame| frame.has_rows = true);
            let bar = self.theme.quote;
            let indent = self.frames.iter_mut().filter_map(|frame| frame.indent(bar)).collect();
            let mut spans = clip(indent, indent_limit(out.width));
            if row.spans.is_empty() {
                trim_end(&mut spans);
            }
            spans.extend(row.spans.into_iter().map(|span| span.patch_style(row.style)));
            out.rows.push(Line::from(spans));
        }
    }

    fn begin(&mut self, spacing: Spacing, list: Option<(char, u32)>) {
        let depth = self.frames.len();
        let blank = std::mem::take(&mut self.blank);
        let Some(frame) = self.frames.last_mut() else { return };
        let in_item = matches!(frame.container, Container::Item { .. });
        if let Some(previous) = frame.previous {
            let separate = spacing == Spacing::Separate || previous == Spacing::Separate;
            if blank || (separate && !in_item) {
                self.gap = Some(depth);
            }
        }
        frame.previous = Some(spacing);
        frame.list = list;
    }

    fn blank_row(&self, depth: usize, width: u16) -> Line<'static> {
        let bar = self.theme.quote;
        let mut spans: Vec<Span<'static>> =
            self.frames.iter().take(depth).filter_map(|frame| frame.blank_indent(bar)).collect();
        trim_end(&mut spans);
        Line::from(clip(spans, indent_limit(width)))
    }
}

impl Frame {
    /// Returns what is shown before the next row inside the container.
    fn indent(&mut self, style: Style) -> Option<Span<'static>> {
        match &mut self.container {
            Container::Item { marker, shown, .. } if !*shown => {
                *shown = true;
                Some(marker.clone())
            }
            Container::Document | Container::Quote | Container::Item { .. } => self.blank_indent(style),
        }
    }

    /// Returns what is shown before a row that is not the first.
    fn blank_indent(&self, style: Style) -> Option<Span<'static>> {
        match &self.container {
            Container::Document => None,
            Container::Quote => Some(Span::styled(QUOTE_BAR, style)),
            Container::Item { .. } => Some(Span::raw(" ".repeat(self.container.width()))),
        }
    }
}

/// Before every row of a quote.
const QUOTE_BAR: &str = "│ ";

impl Container {
    fn width(&self) -> usize {
        match self {
            Self::Document => 0,
            Self::Quote => display_width(QUOTE_BAR),
            Self::Item { marker, .. } => display_width(&marker.content),
        }
    }
}

/// Returns how many columns indentation may take.
fn indent_limit(width: u16) -> u16 {
    width.saturating_sub(MIN_TEXT_WIDTH).max(width / 2)
}

/// Removes the spaces at the end.
fn trim_end(spans: &mut Vec<Span<'static>>) {
    while spans.pop_if(|span| span.content.trim().is_empty()).is_some() {}
    if let Some(last) = spans.last_mut() {
        last.content = last.content.trim_end().to_owned().into();
    }
}

/// Cuts spans to a number of columns.
fn clip(spans: Vec<Span<'static>>, limit: u16) -> Vec<Span<'static>> {
    if spans.iter().map(|span| display_width(&span.content)).sum::<usize>() <= usize::from(limit) {
        return spans;
    }
    if limit == 0 {
        return Vec::new();
    }
    wrap_exact(&Line::from(spans), limit).into_iter().next().unwrap_or_default().spans
}
