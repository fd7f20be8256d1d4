//! The outgoing queue of one connection: responses, and changes of its subscriptions.
//!
//! The number of unanswered requests bounds its length: each response carries the permit of its request, and releases
//! it when it has been written. Events are not queued here; feeds hold them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::feed::Feed;
use crate::kernel::command::PrivateEvent;
use crate::kernel::id::{ParticipantId, Seq, SessionId};

/// The permit of a request, taken when the request is read and released when its response has been written.
#[derive(Debug)]
pub struct RequestPermit {
    /// One of the slots for requests of its class.
    _request: OwnedSemaphorePermit,
    /// One of the slots for responses to queries, taken when the query is handled.
    _answer: Option<OwnedSemaphorePermit>,
}

impl RequestPermit {
    /// Creates the permit of a request.
    pub const fn new(request: OwnedSemaphorePermit) -> Self {
        Self { _request: request, _answer: None }
    }

    /// Adds the slot of its response.
    pub fn with_answer(self, answer: OwnedSemaphorePermit) -> Self {
        Self { _answer: Some(answer), ..self }
    }
}

/// One item for the writer of a connection.
#[derive(Debug)]
pub enum OutboxItem {
    /// Encoded frames to write.
    Frames {
        /// The frames, each with a line feed.
        bytes: Vec<u8>,
        /// The permit of the answered request.
        permit: Option<RequestPermit>,
    },
    /// Subscribe the connection to the events after a position.
    Subscribe {
        /// The feed of the session.
        feed: Arc<Feed>,
        /// The last position not to be sent.
        after: Seq,
    },
    /// An event for this connection alone. The notice of a deletion follows the published events of the session and
    /// ends the subscription.
    Private {
        /// The session.
        session: SessionId,
        /// The event.
        event: PrivateEvent,
    },
    /// Continue at the same position with the feed of the lane that replaces a failed one.
    SwitchFeed(Arc<Feed>),
    /// End the subscription to a session.
    Unsubscribe(SessionId),
}

/// The form in which a subscriber reads events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventForm {
    /// Their records, as they are stored.
    Record,
    /// The events themselves, which its protocol encodes in its own way.
    Event,
}

/// The queue of one connection.
#[derive(Debug)]
pub struct Outbox {
    id: ParticipantId,
    event_form: EventForm,
    queue: Mutex<OutboxQueue>,
    wake: Notify,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct OutboxQueue {
    items: VecDeque<OutboxItem>,
    holds: usize,
}

/// Keeps added items from the writer until it is dropped.
#[derive(Debug)]
pub struct HoldGuard(Arc<Outbox>);

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.0.lock().holds -= 1;
        self.0.wake.notify_one();
    }
}

impl Outbox {
    /// Creates the queue of the connection `id`.
    pub fn new(id: ParticipantId, event_form: EventForm) -> Arc<Self> {
        let (queue, wake, closed) = (Mutex::default(), Notify::new(), AtomicBool::new(false));
        Arc::new(Self { id, event_form, queue, wake, closed })
    }

    /// Returns the form in which the connection reads events.
    pub const fn event_form(&self) -> EventForm {
        self.event_form
    }

    /// Returns the number of the connection.
    pub const fn id(&self) -> ParticipantId {
        self.id
    }

    /// Makes the writer take all items that are added until the guard is dropped in one batch.
    #[must_use = "the hold ends when the guard is dropped"]
    pub fn hold(self: &Arc<Self>) -> HoldGuard {
        self.lock().holds += 1;
        HoldGuard(Arc::clone(self))
    }

    /// Adds an item.
    pub fn push(&self, out: OutboxItem) {
        self.lock().items.push_back(out);
        self.wake.notify_one();
    }

    /// Tells the writer that a feed has new events.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Takes all items; none while the queue is held.
    pub fn take(&self) -> VecDeque<OutboxItem> {
        let mut queue = self.lock();
        if queue.holds == 0 { std::mem::take(&mut queue.items) } else { VecDeque::new() }
    }

    /// Waits until the queue or a feed may have something to write.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    /// Marks the connection as closed and wakes its writer.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Returns whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, OutboxQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_items_are_taken_together() {
        let outbox = Outbox::new(ParticipantId(1), EventForm::Record);
        let (one, other) = (outbox.hold(), outbox.hold());
        outbox.push(OutboxItem::Frames { bytes: b"one\n".to_vec(), permit: None });
        assert!(outbox.take().is_empty());
        drop(one);
        outbox.push(OutboxItem::Frames { bytes: b"two\n".to_vec(), permit: None });
        assert!(outbox.take().is_empty());
        drop(other);
        assert_eq!(outbox.take().len(), 2);
    }
}
