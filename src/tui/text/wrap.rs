//! Display width, wrapping and truncation of styled lines.
//!
//! The unit is the grapheme cluster, as in the cells of a terminal buffer: an emoji sequence or a letter with combining
//! marks is never divided. Tabs are expanded to the next multiple of [`TAB_WIDTH`] columns.

use std::borrow::Cow;
use std::ops::Range;

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Distance of tab stops in columns.
pub(crate) const TAB_WIDTH: usize = 4;

/// Replaces a grapheme cluster that is wider than the whole row.
const TOO_WIDE: &str = "\u{fffd}";

/// Returns the number of columns that a text without line breaks occupies.
pub(crate) fn display_width(text: &str) -> usize {
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return text.len();
    }
    text.graphemes(true).fold(0, |column, grapheme| column + grapheme_width(grapheme, column))
}

/// Replaces tabs by spaces up to the next tab stop.
pub(crate) fn expand_tabs(text: &str) -> Cow<'_, str> {
    expand_tabs_from(text, &mut 0)
}

/// Wraps a line at spaces.
///
/// Styles are kept. A word that is longer than a row is divided between grapheme clusters; wide characters, as of Chinese
/// or Japanese, may be divided anywhere. Rows after the first begin with `hanging`, unless it would leave less than two
/// columns. Spaces at a break are dropped, and a line feed is a break. No row is wider than `width`; a width of 0 counts as
/// 1. There is always at least one row.
pub(crate) fn wrap_line(line: &Line<'_>, width: u16, hanging: &str) -> Vec<Line<'static>> {
    let width = usize::from(width.max(1));
    let hanging_width = display_width(hanging);
    let hanging = if hanging_width + 2 > width { "" } else { hanging };
    let cells = Cells::of(line, width);
    let mut wrapper = Wrapper { rows: Vec::new(), start: 0, end: 0, used: 0, gap: 0, width, hanging };
    for token in cells.tokens() {
        match token.kind {
            TokenKind::Spaces => wrapper.gap += cells.width(&token.range),
            TokenKind::Break => wrapper.end_row(token.range.end),
            TokenKind::Word => wrapper.place(&cells, token.range),
        }
    }
    if wrapper.used + wrapper.gap <= wrapper.limit() {
        wrapper.end = cells.0.len();
    }
    wrapper.end_row(cells.0.len());
    let hanging: Cow<'_, str> = expand_tabs(hanging);
    let indent = |at: usize| if at == 0 { "" } else { &*hanging };
    wrapper.rows.iter().enumerate().map(|(at, range)| cells.row(line, range.clone(), indent(at))).collect()
}

/// Wraps a line at exactly `width` columns, without regard to words; all spaces are kept.
pub(crate) fn wrap_exact(line: &Line<'_>, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width.max(1));
    let cells = Cells::of(line, width);
    let mut rows = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (at, cell) in cells.0.iter().enumerate() {
        if used + cell.width > width {
            rows.push(cells.row(line, start..at, ""));
            (start, used) = (at, 0);
        }
        used += cell.width;
    }
    rows.push(cells.row(line, start..cells.0.len(), ""));
    rows
}

/// Returns the line, cut to `width` columns; a cut line ends with `…`. Empty if the width is 0.
pub(crate) fn truncate(line: &Line<'_>, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let cells = Cells::of(line, width.max(1));
    let all = 0..cells.0.len();
    if width == 0 {
        return cells.row(line, 0..0, "");
    }
    if cells.width(&all) <= width {
        return cells.row(line, all, "");
    }
    let (mut end, mut used) = (0, 0);
    for cell in &cells.0 {
        if used + cell.width + 1 > width {
            break;
        }
        used += cell.width;
        end += 1;
    }
    let mut row = cells.row(line, 0..end, "");
    let style = cells.0.get(end).map_or_else(Style::default, |cell| cell.style);
    row.spans.push(Span::styled("…", style));
    row
}

/// A grapheme cluster with its style and width.
struct Cell<'a> {
    text: Cow<'a, str>,
    style: Style,
    width: usize,
}

/// The grapheme clusters of a line.
struct Cells<'a>(Vec<Cell<'a>>);

/// A part of a line which wrapping treats as a unit.
struct Token {
    kind: TokenKind,
    range: Range<usize>,
}

/// What wrapping may do with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    /// Dropped at a break.
    Spaces,
    /// A line feed.
    Break,
    /// Stays together if it fits into a row.
    Word,
}

impl<'a> Cells<'a> {
    /// Divides a line; a grapheme cluster wider than `width` is replaced.
    fn of(line: &'a Line<'_>, width: usize) -> Self {
        let mut cells = Vec::new();
        let mut column = 0;
        for span in &line.spans {
            let text = expand_tabs_from(&span.content, &mut column);
            let mut push = |text: Cow<'a, str>| {
                let cell_width = grapheme_width(&text, 0);
                if cell_width > width {
                    cells.push(Cell { text: Cow::Borrowed(TOO_WIDE), style: span.style, width: 1 });
                } else {
                    cells.push(Cell { text, style: span.style, width: cell_width });
                }
            };
            match text {
                Cow::Borrowed(text) => text.graphemes(true).for_each(|part| push(Cow::Borrowed(part))),
                Cow::Owned(text) => text.graphemes(true).for_each(|part| push(Cow::Owned(part.to_owned()))),
            }
        }
        Self(cells)
    }

    /// Returns the columns of a range.
    fn width(&self, range: &Range<usize>) -> usize {
        self.0.get(range.clone()).unwrap_or_default().iter().map(|cell| cell.width).sum()
    }

    /// Divides the line into tokens that cover it.
    fn tokens(&self) -> impl Iterator<Item = Token> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at;
            let kind = self.0.get(at)?.kind();
            at += 1;
            let joins = |cell: &Cell<'_>| kind != TokenKind::Break && cell.kind() == kind && cell.width < 2;
            let single = self.0.get(start).is_some_and(|cell| cell.width > 1);
            while !single && self.0.get(at).is_some_and(joins) {
                at += 1;
            }
            Some(Token { kind, range: start..at })
        })
    }

    /// Builds a row from a range, merging neighbours of the same style.
    fn row(&self, line: &Line<'_>, range: Range<usize>, indent: &str) -> Line<'static> {
        let mut spans: Vec<Span<'static>> = Vec::new();
        if !indent.is_empty() {
            spans.push(Span::raw(indent.to_owned()));
        }
        for cell in self.0.get(range).unwrap_or_default().iter().filter(|cell| !is_line_break(&cell.text)) {
            match spans.last_mut() {
                Some(last) if last.style == cell.style => last.content.to_mut().push_str(&cell.text),
                Some(_) | None => spans.push(Span::styled(cell.text.clone().into_owned(), cell.style)),
            }
        }
        Line { style: line.style, alignment: line.alignment, spans }
    }
}

impl Cell<'_> {
    fn kind(&self) -> TokenKind {
        match &*self.text {
            text if is_line_break(text) => TokenKind::Break,
            " " | "\u{3000}" => TokenKind::Spaces,
            _ => TokenKind::Word,
        }
    }
}

/// The state of wrapping one line.
struct Wrapper<'a> {
    /// The finished rows.
    rows: Vec<Range<usize>>,
    /// The cells of the open row, without the spaces after its last word.
    start: usize,
    end: usize,
    /// Columns of the open row, and of the spaces after its last word.
    used: usize,
    gap: usize,
    width: usize,
    hanging: &'a str,
}

impl Wrapper<'_> {
    /// Columns for text in the open row.
    fn limit(&self) -> usize {
        if self.rows.is_empty() { self.width } else { self.width - display_width(self.hanging) }
    }

    /// Finishes the open row; the next one starts at `next`.
    fn end_row(&mut self, next: usize) {
        self.rows.push(self.start..self.end.max(self.start));
        (self.start, self.end, self.used, self.gap) = (next, next, 0, 0);
    }

    /// Adds a word to the open row or to the next one; divides it if it is longer than a row.
    fn place(&mut self, cells: &Cells<'_>, word: Range<usize>) {
        let columns = cells.width(&word);
        if self.used + self.gap + columns <= self.limit() {
            self.used += self.gap + columns;
            self.gap = 0;
            self.end = word.end;
            return;
        }
        if self.end > self.start {
            self.end_row(word.start);
        } else {
            // Spaces at the beginning of a line that leave no place for the word.
            (self.start, self.end, self.gap) = (word.start, word.start, 0);
        }
        for at in word {
            let columns = cells.width(&(at..at + 1));
            if self.used + columns > self.limit() {
                self.end_row(at);
            }
            self.used += columns;
            self.end = at + 1;
        }
    }
}

fn expand_tabs_from<'a>(text: &'a str, column: &mut usize) -> Cow<'a, str> {
    if !text.contains('\t') {
        *column += display_width(text);
        return Cow::Borrowed(text);
    }
    let mut expanded = String::with_capacity(text.len() + TAB_WIDTH);
    for grapheme in text.graphemes(true) {
        let columns = grapheme_width(grapheme, *column);
        *column += columns;
        match grapheme {
            "\t" => expanded.extend(std::iter::repeat_n(' ', columns)),
            _ => expanded.push_str(grapheme),
        }
    }
    Cow::Owned(expanded)
}

fn grapheme_width(grapheme: &str, column: usize) -> usize {
    match grapheme {
        "\t" => TAB_WIDTH - column % TAB_WIDTH,
        "\n" | "\r\n" => 0,
        _ => grapheme.width(),
    }
}

fn is_line_break(grapheme: &str) -> bool {
    matches!(grapheme, "\n" | "\r\n")
}

#[cfg(test)]
#[path = "wrap_tests.rs"]
mod tests;
