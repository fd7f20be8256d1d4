//! Text of the module `display` as styled lines.

use ratatui::style::Style as LineStyle;
use ratatui::text::{Line, Span};

use super::text::diff;
use super::text::theme::Theme;
use crate::display::approval_view::{DisplayLimits, bounded_question_diff, render};
use crate::display::sanitize::escape;
use crate::display::style::{Palette, Style};
use crate::kernel::event::{Diff, GateQuestion};

/// Returns the style of a meaning.
pub(crate) const fn style(theme: &Theme, style: Style) -> LineStyle {
    match style {
        Style::Strong => theme.strong,
        Style::Faint => theme.faint,
        Style::Good => theme.good,
        Style::Bad => theme.bad,
        Style::Attention => theme.attention,
    }
}

/// Converts painted text: its only escape sequences are those of the palette.
pub(crate) fn lines(text: &str, theme: &Theme) -> Vec<Line<'static>> {
    let mut current = LineStyle::new();
    let mut lines = Vec::new();
    for row in text.lines() {
        let mut spans = Vec::new();
        let mut parts = row.split("\x1b[");
        push(&mut spans, parts.next().unwrap_or_default(), current);
        for part in parts {
            let (code, rest) = part.split_once('m').unwrap_or(("", part));
            current = match code {
                "1" => theme.strong,
                "2" => theme.faint,
                "31" => theme.bad,
                "32" => theme.good,
                "33" => theme.attention,
                _ => LineStyle::new(),
            };
            push(&mut spans, rest, current);
        }
        lines.push(Line::from(spans));
    }
    lines
}

/// Returns what an approval asks for, with its diff.
pub(crate) fn question(question: &GateQuestion, theme: &Theme, extent: QuestionExtent) -> Vec<Line<'static>> {
    let (limits, longest) = match extent {
        QuestionExtent::Card => (DisplayLimits::CARD, Some(DIFF_LINES)),
        QuestionExtent::Screen => (DisplayLimits::WITHOUT_DIFF, Some(DIFF_LINES)),
        QuestionExtent::Whole => (DisplayLimits::UNLIMITED_WITHOUT_DIFF, None),
    };
    let mut rows = lines(&render(question, "", Palette::Colored, limits), theme);
    if let Some(diff) = bounded_question_diff(question) {
        // The first line says what is changed.
        let rest = rows.split_off(rows.len().min(1));
        rows.extend(diff_lines(&diff, theme, longest).into_iter().map(|mut row| {
            row.spans.insert(0, Span::styled("  │", theme.faint));
            row
        }));
        rows.extend(rest);
    }
    rows
}

/// How much of an approval is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionExtent {
    /// As much as fits on a screen, without the options that the card lists.
    Card,
    /// As much as fits on a screen.
    Screen,
    /// Everything.
    Whole,
}

/// How many lines of a diff are shown.
pub(crate) const DIFF_LINES: usize = 60;

/// Returns a diff, indented.
pub(crate) fn diff_lines(diff: &Diff, theme: &Theme, longest: Option<usize>) -> Vec<Line<'static>> {
    let mut rows = diff::render(&escape(&diff.text), theme, longest);
    if diff.truncated {
        rows.push(Line::styled("… the diff is truncated", theme.faint));
    }
    rows.iter_mut().for_each(|row| row.spans.insert(0, Span::raw("  ")));
    rows
}

fn push(spans: &mut Vec<Span<'static>>, text: &str, style: LineStyle) {
    if !text.is_empty() {
        spans.push(Span::styled(text.replace('\t', "    "), style));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn painted_text_keeps_its_styles() {
        let theme = Theme::dark();
        let text = format!("a {}\nb", Palette::Colored.paint(Style::Bad, "bad"));
        let lines = lines(&text, &theme);
        assert_eq!(lines[0].spans, [Span::raw("a "), Span::styled("bad", theme.bad)]);
        assert_eq!(lines[1].spans, [Span::raw("b")]);
    }
}
