//! Computes what is written to the two screens of the terminal. The dashboard and the scrolled view use the alternate
//! one.
//!
//! Pure: it returns text.

use std::fmt::Write;

use super::row_log::RowLog;
use super::text::wrap::truncate;
use super::writer::{BEGIN_UPDATE, END_UPDATE, Frame, InlineWriter, SHOW_CURSOR, WRAP_OFF, WRAP_ON, encode};

/// Shows the alternate screen, empty.
pub(crate) const ENTER_SCREEN: &str = "\x1b[?1049h\x1b[H\x1b[2J";
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
pub(crate) struct ScreenWriter {
    rows: Vec<String>,
    cursor: Option<(usize, u16)>,
    size: (u16, u16),
}

impl ScreenWriter {
    /// Returns the text that shows the frame; empty if nothing changes.
    pub(crate) fn draw(&mut self, frame: &Frame, (width, height): (u16, u16)) -> String {
        if self.size != (width, height) {
            self.forget();
        }
        let mut out = String::new();
        let mut rows = Vec::with_capacity(usize::from(height));
        for at in 0..usize::from(height) {
            let mut encoded = String::new();
            if let Some(row) = frame.rows.get(at) {
                encode(&truncate(row, width), &mut encoded);
            }
            if self.rows.get(at) != Some(&encoded) {
                // Erased first: behind the last column there is no place for the cursor.
                let _ = write!(out, "\x1b[{};1H\x1b[2K{encoded}", at + 1);
            }
            rows.push(encoded);
        }
        let is_same = out.is_empty() && frame.cursor == self.cursor;
        *self = Self { rows, cursor: frame.cursor, size: (width, height) };
        if is_same {
            return String::new();
        }
        let mut text = format!("{BEGIN_UPDATE}{WRAP_OFF}{out}{WRAP_ON}");
        if let Some((row, column)) = frame.cursor {
            let _ = write!(text, "\x1b[{};{}H{SHOW_CURSOR}", row + 1, column + 1);
        }
        text.push_str(END_UPDATE);
        text
    }

    /// Forgets the screen, because something else was written to the terminal.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use ratatui::text::Line;

    use super::*;

    fn frame(rows: &[&str], cursor: Option<(usize, u16)>) -> Frame {
        Frame { rows: rows.iter().map(|row| Line::from((*row).to_owned())).collect(), cursor, is_typing: true }
    }

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
    fn only_changed_rows_are_written_and_an_unchanged_screen_writes_nothing() {
        let mut writer = ScreenWriter::default();
        let first = writer.draw(&frame(&["a", "b"], None), (10, 3));
        assert!(first.contains("\x1b[1;1H\x1b[2Ka\x1b[2;1H\x1b[2Kb\x1b[3;1H\x1b[2K"), "{first:?}");
        assert_eq!(writer.draw(&frame(&["a", "b"], None), (10, 3)), "");
        let next = writer.draw(&frame(&["a", "c"], Some((1, 2))), (10, 3));
        assert!(next.contains("\x1b[?7l\x1b[2;1H\x1b[2Kc\x1b[?7h\x1b[2;3H\x1b[?25h"), "{next:?}");
        // A terminal of another size has moved what it shows.
        assert!(writer.draw(&frame(&["a", "c"], Some((1, 2))), (11, 3)).contains("2Ka\x1b"));
    }
}
