//! A pane with a report of the program: the settings, or the checks of `push doctor`.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the keys are an enum of another crate, and most of them do nothing"
)]

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::text::{Line, Span};

use super::pane::{Answer, Area, Drawn, Handled, Pane, ReportKind};
use super::shared::Shared;
use crate::display::sanitize::sanitize_line;
use crate::tui::painted;
use crate::tui::text::wrap::wrap_line;

/// A pane with a report.
#[derive(Debug)]
pub(crate) struct ReportPane {
    title: &'static str,
    kind: ReportKind,
    request: Option<u64>,
    lines: Option<Vec<Line<'static>>>,
    first: usize,
}

impl ReportPane {
    /// Starts without a report.
    pub(crate) const fn new(title: &'static str, kind: ReportKind) -> Self {
        Self { title, kind, request: None, lines: None, first: 0 }
    }

    fn rows(&self, width: u16) -> Vec<Line<'static>> {
        self.lines.iter().flatten().flat_map(|line| wrap_line(line, width, "    ")).collect()
    }

    fn scroll(&mut self, by: isize, shared: &Shared) {
        let area = shared.area();
        let last = self.rows(area.width).len().saturating_sub(area.height);
        self.first = self.first.saturating_add_signed(by).min(last);
    }

    fn load(&mut self, shared: &mut Shared) {
        if self.request.is_none() {
            self.request = Some(shared.report(self.kind));
        }
    }
}

impl Pane for ReportPane {
    fn title(&self) -> &'static str {
        self.title
    }

    fn keys(&self) -> &'static [(&'static str, &'static str)] {
        &[("r", "read again"), ("Up, Down", "scroll; PageUp, PageDown, Home, End too")]
    }

    fn show(&mut self, shared: &mut Shared) {
        if self.lines.is_none() {
            self.load(shared);
        }
    }

    fn key(&mut self, key: KeyEvent, shared: &mut Shared) -> Handled {
        let page = isize::try_from(shared.area().height.saturating_sub(1)).unwrap_or(10);
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1, shared),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1, shared),
            KeyCode::PageUp => self.scroll(-page, shared),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll(page, shared),
            KeyCode::Home => self.scroll(isize::MIN, shared),
            KeyCode::End => self.scroll(isize::MAX, shared),
            KeyCode::Char('r') => {
                self.lines = None;
                self.load(shared);
            }
            _ => return Handled::No,
        }
        Handled::Yes
    }

    fn answer(&mut self, answer: &Answer, shared: &mut Shared) {
        if self.request.take_if(|number| *number == answer.number).is_none() {
            return;
        }
        self.first = 0;
        self.lines = Some(match &answer.result {
            Ok(text) => painted::lines(text, &shared.theme),
            Err(error) => {
                let text = format!("! {}", sanitize_line(&error.message));
                vec![Line::from(Span::styled(text, shared.theme.bad))]
            }
        });
    }

    fn draw(&self, area: Area, shared: &Shared) -> Drawn {
        if self.lines.is_none() {
            let rows = vec![Line::from(Span::styled("reading", shared.theme.faint))];
            return Drawn { rows, cursor: None };
        }
        let rows = self.rows(area.width).into_iter().skip(self.first).take(area.height).collect();
        Drawn { rows, cursor: None }
    }
}
