//! The sessions that the protocol's clients see, told from what the journal holds of each.
//!
//! Active are the sessions that clients of the protocol have created or loaded and not deleted, in memory or not. Sessions of
//! other protocols are seen as long as they are in memory. Listing loads nothing and attaches to nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::warn;

use super::bureau::Bureau;
use super::files;
use super::work::{shown_model, thinking_level};
use crate::journal::{Journal, ListQuery, Meta, ReadError};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::protocol::pi::encode::{self, SessionInfo};
use crate::protocol::pi::projection::Projection;
use crate::record;
use crate::record::summary::ListedSession;

/// The active sessions, and how many messages sessions had when somebody last counted them.
#[derive(Default)]
pub(super) struct SessionList {
    active: Mutex<BTreeSet<SessionId>>,
    counts: Mutex<BTreeMap<SessionId, (Now, u64)>>,
}

/// A session as a list shows it.
pub(super) struct SessionEntry {
    meta: Meta,
    listed: ListedSession,
}

impl SessionEntry {
    fn new(meta: Meta) -> Option<Self> {
        ListedSession::parse(&meta.summary).map(|listed| Self { meta, listed })
    }

    /// Tells whether clients see the session at all.
    pub(super) const fn is_loaded(&self) -> bool {
        !self.listed.ended && !self.listed.unloaded
    }

    /// Tells whether a client of the protocol has deleted it.
    pub(super) const fn is_unloaded(&self) -> bool {
        self.listed.unloaded
    }

    /// Tells whether a client of the protocol began it.
    pub(super) fn is_own(&self) -> bool {
        self.listed.protocol.as_deref() == Some(files::MODE)
    }
}

impl SessionList {
    /// Finds the active sessions.
    pub(super) async fn restore(journal: &Journal) -> Result<Self, ReadError> {
        let list = Self::default();
        let mut after = None;
        loop {
            let found = journal.list(ListQuery { limit: PAGE, after, prefix: None }).await?;
            after = found.last().map(|last| (last.updated_at, last.session.clone()));
            let whole = found.len() == PAGE;
            let active = found.into_iter().filter_map(SessionEntry::new);
            list.active()
                .extend(active.filter(|entry| entry.is_own() && entry.is_loaded()).map(|entry| entry.meta.session));
            if !whole {
                return Ok(list);
            }
        }
    }

    /// Takes a place for a session, unless `limit` others are active; one that is active has its place already.
    pub(super) fn take_place(&self, session: &SessionId, limit: usize) -> Option<Place<'_>> {
        let mut active = self.active();
        let is_new = !active.contains(session);
        if is_new && active.len() >= limit {
            return None;
        }
        active.insert(session.clone());
        Some(Place { list: self, session: is_new.then(|| session.clone()) })
    }

    /// Returns the active sessions.
    pub(super) fn ids(&self) -> BTreeSet<SessionId> {
        self.active().clone()
    }

    /// Takes a session out, and tells whether it was active.
    pub(super) fn remove(&self, session: &SessionId) -> bool {
        self.counts().remove(session);
        self.active().remove(session)
    }

    pub(super) fn contains(&self, session: &SessionId) -> bool {
        self.active().contains(session)
    }

    /// Returns how many sessions are active.
    pub(super) fn len(&self) -> usize {
        self.active().len()
    }

    fn active(&self) -> MutexGuard<'_, BTreeSet<SessionId>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<SessionId, (Now, u64)>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a session that is about to be active; given back when it is dropped before that.
pub(super) struct Place<'a> {
    list: &'a SessionList,
    /// None where it is not this one's to give back.
    session: Option<SessionId>,
}

impl Place<'_> {
    /// Leaves the place to the session, which is active now.
    pub(super) fn keep(mut self) {
        self.session = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.list.remove(session);
        }
    }
}

impl Bureau {
    /// Takes sessions out of the list that have ended or are deleted, and tells everybody that they are gone.
    ///
    /// For when changes of sessions were missed.
    pub(super) async fn forget_inactive(&self) -> Result<(), ReadError> {
        for session in self.sessions().ids() {
            // Whoever makes it active again meanwhile holds this.
            let _one_at_a_time = self.seats().turn(&session).await;
            let is_unloaded = match self.entry(&session).await? {
                Some(entry) if entry.is_loaded() => continue,
                Some(entry) => entry.is_unloaded(),
                // It may be about to be stored.
                None if !matches!(self.server().hub().lane(&session).await, Ok(None)) => continue,
                None => false,
            };
            // Of one that a client has deleted everybody was told.
            if self.sessions().remove(&session) && !is_unloaded {
                self.tell_all(&encode::session_deleted(&session));
            }
        }
        Ok(())
    }

    /// Returns what a list says of a session, whether or not clients see it.
    pub(super) async fn entry(&self, session: &SessionId) -> Result<Option<SessionEntry>, ReadError> {
        Ok(self.journal().meta(session.clone()).await?.and_then(SessionEntry::new))
    }

    /// Returns the sessions that clients see.
    pub(super) async fn entries(&self) -> Result<Vec<SessionEntry>, ReadError> {
        let mut ids = self.sessions().ids();
        ids.extend(self.server().hub().lanes().iter().map(|lane| lane.id().clone()));
        // Those that are not listed any more are counted anew when they are.
        self.sessions().counts().retain(|session, _| ids.contains(session));
        let mut entries = Vec::new();
        for id in ids.into_iter().take(LISTED) {
            entries.extend(self.entry(&id).await?.filter(SessionEntry::is_loaded));
        }
        Ok(entries)
    }

    /// Returns a session as everybody sees it.
    pub(super) async fn listed_info(&self, entry: &SessionEntry) -> SessionInfo {
        let SessionEntry { meta, listed } = entry;
        let settings = self.server().hub().services().model_config.settings().ok();
        let model = settings.as_ref().zip(listed.model.as_ref());
        let opened_at = listed.opened_at().unwrap_or(meta.opened_at);
        let file = files::file_of(self.session_files(), &meta.session, &listed.cwd, opened_at, entry.is_own());
        SessionInfo {
            session: meta.session.clone(),
            name: listed.name.clone(),
            file: file.map(|file| file.path.to_string_lossy().into_owned()),
            model: model.map(|(settings, model)| shown_model(settings, &listed.provider, model)),
            thinking: thinking_level(settings.as_deref(), &listed.provider, listed.thinking.as_deref()),
            streaming: meta.active_run.is_some(),
            message_count: self.message_count(meta).await,
            created_at: opened_at,
        }
    }

    /// Counts the messages of a session; those of one that nobody listens to are read, unless it was the same last time.
    async fn message_count(&self, meta: &Meta) -> u64 {
        if let Some(seat) = self.seats().get(&meta.session) {
            return seat.tell(Projection::message_count);
        }
        let known = self.sessions().counts().get(&meta.session).copied();
        if let Some((_, count)) = known.filter(|(at, _)| *at == meta.updated_at) {
            return count;
        }
        match self.read_story(&meta.session).await {
            Ok(story) => {
                let count = story.message_count();
                self.sessions().counts().insert(meta.session.clone(), (meta.updated_at, count));
                count
            }
            Err(error) => {
                warn!(session = %meta.session, %error, "the messages of a session could not be counted");
                0
            }
        }
    }

    /// Reads the conversation of a session from the journal.
    async fn read_story(&self, session: &SessionId) -> Result<Projection, ReadError> {
        let (mut story, mut seen) = (Projection::default(), Seq::ZERO);
        loop {
            let page = self.journal().page(session.clone(), seen, READ_AT_ONCE).await?;
            for block in &page.blocks {
                for line in block.bytes.split_inclusive(|byte| *byte == b'\n') {
                    // A line that cannot be read was warned about by whoever told its session.
                    if let Ok(event) = record::decode_event(line)
                        && event.seq > seen
                    {
                        seen = event.seq;
                        story.apply(&event);
                    }
                }
                seen = seen.max(block.last);
            }
            if page.blocks.is_empty() {
                return Ok(story);
            }
        }
    }
}

/// How many sessions are looked at in one read.
const PAGE: usize = 1_000;
/// How many sessions are listed.
const LISTED: usize = 1_000;
/// How many bytes of events are read at once.
const READ_AT_ONCE: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::journal::{Batch, Create};
    use crate::runtime::services::{BROADCAST_CAPACITY, SessionChange};
    use crate::runtime::test_daemon::TestDaemon;

    #[test]
    fn places_are_taken_before_sessions_are_made_and_given_back_where_none_is() {
        let (list, [one, two]) = (SessionList::default(), ["one", "two"].map(SessionId::from));
        let place = list.take_place(&one, 1).expect("a place");
        assert!(list.take_place(&two, 1).is_none(), "the only place is taken");
        assert!(list.take_place(&one, 1).is_some(), "it has its place");
        assert!(list.contains(&one), "the second attempt gives nothing back");
        drop(place);
        assert_eq!(list.len(), 0);
        list.take_place(&two, 1).expect("a place").keep();
        assert!(list.contains(&two) && list.take_place(&one, 1).is_none());
    }

    #[tokio::test]
    async fn sessions_whose_end_was_missed_are_not_active() {
        let daemon = TestDaemon::new();
        let bureau = Bureau::open(Arc::clone(&daemon.server)).await.unwrap();
        store(&bureau, "ended", true).await;
        store(&bureau, "loaded", false).await;
        for name in ["ended", "loaded", "erased"] {
            bureau.sessions().take_place(&name.into(), 9).expect("a place").keep();
        }
        bureau.sessions().counts().insert("erased".into(), (Now(1), 1));
        bureau.sessions().counts().insert("listed no more".into(), (Now(1), 1));
        // Nobody hears of them before the last was sent: nothing is awaited in between.
        for _ in 0..=BROADCAST_CAPACITY {
            let _ = daemon.server.hub().services().session_changes.send(SessionChange::Ended("other".into()));
        }
        let caught_up = async {
            while bureau.sessions().len() > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), caught_up).await.expect("they are taken out");
        assert!(bureau.sessions().contains(&"loaded".into()));
        assert_eq!(bureau.entries().await.unwrap().len(), 1);
        assert!(bureau.sessions().counts().is_empty());
        daemon.close().await;
    }

    /// Stores a session of the protocol.
    async fn store(bureau: &Bureau, name: &str, ended: bool) {
        let summary = serde_json::json!({"cwd": "/", "provider": "p", "protocol": files::MODE, "ended": ended});
        let meta = Meta {
            session: name.into(),
            state: "idle".into(),
            updated_at: Now(1),
            opened_at: Now(1),
            active_run: None,
            summary: summary.to_string(),
        };
        let create = Create { token_hash: [0; 32], start_key: None, opened_at: Now(1) };
        let batch = Batch { create: Some(create), meta: Some(meta), ..Batch::new(name.into()) };
        bureau.journal().commit(batch).await.unwrap().unwrap();
    }
}
