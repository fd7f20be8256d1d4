//! What all panes share: the sessions, the approvals, the connection, and the requests.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::approval_list::ApprovalList;
use super::model::{DashboardExit, DashboardSetup, Effect};
use super::pane::{Answer, Area, ReportKind};
use super::session_list::{MOST_SESSIONS, SessionList};
use crate::client::{ApprovalsReply, Environment, Event, ListedApproval, Request, SessionPage, StatsReply};
use crate::display::sanitize::sanitize_line;
use crate::tui::client_task::CallError;
use crate::tui::model::{Connection, Millis};
use crate::tui::text::theme::Theme;

/// How many sessions the first page of a list has, and each further one.
const FIRST_PAGE: u64 = 200;
const NEXT_PAGE: u64 = 1000;
/// How often new sessions are looked for, which no event announces; and how often while the user looks elsewhere.
const REFRESH_INTERVAL: Millis = 2000;
const UNWATCHED_INTERVAL: Millis = 10_000;
/// How often the cost of all sessions is read.
const COSTS_INTERVAL: Millis = 30_000;
/// How soon it is read again after a run has ended.
const COSTS_PAUSE: Millis = 10_000;
/// How soon after an event the list is read.
const REFRESH_PAUSE: Millis = 150;
/// How long a message is shown.
const HINT_MILLIS: Millis = 5000;
/// The rows that belong to no pane: the titles and the status.
const OTHER_ROWS: u16 = 2;

/// What all panes share.
pub(crate) struct Shared {
    /// The styles.
    pub(crate) theme: Theme,
    /// The size of the terminal.
    pub(crate) size: (u16, u16),
    /// The present time.
    pub(crate) now: Millis,
    /// The sessions.
    pub(crate) sessions: SessionList,
    /// The pending approvals.
    pub(crate) approvals: ApprovalList,
    /// Whether the daemon is connected.
    pub(crate) connection: Connection,
    /// Whether the terminal has the focus, as far as it reports that.
    pub(crate) is_watched: bool,
    /// The environment for requests that may continue a run.
    pub(crate) environment: Option<Environment>,
    /// Whether directories are those of this machine.
    pub(crate) is_local: bool,
    /// Whether the list of sessions was read once.
    pub(crate) is_loaded: bool,
    /// How often sessions that the daemon refused were to be followed again.
    pub(crate) attempt: u64,
    directory: String,
    hint: Option<(String, Millis)>,
    effects: Vec<Effect>,
    next_number: u64,
    /// Requests and reports without an answer.
    unanswered: BTreeSet<u64>,
    /// Requests that change something and have no answer.
    changes: BTreeSet<u64>,
    refresh_at: Millis,
    /// The request for a page of the list, and whether it is the first one.
    page: Option<(u64, bool)>,
    /// Whether the list was read to its end once; if not, where its reading continues.
    is_complete: bool,
    unread: Option<String>,
    listing: Option<u64>,
    costs: Option<u64>,
    costs_at: Millis,
    /// When it was read last.
    costs_read: Millis,
}

impl Shared {
    /// Starts without sessions.
    pub(crate) fn new(setup: DashboardSetup) -> Self {
        Self {
            theme: setup.theme,
            size: (80, 24),
            now: 0,
            sessions: SessionList::new(setup.handle),
            approvals: ApprovalList::default(),
            connection: Connection::Connected,
            is_watched: true,
            environment: None,
            is_local: setup.is_local,
            is_loaded: false,
            attempt: 0,
            directory: setup.directory,
            hint: None,
            effects: Vec::new(),
            next_number: 1,
            unanswered: BTreeSet::new(),
            changes: BTreeSet::new(),
            refresh_at: 0,
            page: None,
            is_complete: false,
            unread: None,
            listing: None,
            costs: None,
            costs_at: 0,
            costs_read: 0,
        }
    }

    /// Starts with a new connection; returns the requests that the earlier one has not answered.
    pub(crate) fn restart(&mut self) -> BTreeSet<u64> {
        self.changes.clear();
        self.effects.clear();
        (self.page, self.listing, self.refresh_at) = (None, None, 0);
        (self.costs, self.costs_at) = (None, 0);
        self.connection = Connection::Connected;
        std::mem::take(&mut self.unanswered)
    }

    /// Returns the size of a pane.
    pub(crate) fn area(&self) -> Area {
        Area { width: self.size.0, height: usize::from(self.size.1.saturating_sub(OTHER_ROWS)) }
    }

    /// Returns the directory for a new session: that of the selected one.
    pub(crate) fn directory(&self) -> &str {
        self.sessions.selected().map_or(&self.directory, |entry| &entry.item.cwd)
    }

    /// Sends a request that only reads; returns its number.
    pub(crate) fn read<R: DeserializeOwned>(&mut self, request: Request<R>) -> u64 {
        let number = self.number();
        self.effects.push(Effect::Send(number, request.reading()));
        number
    }

    /// Sends a request that changes something: the dashboard does not end before its answer.
    pub(crate) fn change<R: DeserializeOwned>(&mut self, request: Request<R>) -> u64 {
        let number = self.read(request);
        self.changes.insert(number);
        number
    }

    /// Asks for a report; returns its number.
    pub(crate) fn report(&mut self, kind: ReportKind) -> u64 {
        let number = self.number();
        self.effects.push(Effect::Report(number, kind));
        number
    }

    /// Leaves the dashboard.
    pub(crate) fn leave(&mut self, exit: DashboardExit) {
        self.effects.push(Effect::Leave(exit));
    }

    /// Adds an effect.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Takes the effects.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns whether a change has no answer.
    pub(crate) fn awaits_change(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Shows a message for a few seconds.
    pub(crate) fn show_hint(&mut self, text: &str) {
        self.hint = Some((sanitize_line(text), self.now + HINT_MILLIS));
    }

    /// Shows why a request failed.
    pub(crate) fn show_error(&mut self, error: &CallError) {
        self.show_hint(&format!("error: {}", error.message));
    }

    /// Returns the message.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_ref().map(|(text, _)| text.as_str())
    }

    /// Reads the list soon, because something has changed.
    pub(crate) fn refresh_soon(&mut self) {
        self.refresh_at = self.refresh_at.min(self.now + REFRESH_PAUSE);
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self) {
        if self.hint.as_ref().is_some_and(|(_, until)| *until <= self.now) {
            self.hint = None;
        }
        if self.refresh_at > self.now || self.connection != Connection::Connected {
            return;
        }
        let interval = if self.is_watched { REFRESH_INTERVAL } else { UNWATCHED_INTERVAL };
        self.refresh_at = self.now + interval;
        if self.page.is_none() {
            self.page = Some((self.read(Request::list_sessions(FIRST_PAGE)), true));
        }
        if self.listing.is_none() {
            self.listing = Some(self.read(Request::list_approvals(None)));
        }
        if self.costs.is_none() && self.costs_at <= self.now && self.is_loaded {
            (self.costs_at, self.costs_read) = (self.now + COSTS_INTERVAL, self.now);
            self.costs = Some(self.read(Request::stats().with("bySession", true)));
        }
    }

    /// Returns when something is due.
    pub(crate) fn next_tick(&self) -> Option<Millis> {
        let refresh = (self.connection == Connection::Connected).then_some(self.refresh_at);
        let hint = self.hint.as_ref().map(|(_, until)| *until);
        refresh.into_iter().chain(hint).min()
    }

    /// Applies an answer.
    pub(crate) fn answer(&mut self, answer: &Answer) {
        self.unanswered.remove(&answer.number);
        self.changes.remove(&answer.number);
        if let Some((_, is_first)) = self.page.take_if(|(number, _)| *number == answer.number) {
            match answer.read::<SessionPage>() {
                Ok(page) => self.list_page(&page, is_first),
                Err(error) => {
                    // The daemon may not know the cursor any more.
                    self.unread.take_if(|_| !is_first && error.code.is_some());
                    self.show_error(&error);
                }
            }
        }
        if self.listing.take_if(|number| *number == answer.number).is_some() {
            match answer.read::<ApprovalsReply>() {
                Ok(reply) => self.list_approvals(&reply.approvals),
                Err(error) => self.show_error(&error),
            }
        }
        if self.costs.take_if(|number| *number == answer.number).is_some() {
            match answer.read::<StatsReply>() {
                Ok(reply) => self.sessions.set_costs(&reply.sessions),
                Err(error) => self.show_error(&error),
            }
        }
    }

    fn list_page(&mut self, page: &SessionPage, is_first: bool) {
        self.is_loaded = true;
        let is_news = self.sessions.merge(page, is_first);
        let next = page.next_cursor.clone().filter(|_| self.sessions.count() < MOST_SESSIONS);
        self.is_complete |= next.is_none();
        let cursor = if self.is_complete {
            self.unread = None;
            next.filter(|_| is_news)
        } else {
            // What was read before an interruption is not read again.
            let unread = self.unread.take().filter(|_| is_first && !is_news);
            self.unread = unread.or(next);
            self.unread.clone()
        };
        if let Some(cursor) = cursor {
            let request = Request::list_sessions(NEXT_PAGE).with("cursor", cursor);
            self.page = Some((self.read(request), false));
        }
    }

    fn list_approvals(&mut self, listed: &[ListedApproval]) {
        let before = self.approvals.sessions();
        let is_new = self.approvals.set(listed);
        self.approvals_changed(&before, is_new);
    }

    /// Applies an event of a followed session.
    pub(crate) fn event(&mut self, event: &Event) {
        let before = self.approvals.sessions();
        let is_new = self.approvals.follow(event);
        self.approvals_changed(&before, is_new);
        if self.sessions.follow(event) {
            self.refresh_soon();
        }
        if event.ends_run() {
            self.costs_at = self.costs_at.min(self.costs_read + COSTS_PAUSE);
        }
    }

    fn approvals_changed(&mut self, before: &BTreeSet<String>, is_new: bool) {
        if *before != self.approvals.sessions() {
            self.sessions.mark_stale();
        }
        if is_new && !self.is_watched {
            self.effects.push(Effect::Notify("push: approval wanted".to_owned()));
        }
    }

    fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.unanswered.insert(number);
        number
    }
}
