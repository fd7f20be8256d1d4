//! Lists as tables: a line of headings, aligned columns, and no line wider than the terminal.
//!
//! Without a terminal nothing is cut. Cells are sanitized text.

use super::console::{Console, Style};
use super::format::{pad, truncate, width};

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    heading: &'static str,
    fit: Fit,
}

/// What happens to a column where the terminal is too narrow.
#[derive(Debug, Clone, Copy)]
enum Fit {
    Whole,
    /// It is cut to no less than this width.
    Shorten(usize),
    /// It is cut, and left out if less than this width remains for it.
    Drop(usize),
}

impl Column {
    /// A column that is always shown whole.
    pub(crate) const fn whole(heading: &'static str) -> Self {
        Self { heading, fit: Fit::Whole }
    }

    /// A column that is cut to no less than `least` where the terminal is narrow.
    pub(crate) const fn shortened(heading: &'static str, least: usize) -> Self {
        Self { heading, fit: Fit::Shorten(least) }
    }

    /// A column that is left out where less than `least` remains for it.
    pub(crate) const fn dropped(heading: &'static str, least: usize) -> Self {
        Self { heading, fit: Fit::Drop(least) }
    }
}

/// A cell and its style.
pub(crate) type Cell = (String, Option<Style>);

/// Returns a cell without a style.
pub(crate) fn plain(text: impl Into<String>) -> Cell {
    (text.into(), None)
}

/// Returns rows under their headings, for the console's standard output; nothing if there are no rows.
pub(crate) fn table<const N: usize>(columns: [Column; N], rows: &[[Cell; N]], console: &Console) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let widths = widths(columns, rows, console.columns);
    let headings = columns.map(|column| (column.heading.to_owned(), Some(Style::Faint)));
    let mut text = String::new();
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        let shown: Vec<(&Cell, usize)> = row.iter().zip(widths).filter(|(_, width)| *width > 0).collect();
        for (at, ((cell, style), width)) in shown.iter().enumerate() {
            let cell = truncate(cell, *width);
            // Nothing follows the last column.
            let cell = if at + 1 == shown.len() { cell } else { pad(&cell, *width) };
            line += &style.map_or_else(|| cell.clone(), |style| console.palette.paint(style, &cell));
            line += if at + 1 == shown.len() { "" } else { "  " };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Returns the widths of the columns; a column of width 0 is left out.
fn widths<const N: usize>(columns: [Column; N], rows: &[[Cell; N]], limit: Option<usize>) -> [usize; N] {
    let mut widths: [usize; N] = std::array::from_fn(|at| {
        let widest = rows.iter().map(|row| width(&row[at].0)).max().unwrap_or_default();
        widest.max(width(columns[at].heading))
    });
    let Some(limit) = limit else { return widths };
    let excess = |widths: &[usize; N]| {
        let shown = widths.iter().filter(|width| **width > 0);
        shown.map(|width| width + 2).sum::<usize>().saturating_sub(limit + 2)
    };
    for at in (0..N).rev() {
        if let Fit::Drop(least) = columns[at].fit {
            let left = widths[at].saturating_sub(excess(&widths));
            widths[at] = if left < least.min(widths[at]) { 0 } else { left };
        }
    }
    for at in 0..N {
        if let Fit::Shorten(least) = columns[at].fit {
            let left = widths[at].saturating_sub(excess(&widths));
            widths[at] = left.max(least.min(widths[at]));
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::console::testing::{CapturedStream, console};

    const COLUMNS: [Column; 4] =
        [Column::whole("ID"), Column::shortened("STATE", 5), Column::shortened("NAME", 6), Column::dropped("IN", 8)];

    fn shown(columns: Option<usize>) -> String {
        let rows = [
            ["a1", "awaiting_approval", "a rather long name", "/home/ann/project"].map(plain),
            ["b2", "idle", "漢字漢字漢字漢字", "/"].map(plain),
        ];
        let (mut console, _) = console(CapturedStream::default());
        console.columns = columns;
        table(COLUMNS, &rows, &console)
    }

    #[test]
    fn a_table_has_headings_and_is_cut_only_at_a_terminal() {
        assert_eq!(
            shown(None),
            "ID  STATE              NAME                IN\n\
             a1  awaiting_approval  a rather long name  /home/ann/project\n\
             b2  idle               漢字漢字漢字漢字    /\n"
        );
        assert_eq!(shown(Some(56)).lines().nth(1), Some("a1  awaiting_approval  a rather long name  /home/ann/pr…"));
        assert_eq!(shown(Some(40)).lines().nth(1), Some("a1  awaiting_approv…  a rather long name"));
        assert_eq!(shown(Some(20)).lines().nth(2), Some("b2  idle   漢字漢字…"));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for columns in 17..90 {
            let text = shown(Some(columns));
            assert!(text.lines().all(|line| width(line) <= columns), "{columns}:\n{text}");
        }
    }

    #[test]
    fn an_empty_list_has_no_headings() {
        let (console, _) = console(CapturedStream::default());
        assert_eq!(table(COLUMNS, &[], &console), "");
    }
}
