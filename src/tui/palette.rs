//! The list of Ctrl-P: the sessions to switch to, and the commands.
//!
//! Pure. What is typed filters it.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::{Line, Span};

use super::commands::COMMANDS;
use super::text::theme::Theme;
use crate::client::SessionItem;
use crate::display::sanitize::sanitize_line;

/// How many entries are shown at once.
const SHOWN: usize = 8;
/// How many characters of a message name a session.
const TITLE_CHARS: usize = 50;

/// The list.
#[derive(Debug, Default)]
pub(crate) struct Palette {
    filter: String,
    /// Sessions by id, with a label.
    sessions: Vec<(String, String)>,
    selected: usize,
}

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PaletteEntry {
    /// A session.
    Session(String),
    /// A command.
    Command(&'static str),
}

/// What a key in the list asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PaletteAction {
    /// Nothing.
    None,
    /// Close the list.
    Close,
    /// Close the list and use an entry.
    Use(PaletteEntry),
}

impl Palette {
    /// Sets the sessions; the one that is shown is left out.
    pub(crate) fn set_sessions(&mut self, items: &[SessionItem], shown: &str) {
        let label = |item: &SessionItem| {
            let title = item.name.clone().or_else(|| item.last_user_message.clone()).unwrap_or_default();
            let title: String = sanitize_line(&title).chars().take(TITLE_CHARS).collect();
            format!("{title} · {} · {}", sanitize_line(item.state.as_str()), sanitize_line(&item.cwd))
        };
        let others = items.iter().filter(|item| item.session_id != shown);
        self.sessions = others.map(|item| (item.session_id.clone(), label(item))).collect();
    }

    /// Handles a key.
    pub(crate) fn key(&mut self, key: KeyEvent) -> PaletteAction {
        let entries = self.entries();
        match key.code {
            KeyCode::Esc => return PaletteAction::Close,
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected = (self.selected + 1).min(entries.len().saturating_sub(1)),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(SHOWN),
            KeyCode::PageDown => self.selected = (self.selected + SHOWN).min(entries.len().saturating_sub(1)),
            KeyCode::Enter => {
                let chosen = entries.into_iter().nth(self.selected);
                return chosen.map_or(PaletteAction::None, |(entry, _)| PaletteAction::Use(entry));
            }
            KeyCode::Backspace => {
                self.filter.pop();
                self.selected = 0;
            }
            KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => {
                self.filter.push(c);
                self.selected = 0;
            }
            _ => {}
        }
        PaletteAction::None
    }

    /// Returns the rows, and the column of the cursor in the first one.
    pub(crate) fn rows(&self, theme: &Theme) -> Vec<Line<'static>> {
        let entries = self.entries();
        let head = format!("sessions and commands: {}", sanitize_line(&self.filter));
        let mut rows = vec![Line::from(Span::styled(head, theme.strong))];
        let first = (self.selected + 1).saturating_sub(SHOWN);
        for (at, (_, label)) in entries.iter().enumerate().skip(first).take(SHOWN) {
            let (mark, style) = if at == self.selected { ("› ", theme.strong) } else { ("  ", theme.context) };
            rows.push(Line::from(Span::styled(format!("{mark}{label}"), style)));
        }
        let count = entries.len();
        let help = format!("  {count} found; Enter switches to the session or runs the command, Esc back");
        rows.push(Line::from(Span::styled(help, theme.faint)));
        rows
    }

    /// Returns the entries that contain what was typed.
    fn entries(&self) -> Vec<(PaletteEntry, String)> {
        let filter = self.filter.to_lowercase();
        let sessions = self.sessions.iter().map(|(id, label)| (PaletteEntry::Session(id.clone()), label.clone()));
        let commands =
            COMMANDS.iter().map(|(name, _, about)| (PaletteEntry::Command(name), format!("{name} · {about}")));
        sessions.chain(commands).filter(|(_, label)| label.to_lowercase().contains(&filter)).collect()
    }
}
