//! The state of the dashboard, its inputs and its effects.

use std::collections::BTreeSet;

use crossterm::event::KeyEvent;
use serde_json::value::RawValue;

use super::pane::{Answer, Pane, ReportKind};
use super::panes;
use super::shared::Shared;
use crate::client::{Event, Notice, Request, SessionSnapshot};
use crate::tui::client_task::CallError;
use crate::tui::clock::now;
use crate::tui::model::Millis;
use crate::tui::text::theme::Theme;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// A text was pasted.
    Paste(String),
    /// The terminal gained or lost the focus.
    Focus(bool),
    /// The terminal has another size.
    Resize(u16, u16),
    /// The answer to a request or a report.
    Answer(Answer),
    /// The repositories of directories.
    Repositories(Vec<(String, String)>),
    /// The events of a session follow.
    Preview(Box<PreviewStart>),
    /// An event of a session.
    Event {
        /// The event.
        event: Box<Event>,
        /// Whether it occurred before the session was followed.
        is_replay: bool,
    },
    /// A session cannot be followed.
    Unfollowed {
        /// The session.
        session: String,
        /// Why.
        error: CallError,
    },
    /// The connection changed.
    Notice(Notice),
    /// A signal that ends the program.
    Terminate,
    /// A signal that suspends.
    Suspend,
    /// Time has passed.
    Tick,
}

/// Something to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send a request.
    Send(u64, Request<Box<RawValue>>),
    /// Make a report.
    Report(u64, ReportKind),
    /// Follow these sessions.
    Watch(Watched),
    /// Find the repositories of directories.
    FindRepositories(Vec<String>),
    /// Leave the dashboard.
    Leave(DashboardExit),
    /// Suspend the process.
    Suspend,
    /// Notify the user, who looks elsewhere.
    Notify(String),
    /// Draw everything again.
    Redraw,
}

/// The sessions whose events are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// The one whose events are all shown, and the columns for them.
    pub(crate) preview: Option<(String, u16)>,
    /// Those whose state is followed.
    pub(crate) active: BTreeSet<String>,
    /// Another number than before: those that the daemon refused are tried again.
    pub(crate) attempt: u64,
}

/// The state of a session whose events follow.
#[derive(Debug)]
pub(crate) struct PreviewStart {
    /// The session.
    pub(crate) session: String,
    /// The columns for its events.
    pub(crate) width: u16,
    /// Its state.
    pub(crate) snapshot: SessionSnapshot,
    /// Events up to this seq are history.
    pub(crate) history_end: u64,
}

/// How the dashboard ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DashboardExit {
    /// The user left.
    Quit,
    /// A session is to be shown.
    Open(String),
    /// A session is to be started in a directory, and shown.
    Start(String),
    /// The terminal takes no output.
    Unwritable,
}

/// What is known when the dashboard starts.
#[derive(Debug, Clone)]
pub(crate) struct DashboardSetup {
    /// The styles.
    pub(crate) theme: Theme,
    /// Returns the handle of a session.
    pub(crate) handle: fn(&str) -> String,
    /// The directory for a first session.
    pub(crate) directory: String,
    /// Whether directories are those of this machine.
    pub(crate) is_local: bool,
}

/// The dashboard.
pub(crate) struct Dashboard {
    /// What the panes share.
    pub(crate) shared: Shared,
    /// The panes.
    pub(crate) panes: Vec<Box<dyn Pane>>,
    /// The visible one.
    pub(crate) active: usize,
    /// Whether the keys are shown.
    pub(crate) shows_keys: bool,
    /// The sessions that are followed.
    pub(crate) watched: Watched,
    /// The dashboard ends as soon as every change has an answer.
    pub(crate) leaving: Option<(DashboardExit, Millis)>,
}

impl Dashboard {
    /// Starts without sessions.
    pub(crate) fn new(setup: DashboardSetup) -> Self {
        Self {
            shared: Shared::new(setup),
            panes: panes::all(),
            active: panes::SESSIONS,
            shows_keys: false,
            watched: Watched::default(),
            leaving: None,
        }
    }

    /// Returns the texts that were written into fields and not sent.
    pub(crate) fn unsent_texts(&self) -> Vec<String> {
        self.panes.iter().flat_map(|pane| pane.unsent_texts()).collect()
    }

    /// Shows a message. Since the last input a session may have been shown for a long time.
    pub(crate) fn show_hint(&mut self, text: &str) {
        self.shared.now = now();
        self.shared.show_hint(text);
    }
}
