//! Draws the dashboard. Pure: the state gives the rows of the screen.

use ratatui::text::{Line, Span};

use super::model::Dashboard;
use super::pane::Pane;
use super::panes;
use crate::tui::model::Connection;
use crate::tui::text::wrap::{display_width, wrap_line};
use crate::tui::writer::Frame;

/// The keys of every pane.
const KEYS: &[(&str, &str)] = &[
    ("Tab, Shift-Tab, 1-9", "another pane"),
    ("?, F1", "these keys"),
    ("Ctrl-L", "draw again"),
    ("Ctrl-Z", "suspend"),
    ("q, Ctrl-C, Ctrl-D", "leave; runs continue"),
];

/// Draws the screen.
pub(crate) fn draw(dashboard: &Dashboard) -> Frame {
    let area = dashboard.shared.area();
    let mut rows = vec![titles(dashboard)];
    let mut cursor = None;
    if dashboard.shows_keys {
        rows.extend(keys(dashboard).into_iter().take(area.height));
    } else if let Some(pane) = dashboard.panes.get(dashboard.active) {
        let drawn = pane.draw(area, &dashboard.shared);
        rows.extend(drawn.rows.into_iter().take(area.height));
        cursor = drawn.cursor.map(|(row, column)| (row + 1, column));
    }
    rows.resize(area.height + 1, Line::default());
    rows.push(status(dashboard, cursor.is_some()));
    Frame { rows, cursor, is_typing: true }
}

/// Returns the titles of the panes; in a narrow terminal only that of the visible one.
fn titles(dashboard: &Dashboard) -> Line<'static> {
    let theme = &dashboard.shared.theme;
    let spans = |is_short: bool| -> Vec<Span<'static>> {
        let title = |(at, pane): (usize, &dyn Pane)| {
            let is_active = at == dashboard.active;
            let count = pane.count(&dashboard.shared).map(|count| format!(" ({count})")).unwrap_or_default();
            let name = if is_short && !is_active { String::new() } else { format!(" {}", pane.title()) };
            let text = format!("{}{name}{count}", at + 1);
            let is_wanted = at == panes::APPROVALS && !dashboard.shared.approvals.all().is_empty();
            match (is_active, is_wanted) {
                (true, _) => Span::styled(format!("[{text}] "), theme.strong),
                (false, true) => Span::styled(format!("!{text} "), theme.attention),
                (false, false) => Span::styled(format!(" {text} "), theme.faint),
            }
        };
        dashboard.panes.iter().map(AsRef::as_ref).enumerate().map(title).collect()
    };
    let whole = spans(false);
    let width: usize = whole.iter().map(|span| display_width(&span.content)).sum();
    Line::from(if width <= usize::from(dashboard.shared.size.0) { whole } else { spans(true) })
}

/// Returns the last row; while text is being entered, letters are no keys.
fn status(dashboard: &Dashboard, is_entering: bool) -> Line<'static> {
    let (shared, theme) = (&dashboard.shared, &dashboard.shared.theme);
    let problem = match shared.connection {
        Connection::Connected => None,
        Connection::Reconnecting => Some("! reconnecting to pushd"),
        Connection::Stopped => Some("! pushd was stopped; `push daemon start` starts it"),
    };
    if let Some(problem) = problem {
        return Line::from(Span::styled(problem, theme.bad));
    }
    if dashboard.leaving.is_some() {
        return Line::from(Span::styled("leaving: waiting for pushd to confirm what was sent", theme.attention));
    }
    if let Some(hint) = shared.hint() {
        return Line::from(Span::styled(hint.to_owned(), theme.attention));
    }
    let mut text = if is_entering { "F1 keys · Ctrl-C quit" } else { "? keys · q quit" }.to_owned();
    let width = usize::from(shared.size.0);
    for (key, about) in dashboard.panes.get(dashboard.active).map_or(&[][..], |pane| pane.keys()) {
        let first = about.split([';', ',', ':']).next().unwrap_or_default();
        let part = format!(" · {key} {first}");
        if display_width(&text) + display_width(&part) > width {
            break;
        }
        text += &part;
    }
    Line::from(Span::styled(text, theme.faint))
}

fn keys(dashboard: &Dashboard) -> Vec<Line<'static>> {
    let theme = &dashboard.shared.theme;
    let row = |(key, about): &(&str, &str)| {
        Line::from(vec![
            Span::styled(format!("  {key:<20}"), theme.strong),
            Span::styled(format!(" {about}"), theme.faint),
        ])
    };
    let own = dashboard.panes.get(dashboard.active).map_or(&[][..], |pane| pane.keys());
    let mut rows = vec![Line::default()];
    rows.extend(own.iter().chain(KEYS).map(row).flat_map(|line| wrap_line(&line, dashboard.shared.size.0, "      ")));
    rows.push(Line::default());
    rows.push(Line::from(Span::styled("  any key goes back", theme.faint)));
    rows
}
