//! The end of a session's transcript, live.
//!
//! Pure. It is the state of the inline view without its prompt, and the last lines that the view would have written.

use std::collections::VecDeque;

use ratatui::text::{Line, Span};

use super::model::PreviewStart;
use super::pane::Area;
use super::session_rows;
use super::shared::Shared;
use crate::client::Event;
use crate::display::sanitize::{escape_line, sanitize_line};
use crate::display::session_words::age;
use crate::tui::model::{Model, Setup};
use crate::tui::session_events;
use crate::tui::status::activity_row;
use crate::tui::text::wrap::truncate;
use crate::tui::view::call_rows;

/// How many lines are kept.
const KEPT_LINES: usize = 400;

/// The preview of one session.
#[derive(Debug, Default)]
pub(crate) struct Preview {
    model: Option<Box<Model>>,
    lines: VecDeque<Line<'static>>,
}

impl Preview {
    /// Starts with the state of a session, whose events follow.
    pub(crate) fn start(&mut self, start: &PreviewStart, shared: &Shared) {
        let setup = Setup {
            theme: shared.theme,
            session: start.session.clone(),
            handle: String::new(),
            snapshot: start.snapshot.clone(),
            own_run: None,
            read_only: true,
            can_switch: false,
            history_end: start.history_end,
            size: (start.width, shared.size.1),
            full_output: start.snapshot.meta.provider == "playbook",
            now: shared.now,
            new_id: String::new,
        };
        self.model = Some(Box::new(Model::new(setup)));
        self.lines.clear();
    }

    /// Applies an event.
    pub(crate) fn event(&mut self, event: &Event, shared: &Shared) {
        let Some(model) = self.model.as_mut().filter(|model| model.session == event.session) else { return };
        model.now = shared.now;
        // Nothing is asked for by a view that only shows.
        drop(session_events::apply(model, event));
        self.lines.extend(model.transcript.rows.take_unwritten());
        let surplus = self.lines.len().saturating_sub(KEPT_LINES);
        self.lines.drain(..surplus);
    }

    /// Draws the selected session: what it is, and the end of its transcript.
    pub(crate) fn draw(&self, area: Area, shared: &Shared) -> Vec<Line<'static>> {
        let theme = &shared.theme;
        let Some(entry) = shared.sessions.selected() else { return Vec::new() };
        let model = self.model.as_ref().filter(|model| model.session == entry.item.session_id);
        let title = if entry.title.is_empty() { &entry.handle } else { &entry.title };
        let (state, style) = session_rows::state(entry, shared);
        let age = age(shared.now.saturating_sub(entry.item.updated_at.unwrap_or_default()));
        let mut facts = format!(" · {} · {age} · {}", session_rows::model(entry), sanitize_line(&entry.item.cwd));
        let cost = shared.sessions.cost(&entry.item.session_id);
        if !cost.is_empty() {
            facts = format!(" · {cost}{facts}");
        }
        let mut rows = vec![
            Line::from(Span::styled(title.clone(), theme.strong)),
            Line::from(vec![Span::styled(state, style), Span::styled(facts, theme.faint)]),
            Line::default(),
        ];
        let mut bottom = Vec::new();
        if let Some(pending) = shared.approvals.of_session(&entry.item.session_id) {
            let text = format!("! approval wanted: {} (2 shows it)", escape_line(&pending.question.title));
            bottom.push(Line::from(Span::styled(text, theme.attention)));
        }
        let Some(model) = model else {
            rows.push(Line::from(Span::styled("reading the session", theme.faint)));
            rows.extend(bottom);
            return fit(rows, area);
        };
        let mut below = call_rows(model);
        below.extend(activity_row(model));
        below.extend(bottom);
        let room = area.height.saturating_sub(rows.len());
        below.drain(..below.len().saturating_sub(room));
        let room = room - below.len();
        let tail = model.transcript.tail(room);
        let kept = room.saturating_sub(tail.len());
        rows.extend(self.lines.iter().skip(self.lines.len().saturating_sub(kept)).cloned());
        rows.extend(tail);
        rows.extend(below);
        fit(rows, area)
    }
}

fn fit(rows: Vec<Line<'static>>, area: Area) -> Vec<Line<'static>> {
    rows.iter().take(area.height).map(|row| truncate(row, area.width)).collect()
}
