//! Computes what is written to the two screens of the terminal. Only the scrolled view uses the alternate one.

use std::fmt::Write;

use super::row_log::RowLog;
use super::writer::{BEGIN_UPDATE, END_UPDATE, Frame, InlineWriter, SHOW_CURSOR, WRAP_OFF, WRAP_ON, fit};

/// Shows the alternate screen, empty.
const ENTER_SCREEN: &str = "\x1b[?1049h\x1b[H\x1b[2J";
/// Shows the normal screen with its cursor. A terminal that has one screen alone is left empty.
pub(crate) const LEAVE_SCREEN: &str = "\x1b[H\x1b[2J\x1b[?1049l";

/// Remembers what is on the screens.
#[derive(Debug, Default)]
pub(crate) struct Screens {
    normal: InlineWriter,
    /// The alternate screen, while it is shown.
    alternate: Option<ScreenWriter>,
}

impl Screens {
    /// Returns the text that shows the region on the normal screen, or the scrolled view on the alternate one; rows go to
    /// the normal one.
    ///
    /// The region is removed before the alternate screen is shown, so that a new size meanwhile leaves nothing of it. Rows
    /// wait while that is shown, unless they are many.
    pub(crate) fn draw(
        &mut self,
        rows: &mut RowLog,
        (region, scrolled): (Option<Frame>, Option<Frame>),
        size: (u16, u16),
    ) -> String {
        let mut text = String::new();
        if (scrolled.is_none() || rows.is_behind()) && self.alternate.take().is_some() {
            text += LEAVE_SCREEN;
        }
        if self.alternate.is_none() {
            text += &self.normal.draw(rows.unwritten(), &region.unwrap_or_default(), size);
            rows.mark_written();
        }
        if let Some(frame) = scrolled {
            if self.alternate.is_none() {
                text += ENTER_SCREEN;
            }
            text += &self.alternate.get_or_insert_default().draw(&frame, size);
        }
        text
    }

    /// Returns whether the alternate screen is shown.
    pub(crate) const fn shows_alternate(&self) -> bool {
        self.alternate.is_some()
    }

    /// Forgets what is on the screen, because something else was written to the terminal.
    pub(crate) fn forget(&mut self) {
        self.normal.forget();
        self.alternate = self.alternate.take().map(|_| ScreenWriter::default());
    }
}

/// Remembers the rows that are on the alternate screen.
#[derive(Debug, Default)]
struct ScreenWriter {
    rows: Vec<String>,
    cursor: Option<(usize, u16)>,
    size: (u16, u16),
}

impl ScreenWriter {
    /// Returns the text that shows a frame of the whole screen; empty if nothing changes.
    fn draw(&mut self, frame: &Frame, size: (u16, u16)) -> String {
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
    fn rows_wait_for_the_normal_screen_unless_they_are_many() {
        let row = |text: &str| Line::from(text.to_owned());
        let frame = |text: &str| Frame { rows: vec![row(text)], cursor: None, is_typing: false };
        let (mut screens, mut rows, size) = (Screens::default(), RowLog::default(), (20, 2));
        rows.push(row("first"));
        let text = screens.draw(&mut rows, (Some(frame("region")), None), size);
        assert!(text.contains("first\r\n") && text.contains("region"), "{text:?}");
        rows.push(row("second"));
        let text = screens.draw(&mut rows, (None, Some(frame("scrolled"))), size);
        let (normal, alternate) = text.split_once(ENTER_SCREEN).unwrap();
        assert!(normal.contains("second") && !normal.contains("region") && alternate.contains("scrolled"), "{text:?}");
        rows.push(row("third"));
        assert_eq!(screens.draw(&mut rows, (None, Some(frame("scrolled"))), size), "");
        rows.extend((0..5000).map(|_| row("many")));
        let text = screens.draw(&mut rows, (None, Some(frame("scrolled"))), size);
        let (normal, alternate) = text.split_once(ENTER_SCREEN).unwrap();
        assert!(normal.starts_with(LEAVE_SCREEN) && normal.contains("third"), "{normal:?}");
        assert!(alternate.contains("scrolled") && screens.shows_alternate() && rows.unwritten().is_empty());
        rows.push(row("last"));
        let text = screens.draw(&mut rows, (Some(frame("region")), None), size);
        assert!(text.starts_with(LEAVE_SCREEN) && text.contains("last\r\n") && !screens.shows_alternate(), "{text:?}");
    }

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
