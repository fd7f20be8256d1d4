//! The sessions that clients of the protocol see, listed from the journal.
//!
//! Active are the sessions that clients of the protocol have created or loaded and not deleted, in memory or not. Sessions
//! of other protocols are seen as long as they are in memory. Listing loads no session and attaches to none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::warn;

use super::file_sync;
use super::operations::{shown_model, thinking_level};
use super::service::CommandService;
use crate::journal::{Journal, ListQuery, Meta, ReadError};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::time::Now;
use crate::protocol::command_protocol::{Notice, SessionProjection};
use crate::protocol::operation_result::SessionInfo;
use crate::record;
use crate::record::summary::ListedSession;

/// The active sessions, and cached message counts.
pub(super) struct SessionList {
    /// The name of the protocol, which marks the sessions of its clients.
    protocol: &'static str,
    active: Mutex<BTreeSet<SessionId>>,
    counts: Mutex<BTreeMap<SessionId, (Now, u64)>>,
}

/// A session as a list shows it.
pub(super) struct SessionEntry {
    meta: Meta,
    listed: ListedSession,
    is_own: bool,
}

impl SessionEntry {
    fn new(meta: Meta, protocol: &str) -> Option<Self> {
        let listed = ListedSession::parse(&meta.summary)?;
        let is_own = listed.protocol.as_deref() == Some(protocol);
        Some(Self { meta, listed, is_own })
    }

    /// Returns whether clients see the session.
    pub(super) const fn is_loaded(&self) -> bool {
        !self.listed.ended && !self.listed.unloaded
    }

    /// Returns whether a client of the protocol has deleted it.
    pub(super) const fn is_unloaded(&self) -> bool {
        self.listed.unloaded
    }

    /// Returns whether a client of the protocol created it.
    pub(super) const fn is_own(&self) -> bool {
        self.is_own
    }
}

impl SessionList {
    fn new(protocol: &'static str) -> Self {
        Self { protocol, active: Mutex::default(), counts: Mutex::default() }
    }

    /// Reads the active sessions from the journal.
    pub(super) async fn restore(journal: &Journal, protocol: &'static str) -> Result<Self, ReadError> {
        let list = Self::new(protocol);
        let mut after = None;
        loop {
            let found = journal.list(ListQuery { limit: PAGE, after, prefix: None }).await?;
            after = found.last().map(|last| (last.updated_at, last.session.clone()));
            let whole = found.len() == PAGE;
            let active = found.into_iter().filter_map(|meta| SessionEntry::new(meta, protocol));
            list.active()
                .extend(active.filter(|entry| entry.is_own() && entry.is_loaded()).map(|entry| entry.meta.session));
            if !whole {
                return Ok(list);
            }
        }
    }

    /// Reserves a slot for a session, unless `limit` others are active; an active session has a slot already.
    pub(super) fn reserve_slot(&self, session: &SessionId, limit: usize) -> Option<SessionSlot<'_>> {
        let mut active = self.active();
        let is_new = !active.contains(session);
        if is_new && active.len() >= limit {
            return None;
        }
        active.insert(session.clone());
        Some(SessionSlot { list: self, session: is_new.then(|| session.clone()) })
    }

    /// Returns the active sessions.
    pub(super) fn ids(&self) -> BTreeSet<SessionId> {
        self.active().clone()
    }

    /// Removes a session; returns whether it was active.
    pub(super) fn remove(&self, session: &SessionId) -> bool {
        self.counts().remove(session);
        self.active().remove(session)
    }

    pub(super) fn contains(&self, session: &SessionId) -> bool {
        self.active().contains(session)
    }

    /// Returns the number of active sessions.
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

/// The reserved slot of a session; it is released on drop unless it is kept.
pub(super) struct SessionSlot<'a> {
    list: &'a SessionList,
    /// `None` if the slot is not this guard's to release.
    session: Option<SessionId>,
}

impl SessionSlot<'_> {
    /// Keeps the slot: the session is active.
    pub(super) fn keep(mut self) {
        self.session = None;
    }
}

impl Drop for SessionSlot<'_> {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.list.remove(session);
        }
    }
}

impl CommandService {
    /// Removes sessions that have ended or are deleted from the list, and notifies all connections.
    ///
    /// Called after changes of sessions were missed.
    pub(super) async fn forget_inactive(&self) -> Result<(), ReadError> {
        for session in self.sessions().ids() {
            // Held by a command that makes the session active again.
            let _one_at_a_time = self.views().lock_session(&session).await;
            let is_unloaded = match self.entry(&session).await? {
                Some(entry) if entry.is_loaded() => continue,
                Some(entry) => entry.is_unloaded(),
                // It may be about to be stored.
                None if !matches!(self.server().hub().lane(&session).await, Ok(None)) => continue,
                None => false,
            };
            // A deletion by a client was announced with its response.
            if self.sessions().remove(&session) && !is_unloaded {
                self.notify(&Notice::SessionDeleted(session));
            }
        }
        Ok(())
    }

    /// Returns the listing entry of a session, whether or not clients see it.
    pub(super) async fn entry(&self, session: &SessionId) -> Result<Option<SessionEntry>, ReadError> {
        let meta = self.journal().meta(session.clone()).await?;
        Ok(meta.and_then(|meta| SessionEntry::new(meta, self.sessions().protocol)))
    }

    /// Returns the sessions that clients see.
    pub(super) async fn entries(&self) -> Result<Vec<SessionEntry>, ReadError> {
        let mut ids = self.sessions().ids();
        ids.extend(self.server().hub().lanes().iter().map(|lane| lane.id().clone()));
        // Counts of sessions that are not listed any more are dropped.
        self.sessions().counts().retain(|session, _| ids.contains(session));
        let mut entries = Vec::new();
        for id in ids.into_iter().take(MAX_LISTED) {
            entries.extend(self.entry(&id).await?.filter(SessionEntry::is_loaded));
        }
        Ok(entries)
    }

    /// Returns a session as clients see it.
    pub(super) async fn listed_info(&self, entry: &SessionEntry) -> SessionInfo {
        let SessionEntry { meta, listed, is_own } = entry;
        let settings = self.server().hub().services().model_config.settings().ok();
        let model = settings.as_ref().zip(listed.model.as_ref());
        let opened_at = listed.opened_at().unwrap_or(meta.opened_at);
        let file = file_sync::file_of(self.session_files(), &meta.session, &listed.cwd, opened_at, *is_own);
        SessionInfo {
            session: meta.session.clone(),
            name: listed.name.clone(),
            file: file.map(|file| file.path.to_string_lossy().into_owned()),
            model: model.map(|(settings, model)| shown_model(settings, &listed.provider, model)),
            thinking: thinking_level(settings.as_deref(), &listed.provider, listed.thinking.as_deref()),
            streaming: meta.has_run(),
            message_count: self.message_count(meta).await,
            created_at: opened_at,
        }
    }

    /// Returns the number of messages: of the view if there is one, from the cache if the session is unchanged, otherwise read.
    async fn message_count(&self, meta: &Meta) -> u64 {
        if let Some(view) = self.views().get(&meta.session) {
            return view.read(|projection| projection.message_count());
        }
        let known = self.sessions().counts().get(&meta.session).copied();
        if let Some((_, count)) = known.filter(|(at, _)| *at == meta.updated_at) {
            return count;
        }
        match self.read_projection(&meta.session).await {
            Ok(projection) => {
                let count = projection.message_count();
                self.sessions().counts().insert(meta.session.clone(), (meta.updated_at, count));
                count
            }
            Err(error) => {
                warn!(session = %meta.session, %error, "the messages of a session could not be counted");
                0
            }
        }
    }

    /// Reads the projection of a session from the journal.
    async fn read_projection(&self, session: &SessionId) -> Result<Box<dyn SessionProjection>, ReadError> {
        let (mut projection, mut seen) = (self.protocol().projection(), Seq::ZERO);
        loop {
            let page = self.journal().page(session.clone(), seen, READ_BYTES).await?;
            for block in &page.blocks {
                for line in block.bytes.split_inclusive(|byte| *byte == b'\n') {
                    // The lane has warned about a record that cannot be decoded.
                    if let Ok(event) = record::decode_event(line)
                        && event.seq > seen
                    {
                        seen = event.seq;
                        projection.apply(&event);
                    }
                }
                seen = seen.max(block.last);
            }
            if page.blocks.is_empty() {
                return Ok(projection);
            }
        }
    }
}

/// The number of sessions in one read.
const PAGE: usize = 1_000;
/// The maximum number of listed sessions.
const MAX_LISTED: usize = 1_000;
/// The number of bytes of events in one read.
const READ_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::journal::{Batch, Create};
    use crate::protocol::pi::PiProtocol;
    use crate::protocol::pi::decode::DecodeLimits;
    use crate::runtime::services::{BROADCAST_CAPACITY, SessionChange};
    use crate::runtime::test_daemon::TestDaemon;

    #[test]
    fn places_are_taken_before_sessions_are_made_and_given_back_where_none_is() {
        let (list, [one, two]) = (SessionList::new("own"), ["one", "two"].map(SessionId::from));
        let slot = list.reserve_slot(&one, 1).expect("a slot");
        assert!(list.reserve_slot(&two, 1).is_none(), "the only slot is taken");
        assert!(list.reserve_slot(&one, 1).is_some(), "it has its slot");
        assert!(list.contains(&one), "the second attempt gives nothing back");
        drop(slot);
        assert_eq!(list.len(), 0);
        list.reserve_slot(&two, 1).expect("a slot").keep();
        assert!(list.contains(&two) && list.reserve_slot(&one, 1).is_none());
    }

    #[tokio::test]
    async fn sessions_whose_end_was_missed_are_not_active() {
        let (daemon, protocol) = (TestDaemon::new(), PiProtocol::new(DecodeLimits::default(), &[]));
        let service = CommandService::open(Arc::clone(&daemon.server), Arc::new(protocol)).await.unwrap();
        store(&service, "ended", true).await;
        store(&service, "loaded", false).await;
        for name in ["ended", "loaded", "erased"] {
            service.sessions().reserve_slot(&name.into(), 9).expect("a slot").keep();
        }
        service.sessions().counts().insert("erased".into(), (Now(1), 1));
        service.sessions().counts().insert("listed no more".into(), (Now(1), 1));
        // Nothing is awaited in between, so that the receiver lags.
        for _ in 0..=BROADCAST_CAPACITY {
            let _ = daemon.server.hub().services().session_changes.send(SessionChange::Ended("other".into()));
        }
        let caught_up = async {
            while service.sessions().len() > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), caught_up).await.expect("they are taken out");
        assert!(service.sessions().contains(&"loaded".into()));
        assert_eq!(service.entries().await.unwrap().len(), 1);
        assert!(service.sessions().counts().is_empty());
        daemon.close().await;
    }

    /// Stores a session of the protocol.
    async fn store(service: &CommandService, name: &str, ended: bool) {
        let summary =
            serde_json::json!({"cwd": "/", "provider": "p", "protocol": service.protocol().name(), "ended": ended});
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
        service.journal().commit(batch).await.unwrap().unwrap();
    }
}
