//! The protocol's place at one session: it listens like any client, tells the session's story, and passes it on.
//!
//! There is one for all connections. It begins at the session's first event, so that what it knows is what the journal
//! holds, whoever made it happen. The story is changed by the seat's task alone; whoever asks about it waits until it has
//! heard of everything that had been shown by then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tracing::warn;

use super::crowd::Mailbox;
use super::files::FileTurn;
use crate::journal::{Page, ReadError};
use crate::kernel::command::{Caller, PrivateEvent, Rights};
use crate::kernel::event::{CallResult, CompactionFailure, Event, EventKind, Purpose};
use crate::kernel::id::{CallId, ParticipantId, Seq, SessionId};
use crate::kernel::ring::Tail;
use crate::kernel::time::Now;
use crate::protocol::pi::encode;
use crate::protocol::pi::projection::{Projection, SessionEvent};
use crate::runtime::feed::{Feed, decode_lines};
use crate::runtime::hub::Hub;
use crate::runtime::outbox::{EventForm, Outbox, OutboxItem};

/// Who does what connections of this protocol ask for, as verdicts name it.
const SOURCE: &str = "pi";

/// A place at a session.
pub(super) struct Seat {
    session: SessionId,
    outbox: Arc<Outbox>,
    inner: Mutex<Inner>,
    /// The last event that the story knows.
    heard: watch::Sender<Seq>,
    /// Told when there is something to write into the session's file.
    unsaved: Notify,
    /// Held by whoever reads or writes the session's file.
    file: tokio::sync::Mutex<()>,
}

struct Inner {
    story: Projection,
    subscribers: BTreeMap<u64, Arc<Mailbox>>,
    /// How many commands are at work here.
    sitting: usize,
    /// How the user's commands ended that somebody waits for.
    asides: BTreeMap<CallId, Option<CallResult>>,
    /// How the last summary that was asked for ended.
    compaction: Option<(Seq, Compacted)>,
    /// Whether the session is gone.
    gone: bool,
    /// Whether somebody who does not speak this protocol has ended it.
    ended: bool,
}

/// How a summary ended.
#[derive(Debug, Clone)]
pub(super) enum Compacted {
    Done,
    Failed { message: Option<String>, ending: CompactionFailure },
}

impl Seat {
    /// Takes a place; it hears nothing before it is attached.
    pub(super) fn new(session: SessionId, id: ParticipantId) -> Arc<Self> {
        let inner = Inner {
            story: Projection::default(),
            subscribers: BTreeMap::new(),
            sitting: 0,
            asides: BTreeMap::new(),
            compaction: None,
            gone: false,
            ended: false,
        };
        let (inner, heard) = (Mutex::new(inner), watch::Sender::new(Seq::ZERO));
        let (unsaved, file) = (Notify::new(), tokio::sync::Mutex::default());
        Arc::new(Self { session, outbox: Outbox::new(id, EventForm::Event), inner, heard, unsaved, file })
    }

    pub(super) const fn session(&self) -> &SessionId {
        &self.session
    }

    pub(super) const fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Returns who asks, for the session.
    pub(super) fn caller(&self) -> Caller {
        Caller { id: self.outbox.id(), source: SOURCE.to_owned(), rights: Rights::ALL }
    }

    /// Has a connection hear what happens from here on, and which questions wait for an answer.
    pub(super) fn subscribe(&self, mailbox: &Arc<Mailbox>, now: Now) {
        let mut inner = self.lock();
        if inner.subscribers.insert(mailbox.id(), Arc::clone(mailbox)).is_none() {
            for request in inner.story.open_requests(now) {
                mailbox.push(encode::event(&self.session, &request));
            }
        }
    }

    /// Lets a connection go, and tells whether anybody is left.
    pub(super) fn unsubscribe(&self, id: u64) -> bool {
        let mut inner = self.lock();
        inner.subscribers.remove(&id);
        !inner.subscribers.is_empty()
    }

    /// Says that a command is at work here.
    pub(super) fn sit_down(&self) {
        self.lock().sitting += 1;
    }

    /// Says that it is not any more.
    pub(super) fn stand_up(&self) {
        self.lock().sitting -= 1;
    }

    /// Tells whether somebody listens or a command is at work here.
    pub(super) fn is_needed(&self) -> bool {
        let inner = self.lock();
        inner.sitting > 0 || !inner.subscribers.is_empty()
    }

    /// Looks at the story.
    pub(super) fn tell<T>(&self, tell: impl FnOnce(&Projection) -> T) -> T {
        tell(&self.lock().story)
    }

    /// Waits until the story knows of the event `seq`, or will never.
    pub(super) async fn heard(&self, seq: Seq) {
        let mut heard = self.heard.subscribe();
        let _ = heard.wait_for(|heard| *heard >= seq || self.is_over()).await;
    }

    /// Waits until the story has come to a point, or never will.
    pub(super) async fn wait_for(&self, point: impl Fn(&Projection) -> bool) {
        let mut heard = self.heard.subscribe();
        let reached = || {
            let inner = self.lock();
            inner.gone || self.outbox.is_closed() || point(&inner.story)
        };
        let _ = heard.wait_for(|_| reached()).await;
    }

    /// Waits until somebody who does not speak this protocol has ended the session; `false` when the place is given up.
    pub(super) async fn ended_by_others(&self) -> bool {
        let mut heard = self.heard.subscribe();
        let over = heard.wait_for(|_| self.lock().ended || self.outbox.is_closed()).await;
        over.is_ok() && !self.outbox.is_closed()
    }

    /// Waits until there is something to write into the session's file; `false` when the place is given up.
    pub(super) async fn unsaved(&self) -> bool {
        self.unsaved.notified().await;
        !self.outbox.is_closed()
    }

    /// Waits for the right to read and write the session's file.
    pub(super) async fn file_turn(&self) -> FileTurn<'_> {
        self.file.lock().await
    }

    /// Tells whether the session was deleted.
    pub(super) fn is_gone(&self) -> bool {
        self.lock().gone
    }

    /// Tells whether nothing more is heard here.
    fn is_over(&self) -> bool {
        self.is_gone() || self.outbox.is_closed()
    }

    /// Remembers how a command of the user ends, for [`Seat::aside`].
    pub(super) fn expect(&self, call: CallId) {
        self.lock().asides.insert(call, None);
    }

    /// Waits for the end of a command that was expected; `None` when the session is gone.
    pub(super) async fn aside(&self, call: &CallId) -> Option<CallResult> {
        let mut heard = self.heard.subscribe();
        loop {
            {
                let mut inner = self.lock();
                let over = inner.gone || self.outbox.is_closed();
                if inner.asides.get(call).is_none_or(Option::is_some) || over {
                    return inner.asides.remove(call).flatten();
                }
            }
            heard.changed().await.ok()?;
        }
    }

    /// Does not wait for it any more.
    pub(super) fn forget(&self, call: &CallId) {
        self.lock().asides.remove(call);
    }

    /// Waits for the end of a summary that began with the event `began`; `None` when the session is gone.
    pub(super) async fn compacted(&self, began: Seq) -> Option<Compacted> {
        let mut heard = self.heard.subscribe();
        loop {
            {
                let inner = self.lock();
                if let Some((_, how)) = inner.compaction.as_ref().filter(|(ended, _)| *ended > began) {
                    return Some(how.clone());
                }
                if inner.gone || self.outbox.is_closed() {
                    return None;
                }
            }
            heard.changed().await.ok()?;
        }
    }

    /// Leaves the session; its task ends.
    pub(super) fn leave(&self) {
        self.outbox.close();
        self.unsaved.notify_one();
        self.heard.send_modify(|_| {});
    }

    /// Listens until it leaves or the session is gone.
    pub(super) async fn listen(self: Arc<Self>, hub: Arc<Hub>) {
        let mut place = None;
        while !self.outbox.is_closed() {
            for out in self.outbox.take() {
                match out {
                    // What is said to one listener alone tells nothing that the story needs.
                    OutboxItem::Private { event: PrivateEvent::Deleted { .. }, .. } => return self.end(),
                    OutboxItem::Frames { .. } | OutboxItem::Private { .. } => {}
                    OutboxItem::Subscribe { feed, after } => place = Some(Place { feed, seen: after }),
                    OutboxItem::SwitchFeed(feed) => {
                        if let Some(place) = &mut place {
                            place.feed = feed;
                        }
                    }
                    OutboxItem::Unsubscribe(_) => place = None,
                }
            }
            let progress = match &mut place {
                Some(place) => match place.hear_shown(&self) {
                    Some(progress) => progress,
                    None => {
                        let (session, journal) = (self.session.clone(), &hub.services().journal);
                        let page = journal.page(session, place.seen, AT_ONCE).await;
                        place.hear_stored(&self, page)
                    }
                },
                None => Progress::Idle,
            };
            match progress {
                Progress::Advanced => {}
                Progress::Idle => self.outbox.wait().await,
                // Whoever leaves wakes it; what the session shows meanwhile stays where it is.
                Progress::Unreadable => drop(timeout(READ_AGAIN, self.outbox.wait()).await),
            }
        }
    }

    fn end(&self) {
        self.lock().gone = true;
        self.heard.send_modify(|_| {});
    }

    /// Hears some events, and passes on what they add to the story.
    ///
    /// `seen` is the position up to which nothing more is to come, whether or not its event could be read.
    fn hear(&self, events: &[Event], seen: Seq) {
        let mut inner = self.lock();
        for event in events {
            inner.note(event);
        }
        let told: Vec<SessionEvent> = if inner.subscribers.is_empty() {
            events.iter().for_each(|event| inner.story.apply(event));
            Vec::new()
        } else {
            inner.story.project(events)
        };
        for event in &told {
            let line = encode::event(&self.session, event);
            inner.subscribers.values().for_each(|mailbox| mailbox.push(line.clone()));
        }
        drop(inner);
        self.heard.send_replace(seen);
        if events.iter().any(ends_something) {
            self.unsaved.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Notes the ends that somebody waits for.
    fn note(&mut self, event: &Event) {
        if let EventKind::CallSettled(settlement) = &event.kind
            && let Some(ended) = self.asides.get_mut(&settlement.call)
        {
            *ended = Some((**settlement).clone());
        } else if let EventKind::SessionEnded { by } = &event.kind {
            self.ended = by != SOURCE;
        } else if let EventKind::Loaded { .. } = &event.kind {
            self.ended = false;
        } else if let EventKind::Compacted(_) = &event.kind {
            self.compaction = Some((event.seq, Compacted::Done));
        } else if let EventKind::CompactionFailed { failure: ending, message, will_retry: _ } = &event.kind {
            let (message, ending) = (message.clone(), *ending);
            self.compaction = Some((event.seq, Compacted::Failed { message, ending }));
        }
    }
}

/// Tells whether an event ends something that is to be found in the session's file.
fn ends_something(event: &Event) -> bool {
    let of_the_user = |settlement: &CallResult| matches!(settlement.purpose, Purpose::UserCommand { .. });
    matches!(&event.kind, EventKind::CallSettled(settlement) if of_the_user(settlement))
        || matches!(
            event.kind,
            EventKind::SessionRenamed { .. }
                | EventKind::RunEnded(_)
                | EventKind::Loaded { .. }
                | EventKind::Adjusted { .. }
                | EventKind::Branched { .. }
                | EventKind::Compacted(_)
        )
}

/// A place in the events of a session.
struct Place {
    feed: Arc<Feed>,
    seen: Seq,
}

/// How far a place has come.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// Something was heard, and more may be there.
    Advanced,
    /// Everything that was shown is heard.
    Idle,
    /// The journal could not be read: nothing is passed over, and the same is to be read again.
    Unreadable,
}

impl Place {
    /// Hears what has been shown since; nothing is returned where that has left the ring and is to be read.
    fn hear_shown(&mut self, seat: &Seat) -> Option<Progress> {
        let newest = self.feed.newest();
        if self.seen >= newest {
            return Some(Progress::Idle);
        }
        let Tail::Spans(blocks) = self.feed.after(self.seen, AT_ONCE) else { return None };
        for block in &blocks {
            self.hear(seat, block.events(), block.last.min(newest));
        }
        Some(Progress::Advanced)
    }

    /// Hears what was read from the journal, and nothing that was not shown yet.
    fn hear_stored(&mut self, seat: &Seat, page: Result<Page, ReadError>) -> Progress {
        let newest = self.feed.newest();
        match page {
            Ok(page) => {
                for block in &page.blocks {
                    self.hear(seat, &decode_lines(&block.bytes), block.last.min(newest));
                }
                if page.blocks.is_empty() {
                    // There is nothing between it and what is shown.
                    self.hear(seat, &[], newest);
                }
                Progress::Advanced
            }
            Err(error) => {
                warn!(session = %seat.session, after = %self.seen, %error,
                    "the events of a session could not be read; they are read again");
                Progress::Unreadable
            }
        }
    }

    /// Hears the events after what was seen and up to `until`.
    fn hear(&mut self, seat: &Seat, events: &[Event], until: Seq) {
        let start = events.partition_point(|event| event.seq <= self.seen);
        let end = events.partition_point(|event| event.seq <= until).max(start);
        self.seen = self.seen.max(until);
        seat.hear(&events[start..end], self.seen);
    }
}

/// How many bytes of events are heard at once.
const AT_ONCE: usize = 256 * 1024;
/// How long after a failed read the same is read again, unless something wakes the place before.
const READ_AGAIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal;
    use crate::record;
    use crate::runtime::feed::Block;

    #[tokio::test]
    async fn an_event_that_cannot_be_read_is_passed_over_once() {
        let (seat, mut place) = behind();
        assert_eq!(place.hear_shown(&seat), None);
        let page = page(b"{\"seq\":3,\"type\":\"nonsense\"}\n");
        assert_eq!(place.hear_stored(&seat, Ok(page)), Progress::Advanced);
        assert_eq!(place.seen, Seq::new(3));
        // Whoever waits for the story to know of that event waits no longer.
        timeout(Duration::from_secs(30), seat.heard(Seq::new(3))).await.unwrap();
        assert_eq!(place.hear_shown(&seat), Some(Progress::Advanced));
        assert_eq!(place.hear_shown(&seat), Some(Progress::Idle));
    }

    #[test]
    fn a_read_that_fails_passes_nothing_over() {
        let (seat, mut place) = behind();
        let error = ReadError::NoSuchSession { session: seat.session.clone() };
        assert_eq!(place.hear_stored(&seat, Err(error)), Progress::Unreadable);
        assert_eq!(place.seen, Seq::ZERO);
        assert_eq!(place.hear_stored(&seat, Ok(page(b""))), Progress::Advanced);
        assert_eq!(place.seen, Seq::new(2));
    }

    /// A place at a session whose events have left the ring.
    fn behind() -> (Arc<Seat>, Place) {
        let session = SessionId::from("s");
        let feed = Arc::new(Feed::new(session.clone(), Seq::new(3), 1));
        feed.publish(Block::new(Seq::new(4), Seq::new(4), warning(4).into()));
        (Seat::new(session, ParticipantId(1)), Place { feed, seen: Seq::ZERO })
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
        let kind = EventKind::Warned { code: "W".into(), message: "m".into(), detail: None };
        let event = Event { seq: Seq::new(seq), at: Now(1), run: None, version: None, origin: None, kind };
        let mut line = Vec::new();
        record::event_line(&SessionId::from("s"), &event, &mut line);
        line
    }
}
