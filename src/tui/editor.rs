//! A text editor for a few lines: the composer, and the fields of an approval card.
//!
//! Pure. The cursor is at a byte position between grapheme clusters.

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

use super::text::wrap::display_width;

/// A text with a cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Editor {
    text: String,
    cursor: usize,
    /// The column that vertical movements keep.
    column: Option<usize>,
    undo: Vec<(String, usize)>,
    redo: Vec<(String, usize)>,
    /// Whether the last change was a typed character: a word is undone at once.
    is_typing: bool,
    /// What was cut last.
    cut: String,
}

/// How the text is drawn: its rows, and the cursor in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EditorLayout {
    /// The rows, each with the byte position at which it starts.
    pub(crate) rows: Vec<(usize, String)>,
    /// The row of the cursor.
    pub(crate) row: usize,
    /// The column of the cursor.
    pub(crate) column: usize,
}

/// A movement of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Movement {
    /// One grapheme cluster to the left.
    Left,
    /// One grapheme cluster to the right.
    Right,
    /// One word to the left.
    WordLeft,
    /// One word to the right.
    WordRight,
    /// To the start of the line.
    LineStart,
    /// To the end of the line.
    LineEnd,
}

/// How many changes can be undone.
const UNDO_STEPS: usize = 200;

impl Editor {
    /// Starts with a text and the cursor at its end.
    pub(crate) fn with_text(text: &str) -> Self {
        Self { text: text.to_owned(), cursor: text.len(), ..Self::default() }
    }

    /// Inserts a text at the cursor.
    pub(crate) fn insert(&mut self, text: &str) {
        let is_word = text.chars().all(char::is_alphanumeric);
        if !(self.is_typing && is_word) {
            self.remember();
        }
        self.is_typing = is_word;
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        self.column = None;
    }

    /// Replaces a range of bytes; the cursor is after it.
    pub(crate) fn replace(&mut self, range: std::ops::Range<usize>, text: &str) {
        self.remember();
        self.cursor = range.start + text.len();
        self.text.replace_range(range, text);
    }

    /// Deletes from the cursor to where the movement leads, and keeps the text to insert it again.
    pub(crate) fn delete(&mut self, movement: Movement) {
        let target = self.target(movement);
        let (start, end) = (self.cursor.min(target), self.cursor.max(target));
        if start == end {
            return;
        }
        self.remember();
        let cut: String = self.text.drain(start..end).collect();
        if !matches!(movement, Movement::Left | Movement::Right) {
            self.cut = cut;
        }
        self.cursor = start;
    }

    /// Inserts what was cut last.
    pub(crate) fn paste_cut(&mut self) {
        let cut = self.cut.clone();
        self.insert(&cut);
        self.is_typing = false;
    }

    /// Moves the cursor.
    pub(crate) fn move_cursor(&mut self, movement: Movement) {
        self.cursor = self.target(movement);
        self.column = None;
        self.is_typing = false;
    }

    /// Moves the cursor one drawn row up or down; returns whether there is such a row.
    pub(crate) fn move_row(&mut self, down: bool, width: u16) -> bool {
        let layout = self.layout(width, label_none);
        let column = self.column.unwrap_or(layout.column);
        let target = if down { layout.row.checked_add(1) } else { layout.row.checked_sub(1) };
        let Some((start, text)) = target.and_then(|row| layout.rows.get(row)) else { return false };
        let mut left = column;
        let mut at = *start;
        for grapheme in text.graphemes(true) {
            let Some(rest) = left.checked_sub(display_width(grapheme).max(1)) else { break };
            left = rest;
            at += grapheme.len();
        }
        self.cursor = at.min(self.text.len());
        self.column = Some(column);
        self.is_typing = false;
        true
    }

    /// Undoes the last change.
    pub(crate) fn undo(&mut self) {
        if let Some(before) = self.undo.pop() {
            self.redo.push((std::mem::take(&mut self.text), self.cursor));
            (self.text, self.cursor) = before;
        }
        self.is_typing = false;
    }

    /// Redoes the last undone change.
    pub(crate) fn redo(&mut self) {
        if let Some(after) = self.redo.pop() {
            self.undo.push((std::mem::take(&mut self.text), self.cursor));
            (self.text, self.cursor) = after;
        }
    }

    /// Takes the text out.
    pub(crate) fn take(&mut self) -> String {
        let text = std::mem::take(&mut self.text);
        *self = Self { cut: std::mem::take(&mut self.cut), ..Self::default() };
        text
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the byte position of the cursor.
    pub(crate) const fn cursor(&self) -> usize {
        self.cursor
    }

    /// Returns whether there is no text.
    pub(crate) const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Divides the text into rows of at most `width` columns; `label` gives the text that is drawn for a character.
    pub(crate) fn layout(&self, width: u16, label: impl Fn(char) -> Option<String>) -> EditorLayout {
        let width = usize::from(width.max(2));
        let mut rows = vec![(0, String::new())];
        let (mut column, mut place) = (0, (0, 0));
        for (at, grapheme) in self.text.grapheme_indices(true) {
            if at == self.cursor {
                place = (rows.len() - 1, column);
            }
            if grapheme == "\n" || grapheme == "\r\n" {
                rows.push((at + grapheme.len(), String::new()));
                column = 0;
                continue;
            }
            let shown = match grapheme.chars().next().and_then(&label) {
                Some(label) => label,
                None if grapheme == "\t" => "    ".to_owned(),
                None => grapheme.to_owned(),
            };
            let columns = display_width(&shown);
            if column + columns > width && column > 0 {
                rows.push((at, String::new()));
                column = 0;
                if at == self.cursor {
                    place = (rows.len() - 1, 0);
                }
            }
            if let Some((_, row)) = rows.last_mut() {
                row.push_str(&shown);
            }
            column += columns;
        }
        if self.cursor == self.text.len() {
            place = (rows.len() - 1, column);
        }
        EditorLayout { rows, row: place.0, column: place.1 }
    }

    fn target(&self, movement: Movement) -> usize {
        let (before, after) = self.text.split_at(self.cursor);
        match movement {
            Movement::Left => boundary(&self.text, self.cursor, Movement::Left),
            Movement::Right => boundary(&self.text, self.cursor, Movement::Right),
            Movement::WordLeft => {
                let is_word = |(_, word): &(usize, &str)| word.chars().any(char::is_alphanumeric);
                before.split_word_bound_indices().rfind(is_word).map_or(0, |(at, _)| at)
            }
            Movement::WordRight => {
                let is_word = |(_, word): &(usize, &str)| word.chars().any(char::is_alphanumeric);
                let found = after.split_word_bound_indices().find(is_word);
                found.map_or(self.text.len(), |(at, word)| self.cursor + at + word.len())
            }
            Movement::LineStart => before.rfind('\n').map_or(0, |at| at + 1),
            Movement::LineEnd => after.find('\n').map_or(self.text.len(), |at| self.cursor + at),
        }
    }

    /// Keeps the present text for undo.
    fn remember(&mut self) {
        self.is_typing = false;
        self.redo.clear();
        self.column = None;
        if self.undo.len() == UNDO_STEPS {
            self.undo.remove(0);
        }
        self.undo.push((self.text.clone(), self.cursor));
    }
}

/// No character has a label.
pub(crate) const fn label_none(_: char) -> Option<String> {
    None
}

fn boundary(text: &str, at: usize, movement: Movement) -> usize {
    let mut cursor = GraphemeCursor::new(at, text.len(), true);
    let found = if movement == Movement::Left { cursor.prev_boundary(text, 0) } else { cursor.next_boundary(text, 0) };
    found.ok().flatten().unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_moves_by_whole_characters() {
        let mut editor = Editor::with_text("a👩‍👩‍👧e\u{301}");
        editor.move_cursor(Movement::Left);
        editor.move_cursor(Movement::Left);
        assert_eq!(editor.cursor(), 1);
        editor.delete(Movement::Right);
        assert_eq!(editor.text(), "ae\u{301}");
    }

    #[test]
    fn words_and_lines_are_cut_and_inserted_again() {
        let mut editor = Editor::with_text("one two\nthree four");
        editor.delete(Movement::WordLeft);
        assert_eq!(editor.text(), "one two\nthree ");
        editor.delete(Movement::LineStart);
        assert_eq!(editor.text(), "one two\n");
        editor.paste_cut();
        assert_eq!(editor.text(), "one two\nthree ");
        editor.undo();
        editor.undo();
        editor.undo();
        assert_eq!(editor.text(), "one two\nthree four");
        editor.redo();
        assert_eq!(editor.text(), "one two\nthree ");
    }

    #[test]
    fn rows_are_wrapped_by_columns_and_the_cursor_follows() {
        let mut editor = Editor::with_text("漢字漢字\nab");
        let layout = editor.layout(5, label_none);
        assert_eq!(layout.rows, [(0, "漢字".to_owned()), (6, "漢字".to_owned()), (13, "ab".to_owned())]);
        assert_eq!((layout.row, layout.column), (2, 2));
        assert!(editor.move_row(false, 5));
        assert_eq!(editor.cursor(), 9);
        assert!(editor.move_row(false, 5));
        assert!(!editor.move_row(false, 5));
        assert!(editor.move_row(true, 5));
    }

    #[test]
    fn typed_words_are_undone_at_once() {
        let mut editor = Editor::default();
        for letter in ["a", "b", " ", "c", "d"] {
            editor.insert(letter);
        }
        editor.undo();
        assert_eq!(editor.text(), "ab ");
        editor.undo();
        assert_eq!(editor.text(), "ab");
        editor.undo();
        assert_eq!(editor.text(), "");
    }
}
