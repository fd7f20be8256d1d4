//! Draws the list of sessions: only the rows that are visible.

use ratatui::text::{Line, Span};

use super::columns::{cell, first_shown, path_end};
use super::pane::Area;
use super::session_list::{Entry, Row};
use super::shared::Shared;
use crate::client::SessionState;
use crate::display::sanitize::sanitize_line;
use crate::display::session_words::age;
use crate::kernel::command::Phase;
use crate::tui::text::theme::Theme;

/// From how many columns on the model and the cost are shown.
const WITH_MODEL: u16 = 58;
const HANDLE: usize = 7;
const STATE: usize = 10;
const AGE: usize = 5;
const MODEL: usize = 14;
const COST: usize = 9;

/// Draws the list.
pub(crate) fn draw(area: Area, shared: &Shared) -> Vec<Line<'static>> {
    let theme = &shared.theme;
    let list = &shared.sessions;
    let has_model = area.width >= WITH_MODEL;
    let fixed = 2 + HANDLE + STATE + AGE + if has_model { MODEL + COST + 2 } else { 0 };
    let title = usize::from(area.width).saturating_sub(fixed).max(4);
    let model = if has_model { format!(" {} {:>COST$}", cell("MODEL", MODEL), "COST") } else { String::new() };
    let head = format!(
        "  {}{}{}{}{model}",
        cell("SESSION", HANDLE + 1).trim_end_matches('…'),
        cell("STATE", STATE - 1),
        cell("AGE", AGE),
        cell("TITLE", title)
    );
    let mut rows = vec![Line::from(Span::styled(head, theme.faint))];
    let height = area.height.saturating_sub(1);
    let first = first_shown(list.position(), list.rows().len(), height);
    for (at, row) in list.rows().iter().enumerate().skip(first).take(height) {
        match row {
            Row::Repository { root, sessions, waiting } => {
                rows.push(repository(root, *sessions, *waiting, area.width, theme));
            }
            Row::Session(id) => {
                let Some(entry) = list.find(id) else { continue };
                let columns = Columns { title, has_model, is_selected: at == list.position() };
                rows.push(session(entry, &columns, shared));
            }
        }
    }
    rows
}

fn repository(root: &str, sessions: usize, waiting: usize, width: u16, theme: &Theme) -> Line<'static> {
    let plural = if sessions == 1 { "" } else { "s" };
    let mut words = format!(" · {sessions} session{plural}");
    if waiting > 0 {
        words += &format!(", {waiting} waiting");
    }
    let room = usize::from(width).saturating_sub(words.len() + 1).max(8);
    Line::from(vec![Span::styled(path_end(root, room), theme.heading), Span::styled(words, theme.faint)])
}

struct Columns {
    title: usize,
    has_model: bool,
    is_selected: bool,
}

fn session(entry: &Entry, columns: &Columns, shared: &Shared) -> Line<'static> {
    let theme = &shared.theme;
    let (word, style) = state(entry, shared);
    let mark = if columns.is_selected { "› " } else { "  " };
    let text = if columns.is_selected { theme.strong } else { theme.context };
    let age = age(shared.now.saturating_sub(entry.item.updated_at.unwrap_or_default()));
    let mut spans = vec![
        Span::styled(format!("{mark}{}", cell(&entry.handle, HANDLE)), text),
        Span::styled(cell(&word, STATE), style),
        Span::styled(cell(&age, AGE), theme.faint),
        Span::styled(cell(&entry.title, columns.title), text),
    ];
    if columns.has_model {
        let cost = shared.sessions.cost(&entry.item.session_id);
        spans.push(Span::styled(format!(" {} {cost:>COST$}", cell(&model(entry), MODEL)), theme.faint));
    }
    Line::from(spans)
}

/// Returns the model of a session, or its provider.
pub(crate) fn model(entry: &Entry) -> String {
    sanitize_line(entry.item.model.as_deref().unwrap_or(&entry.item.provider))
}

/// Returns the state of a session as a word, and its style.
pub(crate) fn state(entry: &Entry, shared: &Shared) -> (String, ratatui::style::Style) {
    let theme = &shared.theme;
    if shared.approvals.of_session(&entry.item.session_id).is_some() {
        return ("! waiting".to_owned(), theme.attention);
    }
    match &entry.item.state {
        SessionState::Known(Phase::Waiting) => ("! waiting".to_owned(), theme.attention),
        SessionState::Known(Phase::Running) => ("running".to_owned(), theme.good),
        _ if entry.item.ended => ("ended".to_owned(), theme.faint),
        SessionState::Known(Phase::Failed) => ("failed".to_owned(), theme.bad),
        SessionState::Known(Phase::Idle | Phase::Completed | Phase::Cancelled) | SessionState::Unknown(_) => {
            (sanitize_line(entry.item.state.as_str()), theme.faint)
        }
    }
}
