//! Computes what is written to the terminal: finished lines into the scrollback, and the region below them.
//!
//! Pure: it returns text. All movements are relative to the cursor, so that nothing depends on where the region is on
//! the screen.
//!
//! A terminal that gets another width wraps the rows of the region again, some time before the program hears of it. What
//! is drawn in between must not count rows. Therefore the cursor of the terminal rests at the start of the region, hidden,
//! and moves with it; the place of the next letter is drawn. Only while the user types it is where the letters appear, as
//! input methods need it; then the rows above it are counted as the terminal wraps them.

use std::fmt::Write;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;

use super::text::wrap::{display_width, truncate};

/// The region at the bottom, and where the cursor is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The rows from top to bottom.
    pub(crate) rows: Vec<Line<'static>>,
    /// Row and column of the next letter.
    pub(crate) cursor: Option<(usize, u16)>,
    /// Whether the cursor of the terminal is there; else it is drawn, and that of the terminal rests.
    pub(crate) is_typing: bool,
}

/// Remembers the region that is on the screen.
#[derive(Debug, Default)]
pub(crate) struct InlineWriter {
    rows: Vec<DrawnRow>,
    /// Where the cursor was left in the region.
    cursor: (usize, u16),
    cursor_shown: bool,
    width: u16,
}

/// A row of the region as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DrawnRow {
    /// With escape sequences.
    encoded: String,
    /// Without them.
    plain: String,
}

/// Starts a synchronized update: the terminal shows it as a whole.
pub(crate) const BEGIN_UPDATE: &str = "\x1b[?2026h\x1b[?25l";
pub(crate) const END_UPDATE: &str = "\x1b[?2026l";
pub(crate) const SHOW_CURSOR: &str = "\x1b[?25h";
const ERASE_BELOW: &str = "\x1b[J";
/// Rows of the region are cut and not wrapped, should the terminal be narrower than it says, or letters wider.
pub(crate) const WRAP_OFF: &str = "\x1b[?7l";
pub(crate) const WRAP_ON: &str = "\x1b[?7h";

impl InlineWriter {
    /// Returns the text that adds finished lines and shows the frame; empty if nothing changes.
    pub(crate) fn draw(&mut self, finished: &[Line<'_>], frame: &Frame, (width, height): (u16, u16)) -> String {
        let (rows, cursor) = fit(frame, width, height);
        let cursor = cursor.filter(|_| frame.is_typing);
        let place = cursor.unwrap_or_default();
        let is_same = rows == self.rows && width == self.width && cursor.is_some() == self.cursor_shown;
        if finished.is_empty() && is_same && place == self.cursor {
            return String::new();
        }
        let mut out = String::from(BEGIN_UPDATE);
        self.move_to_top(width, &mut out);
        // Whole rows, because a terminal remembers with each of them whether it continues in the next one.
        out.push_str(ERASE_BELOW);
        for line in finished {
            encode(line, &mut out);
            out.push_str("\r\n");
        }
        out.push_str(WRAP_OFF);
        let mut separator = "";
        for row in &rows {
            out.push_str(separator);
            out.push_str(&row.encoded);
            separator = "\r\n";
        }
        out.push_str(WRAP_ON);
        let (row, column) = place;
        out.push('\r');
        move_up(rows.len().saturating_sub(row + 1), &mut out);
        if column > 0 {
            let _ = write!(out, "\x1b[{column}C");
        }
        if cursor.is_some() {
            out.push_str(SHOW_CURSOR);
        }
        out.push_str(END_UPDATE);
        *self = Self { rows, cursor: place, cursor_shown: cursor.is_some(), width };
        out
    }

    /// Forgets the region, because something else was written to the terminal.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Moves to the first column of the first row, of which a narrower terminal may have made several.
    fn move_to_top(&self, width: u16, out: &mut String) {
        let (row, column) = self.cursor;
        let above: usize = self.rows.iter().take(row).map(|row| wrapped_rows(&row.plain, width)).sum();
        let before: String = match self.rows.get(row) {
            Some(drawn) => prefix(&drawn.plain, column),
            None => String::new(),
        };
        out.push('\r');
        move_up(above + wrapped_rows(&before, width) - 1, out);
    }
}

/// Returns the rows that fit the terminal: the last ones, each shortened; and the cursor in them.
fn fit(frame: &Frame, width: u16, height: u16) -> (Vec<DrawnRow>, Option<(usize, u16)>) {
    let skipped = frame.rows.len().saturating_sub(usize::from(height.max(1)));
    let widest = width.saturating_sub(1);
    let cursor = frame.cursor.and_then(|(row, column)| Some((row.checked_sub(skipped)?, column.min(widest))));
    let rows = frame.rows[skipped..]
        .iter()
        .enumerate()
        .map(|(at, line)| {
            let mut line = truncate(line, widest);
            if let Some((_, column)) = cursor.filter(|(row, _)| *row == at && !frame.is_typing) {
                line = with_cursor(&line, column);
            }
            let mut encoded = String::new();
            encode(&line, &mut encoded);
            DrawnRow { encoded, plain: line.spans.iter().map(|span| span.content.as_ref()).collect() }
        })
        .collect();
    (rows, cursor)
}

/// Returns a row with the letter at a column reversed, or a reversed space behind its end.
fn with_cursor(line: &Line<'_>, column: u16) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let (mut at, column) = (0, usize::from(column));
    for span in &line.spans {
        for grapheme in span.content.graphemes(true) {
            let columns = display_width(grapheme);
            let is_under = (at..at + columns).contains(&column);
            let style = if is_under { span.style.add_modifier(Modifier::REVERSED) } else { span.style };
            match spans.last_mut() {
                Some(last) if last.style == style => last.content.to_mut().push_str(grapheme),
                Some(_) | None => spans.push(Span::styled(grapheme.to_owned(), style)),
            }
            at += columns;
        }
    }
    if at <= column {
        spans.push(Span::raw(" ".repeat(column - at)));
        spans.push(Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)));
    }
    Line { style: line.style, alignment: line.alignment, spans }
}

/// Returns how many rows a text occupies that a terminal wraps.
fn wrapped_rows(text: &str, width: u16) -> usize {
    let width = usize::from(width.max(1));
    let (mut rows, mut column) = (1, 0);
    for grapheme in text.graphemes(true) {
        let columns = display_width(grapheme);
        if column + columns > width {
            rows += 1;
            column = 0;
        }
        column += columns;
    }
    rows
}

/// Returns the beginning of a text up to a column.
fn prefix(text: &str, column: u16) -> String {
    let mut left = usize::from(column);
    let fits = |grapheme: &&str| {
        let rest = left.checked_sub(display_width(grapheme));
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    text.graphemes(true).take_while(fits).collect()
}

fn move_up(rows: usize, out: &mut String) {
    if rows > 0 {
        let _ = write!(out, "\x1b[{rows}A");
    }
}

/// Appends a line with the escape sequences of its styles; the line itself has none.
pub(crate) fn encode(line: &Line<'_>, out: &mut String) {
    let mut is_styled = false;
    for span in &line.spans {
        let codes = sgr(line.style.patch(span.style));
        if is_styled {
            out.push_str("\x1b[0m");
        }
        is_styled = !codes.is_empty();
        if is_styled {
            let _ = write!(out, "\x1b[{codes}m");
        }
        // Whatever a line was made from, no control character of it reaches the terminal.
        out.extend(span.content.chars().filter(|c| !c.is_control()));
    }
    if is_styled {
        out.push_str("\x1b[0m");
    }
}

/// Returns the parameters of a style; empty for plain text.
fn sgr(style: Style) -> String {
    let modifiers = [
        (Modifier::BOLD, "1"),
        (Modifier::DIM, "2"),
        (Modifier::ITALIC, "3"),
        (Modifier::UNDERLINED, "4"),
        (Modifier::REVERSED, "7"),
        (Modifier::CROSSED_OUT, "9"),
    ];
    let mut codes: Vec<String> = modifiers
        .iter()
        .filter(|(modifier, _)| style.add_modifier.contains(*modifier))
        .map(|(_, code)| (*code).to_owned())
        .collect();
    codes.extend(style.fg.and_then(|color| color_code(color, 30)));
    codes.extend(style.bg.and_then(|color| color_code(color, 40)));
    codes.join(";")
}

fn color_code(color: Color, base: u8) -> Option<String> {
    let number = match color {
        Color::Reset => return None,
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 60,
        Color::LightRed => 61,
        Color::LightGreen => 62,
        Color::LightYellow => 63,
        Color::LightBlue => 64,
        Color::LightMagenta => 65,
        Color::LightCyan => 66,
        Color::White => 67,
        Color::Rgb(red, green, blue) => return Some(format!("{};2;{red};{green};{blue}", base + 8)),
        Color::Indexed(index) => return Some(format!("{};5;{index}", base + 8)),
    };
    Some((base + number).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(rows: &[&str]) -> Frame {
        let rows = rows.iter().map(|row| Line::from((*row).to_owned())).collect();
        Frame { rows, cursor: None, is_typing: false }
    }

    #[test]
    fn an_unchanged_frame_writes_nothing_and_the_cursor_rests_at_the_start_of_the_region() {
        let mut writer = InlineWriter::default();
        let text = writer.draw(&[], &frame(&["a", "b", "c"]), (20, 10));
        assert!(text.contains("a\r\nb\r\nc\x1b[?7h\r\x1b[2A\x1b[?2026l"), "{text:?}");
        assert_eq!(writer.draw(&[], &frame(&["a", "b", "c"]), (20, 10)), "");
        // No movement depends on the width that the terminal has meanwhile.
        let text = writer.draw(&[], &frame(&["a", "x", "c"]), (20, 10));
        assert!(text.starts_with("\x1b[?2026h\x1b[?25l\r\x1b[J\x1b[?7la\r\nx\r\n"), "{text:?}");
    }

    #[test]
    fn finished_lines_replace_the_region_and_the_region_follows_them() {
        let mut writer = InlineWriter::default();
        writer.draw(&[], &frame(&["a", "b"]), (20, 10));
        let text = writer.draw(&[Line::from("done")], &frame(&["a", "b"]), (20, 10));
        assert!(text.contains("\r\x1b[Jdone\r\n\x1b[?7la\r\nb\x1b[?7h"), "{text:?}");
    }

    #[test]
    fn a_narrower_terminal_has_wrapped_the_rows_above_the_cursor() {
        let mut writer = InlineWriter::default();
        let typed =
            Frame { cursor: Some((1, 12)), is_typing: true, ..frame(&["0123456789", "漢字漢字漢字漢字"]) };
        assert!(writer.draw(&[], &typed, (20, 10)).ends_with("\r\x1b[12C\x1b[?25h\x1b[?2026l"));
        // The first row needs two of seven columns; the cursor is in the second part of the next one, because a wide
        // character does not fit into the seventh column.
        let text = writer.draw(&[], &frame(&["a"]), (7, 10));
        assert!(text.starts_with("\x1b[?2026h\x1b[?25l\r\x1b[3A\x1b[J\x1b[?7la"), "{text:?}");
    }

    #[test]
    fn a_resting_cursor_is_drawn_where_the_next_letter_appears() {
        let shown = |column| {
            let mut text = String::new();
            encode(&with_cursor(&Line::from("a漢b"), column), &mut text);
            text
        };
        assert_eq!(shown(0), "\x1b[7ma\x1b[0m漢b");
        assert_eq!((shown(1), shown(2)), ("a\x1b[7m漢\x1b[0mb".to_owned(), "a\x1b[7m漢\x1b[0mb".to_owned()));
        assert_eq!(shown(4), "a漢b\x1b[7m \x1b[0m");
    }

    #[test]
    fn a_region_that_does_not_fit_shows_its_last_rows_and_shortens_them() {
        let mut writer = InlineWriter::default();
        let text = writer.draw(&[], &frame(&["first", "second", "third one"]), (6, 2));
        assert!(!text.contains("first") && text.contains("seco…\r\nthir…"), "{text:?}");
    }

    #[test]
    fn a_style_ends_with_its_text_and_control_characters_are_dropped() {
        let mut text = String::new();
        let line = Line::from(vec![
            Span::styled("a\x1b[2J", Style::new().fg(Color::Red)),
            Span::raw("b\u{9b}"),
            Span::raw("c"),
        ]);
        encode(&line, &mut text);
        assert_eq!(text, "\x1b[31ma[2J\x1b[0mbc");
    }
}
