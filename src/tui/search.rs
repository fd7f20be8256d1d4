//! The search of the scrolled view: which rows have a text.

use std::ops::Range;

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::row_log::RowLog;
use crate::display::sanitize::sanitize_line;

/// A text and the rows that have it.
#[derive(Debug)]
pub(crate) struct Search {
    text: String,
    /// Whether capital letters differ from small ones: if the text has any.
    is_exact: bool,
    /// The numbers of the rows with a match.
    rows: Vec<usize>,
    /// The number of the first row that was not searched.
    searched: usize,
    /// The row whose match was shown last.
    current: Option<usize>,
}

impl Search {
    /// Searches all rows for a text.
    pub(crate) fn new(text: &str, log: &RowLog) -> Self {
        let is_exact = text.bytes().any(|byte| byte.is_ascii_uppercase());
        let mut search = Self { text: text.to_owned(), is_exact, rows: Vec::new(), searched: 0, current: None };
        search.extend(log);
        search
    }

    /// Searches the rows that were added, and forgets those that were dropped.
    pub(crate) fn extend(&mut self, log: &RowLog) {
        self.rows.retain(|row| *row >= log.first());
        let new = self.searched.max(log.first())..log.end();
        self.searched = new.end;
        let found = new.filter(|number| log.get(*number).is_some_and(|row| !self.matches(row).is_empty()));
        let found: Vec<usize> = found.collect();
        self.rows.extend(found);
    }

    /// Returns where a row has the text, in bytes.
    pub(crate) fn matches(&self, row: &Line<'_>) -> Vec<Range<usize>> {
        let mut content = row.to_string();
        if !self.is_exact {
            // Every letter keeps its length.
            content.make_ascii_lowercase();
        }
        content.match_indices(self.text.as_str()).map(|(at, found)| at..at + found.len()).collect()
    }

    /// Moves to the next match, after the last one to the first.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let next = self.rows.iter().find(|row| self.current.is_none_or(|current| **row > current));
        self.current = next.or(self.rows.first()).copied();
        self.current
    }

    /// Moves to the match before, from the first one to the last.
    pub(crate) fn previous(&mut self) -> Option<usize> {
        let before = self.rows.iter().rfind(|row| self.current.is_none_or(|current| **row < current));
        self.current = before.or(self.rows.last()).copied();
        self.current
    }

    /// Moves to the last match before a row, or else to the next one.
    pub(crate) fn nearest_above(&mut self, row: usize) -> Option<usize> {
        self.current = Some(row);
        let is_above = self.rows.first().is_some_and(|first| *first < row);
        if is_above { self.previous() } else { self.next() }
    }

    /// Returns the style of matches in a row.
    pub(crate) fn style(&self, row: usize) -> Style {
        let style = Style::new().add_modifier(Modifier::REVERSED);
        if self.current == Some(row) { style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED) } else { style }
    }

    /// Returns what was found.
    pub(crate) fn words(&self) -> String {
        let at = self.current.and_then(|current| self.rows.binary_search(&current).ok());
        match at {
            Some(at) => format!("match {} of {}", at + 1, self.rows.len()),
            None if self.rows.is_empty() => format!("no match for {}", sanitize_line(&self.text)),
            None => format!("{} matches", self.rows.len()),
        }
    }
}

/// Returns a row with parts of it in another style.
pub(crate) fn highlight(row: &Line<'static>, parts: &[Range<usize>], style: Style) -> Line<'static> {
    let mut spans = Vec::new();
    let mut start = 0;
    for span in &row.spans {
        let end = start + span.content.len();
        let mut at = start;
        let mut push = |until: usize, style: Style| {
            if let Some(text) = span.content.get(at - start..until - start).filter(|text| !text.is_empty()) {
                spans.push(Span::styled(text.to_owned(), style));
            }
            at = until;
        };
        for part in parts.iter().filter(|part| part.start < end && part.end > start) {
            push(part.start.max(start), span.style);
            push(part.end.min(end), span.style.patch(style));
        }
        push(end, span.style);
        start = end;
    }
    Line { style: row.style, alignment: row.alignment, spans }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(rows: &[&str]) -> RowLog {
        let mut log = RowLog::default();
        log.extend(rows.iter().map(|row| Line::from((*row).to_owned())));
        log
    }

    #[test]
    fn next_and_previous_go_round_and_capital_letters_make_the_search_exact() {
        let mut log = log(&["an Apple", "a pear", "apple pie", "APPLE"]);
        let mut search = Search::new("apple", &log);
        assert_eq!(search.rows, [0, 2, 3]);
        assert_eq!(search.nearest_above(3), Some(2));
        assert_eq!((search.next(), search.next(), search.previous()), (Some(3), Some(0), Some(3)));
        assert_eq!(search.words(), "match 3 of 3");
        log.push(Line::from("one more apple"));
        search.extend(&log);
        assert_eq!((search.rows.len(), search.next()), (4, Some(4)));
        assert_eq!(Search::new("Apple", &log).rows, [0]);
        assert_eq!(Search::new("plum", &log).nearest_above(4), None);
        assert_eq!(Search::new("pear", &log).nearest_above(0), Some(1), "there is none above");
    }

    #[test]
    fn a_match_is_highlighted_across_spans_and_keeps_their_styles() {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mark = Style::new().add_modifier(Modifier::REVERSED);
        let row = Line::from(vec![Span::raw("äb"), Span::styled("cd", bold)]);
        let search = Search::new("bc", &RowLog::default());
        let marked = highlight(&row, &search.matches(&row), mark);
        let expected =
            [Span::raw("ä"), Span::styled("b", mark), Span::styled("c", bold.patch(mark)), Span::styled("d", bold)];
        assert_eq!(marked.spans, expected);
    }
}
