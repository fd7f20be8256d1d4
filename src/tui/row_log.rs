//! The finished rows: those that the terminal has, and those that it gets next.

use std::collections::VecDeque;

use ratatui::text::Line;

/// How many rows that the terminal has are kept for the scrolled view.
const KEPT_ROWS: usize = 10_000;

/// With more rows that the terminal does not have, no more are added before it has some.
const UNWRITTEN_ROWS: usize = 5000;

/// The finished rows. A row keeps its number, although the oldest ones are dropped.
#[derive(Debug, Default)]
pub(crate) struct RowLog {
    written: VecDeque<Line<'static>>,
    unwritten: Vec<Line<'static>>,
    first: usize,
}

impl RowLog {
    /// Adds a row.
    pub(crate) fn push(&mut self, row: Line<'static>) {
        self.unwritten.push(row);
    }

    /// Adds rows.
    pub(crate) fn extend(&mut self, rows: impl IntoIterator<Item = Line<'static>>) {
        self.unwritten.extend(rows);
    }

    /// Returns the rows that the terminal does not have.
    pub(crate) fn unwritten(&self) -> &[Line<'static>] {
        &self.unwritten
    }

    /// Takes the rows, for a view that keeps its own.
    pub(crate) fn take_unwritten(&mut self) -> Vec<Line<'static>> {
        std::mem::take(&mut self.unwritten)
    }

    /// Returns whether many rows wait for the terminal.
    pub(crate) const fn is_behind(&self) -> bool {
        self.unwritten.len() > UNWRITTEN_ROWS
    }

    /// Records that the terminal has all rows.
    pub(crate) fn mark_written(&mut self) {
        self.written.extend(self.unwritten.drain(..));
        let surplus = self.written.len().saturating_sub(KEPT_ROWS);
        self.written.drain(..surplus);
        self.first += surplus;
    }

    /// Drops all but the last rows of a history that nobody has seen yet, if there are twice as many; returns whether it
    /// did.
    pub(crate) fn keep_last(&mut self, count: usize) -> bool {
        if self.unwritten.len() < 2 * count {
            return false;
        }
        self.unwritten.drain(..self.unwritten.len() - count);
        true
    }

    /// Adds a row before those that the terminal does not have.
    pub(crate) fn insert_before_unwritten(&mut self, row: Line<'static>) {
        self.unwritten.insert(0, row);
    }

    /// Returns the number of the first kept row.
    pub(crate) const fn first(&self) -> usize {
        self.first
    }

    /// Returns the number after that of the last row.
    pub(crate) fn end(&self) -> usize {
        self.first + self.written.len() + self.unwritten.len()
    }

    /// Returns a row by its number.
    pub(crate) fn get(&self, number: usize) -> Option<&Line<'static>> {
        let at = number.checked_sub(self.first)?;
        match at.checked_sub(self.written.len()) {
            Some(at) => self.unwritten.get(at),
            None => self.written.get(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_number_until_it_is_dropped() {
        let mut log = RowLog::default();
        let text = |log: &RowLog, number| log.get(number).map(ToString::to_string);
        for number in 0..KEPT_ROWS + 2 {
            log.push(Line::from(number.to_string()));
        }
        assert_eq!((log.first(), log.end(), log.unwritten().len()), (0, KEPT_ROWS + 2, KEPT_ROWS + 2));
        log.mark_written();
        log.push(Line::from("next"));
        assert_eq!((log.first(), log.end(), log.unwritten().len()), (2, KEPT_ROWS + 3, 1));
        assert_eq!((text(&log, 1), text(&log, 2)), (None, Some("2".to_owned())));
        assert_eq!(text(&log, KEPT_ROWS + 2).as_deref(), Some("next"));
        assert_eq!(text(&log, KEPT_ROWS + 3), None);
    }
}
