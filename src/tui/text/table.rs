//! Lays out Markdown tables in the width of the terminal.
//!
//! The widths of the columns depend on all rows, so a table is laid out when it ends. Of a long table the first rows
//! decide; those after them are laid out as they arrive, so that the cost of a row does not depend on the rows before.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::block_syntax::{ColumnAlignment, split_cells};
use super::inline;
use super::theme::Theme;
use super::wrap::{display_width, wrap_line};

/// A table in source form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    alignments: Vec<ColumnAlignment>,
    head: Vec<String>,
    /// The rows that are not laid out yet.
    rows: Vec<Vec<String>>,
    /// The bytes of these rows.
    bytes: usize,
    /// The widest line of each column in the rows that are laid out; none if there are no such rows.
    natural: Option<Vec<usize>>,
}

/// How many rows, and how many bytes of rows, decide about the widths of the columns.
const DECIDING_ROWS: usize = 256;
const DECIDING_BYTES: usize = 64 * 1024;

impl Table {
    /// Begins a table with the cells of its head; there are as many as alignments.
    pub(super) fn new(head: Vec<String>, alignments: Vec<ColumnAlignment>) -> Self {
        Self { alignments, head, rows: Vec::new(), bytes: 0, natural: None }
    }

    /// Adds a row; missing cells are empty, and surplus ones become part of the last.
    pub(super) fn push(&mut self, line: &str) {
        let mut cells = split_cells(line);
        let columns = self.alignments.len().max(1);
        if cells.len() > columns {
            let surplus = cells.split_off(columns);
            if let Some(last) = cells.last_mut() {
                *last = format!("{last} | {}", surplus.join(" | "));
            }
        }
        cells.resize(columns, String::new());
        self.bytes += line.len();
        self.rows.push(cells);
    }

    /// Lays out the rows so far if the table is long; there is nothing to emit otherwise.
    pub(super) fn take_finished(&mut self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        if self.natural.is_none() && self.rows.len() < DECIDING_ROWS && self.bytes < DECIDING_BYTES {
            return Vec::new();
        }
        let (lines, natural) = self.layout(width, theme);
        self.natural = Some(natural);
        self.rows.clear();
        self.bytes = 0;
        lines
    }

    /// Returns a copy with the last rows only.
    pub(super) fn end(&self, rows: usize) -> Self {
        let first = self.rows.len().saturating_sub(rows);
        let rows = self.rows.get(first..).unwrap_or_default().to_vec();
        let (alignments, head) = (self.alignments.clone(), self.head.clone());
        Self { alignments, head, rows, bytes: self.bytes, natural: self.natural.clone() }
    }

    /// Lays out the rest of the table.
    pub(super) fn render(&self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        self.layout(width, theme).0
    }

    /// Lays out the rows, below the head if they are the first ones; returns the widths of the columns, too.
    ///
    /// If the columns would be too narrow, each row becomes lines of `head: cell`.
    fn layout(&self, width: u16, theme: &Theme) -> (Vec<Line<'static>>, Vec<usize>) {
        let rows: Vec<Vec<Cell>> = self.rows.iter().map(|row| render_cells(row, theme)).collect();
        let head: Vec<Cell> = self.head.iter().map(|cell| inline::render(cell, theme.strong, theme)).collect();
        let natural = self.natural.clone().unwrap_or_else(|| natural_widths(&head, &rows));
        let Some(widths) = fit(&natural, usize::from(width)) else {
            return (self.render_list(&rows, width, theme), natural);
        };
        let mut lines = Vec::new();
        if self.natural.is_none() {
            lines = self.layout_row(&head, &widths, theme);
            let dashes: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            lines.push(Line::styled(dashes.join("─┼─"), theme.faint));
        }
        for row in &rows {
            lines.extend(self.layout_row(row, &widths, theme));
        }
        (lines, natural)
    }

    fn layout_row(&self, cells: &[Cell], widths: &[usize], theme: &Theme) -> Vec<Line<'static>> {
        let wrapped: Vec<Vec<Line<'static>>> = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| cell.iter().flat_map(|line| wrap_line(line, columns(*width), "")).collect())
            .collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or_default();
        let mut rows = Vec::with_capacity(height);
        for at in 0..height {
            let mut spans = Vec::new();
            for (column, (cell, width)) in wrapped.iter().zip(widths).enumerate() {
                if column > 0 {
                    spans.push(Span::styled(" │ ", theme.faint));
                }
                let line = cell.get(at).cloned().unwrap_or_default();
                let alignment = self.alignments.get(column).copied().unwrap_or(ColumnAlignment::Left);
                pad(&mut spans, line, *width, alignment, column + 1 == widths.len());
            }
            rows.push(Line::from(spans));
        }
        rows
    }

    fn render_list(&self, rows: &[Vec<Cell>], width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            if at > 0 || self.natural.is_some() {
                lines.push(Line::default());
            }
            for (head, cell) in self.head.iter().zip(row) {
                let mut label = inline::render(head, theme.strong, theme).into_iter().flatten().collect::<Vec<_>>();
                label.push(Span::styled(": ", theme.strong));
                for line in cell {
                    label.extend(line.spans.iter().cloned());
                    lines.extend(wrap_line(&Line::from(std::mem::take(&mut label)), width, "  "));
                }
            }
        }
        if rows.is_empty() && self.natural.is_none() {
            for head in &self.head {
                let line = inline::render(head, theme.strong, theme);
                lines.extend(line.iter().flat_map(|line| wrap_line(line, width, "  ")));
            }
        }
        lines
    }
}

/// The lines of one cell, not wrapped.
type Cell = Vec<Line<'static>>;

/// Columns are not made narrower than this.
const MIN_COLUMN: usize = 8;
/// Width of the separator between columns.
const SEPARATOR: usize = 3;

fn render_cells(cells: &[String], theme: &Theme) -> Vec<Cell> {
    cells.iter().map(|cell| inline::render(cell, Style::new(), theme)).collect()
}

/// Returns the widest line of each column; at least 1.
fn natural_widths(head: &[Cell], rows: &[Vec<Cell>]) -> Vec<usize> {
    let mut widths = vec![1; head.len()];
    for row in std::iter::once(head).chain(rows.iter().map(Vec::as_slice)) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.iter().map(line_width).max().unwrap_or_default().max(*width);
        }
    }
    widths
}

/// Shrinks the widest columns until the table fits; `None` if it cannot fit.
fn fit(natural: &[usize], width: usize) -> Option<Vec<usize>> {
    let available = width.checked_sub(SEPARATOR * natural.len().saturating_sub(1))?;
    if natural.iter().sum::<usize>() <= available {
        return Some(natural.to_vec());
    }
    if natural.iter().map(|width| (*width).min(MIN_COLUMN)).sum::<usize>() > available {
        return None;
    }
    // The largest limit under which the columns fit, found by bisection.
    let total = |limit: usize| natural.iter().map(|width| (*width).min(limit)).sum::<usize>();
    let (mut low, mut high) = (MIN_COLUMN, available + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if total(middle) <= available { low = middle } else { high = middle }
    }
    Some(natural.iter().map(|width| (*width).min(low)).collect())
}

fn pad(spans: &mut Vec<Span<'static>>, line: Line<'static>, width: usize, alignment: ColumnAlignment, last: bool) {
    if last && line.spans.is_empty() {
        return;
    }
    let missing = width.saturating_sub(line_width(&line));
    let before = match alignment {
        ColumnAlignment::Left => 0,
        ColumnAlignment::Center => missing / 2,
        ColumnAlignment::Right => missing,
    };
    if before > 0 {
        spans.push(Span::raw(" ".repeat(before)));
    }
    spans.extend(line.spans);
    if !last && missing > before {
        spans.push(Span::raw(" ".repeat(missing - before)));
    }
}

fn line_width(line: &Line<'_>) -> usize {
    line.spans.iter().map(|span| display_width(&span.content)).sum()
}

fn columns(width: usize) -> u16 {
    u16::try_from(width).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let shown = render(&["| a | b | c |", "|:--|:-:|--:|", "| long | x | 1 |", "| 漢 | yyy | 22 |"], 40);
        let expected = [
            "a    │  b  │  c", //
            "─────┼─────┼───",
            "long │  x  │  1",
            "漢   │ yyy │ 22",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn wide_columns_are_wrapped() {
        let shown = render(&["| key | value |", "|---|---|", "| a | one two three four five |"], 20);
        assert_eq!(shown, ["key │ value", "────┼───────────────", "a   │ one two three", "    │ four five"]);
    }

    #[test]
    fn a_narrow_table_is_a_list_of_keys_and_values() {
        let table = ["| name | **size** |", "|---|---|", "| something | very large |", "| b |"];
        let expected = ["name: something", "size: very large", "", "name: b", "size: "];
        assert_eq!(render(&table, 17), expected);
    }

    #[test]
    fn the_rows_after_the_first_ones_of_a_long_table_are_laid_out_at_once() {
        let mut table = Table::new(vec!["a".into(), "b".into()], vec![ColumnAlignment::Left; 2]);
        let mut shown = Vec::new();
        for at in 0..DECIDING_ROWS {
            assert_eq!(shown, [] as [String; 0]);
            table.push(&format!("| {at} | x |"));
            shown.extend(table.take_finished(40, &Theme::dark()).iter().map(ToString::to_string));
        }
        assert_eq!(shown.len(), DECIDING_ROWS + 2);
        assert_eq!(shown[..3], ["a   │ b", "────┼──", "0   │ x"]);
        table.push("| wider | y |");
        let rest: Vec<_> = table.take_finished(40, &Theme::dark()).iter().map(ToString::to_string).collect();
        assert_eq!(rest, ["wid │ y", "er  │ "]);
        assert!(table.rows.is_empty() && table.render(40, &Theme::dark()).is_empty(), "nothing is kept");
    }

    #[test]
    fn surplus_cells_are_kept() {
        assert_eq!(render(&["| a | b |", "|---|---|", "| 1 | 2 | 3 | 4 |"], 40).last().unwrap(), "1 │ 2 | 3 | 4");
    }

    #[test]
    fn columns_shrink_to_exactly_the_width() {
        assert_eq!(fit(&[5, 5], 13), Some(vec![5, 5]));
        assert_eq!(fit(&[30, 5, 30], 46), Some(vec![17, 5, 17]));
        assert_eq!(fit(&[30, 30], 18), None);
        assert_eq!(fit(&[30, 30], 19), Some(vec![8, 8]));
        assert_eq!(fit(&[1, 1, 1], 2), None);
    }

    fn render(source: &[&str], width: u16) -> Vec<String> {
        let alignments = super::super::block_syntax::delimiter_row(source[1]).unwrap();
        let mut table = Table::new(split_cells(source[0]), alignments);
        source[2..].iter().for_each(|line| table.push(line));
        table.render(width, &Theme::dark()).iter().map(ToString::to_string).collect()
    }
}
