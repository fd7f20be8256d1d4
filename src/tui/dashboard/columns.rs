//! Rows beside each other, lists that scroll, and texts of a fixed width.

use ratatui::text::{Line, Span};

use crate::tui::text::theme::Theme;
use crate::tui::text::wrap::{display_width, truncate};

/// The columns between two panes.
pub(crate) const SEPARATOR: &str = " │ ";

/// Joins the rows of two panes.
pub(crate) fn beside(left: &[Line<'static>], width: u16, right: &[Line<'static>], theme: &Theme) -> Vec<Line<'static>> {
    let count = left.len().max(right.len());
    let row = |at: usize| {
        let mut line = left.get(at).map(|line| truncate(line, width)).unwrap_or_default();
        let used: usize = line.spans.iter().map(|span| display_width(&span.content)).sum();
        line.spans.push(Span::raw(" ".repeat(usize::from(width).saturating_sub(used))));
        line.spans.push(Span::styled(SEPARATOR, theme.faint));
        line.spans.extend(right.get(at).cloned().unwrap_or_default().spans);
        line
    };
    (0..count).map(row).collect()
}

/// Returns the first of `count` entries to show so that the selected one is near the middle of `height` rows.
pub(crate) fn first_shown(selected: usize, count: usize, height: usize) -> usize {
    selected.saturating_sub(height / 2).min(count.saturating_sub(height))
}

/// Returns a text of exactly `width` columns; a cut one ends with `…`.
pub(crate) fn cell(text: &str, width: usize) -> String {
    let cut = truncate(&Line::from(text.to_owned()), u16::try_from(width).unwrap_or(u16::MAX));
    let mut text: String = cut.spans.iter().map(|span| span.content.as_ref()).collect();
    text.push_str(&" ".repeat(width.saturating_sub(display_width(&text))));
    text
}

/// Returns the end of a path that fits; a cut one begins with `…`.
pub(crate) fn path_end(path: &str, width: usize) -> String {
    if display_width(path) <= width {
        return path.to_owned();
    }
    let mut rest = path;
    while display_width(rest) + 1 > width {
        let mut chars = rest.chars();
        if chars.next().is_none() {
            break;
        }
        rest = chars.as_str();
    }
    format!("…{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_paths_have_their_width() {
        assert_eq!(
            (cell("ab", 4), cell("abcdef", 4), cell("漢字漢", 4)),
            ("ab  ".into(), "abc…".into(), "漢… ".into())
        );
        assert_eq!((path_end("/a/b", 9), path_end("/home/me/project", 9)), ("/a/b".into(), "…/project".into()));
        assert_eq!(path_end("/漢字漢字", 5), "…漢字");
    }

    #[test]
    fn the_selected_entry_is_always_shown() {
        for count in 0..30 {
            for selected in 0..count {
                let first = first_shown(selected, count, 7);
                assert!((first..first + 7).contains(&selected), "{selected} of {count} from {first}");
                assert!(count < 7 || first + 7 <= count);
            }
        }
    }
}
