//! The pane with the sessions: the list, a live preview of the selected one, and what can be done with it.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::{Line, Span};

use super::columns::{SEPARATOR, beside};
use super::field::{Field, FieldAction};
use super::model::{DashboardExit, PreviewStart};
use super::pane::{Answer, Area, Drawn, Handled, Pane};
use super::preview::Preview;
use super::session_rows;
use super::shared::Shared;
use crate::client::{Event, Request};
use crate::tui::model::Millis;
use crate::tui::text::wrap::display_width;

/// From how many columns on the preview is beside the list.
const SIDE_BY_SIDE: u16 = 100;
/// How many columns the list has at least beside the preview.
const LIST_COLUMNS: u16 = 60;
/// For how long a session is selected before its events are read, so that moving over many sessions reads none.
const PREVIEW_PAUSE: Millis = 80;

/// The pane with the sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionsPane {
    mode: Mode,
    filter: String,
    preview: Preview,
    /// Whether the preview takes the whole pane.
    is_preview_only: bool,
    /// The selected session, and since when.
    rested: Option<(String, Millis)>,
    /// Changes without an answer.
    changes: Vec<Change>,
}

/// A change without an answer.
#[derive(Debug)]
struct Change {
    /// The number of its request.
    number: u64,
    /// What to say about its success.
    words: String,
    /// The session that it deletes.
    deleted: Option<String>,
}

/// What the keys do.
#[derive(Debug, Default)]
enum Mode {
    /// They move the selection.
    #[default]
    List,
    /// They are written into a field.
    Write(Purpose, Field),
    /// They answer a question about a session.
    Confirm(Removal, String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Purpose {
    Filter,
    Start,
    Rename(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    End,
    Delete,
}

impl SessionsPane {
    fn list_key(&mut self, key: KeyEvent, shared: &mut Shared) -> Handled {
        let page = isize::try_from(shared.area().height.saturating_sub(2)).unwrap_or(10);
        let selected = shared.sessions.selected().map(|entry| entry.item.session_id.clone());
        match (key.code, selected) {
            (KeyCode::Up | KeyCode::Char('k'), _) => shared.sessions.move_selection(-1),
            (KeyCode::Down | KeyCode::Char('j'), _) => shared.sessions.move_selection(1),
            (KeyCode::PageUp, _) => shared.sessions.move_selection(-page),
            (KeyCode::PageDown, _) => shared.sessions.move_selection(page),
            (KeyCode::Home, _) => shared.sessions.move_selection(isize::MIN),
            (KeyCode::End, _) => shared.sessions.move_selection(isize::MAX),
            (KeyCode::Char(' '), _) => self.is_preview_only = !self.is_preview_only,
            (KeyCode::Char('/'), _) => self.write(Purpose::Filter, "filter: ", &self.filter.clone()),
            (KeyCode::Esc, _) if self.is_preview_only => self.is_preview_only = false,
            (KeyCode::Esc, _) if !self.filter.is_empty() => self.set_filter("", shared),
            (KeyCode::Char('n'), _) => self.write(Purpose::Start, "new session in: ", shared.directory()),
            (KeyCode::Enter, Some(session)) => shared.leave(DashboardExit::Open(session)),
            (KeyCode::Char('r'), Some(session)) => {
                let name = shared.sessions.find(&session).and_then(|entry| entry.item.name.clone()).unwrap_or_default();
                self.write(Purpose::Rename(session), "name: ", &name);
            }
            (KeyCode::Char('e'), Some(session)) => self.mode = Mode::Confirm(Removal::End, session),
            (KeyCode::Char('d'), Some(session)) => self.mode = Mode::Confirm(Removal::Delete, session),
            _ => return Handled::No,
        }
        Handled::Yes
    }

    fn write(&mut self, purpose: Purpose, label: &str, text: &str) {
        self.mode = Mode::Write(purpose, Field::new(label, text));
    }

    fn set_filter(&mut self, text: &str, shared: &mut Shared) {
        text.clone_into(&mut self.filter);
        shared.sessions.set_filter(text.trim());
    }

    fn submit(&mut self, purpose: Purpose, text: &str, shared: &mut Shared) {
        match purpose {
            Purpose::Filter => {}
            Purpose::Start if text.is_empty() => shared.show_hint("a session needs a directory"),
            Purpose::Start => shared.leave(DashboardExit::Start(text.to_owned())),
            Purpose::Rename(_) if text.is_empty() => shared.show_hint("a name is not empty"),
            Purpose::Rename(session) => {
                let number = shared.change(Request::rename_session(&session, text));
                self.changes.push(Change { number, words: format!("renamed to {text}"), deleted: None });
            }
        }
    }

    fn confirm(&mut self, removal: Removal, session: &str, shared: &mut Shared) {
        let (number, words, deleted) = match removal {
            Removal::End => (shared.change(Request::end_session(session)), "session ended", None),
            Removal::Delete => {
                let number = shared.change(Request::delete_session(session, false));
                (number, "session deleted", Some(session.to_owned()))
            }
        };
        self.changes.push(Change { number, words: words.to_owned(), deleted });
    }

    /// Returns the columns of the list and of the preview, as far as they are visible.
    const fn columns(&self, width: u16) -> (Option<u16>, Option<u16>) {
        if self.is_preview_only {
            return (None, Some(width));
        }
        if width < SIDE_BY_SIDE {
            return (Some(width), None);
        }
        let half = width / 100 * 55 + width % 100 * 55 / 100;
        let list = if half < LIST_COLUMNS { LIST_COLUMNS } else { half };
        (Some(list), Some(width - list - 3))
    }

    /// Returns the row below the list: a field, or a question.
    fn foot(&self, width: u16, shared: &Shared) -> Option<(Line<'static>, Option<u16>)> {
        match &self.mode {
            Mode::List if self.filter.is_empty() => None,
            Mode::List => {
                let text = format!("filter: {} (Esc removes it)", self.filter);
                Some((Line::from(Span::styled(text, shared.theme.attention)), None))
            }
            Mode::Write(_, field) => {
                let (row, column) = field.row(&shared.theme, width);
                Some((row, Some(column)))
            }
            Mode::Confirm(removal, session) => {
                let handle = shared.sessions.find(session).map_or("", |entry| entry.handle.as_str());
                let text = match removal {
                    Removal::End => format!("end {handle}: it accepts no more messages? y yes, n no"),
                    Removal::Delete => format!("delete {handle} with its history? y yes, n no"),
                };
                Some((Line::from(Span::styled(text, shared.theme.attention)), None))
            }
        }
    }

    fn list(&self, area: Area, shared: &Shared) -> Vec<Line<'static>> {
        if !shared.sessions.rows().is_empty() {
            return session_rows::draw(area, shared);
        }
        let text = match (shared.is_loaded, self.filter.is_empty()) {
            (false, _) => "reading the sessions",
            (true, true) => "no sessions: n starts one",
            (true, false) => "no session contains this text",
        };
        vec![Line::from(Span::styled(text, shared.theme.faint))]
    }
}

impl Pane for SessionsPane {
    fn title(&self) -> &'static str {
        "Sessions"
    }

    fn count(&self, shared: &Shared) -> Option<usize> {
        Some(shared.sessions.count())
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("Enter", "open the session; Ctrl-D there comes back"),
            ("/", "filter by name, message, directory, state or model"),
            ("n", "new session"),
            ("r", "rename"),
            ("e", "end: it accepts no more messages"),
            ("d", "delete with its history"),
            ("Space", "only the preview, or the list again"),
            ("Up, Down, j, k", "select; PageUp, PageDown, Home, End too"),
        ]
    }

    fn key(&mut self, key: KeyEvent, shared: &mut Shared) -> Handled {
        match std::mem::take(&mut self.mode) {
            Mode::List if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => Handled::No,
            Mode::List => self.list_key(key, shared),
            Mode::Write(purpose, mut field) => {
                // The selection can be moved while the filter is written.
                if purpose == Purpose::Filter && matches!(key.code, KeyCode::Up | KeyCode::Down) {
                    shared.sessions.move_selection(if key.code == KeyCode::Up { -1 } else { 1 });
                    self.mode = Mode::Write(purpose, field);
                    return Handled::Yes;
                }
                match field.key(key) {
                    FieldAction::Submit => self.submit(purpose, field.text().trim(), shared),
                    FieldAction::Cancel if purpose == Purpose::Filter => self.set_filter("", shared),
                    FieldAction::Cancel => {}
                    FieldAction::Changed | FieldAction::Unused => {
                        if purpose == Purpose::Filter {
                            self.set_filter(field.text(), shared);
                        }
                        self.mode = Mode::Write(purpose, field);
                    }
                }
                Handled::Yes
            }
            Mode::Confirm(removal, session) => {
                match key.code {
                    KeyCode::Char('y' | 'Y') => self.confirm(removal, &session, shared),
                    KeyCode::Char('n' | 'N') | KeyCode::Esc => {}
                    _ => self.mode = Mode::Confirm(removal, session),
                }
                Handled::Yes
            }
        }
    }

    fn discard_text(&mut self, shared: &mut Shared) -> bool {
        let is_filter = match &self.mode {
            Mode::Write(purpose, field) if !field.text().is_empty() => *purpose == Purpose::Filter,
            Mode::List | Mode::Write(..) | Mode::Confirm(..) => return false,
        };
        self.mode = Mode::List;
        if is_filter {
            self.set_filter("", shared);
        }
        true
    }

    fn paste(&mut self, text: &str, shared: &mut Shared) {
        let Mode::Write(purpose, field) = &mut self.mode else { return };
        field.paste(text);
        if *purpose == Purpose::Filter {
            let text = field.text().to_owned();
            self.set_filter(&text, shared);
        }
    }

    fn answer(&mut self, answer: &Answer, shared: &mut Shared) {
        let Some(at) = self.changes.iter().position(|change| change.number == answer.number) else { return };
        let change = self.changes.remove(at);
        match &answer.result {
            Ok(_) => {
                // The first page of the list does not say that an old session is gone.
                if let Some(session) = &change.deleted {
                    shared.sessions.remove(session);
                    shared.approvals.remove_session(session);
                }
                shared.show_hint(&change.words);
            }
            Err(error) => shared.show_error(error),
        }
        shared.refresh_soon();
    }

    fn refresh(&mut self, shared: &mut Shared) {
        let selected = shared.sessions.selected().map(|entry| entry.item.session_id.clone());
        if self.rested.as_ref().map(|(session, _)| session) != selected.as_ref() {
            self.rested = selected.map(|session| (session, shared.now));
        }
    }

    fn previewed(&self, shared: &Shared) -> Option<(String, u16)> {
        let width = self.columns(shared.size.0).1?;
        let (session, since) = self.rested.as_ref()?;
        (shared.now >= since + PREVIEW_PAUSE).then(|| (session.clone(), width))
    }

    fn start_preview(&mut self, start: &PreviewStart, shared: &Shared) {
        self.preview.start(start, shared);
    }

    fn event(&mut self, event: &Event, shared: &Shared) {
        self.preview.event(event, shared);
    }

    fn next_tick(&self, shared: &Shared) -> Option<Millis> {
        self.rested.as_ref().map(|(_, since)| since + PREVIEW_PAUSE).filter(|at| *at > shared.now)
    }

    fn draw(&self, area: Area, shared: &Shared) -> Drawn {
        let foot = self.foot(area.width, shared);
        let height = area.height.saturating_sub(usize::from(foot.is_some()));
        let mut rows = match self.columns(area.width) {
            (Some(list), Some(preview)) => {
                debug_assert_eq!(usize::from(area.width - list - preview), display_width(SEPARATOR));
                let left = self.list(Area { width: list, height }, shared);
                let right = self.preview.draw(Area { width: preview, height }, shared);
                beside(&left, list, &right, &shared.theme)
            }
            (Some(width), None) => self.list(Area { width, height }, shared),
            (None, width) => self.preview.draw(Area { width: width.unwrap_or(area.width), height }, shared),
        };
        rows.resize(height, Line::default());
        let cursor = foot.as_ref().and_then(|(_, column)| *column).map(|column| (height, column));
        rows.extend(foot.map(|(row, _)| row));
        Drawn { rows, cursor }
    }
}
