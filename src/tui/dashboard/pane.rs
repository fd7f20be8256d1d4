//! The panes of the dashboard: what each one provides.

use std::pin::Pin;

use crossterm::event::KeyEvent;
use ratatui::text::Line;
use serde::de::DeserializeOwned;

use super::model::PreviewStart;
use super::shared::Shared;
use crate::client::Event;
use crate::tui::client_task::CallError;
use crate::tui::model::Millis;

/// A pane. All methods are pure: what has to be done is collected in [`Shared`].
pub(crate) trait Pane: Send {
    /// Returns its title.
    fn title(&self) -> &'static str;

    /// Returns the number beside its title.
    fn count(&self, _shared: &Shared) -> Option<usize> {
        None
    }

    /// Returns its keys with descriptions, the most useful ones first.
    fn keys(&self) -> &'static [(&'static str, &'static str)];

    /// Is called when it becomes visible.
    fn show(&mut self, _shared: &mut Shared) {}

    /// Handles a key.
    fn key(&mut self, key: KeyEvent, shared: &mut Shared) -> Handled;

    /// Clears or leaves a field with text; returns whether there was one.
    fn discard_text(&mut self, _shared: &mut Shared) -> bool {
        false
    }

    /// Returns the texts that were written into fields and not sent.
    fn unsent_texts(&self) -> Vec<String> {
        Vec::new()
    }

    /// Handles a pasted text.
    fn paste(&mut self, _text: &str, _shared: &mut Shared) {}

    /// Applies the answer to a request or a report; those of other panes have other numbers.
    fn answer(&mut self, _answer: &Answer, _shared: &mut Shared) {}

    /// Adapts to changed sessions and approvals; called before every drawing and every key.
    fn refresh(&mut self, _shared: &mut Shared) {}

    /// Returns the session whose events it shows, and the columns that it has for them.
    fn previewed(&self, _shared: &Shared) -> Option<(String, u16)> {
        None
    }

    /// Starts to show the events of the session that it wants to show.
    fn start_preview(&mut self, _start: &PreviewStart, _shared: &Shared) {}

    /// Applies an event of the session that it shows.
    fn event(&mut self, _event: &Event, _shared: &Shared) {}

    /// Returns when it has to be drawn although nothing happens.
    fn next_tick(&self, _shared: &Shared) -> Option<Millis> {
        None
    }

    /// Returns what must have been on the screen for a moment before keys act on it.
    fn to_be_read(&self) -> Option<String> {
        None
    }

    /// Records that it is on the screen.
    fn mark_drawn(&mut self, _shown: &str, _now: Millis) {}

    /// Draws it.
    fn draw(&self, area: Area, shared: &Shared) -> Drawn;
}

/// Whether a key was one of the pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handled {
    /// It was.
    Yes,
    /// It may mean something to the dashboard.
    No,
}

/// The columns and rows of a pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Area {
    /// The columns.
    pub(crate) width: u16,
    /// The rows.
    pub(crate) height: usize,
}

/// The rows of a pane, and the cursor in them.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    /// The rows.
    pub(crate) rows: Vec<Line<'static>>,
    /// The cursor, if text is being entered.
    pub(crate) cursor: Option<(usize, u16)>,
}

/// The answer to a request or a report.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The number of the request.
    pub(crate) number: u64,
    /// The reply as JSON, or the text of a report.
    pub(crate) result: Result<String, CallError>,
}

impl Answer {
    /// Reads the reply as the type that its request expects.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        let text = self.result.as_ref().map_err(Clone::clone)?;
        let unreadable = |error: serde_json::Error| CallError { code: None, message: error.to_string() };
        serde_json::from_str(text).map_err(unreadable)
    }
}

/// A report that the program makes without a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportKind {
    /// The effective configuration.
    Settings,
    /// The checks of the installation.
    Doctor,
}

/// Makes a report: text whose only escape sequences are those of the palette, or why there is none.
pub(crate) type Reports =
    Box<dyn Fn(ReportKind) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send>> + Send>;
