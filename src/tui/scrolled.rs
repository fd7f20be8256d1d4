//! The scrolled view: the finished rows of the session on the whole screen, with a search.
//!
//! Pure. It shows what the scrollback of the terminal has, as far back as rows are kept. What is being written, the queue
//! and an approval wait until it is closed.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::{Line, Span};

use super::editor::{Editor, label_none};
use super::keys::{edit, global};
use super::model::{Effect, Model};
use super::row_log::RowLog;
use super::search::{Search, highlight};
use super::status::{join, warnings};
use super::text::wrap::{display_width, wrap_exact};
use super::writer::Frame;
use crate::display::sanitize::sanitize_line;

/// The last part of the status row, and that of a narrow terminal.
const KEYS_HINT: &str = " · / search · q back";
const SHORT_HINT: &str = " · q back";
/// The width below which a terminal is narrow.
const NARROW: u16 = 60;

/// What the scrolled view shows.
#[derive(Debug, Default)]
pub(crate) struct ScrolledView {
    /// The number of the first shown row; none follows the end.
    top: Option<usize>,
    /// The text to search for, while it is typed.
    entry: Option<Editor>,
    search: Option<Search>,
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Stay,
    Close,
}

/// Opens the view one page above the end.
pub(crate) fn open(model: &mut Model) {
    // The card is not visible until the view is closed.
    model.card.iter_mut().for_each(super::card::Card::mark_hidden);
    let mut view = ScrolledView::default();
    view.key(KeyEvent::from(KeyCode::PageUp), &Content::of(model));
    model.scrolled = Some(view);
}

/// Handles a key while the view is shown.
pub(crate) fn press(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let Some(mut view) = model.scrolled.take() else { return Vec::new() };
    if key.modifiers == KeyModifiers::CONTROL && view.entry.is_none() {
        // A session or a command is chosen in the live view.
        let closes = matches!(key.code, KeyCode::Char('n' | 'p'));
        model.scrolled = (!closes).then_some(view);
        return global(model, key).unwrap_or_default();
    }
    let action = view.key(key, &Content::of(model));
    model.scrolled = (action == Action::Stay).then_some(view);
    Vec::new()
}

/// Inserts a pasted text into the search that is typed; returns whether there is one.
pub(crate) fn paste(model: &mut Model, text: &str) -> bool {
    let entry = model.scrolled.as_mut().and_then(|view| view.entry.as_mut());
    let is_typed = entry.is_some();
    if let Some(entry) = entry {
        entry.insert(&sanitize_line(text));
    }
    is_typed
}

/// Searches the rows that were added.
pub(crate) fn search_new_rows(model: &mut Model) {
    let search = model.scrolled.as_mut().and_then(|view| view.search.as_mut());
    search.into_iter().for_each(|search| search.extend(&model.transcript.rows));
}

/// Draws the view.
pub(crate) fn draw(model: &Model, view: &ScrolledView) -> Frame {
    let content = Content::of(model);
    let top = view.top(&content);
    let mut rows = Vec::new();
    let mut number = top;
    while let Some(row) = content.get(number).filter(|_| rows.len() < content.height) {
        let marked = view.search.as_ref().map(|search| highlight(row, &search.matches(row), search.style(number)));
        rows.extend(wrap_exact(marked.as_ref().unwrap_or(row), content.width));
        number += 1;
    }
    rows.truncate(content.height);
    rows.resize(content.height, Line::default());
    let mut cursor = None;
    rows.push(match &view.entry {
        Some(entry) => {
            let layout = entry.layout(u16::MAX, label_none);
            let column = u16::try_from(layout.column).unwrap_or(u16::MAX).saturating_add(1);
            cursor = Some((content.height, column));
            Line::from(format!("/{}", entry.text()))
        }
        None => status(model, view, top + 1..number, &content),
    });
    Frame { rows, cursor, is_typing: true }
}

/// Returns the status row: a message for the user, or what waits and which rows are shown.
fn status(model: &Model, view: &ScrolledView, shown: std::ops::Range<usize>, content: &Content<'_>) -> Line<'static> {
    let theme = &model.theme;
    if let Some((hint, _)) = &model.hint {
        return Line::from(Span::styled(hint.clone(), theme.attention));
    }
    let mut parts = Vec::new();
    if model.card.is_some() {
        parts.push(Span::styled("! approval wanted: q shows it", theme.attention));
    }
    parts.extend(warnings(model));
    if let Some(search) = &view.search {
        parts.push(Span::raw(search.words()));
        parts.push(Span::styled("n next, N previous", theme.faint));
    }
    let (from, to, all) = (shown.start - content.log.first(), shown.end - content.log.first(), content.count());
    let place = if view.top.is_none() { "the end" } else { "scrolled" };
    parts.push(Span::styled(format!("{place}: rows {from}-{to} of {all}"), theme.faint));
    parts.extend(model.run.as_ref().map(|run| Span::styled(run.words(model.now), theme.faint)));
    let hint = if content.width < NARROW { SHORT_HINT } else { KEYS_HINT };
    let mut line = join(parts, usize::from(content.width).saturating_sub(display_width(hint)), model);
    line.spans.push(Span::styled(hint, theme.faint));
    line
}

impl ScrolledView {
    fn key(&mut self, key: KeyEvent, content: &Content<'_>) -> Action {
        if self.entry.is_some() {
            self.entry_key(key, content);
            return Action::Stay;
        }
        let (top, page) = (self.top(content), content.height.saturating_sub(1).max(1));
        match key.code {
            KeyCode::Esc | KeyCode::Char('q') => return Action::Close,
            KeyCode::Down | KeyCode::PageDown | KeyCode::Enter | KeyCode::Char('j' | ' ') if self.top.is_none() => {
                return Action::Close;
            }
            KeyCode::Up | KeyCode::Char('k') => self.scroll_to(top.saturating_sub(1), content),
            KeyCode::Down | KeyCode::Enter | KeyCode::Char('j') => self.scroll_to(top + 1, content),
            KeyCode::PageUp | KeyCode::Char('b') => self.scroll_to(content.top_above(top, page), content),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll_to(content.top_below(top, page), content),
            KeyCode::Home | KeyCode::Char('g') => self.scroll_to(content.log.first(), content),
            KeyCode::End | KeyCode::Char('G') => self.top = None,
            KeyCode::Char('/') => self.entry = Some(Editor::default()),
            KeyCode::Char('n') => self.show_match(content, Search::next),
            KeyCode::Char('N') => self.show_match(content, Search::previous),
            _ => {}
        }
        Action::Stay
    }

    /// Handles a key while the text to search for is typed.
    fn entry_key(&mut self, key: KeyEvent, content: &Content<'_>) {
        let Some(entry) = &mut self.entry else { return };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Esc => self.entry = None,
            KeyCode::Char('c') if is_control => self.entry = None,
            KeyCode::Backspace if entry.is_empty() => self.entry = None,
            KeyCode::Enter => {
                let text = entry.take();
                self.entry = None;
                let bottom = content.top_below(self.top(content), content.height);
                self.search = (!text.is_empty()).then(|| Search::new(&text, content.log));
                self.show_match(content, |search| search.nearest_above(bottom));
            }
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                entry.insert(c.encode_utf8(&mut [0; 4]));
            }
            _ => drop(edit(entry, key)),
        }
    }

    /// Scrolls to a match, unless it is visible.
    fn show_match(&mut self, content: &Content<'_>, find: impl FnOnce(&mut Search) -> Option<usize>) {
        let Some(row) = self.search.as_mut().and_then(find) else { return };
        let top = self.top(content);
        if !(top..content.top_below(top, content.height)).contains(&row) {
            self.scroll_to(content.top_above(row, content.height / 3), content);
        }
    }

    /// Shows the rows from `top` on; follows the end if that is all of them.
    fn scroll_to(&mut self, top: usize, content: &Content<'_>) {
        self.top = (top < content.last_top()).then_some(top);
    }

    fn top(&self, content: &Content<'_>) -> usize {
        self.top.unwrap_or_else(|| content.last_top()).max(content.log.first())
    }
}

/// The rows that can be shown: finished ones, and those that still change.
struct Content<'a> {
    log: &'a RowLog,
    tail: Vec<Line<'static>>,
    width: u16,
    height: usize,
}

impl<'a> Content<'a> {
    fn of(model: &'a Model) -> Self {
        let height = usize::from(model.size.1.max(2)) - 1;
        Self {
            log: &model.transcript.rows,
            tail: model.transcript.tail(height),
            width: model.size.0.saturating_sub(1).max(1),
            height,
        }
    }

    fn get(&self, number: usize) -> Option<&Line<'static>> {
        self.log.get(number).or_else(|| self.tail.get(number.checked_sub(self.log.end())?))
    }

    fn end(&self) -> usize {
        self.log.end() + self.tail.len()
    }

    fn count(&self) -> usize {
        self.end() - self.log.first()
    }

    /// Returns from which row on the rows up to the end fill the screen.
    fn last_top(&self) -> usize {
        self.top_above(self.end(), self.height)
    }

    /// Returns how many rows of the screen a row needs: it may be wider than the terminal is now.
    fn rows_of(&self, number: usize) -> usize {
        let row = self.get(number).filter(|row| row.width() > usize::from(self.width));
        row.map_or(1, |row| wrap_exact(row, self.width).len())
    }

    /// Returns from which row on the rows before `end` fill `height` rows; at least one is above.
    fn top_above(&self, end: usize, height: usize) -> usize {
        let (mut top, mut used) = (end, 0);
        while top > self.log.first() {
            used += self.rows_of(top - 1);
            if used > height && top < end {
                break;
            }
            top -= 1;
        }
        top
    }

    /// Returns the row after those that fill `height` rows from `top` on; at least one is passed.
    fn top_below(&self, top: usize, height: usize) -> usize {
        let (mut next, mut used) = (top, 0);
        while next < self.end() {
            used += self.rows_of(next);
            if used > height && next > top {
                break;
            }
            next += 1;
        }
        next
    }
}
