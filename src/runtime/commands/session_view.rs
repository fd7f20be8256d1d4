//! The view of one session that all connections of the protocol share: a subscriber that projects the session's events.
//!
//! A view starts at the session's first event, so that its projection equals what the journal holds, whichever client
//! caused it. Only the task of the view changes the projection. A reader waits until the view has observed all events that
//! were published before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tracing::warn;

use super::file_sync::{FileGuard, SynchronizedFile};
use crate::journal::{Page, ReadError};
use crate::kernel::command::{Caller, PrivateEvent};
use crate::kernel::event::{
    CallResult, CompactionFailure, ContextEvent, Event, EventKind, Purpose, RunEvent, SessionEvent, ToolEvent,
};
use crate::kernel::id::{CallId, ConnectionId, Seq, SessionId};
use crate::kernel::ring::Tail;
use crate::kernel::time::Now;
use crate::protocol::command_protocol::{CommandProtocol, SessionProjection};
use crate::runtime::feed::{Feed, decode_lines};
use crate::runtime::hub::Hub;
use crate::runtime::outbox::{EventForm, Outbox, OutboxItem};

/// A shared view of a session.
pub(super) struct SessionView {
    session: SessionId,
    /// The name of the protocol, as decisions show it.
    source: &'static str,
    outbox: Arc<Outbox>,
    inner: Mutex<Inner>,
    /// The last observed event.
    observed: watch::Sender<Seq>,
    /// Notified when the session's file needs an update.
    file_outdated: Notify,
    /// Held while the session's file is read or written; the file as the last synchronization left it.
    file: tokio::sync::Mutex<Option<SynchronizedFile>>,
}

struct Inner {
    projection: Box<dyn SessionProjection>,
    /// The feed that the view follows.
    feed: Option<Arc<Feed>>,
    subscribers: BTreeMap<ConnectionId, ViewSubscriber>,
    /// The number of commands that use the view.
    leases: usize,
    /// The results of the user's commands that are awaited.
    user_commands: BTreeMap<CallId, Option<CallResult>>,
    /// The outcome of the last compaction.
    compaction: Option<(Seq, CompactionOutcome)>,
    /// Whether the session is deleted.
    deleted: bool,
    /// Whether a client of another protocol has ended it.
    ended: bool,
}

/// A connection that is subscribed to a view.
struct ViewSubscriber {
    outbox: Arc<Outbox>,
    /// Renames the session in the lines, if the client uses another id for it.
    rename: Option<Rename>,
}

/// Gives a line another session id.
type Rename = Box<dyn Fn(&Bytes) -> Bytes + Send>;

impl ViewSubscriber {
    fn push_line(&self, line: Bytes) {
        self.outbox.push_line(match &self.rename {
            Some(rename) => rename(&line),
            None => line,
        });
    }
}

/// The outcome of a compaction.
#[derive(Debug, Clone)]
pub(super) enum CompactionOutcome {
    Completed,
    Failed { message: Option<String>, failure: CompactionFailure },
}

impl SessionView {
    /// Creates a view, which receives no events before it is attached.
    pub(super) fn new(session: SessionId, id: ConnectionId, protocol: &dyn CommandProtocol) -> Arc<Self> {
        let inner = Inner {
            projection: protocol.projection(),
            feed: None,
            subscribers: BTreeMap::new(),
            leases: 0,
            user_commands: BTreeMap::new(),
            compaction: None,
            deleted: false,
            ended: false,
        };
        let (inner, observed) = (Mutex::new(inner), watch::Sender::new(Seq::ZERO));
        let (file_outdated, file) = (Notify::new(), tokio::sync::Mutex::default());
        let (source, outbox) = (protocol.name(), Outbox::new(id, EventForm::Event));
        Arc::new(Self { session, source, outbox, inner, observed, file_outdated, file })
    }

    pub(super) const fn session(&self) -> &SessionId {
        &self.session
    }

    pub(super) const fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Returns the caller of the view's commands.
    pub(super) fn caller(&self) -> Caller {
        Caller::owner(self.outbox.id(), self.source.to_owned())
    }

    /// Subscribes a connection to later events, under the id that its client uses for the session, and sends it the
    /// open questions.
    pub(super) fn subscribe(&self, outbox: &Arc<Outbox>, label: &SessionId, protocol: &dyn CommandProtocol, now: Now) {
        let rename = (*label != self.session).then(|| protocol.rename_session(&self.session, label));
        let subscriber = ViewSubscriber { outbox: Arc::clone(outbox), rename };
        let mut inner = self.lock();
        let requests = inner.projection.open_requests(&self.session, now);
        if !inner.subscribers.contains_key(&outbox.id()) {
            requests.into_iter().for_each(|line| subscriber.push_line(line));
        }
        inner.subscribers.insert(outbox.id(), subscriber);
    }

    /// Unsubscribes a connection; returns whether any subscriber is left.
    pub(super) fn unsubscribe(&self, id: ConnectionId) -> bool {
        let mut inner = self.lock();
        inner.subscribers.remove(&id);
        !inner.subscribers.is_empty()
    }

    /// Counts a command that uses the view.
    pub(super) fn add_lease(&self) {
        self.lock().leases += 1;
    }

    /// Counts the end of a command that used the view.
    pub(super) fn remove_lease(&self) {
        self.lock().leases -= 1;
    }

    /// Returns whether the view has subscribers or is used by a command.
    pub(super) fn is_needed(&self) -> bool {
        let inner = self.lock();
        inner.leases > 0 || !inner.subscribers.is_empty()
    }

    /// Reads the projection.
    pub(super) fn read<T>(&self, read: impl FnOnce(&dyn SessionProjection) -> T) -> T {
        read(&*self.lock().projection)
    }

    /// Waits until the event `seq` is observed, or never will be.
    pub(super) async fn wait_until_observed(&self, seq: Seq) {
        if *self.observed.borrow() >= seq {
            return;
        }
        let mut observed = self.observed.subscribe();
        let _ = observed.wait_for(|observed| *observed >= seq || self.is_finished()).await;
    }

    /// Waits until the events that are published now are observed, or never will be.
    pub(super) async fn wait_until_current(&self) {
        let newest = self.lock().feed.as_ref().map(|feed| feed.newest());
        if let Some(newest) = newest {
            self.wait_until_observed(newest).await;
        }
    }

    /// Waits until the projection satisfies a condition, or never will.
    pub(super) async fn wait_for(&self, point: impl Fn(&dyn SessionProjection) -> bool) {
        let mut observed = self.observed.subscribe();
        let reached = || {
            let inner = self.lock();
            inner.deleted || self.outbox.is_closed() || point(&*inner.projection)
        };
        let _ = observed.wait_for(|_| reached()).await;
    }

    /// Waits until a client of another protocol has ended the session; `false` if the view is closed.
    pub(super) async fn ended_by_others(&self) -> bool {
        let mut observed = self.observed.subscribe();
        let over = observed.wait_for(|_| self.lock().ended || self.outbox.is_closed()).await;
        over.is_ok() && !self.outbox.is_closed()
    }

    /// Waits until the session's file needs an update; `false` if the view is closed.
    pub(super) async fn file_outdated(&self) -> bool {
        self.file_outdated.notified().await;
        !self.outbox.is_closed()
    }

    /// Waits for the lock of the session's file.
    pub(super) async fn lock_file(&self) -> FileGuard<'_> {
        self.file.lock().await
    }

    /// Returns whether the session was deleted.
    pub(super) fn is_deleted(&self) -> bool {
        self.lock().deleted
    }

    /// Returns whether no more events will be observed.
    fn is_finished(&self) -> bool {
        self.is_deleted() || self.outbox.is_closed()
    }

    /// Records the result of a user's command, for [`SessionView::wait_for_user_command`].
    pub(super) fn track_user_command(&self, call: CallId) {
        self.lock().user_commands.insert(call, None);
    }

    /// Waits for the result of a tracked command; `None` if the session is deleted.
    pub(super) async fn wait_for_user_command(&self, call: &CallId) -> Option<CallResult> {
        let mut observed = self.observed.subscribe();
        loop {
            {
                let mut inner = self.lock();
                let over = inner.deleted || self.outbox.is_closed();
                if inner.user_commands.get(call).is_none_or(Option::is_some) || over {
                    return inner.user_commands.remove(call).flatten();
                }
            }
            observed.changed().await.ok()?;
        }
    }

    /// Stops tracking a command.
    pub(super) fn untrack_user_command(&self, call: &CallId) {
        self.lock().user_commands.remove(call);
    }

    /// Waits for the outcome of the compaction that began with the event `began`; `None` if the session is deleted.
    pub(super) async fn wait_for_compaction(&self, began: Seq) -> Option<CompactionOutcome> {
        let mut observed = self.observed.subscribe();
        loop {
            {
                let inner = self.lock();
                if let Some((_, how)) = inner.compaction.as_ref().filter(|(ended, _)| *ended > began) {
                    return Some(how.clone());
                }
                if inner.deleted || self.outbox.is_closed() {
                    return None;
                }
            }
            observed.changed().await.ok()?;
        }
    }

    /// Closes the view; its task ends.
    pub(super) fn close(&self) {
        self.outbox.close();
        self.file_outdated.notify_one();
        self.observed.send_modify(|_| {});
    }

    /// Follows the session until the view is closed or the session is deleted.
    pub(super) async fn follow(self: Arc<Self>, hub: Arc<Hub>) {
        let mut cursor = None;
        while !self.outbox.is_closed() {
            for out in self.outbox.take() {
                match out {
                    // Other events for one subscriber alone do not change the projection.
                    OutboxItem::Private { event: PrivateEvent::Deleted { .. }, .. } => return self.end(),
                    OutboxItem::Frames { .. } | OutboxItem::Line(_) | OutboxItem::Private { .. } => {}
                    OutboxItem::Subscribe { feed, after } => {
                        self.lock().feed = Some(Arc::clone(&feed));
                        cursor = Some(EventCursor { feed, seen: after });
                    }
                    OutboxItem::SwitchFeed(feed) => {
                        if let Some(cursor) = &mut cursor {
                            self.lock().feed = Some(Arc::clone(&feed));
                            cursor.feed = feed;
                        }
                    }
                    OutboxItem::Unsubscribe(_) => {
                        self.lock().feed = None;
                        cursor = None;
                    }
                }
            }
            let progress = match &mut cursor {
                Some(cursor) => match cursor.observe_published(&self) {
                    Some(progress) => progress,
                    None => {
                        let (session, journal) = (self.session.clone(), &hub.services().journal);
                        let page = journal.page(session, cursor.seen, READ_BYTES).await;
                        cursor.observe_stored(&self, page)
                    }
                },
                None => Progress::Idle,
            };
            match progress {
                Progress::Advanced => {}
                Progress::Idle => self.outbox.wait().await,
                // A close wakes it. Events that are published meanwhile stay in the feed.
                Progress::Unreadable => drop(timeout(RETRY_DELAY, self.outbox.wait()).await),
            }
        }
    }

    fn end(&self) {
        self.lock().deleted = true;
        self.observed.send_modify(|_| {});
    }

    /// Observes events, and sends the projected lines to the subscribers.
    ///
    /// `seen` is the last position covered, whether or not its event could be decoded.
    fn observe(&self, events: &[Event], seen: Seq) {
        // The view is shared by all clients of the protocol, so it contains only what everybody may see.
        if events.iter().any(|event| !event.audience.is_public()) {
            let public: Vec<_> = events.iter().filter(|event| event.audience.is_public()).cloned().collect();
            return self.observe(&public, seen);
        }
        let mut inner = self.lock();
        for event in events {
            inner.record_end(event, self.source);
        }
        if inner.subscribers.is_empty() {
            events.iter().for_each(|event| inner.projection.apply(event));
        } else {
            for line in inner.projection.project(&self.session, events) {
                inner.subscribers.values().for_each(|subscriber| subscriber.push_line(line.clone()));
            }
        }
        drop(inner);
        self.observed.send_replace(seen);
        if events.iter().any(ends_something) {
            self.file_outdated.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Records results that are awaited.
    fn record_end(&mut self, event: &Event, source: &str) {
        if let EventKind::Tool(ToolEvent::Settled(settlement)) = &event.kind
            && let Some(ended) = self.user_commands.get_mut(&settlement.call)
        {
            *ended = Some((**settlement).clone());
        } else if let EventKind::Session(SessionEvent::Ended { by }) = &event.kind {
            self.ended = by != source;
        } else if let EventKind::Session(SessionEvent::Loaded { .. }) = &event.kind {
            self.ended = false;
        } else if let EventKind::Context(ContextEvent::Compacted(_)) = &event.kind {
            self.compaction = Some((event.seq, CompactionOutcome::Completed));
        } else if let EventKind::Context(ContextEvent::CompactionFailed { failure, message, will_retry: _ }) =
            &event.kind
        {
            let (message, failure) = (message.clone(), *failure);
            self.compaction = Some((event.seq, CompactionOutcome::Failed { message, failure }));
        }
    }
}

/// Returns whether an event completes something that the session's file records.
fn ends_something(event: &Event) -> bool {
    let of_the_user = |settlement: &CallResult| matches!(settlement.purpose, Purpose::UserCommand { .. });
    matches!(&event.kind, EventKind::Tool(ToolEvent::Settled(settlement)) if of_the_user(settlement))
        || matches!(
            event.kind,
            EventKind::Session(SessionEvent::Renamed { .. })
                | EventKind::Run(RunEvent::Ended(_))
                | EventKind::Session(SessionEvent::Loaded { .. })
                | EventKind::Session(SessionEvent::Adjusted { .. })
                | EventKind::Context(ContextEvent::Branched { .. })
                | EventKind::Context(ContextEvent::Compacted(_))
        )
}

/// A read position in the events of a session.
struct EventCursor {
    feed: Arc<Feed>,
    seen: Seq,
}

/// The progress of a cursor.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// Events were observed, and more may follow.
    Advanced,
    /// All published events are observed.
    Idle,
    /// The journal could not be read; nothing is skipped, and the read is repeated.
    Unreadable,
}

impl EventCursor {
    /// Observes the published events; `None` if they have left the ring and must be read from the journal.
    fn observe_published(&mut self, view: &SessionView) -> Option<Progress> {
        let newest = self.feed.newest();
        if self.seen >= newest {
            return Some(Progress::Idle);
        }
        let Tail::Spans(blocks) = self.feed.after(self.seen, READ_BYTES) else { return None };
        for block in &blocks {
            self.observe(view, block.events(), block.last.min(newest));
        }
        Some(Progress::Advanced)
    }

    /// Observes events from the journal, up to the newest published one.
    fn observe_stored(&mut self, view: &SessionView, page: Result<Page, ReadError>) -> Progress {
        let newest = self.feed.newest();
        match page {
            Ok(page) => {
                for block in &page.blocks {
                    self.observe(view, &decode_lines(&block.bytes), block.last.min(newest));
                }
                if page.blocks.is_empty() {
                    // There are no events up to the newest published one.
                    self.observe(view, &[], newest);
                }
                Progress::Advanced
            }
            Err(error) => {
                warn!(session = %view.session, after = %self.seen, %error,
                    "the events of a session could not be read; they are read again");
                Progress::Unreadable
            }
        }
    }

    /// Observes the events after the position of the cursor, up to `until`.
    fn observe(&mut self, view: &SessionView, events: &[Event], until: Seq) {
        let start = events.partition_point(|event| event.seq <= self.seen);
        let end = events.partition_point(|event| event.seq <= until).max(start);
        self.seen = self.seen.max(until);
        view.observe(&events[start..end], self.seen);
    }
}

/// The number of bytes of events in one read.
const READ_BYTES: usize = 256 * 1024;
/// The delay before a failed read is repeated, unless the view is woken earlier.
const RETRY_DELAY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal;
    use crate::kernel::audience::Audience;
    use crate::kernel::event::NoticeEvent;
    use crate::protocol::pi::PiProtocol;
    use crate::protocol::pi::decode::DecodeLimits;
    use crate::record;
    use crate::runtime::feed::Block;

    #[tokio::test]
    async fn an_event_that_cannot_be_read_is_passed_over_once() {
        let (view, mut cursor) = behind();
        assert_eq!(cursor.observe_published(&view), None);
        let page = page(b"{\"seq\":3,\"type\":\"nonsense\"}\n");
        assert_eq!(cursor.observe_stored(&view, Ok(page)), Progress::Advanced);
        assert_eq!(cursor.seen, Seq::new(3));
        // Waiters for that event are woken.
        timeout(Duration::from_secs(30), view.wait_until_observed(Seq::new(3))).await.unwrap();
        assert_eq!(cursor.observe_published(&view), Some(Progress::Advanced));
        assert_eq!(cursor.observe_published(&view), Some(Progress::Idle));
    }

    #[test]
    fn a_read_that_fails_passes_nothing_over() {
        let (view, mut cursor) = behind();
        let error = ReadError::NoSuchSession { session: view.session.clone() };
        assert_eq!(cursor.observe_stored(&view, Err(error)), Progress::Unreadable);
        assert_eq!(cursor.seen, Seq::ZERO);
        assert_eq!(cursor.observe_stored(&view, Ok(page(b""))), Progress::Advanced);
        assert_eq!(cursor.seen, Seq::new(2));
    }

    #[tokio::test]
    async fn a_view_is_current_when_it_has_observed_what_is_published() {
        let (view, cursor) = behind();
        view.wait_until_current().await;
        view.lock().feed = Some(cursor.feed);
        tokio::select! {
            biased;
            () = view.wait_until_current() => panic!("it has observed nothing"),
            () = std::future::ready(()) => {}
        }
        view.observe(&[], Seq::new(4));
        view.wait_until_current().await;
    }

    /// Returns a cursor at events that have left the ring.
    fn behind() -> (Arc<SessionView>, EventCursor) {
        let (session, protocol) = (SessionId::from("s"), PiProtocol::new(DecodeLimits::default(), &[]));
        let feed = Arc::new(Feed::new(session.clone(), Seq::new(3), 1));
        feed.publish(Block::new(Seq::new(4), Seq::new(4), warning(4).into()));
        (SessionView::new(session, ConnectionId(1), &protocol), EventCursor { feed, seen: Seq::ZERO })
    }

    fn page(rest: &[u8]) -> Page {
        let mut bytes = warning(1);
        bytes.extend(warning(2));
        bytes.extend_from_slice(rest);
        let last = Seq::new(if rest.is_empty() { 2 } else { 3 });
        let block = journal::Block { first: Seq::new(1), last, count: 2, bytes: bytes.into() };
        Page { blocks: vec![block], more: false }
    }

    fn warning(seq: u64) -> Vec<u8> {
        let kind = EventKind::Notice(NoticeEvent::Warned { code: "W".into(), message: "m".into(), detail: None });
        let event = Event {
            seq: Seq::new(seq),
            at: Now(1),
            run: None,
            version: None,
            origin: None,
            audience: Audience::All,
            kind,
        };
        let mut line = Vec::new();
        record::event_line(&SessionId::from("s"), &event, &mut line);
        line
    }
}
