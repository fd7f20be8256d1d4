//! The known sessions, and the rows in which they are listed: by repository, those that wait for a decision first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::client::{Event, SessionCost, SessionItem, SessionPage, SessionState};
use crate::display::sanitize::sanitize_line;
use crate::display::session_words::title;
use crate::display::usage::dollars;
use crate::kernel::command::Phase;
use crate::kernel::event::{EventKind, GateEvent, RunEvent, SessionEvent};

/// How many sessions are kept; `push sessions --all` lists more.
pub(crate) const MOST_SESSIONS: usize = 20_000;
/// How many active sessions are followed by their events.
const MOST_FOLLOWED: usize = 128;
/// How many characters of a message name a session.
const TITLE_CHARS: usize = 120;

/// A session in the list; its texts are sanitized.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its id.
    id: Arc<str>,
    /// What the daemon lists.
    pub(crate) item: SessionItem,
    /// Its handle.
    pub(crate) handle: String,
    /// Its name or, without one, its last message.
    pub(crate) title: String,
    /// What a filter is compared with.
    words: String,
}

/// A row of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Row {
    /// The sessions of a repository follow.
    Repository {
        /// Its root, sanitized.
        root: String,
        /// How many sessions follow.
        sessions: usize,
        /// How many of them wait for a decision.
        waiting: usize,
    },
    /// A session.
    Session(Arc<str>),
}

/// The known sessions.
#[derive(Debug)]
pub(crate) struct SessionList {
    handle: fn(&str) -> String,
    entries: BTreeMap<String, Entry>,
    /// What sessions have cost, in millionths of a US dollar, as far as that is known.
    costs: BTreeMap<String, u64>,
    /// The repositories of directories.
    roots: BTreeMap<String, String>,
    /// Directories whose repository is not asked for yet.
    unknown: BTreeSet<String>,
    filter: String,
    rows: Vec<Row>,
    selected: Option<String>,
    /// Where the selected one was.
    position: usize,
    is_stale: bool,
}

impl SessionList {
    /// Starts empty.
    pub(crate) const fn new(handle: fn(&str) -> String) -> Self {
        Self {
            handle,
            entries: BTreeMap::new(),
            costs: BTreeMap::new(),
            roots: BTreeMap::new(),
            unknown: BTreeSet::new(),
            filter: String::new(),
            rows: Vec::new(),
            selected: None,
            position: 0,
            is_stale: false,
        }
    }

    /// Adds a page of the daemon's list; returns whether its last row is news, so that further pages may have some.
    ///
    /// The first page has the newest sessions, so a known one that is newer than its last row no longer exists.
    pub(crate) fn merge(&mut self, page: &SessionPage, is_first: bool) -> bool {
        if is_first {
            let listed: BTreeSet<&str> = page.sessions.iter().map(|item| item.session_id.as_str()).collect();
            let oldest = page.sessions.last().and_then(|item| item.updated_at).filter(|_| page.next_cursor.is_some());
            let count = self.entries.len();
            self.entries.retain(|id, entry| entry.item.updated_at <= oldest || listed.contains(id.as_str()));
            self.is_stale |= self.entries.len() != count;
        }
        let mut is_news = false;
        for item in &page.sessions {
            let known = self.entries.get(&item.session_id);
            is_news = known.is_none_or(|known| known.item.updated_at != item.updated_at);
            if known.is_none_or(|known| known.item != *item) {
                self.insert(item.clone());
            }
        }
        is_news
    }

    /// Adds or replaces a session.
    fn insert(&mut self, item: SessionItem) {
        if listed_root(&item).is_none() && !self.roots.contains_key(&item.cwd) {
            self.unknown.insert(item.cwd.clone());
        }
        let title: String = sanitize_line(title(&item)).chars().take(TITLE_CHARS).collect();
        let handle = sanitize_line(&(self.handle)(&item.session_id));
        let model = item.model.as_deref().unwrap_or(&item.provider);
        let words = format!("{title} {handle} {} {} {model}", item.cwd, item.state.as_str()).to_lowercase();
        let id = Arc::from(item.session_id.as_str());
        self.entries.insert(item.session_id.clone(), Entry { id, item, handle, title, words });
        self.is_stale = true;
    }

    /// Removes a session.
    pub(crate) fn remove(&mut self, session: &str) {
        self.is_stale |= self.entries.remove(session).is_some();
    }

    /// Applies an event; returns whether the list of the daemon says more about the session.
    pub(crate) fn follow(&mut self, event: &Event) -> bool {
        let (Some(entry), Some(kind)) = (self.entries.get(&event.session), event.recorded()) else { return false };
        let mut item = entry.item.clone();
        let mut says_more = false;
        match kind {
            EventKind::Run(RunEvent::Started(message)) => {
                item.state = SessionState::Known(Phase::Running);
                item.last_user_message = Some(message.text.chars().take(TITLE_CHARS).collect());
            }
            EventKind::Run(RunEvent::Ended(_)) => says_more = true,
            EventKind::Gate(GateEvent::Opened(_)) => item.state = SessionState::Known(Phase::Waiting),
            EventKind::Gate(GateEvent::Settled(_)) => {
                item.state = SessionState::Known(Phase::Running);
                says_more = true;
            }
            EventKind::Session(SessionEvent::Renamed { name }) => item.name = Some(name.clone()),
            EventKind::Session(SessionEvent::Ended { .. }) => item.ended = true,
            EventKind::Session(_)
            | EventKind::Run(_)
            | EventKind::Gate(GateEvent::Voted { .. })
            | EventKind::Tool(_)
            | EventKind::Participant(_)
            | EventKind::Context(_)
            | EventKind::Notice(_) => return false,
        }
        self.insert(item);
        says_more
    }

    /// Sets what sessions have cost.
    pub(crate) fn set_costs(&mut self, costs: &[SessionCost]) {
        self.costs = costs.iter().map(|known| (known.session_id.clone(), known.cost_micro_usd)).collect();
    }

    /// Returns what a session has cost, in words; empty if that is not known.
    pub(crate) fn cost(&self, session: &str) -> String {
        self.costs.get(session).map(|cost| dollars(*cost)).unwrap_or_default()
    }

    /// Sets the repositories of directories.
    pub(crate) fn set_roots(&mut self, found: Vec<(String, String)>) {
        self.roots.extend(found);
        self.is_stale = true;
    }

    /// Takes the directories whose repository is unknown.
    pub(crate) fn take_unknown(&mut self) -> Vec<String> {
        std::mem::take(&mut self.unknown).into_iter().collect()
    }

    /// Lists only sessions that contain a text.
    pub(crate) fn set_filter(&mut self, text: &str) {
        self.filter = text.to_lowercase();
        self.is_stale = true;
    }

    /// Arranges the rows again, if something has changed.
    pub(crate) fn arrange(&mut self, waiting: &BTreeSet<String>) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let mut groups: BTreeMap<&str, Vec<(Rank, &Entry)>> = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| entry.words.contains(&self.filter)) {
            let found = || self.roots.get(&entry.item.cwd).unwrap_or(&entry.item.cwd);
            let root = listed_root(&entry.item).unwrap_or_else(found);
            groups.entry(root).or_default().push((rank(&entry.item, waiting), entry));
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        for (_, sessions) in &mut groups {
            sessions.sort_unstable_by(|one, other| {
                (one.0, &one.1.item.session_id).cmp(&(other.0, &other.1.item.session_id))
            });
        }
        // Groups at work keep their place; the others follow by their latest session.
        groups.sort_by_key(|(_, sessions)| {
            let first = sessions.first().map_or(Rank::default(), |(rank, _)| *rank);
            if first.0 < RESTING { (first.0, Reverse(0)) } else { (first.0, first.1) }
        });
        let mut rows = Vec::with_capacity(self.entries.len() + groups.len());
        for (root, sessions) in groups {
            let waiting = sessions.iter().filter(|(rank, _)| rank.0 == WAITING).count();
            rows.push(Row::Repository { root: sanitize_line(root), sessions: sessions.len(), waiting });
            rows.extend(sessions.into_iter().map(|(_, entry)| Row::Session(Arc::clone(&entry.id))));
        }
        self.rows = rows;
        self.keep_selection();
    }

    /// Finds the selected session again; without it, the one at its place is selected.
    fn keep_selection(&mut self) {
        let is_selected =
            |row: &Row| matches!((row, &self.selected), (Row::Session(id), Some(selected)) if **id == **selected);
        if let Some(at) = self.rows.iter().position(is_selected) {
            self.position = at;
            return;
        }
        let at = self.position.min(self.rows.len().saturating_sub(1));
        let is_session = |at: &usize| matches!(self.rows.get(*at), Some(Row::Session(_)));
        let next = (at..self.rows.len()).find(is_session).or_else(|| (0..at).rev().find(is_session));
        self.select(next);
    }

    fn select(&mut self, at: Option<usize>) {
        self.position = at.unwrap_or_default();
        self.selected = at.and_then(|at| self.rows.get(at)).and_then(|row| match row {
            Row::Session(id) => Some(id.to_string()),
            Row::Repository { .. } => None,
        });
    }

    /// Moves the selection by a number of rows.
    pub(crate) fn move_selection(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        let target = self.position.saturating_add_signed(by).min(last);
        let is_session = |at: &usize| matches!(self.rows.get(*at), Some(Row::Session(_)));
        let (down, up) = ((target..self.rows.len()).find(is_session), (0..=target).rev().find(is_session));
        let next = if by < 0 { up.or(down) } else { down.or(up) };
        if next.is_some() {
            self.select(next);
        }
    }

    /// Returns the rows.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the place of the selected row.
    pub(crate) const fn position(&self) -> usize {
        self.position
    }

    /// Returns the selected session.
    pub(crate) fn selected(&self) -> Option<&Entry> {
        self.entries.get(self.selected.as_ref()?)
    }

    /// Returns a session.
    pub(crate) fn find(&self, session: &str) -> Option<&Entry> {
        self.entries.get(session)
    }

    /// Returns how many sessions are known.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the sessions with an active run.
    pub(crate) fn active(&self) -> BTreeSet<String> {
        let is_active =
            |entry: &&Entry| matches!(entry.item.state, SessionState::Known(Phase::Running | Phase::Waiting));
        self.entries.values().filter(is_active).take(MOST_FOLLOWED).map(|entry| entry.item.session_id.clone()).collect()
    }

    /// Arranges the rows again although no session has changed.
    pub(crate) const fn mark_stale(&mut self) {
        self.is_stale = true;
    }
}

/// Returns the repository that the daemon lists for a session.
fn listed_root(item: &SessionItem) -> Option<&String> {
    item.repo.root_path.as_ref().filter(|root| !root.is_empty())
}

/// The place of a session in its repository.
type Rank = (u8, Reverse<u64>);

const WAITING: u8 = 0;
const RUNNING: u8 = 1;
const RESTING: u8 = 2;

/// Sessions at work are in the order of their start, so that they keep their place; the others by their last event.
fn rank(item: &SessionItem, waiting: &BTreeSet<String>) -> Rank {
    match item.state {
        SessionState::Known(Phase::Waiting) => (WAITING, Reverse(item.opened_at)),
        _ if waiting.contains(&item.session_id) => (WAITING, Reverse(item.opened_at)),
        SessionState::Known(Phase::Running) => (RUNNING, Reverse(item.opened_at)),
        SessionState::Known(Phase::Idle | Phase::Completed | Phase::Failed | Phase::Cancelled)
        | SessionState::Unknown(_) => (RESTING, Reverse(item.updated_at.unwrap_or_default())),
    }
}
