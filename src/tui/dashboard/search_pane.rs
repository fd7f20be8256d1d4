//! The pane that searches the text of all sessions.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::text::{Line, Span};

use super::columns::first_shown;
use super::field::{Field, FieldAction};
use super::model::DashboardExit;
use super::pane::{Answer, Area, Drawn, Handled, Pane};
use super::shared::Shared;
use crate::client::{Request, SearchHit, SearchReply};
use crate::display::sanitize::sanitize_line;
use crate::display::session_words::age;

/// How many hits are asked for.
const HITS: u64 = 100;

/// The pane that searches.
#[derive(Debug)]
pub(crate) struct SearchPane {
    field: Field,
    /// The text that was searched for.
    searched: String,
    /// The search without an answer.
    request: Option<u64>,
    found: Option<SearchReply>,
    problem: Option<String>,
    selected: usize,
}

impl Default for SearchPane {
    fn default() -> Self {
        Self {
            field: Field::new("search: ", ""),
            searched: String::new(),
            request: None,
            found: None,
            problem: None,
            selected: 0,
        }
    }
}

impl SearchPane {
    fn hits(&self) -> &[SearchHit] {
        self.found.as_ref().map_or(&[], |found| &found.hits)
    }

    /// Searches, or opens the selected hit of a search that is complete.
    fn submit(&mut self, shared: &mut Shared) {
        let text = self.field.text().trim().to_owned();
        if text.is_empty() {
            return;
        }
        if text == self.searched && self.request.is_none() {
            if let Some(hit) = self.hits().get(self.selected) {
                shared.leave(DashboardExit::Open(hit.session_id.clone()));
            }
            return;
        }
        self.request = Some(shared.read(Request::search(&text).with("limit", HITS)));
        self.searched = text;
        (self.found, self.problem, self.selected) = (None, None, 0);
    }

    fn status(&self) -> String {
        if let Some(problem) = &self.problem {
            return format!("! {problem}");
        }
        let Some(found) = &self.found else {
            let is_searching = self.request.is_some();
            return if is_searching { "searching" } else { "every word must occur; Enter searches" }.to_owned();
        };
        let count = found.hits.len();
        let mut text = match count {
            0 => "nothing was found".to_owned(),
            1 => "1 hit; Enter opens its session".to_owned(),
            count => format!("{count} hits; Enter opens the session of the selected one"),
        };
        if !found.complete {
            text += &format!("; {} sessions are not indexed yet", found.missing_sessions);
        }
        text
    }

    fn rows(&self, height: usize, shared: &Shared) -> Vec<Line<'static>> {
        let hits = self.hits();
        let shown = height / 2;
        let first = first_shown(self.selected, hits.len(), shown);
        let rows = hits.iter().enumerate().skip(first).take(shown);
        rows.flat_map(|(at, hit)| hit_rows(hit, at == self.selected, shared)).collect()
    }
}

fn hit_rows(hit: &SearchHit, is_selected: bool, shared: &Shared) -> [Line<'static>; 2] {
    let theme = &shared.theme;
    let (mark, style) = if is_selected { ("› ", theme.strong) } else { ("  ", theme.context) };
    let handle = shared.sessions.find(&hit.session_id).map(|entry| entry.handle.clone());
    let handle = handle.unwrap_or_else(|| sanitize_line(&hit.session_id));
    let age = age(shared.now.saturating_sub(hit.ts));
    let place = sanitize_line(hit.name.as_deref().unwrap_or(&hit.cwd));
    let head = Line::from(vec![
        Span::styled(format!("{mark}{handle}"), style),
        Span::styled(format!("  {}  {age}  {place}", sanitize_line(&hit.kind)), theme.faint),
    ]);
    let mut excerpt = vec![Span::raw("    ")];
    // What matches is in brackets as well, because colours may be missing.
    excerpt.extend(hit.excerpt.iter().map(|segment| {
        let text = sanitize_segment(&segment.text);
        if segment.is_match { Span::styled(format!("[{text}]"), theme.attention) } else { Span::raw(text) }
    }));
    [head, Line::from(excerpt)]
}

/// Sanitizes a segment and keeps the spaces at its ends, which separate it from its neighbours.
fn sanitize_segment(text: &str) -> String {
    let framed = sanitize_line(&format!("|{text}|"));
    let inner = framed.strip_prefix('|').unwrap_or(&framed);
    inner.strip_suffix('|').unwrap_or(inner).to_owned()
}

impl Pane for SearchPane {
    fn title(&self) -> &'static str {
        "Search"
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("Enter", "search, then open the session of the selected hit"),
            ("Up, Down", "select a hit"),
            ("Esc", "back to the sessions"),
        ]
    }

    fn key(&mut self, key: KeyEvent, shared: &mut Shared) -> Handled {
        let last = self.hits().len().saturating_sub(1);
        match key.code {
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected = (self.selected + 1).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(shared.area().height / 2),
            KeyCode::PageDown => self.selected = (self.selected + shared.area().height / 2).min(last),
            _ => match self.field.key(key) {
                FieldAction::Submit => self.submit(shared),
                FieldAction::Changed => {}
                FieldAction::Cancel | FieldAction::Unused => return Handled::No,
            },
        }
        Handled::Yes
    }

    fn paste(&mut self, text: &str, _shared: &mut Shared) {
        self.field.paste(text);
    }

    fn answer(&mut self, answer: &Answer, _shared: &mut Shared) {
        if self.request.take_if(|number| *number == answer.number).is_none() {
            return;
        }
        match answer.read() {
            Ok(found) => self.found = Some(found),
            Err(error) => self.problem = Some(sanitize_line(&error.message)),
        }
    }

    fn draw(&self, area: Area, shared: &Shared) -> Drawn {
        let (field, column) = self.field.row(&shared.theme, area.width);
        let mut rows = vec![field, Line::from(Span::styled(self.status(), shared.theme.faint)), Line::default()];
        rows.extend(self.rows(area.height.saturating_sub(3), shared));
        Drawn { rows, cursor: Some((0, column)) }
    }
}
