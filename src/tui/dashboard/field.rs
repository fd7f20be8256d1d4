//! A field of one line, with its label.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::{Line, Span};

use crate::tui::editor::{Editor, label_none};
use crate::tui::keys;
use crate::tui::text::theme::Theme;
use crate::tui::text::wrap::display_width;

/// A field that is being filled in.
#[derive(Debug, Default)]
pub(crate) struct Field {
    label: String,
    editor: Editor,
}

/// What a key in a field asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldAction {
    /// The text may have changed.
    Changed,
    /// Use the text.
    Submit,
    /// Close the field.
    Cancel,
    /// The key is not one of the field.
    Unused,
}

impl Field {
    /// Starts with a text.
    pub(crate) fn new(label: &str, text: &str) -> Self {
        Self { label: label.to_owned(), editor: Editor::with_text(text) }
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> FieldAction {
        if keys::edit(&mut self.editor, key) {
            return FieldAction::Changed;
        }
        match key.code {
            KeyCode::Enter => FieldAction::Submit,
            KeyCode::Esc => FieldAction::Cancel,
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                self.editor.insert(c.encode_utf8(&mut [0; 4]));
                FieldAction::Changed
            }
            _ => FieldAction::Unused,
        }
    }

    /// Inserts a pasted text; its line breaks become spaces.
    pub(crate) fn paste(&mut self, text: &str) {
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.editor.insert(line.trim_end());
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        self.editor.text()
    }

    /// Returns the row with the cursor, and the column of the cursor.
    pub(crate) fn row(&self, theme: &Theme, width: u16) -> (Line<'static>, u16) {
        let indent = u16::try_from(display_width(&self.label)).unwrap_or_default();
        let layout = self.editor.layout(width.saturating_sub(indent + 1), label_none);
        let text = layout.rows.into_iter().nth(layout.row).map(|(_, text)| text).unwrap_or_default();
        let column = indent + u16::try_from(layout.column).unwrap_or_default();
        (Line::from(vec![Span::styled(self.label.clone(), theme.strong), Span::raw(text)]), column)
    }
}
