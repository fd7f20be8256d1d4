//! The protocol's place at one session: it listens like any client, tells the session's story, and passes it on.
//!
//! There is one for all connections. It begins at the session's first event, so that what it knows is what the journal
//! holds, whoever made it happen. The story is changed by the seat's task alone; whoever asks about it waits until it has
//! heard of everything that had been shown by then.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use tracing::warn;

use super::crowd::Mailbox;
use crate::adapter::pi::encode;
use crate::adapter::pi::story::{SessionEvent, Story};
use crate::adapter::push::record;
use crate::daemon::feed::Feed;
use crate::daemon::hub::Hub;
use crate::daemon::outbox::{Out, Outbox};
use crate::kernel::command::{Caller, Rights};
use crate::kernel::event::{CompactionEnding, Event, EventKind, Purpose, Settlement};
use crate::kernel::id::{CallId, ParticipantId, Seq, SessionId};
use crate::kernel::ring::Tail;
use crate::kernel::time::Now;

/// Who does what connections of this protocol ask for, as verdicts name it.
pub(super) const SOURCE: &str = "pi";

/// A place at a session.
pub(super) struct Seat {
    session: SessionId,
    outbox: Arc<Outbox>,
    inner: Mutex<Inner>,
    /// The last event that the story knows.
    heard: watch::Sender<Seq>,
    /// Told when there is something to write into the session's file.
    unsaved: Notify,
}

struct Inner {
    story: Story,
    subscribers: BTreeMap<u64, Arc<Mailbox>>,
    /// How many commands are at work here.
    sitting: usize,
    /// How the user's commands ended that somebody waits for.
    asides: BTreeMap<CallId, Option<Settlement>>,
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
    Failed { message: Option<String>, ending: CompactionEnding },
}

impl Seat {
    /// Takes a place; it hears nothing before it is attached.
    pub(super) fn new(session: SessionId, id: ParticipantId) -> Arc<Self> {
        let inner = Inner {
            story: Story::default(),
            subscribers: BTreeMap::new(),
            sitting: 0,
            asides: BTreeMap::new(),
            compaction: None,
            gone: false,
            ended: false,
        };
        let (inner, heard) = (Mutex::new(inner), watch::Sender::new(Seq::ZERO));
        Arc::new(Self { session, outbox: Outbox::new(id), inner, heard, unsaved: Notify::new() })
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
            for request in inner.story.requests(now) {
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
    pub(super) fn tell<T>(&self, tell: impl FnOnce(&Story) -> T) -> T {
        tell(&self.lock().story)
    }

    /// Waits until the story knows of the event `seq`, or will never.
    pub(super) async fn heard(&self, seq: Seq) {
        let mut heard = self.heard.subscribe();
        let _ = heard.wait_for(|heard| *heard >= seq || self.is_over()).await;
    }

    /// Waits until the story has come to a point, or never will.
    pub(super) async fn wait_for(&self, point: impl Fn(&Story) -> bool) {
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
    pub(super) async fn aside(&self, call: &CallId) -> Option<Settlement> {
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
                    Out::Lines { .. } => {}
                    Out::Subscribe { feed, after } => place = Some(Place { feed, seen: after }),
                    Out::Follow(feed) => {
                        if let Some(place) = &mut place {
                            place.feed = feed;
                        }
                    }
                    Out::Unsubscribe(_) => place = None,
                    Out::Last { .. } => return self.end(),
                }
            }
            let busy = match &mut place {
                Some(place) => place.go_on(&self, &hub).await,
                None => false,
            };
            if !busy {
                self.outbox.woken().await;
            }
        }
    }

    fn end(&self) {
        self.lock().gone = true;
        self.heard.send_modify(|_| {});
    }

    /// Hears some events, and passes on what they add to the story.
    fn hear(&self, events: &[Event]) {
        let Some(last) = events.last().map(|event| event.seq) else { return };
        let mut inner = self.lock();
        for event in events {
            inner.note(event);
        }
        let told: Vec<SessionEvent> = if inner.subscribers.is_empty() {
            events.iter().for_each(|event| inner.story.absorb(event));
            Vec::new()
        } else {
            inner.story.tell(events)
        };
        for event in &told {
            let line = encode::event(&self.session, event);
            inner.subscribers.values().for_each(|mailbox| mailbox.push(line.clone()));
        }
        drop(inner);
        self.heard.send_replace(last);
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
        } else if let EventKind::CompactionOver { ending, message, again: _ } = &event.kind {
            let (message, ending) = (message.clone(), *ending);
            self.compaction = Some((event.seq, Compacted::Failed { message, ending }));
        }
    }
}

/// Tells whether an event ends something that is to be found in the session's file.
fn ends_something(event: &Event) -> bool {
    let of_the_user = |settlement: &Settlement| matches!(settlement.purpose, Purpose::Aside { .. });
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

impl Place {
    /// Hears what has been shown since, and tells whether there was anything.
    async fn go_on(&mut self, seat: &Seat, hub: &Hub) -> bool {
        let newest = self.feed.newest();
        if self.seen >= newest {
            return false;
        }
        match self.feed.after(self.seen, AT_ONCE) {
            Tail::Spans(blocks) => {
                for block in &blocks {
                    self.hear(seat, &block.lines, newest);
                    self.seen = self.seen.max(block.last.min(newest));
                }
            }
            Tail::Behind => {
                match hub.world().journal.page(self.feed.session().clone(), self.seen, AT_ONCE).await {
                    Ok(page) => {
                        for block in &page.blocks {
                            self.hear(seat, &block.bytes, newest);
                        }
                        if page.blocks.is_empty() {
                            self.seen = newest;
                        }
                    }
                    Err(error) => {
                        warn!(session = %seat.session, %error, "the story of a session could not be read");
                        self.seen = newest;
                    }
                }
            }
        }
        true
    }

    /// Hears the lines after what was seen, and none that was not shown yet.
    fn hear(&mut self, seat: &Seat, lines: &[u8], newest: Seq) {
        let mut events = Vec::new();
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            match record::decode_event(line) {
                Ok(event) if event.seq > self.seen && event.seq <= newest => {
                    self.seen = event.seq;
                    events.push(event);
                }
                Ok(_) => {}
                Err(error) => warn!(session = %seat.session, %error, "an event could not be read"),
            }
        }
        seat.hear(&events);
    }
}

/// How many bytes of events are heard at once.
const AT_ONCE: usize = 256 * 1024;
