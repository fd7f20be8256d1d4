//! Computes what is written to the alternate screen, which only the scrolled view uses.

use std::fmt::Write;

use super::writer::{BEGIN_UPDATE, END_UPDATE, Frame, SHOW_CURSOR, WRAP_OFF, WRAP_ON, fit};

/// Shows the alternate screen, empty.
pub(crate) const ENTER_SCREEN: &str = "\x1b[?1049h\x1b[H\x1b[2J";
/// Shows the normal screen with its cursor. A terminal that has one screen alone is left empty.
pub(crate) const LEAVE_SCREEN: &str = "\x1b[H\x1b[2J\x1b[?1049l";

/// Remembers the rows that are on the screen.
#[derive(Debug, Default)]
pub(crate) struct ScreenWriter {
    rows: Vec<String>,
    cursor: Option<(usize, u16)>,
    size: (u16, u16),
}

impl ScreenWriter {
    /// Returns the text that shows a frame of the whole screen; empty if nothing changes.
    pub(crate) fn draw(&mut self, frame: &Frame, size: (u16, u16)) -> String {
        let (rows, cursor) = fit(frame, size.0, size.1);
        let rows: Vec<String> = rows.into_iter().map(|row| row.encoded).collect();
        if rows == self.rows && cursor == self.cursor && size == self.size {
            return String::new();
        }
        let mut out = format!("{BEGIN_UPDATE}{WRAP_OFF}");
        let is_resized = size != self.size;
        if is_resized {
            out.push_str("\x1b[H\x1b[2J");
        }
        for (at, row) in rows.iter().enumerate() {
            if is_resized || self.rows.get(at) != Some(row) {
                let _ = write!(out, "\x1b[{};1H{row}\x1b[K", at + 1);
            }
        }
        out.push_str(WRAP_ON);
        if let Some((row, column)) = cursor {
            let _ = write!(out, "\x1b[{};{}H{SHOW_CURSOR}", row + 1, column + 1);
        }
        out.push_str(END_UPDATE);
        *self = Self { rows, cursor, size };
        out
    }
}

#[cfg(test)]
mod tests {
    use ratatui::text::Line;

    use super::*;

    #[test]
    fn only_rows_that_differ_are_written_and_all_of_them_after_a_new_size() {
        let frame = |rows: &[&str]| Frame {
            rows: rows.iter().map(|row| Line::from((*row).to_owned())).collect(),
            cursor: None,
            is_typing: true,
        };
        let mut writer = ScreenWriter::default();
        let text = writer.draw(&frame(&["a", "b"]), (20, 2));
        assert!(text.contains("\x1b[1;1Ha\x1b[K\x1b[2;1Hb\x1b[K"), "{text:?}");
        assert_eq!(writer.draw(&frame(&["a", "b"]), (20, 2)), "");
        let text = writer.draw(&frame(&["a", "c"]), (20, 2));
        assert!(text.contains("\x1b[2;1Hc\x1b[K") && !text.contains("\x1b[1;1H"), "{text:?}");
        let text = writer.draw(&frame(&["a", "c"]), (30, 2));
        assert!(text.contains("\x1b[1;1Ha\x1b[K\x1b[2;1Hc\x1b[K"), "{text:?}");
        let typed = Frame { cursor: Some((1, 3)), ..frame(&["a", "/xy"]) };
        assert!(writer.draw(&typed, (30, 2)).ends_with("\x1b[2;4H\x1b[?25h\x1b[?2026l"));
    }
}
