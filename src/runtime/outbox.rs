//! The outgoing queue of one connection: responses, shared lines, and changes of its subscriptions.
//!
//! The number of unanswered requests bounds the responses: each carries the permit of its request, and releases it when
//! it has been written. Lines that connections share have no permit: their size is bounded, and a connection that exceeds
//! the bound is closed. Events of feeds are not queued here.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tracing::warn;

use super::feed::Feed;
use crate::kernel::command::PrivateEvent;
use crate::kernel::id::{ConnectionId, Seq, SessionId};
use crate::transport::frames::CloseReason;

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
    /// A frame without a line feed, encoded once for all connections that receive it.
    Line(Bytes),
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
    id: ConnectionId,
    event_form: EventForm,
    queue: Mutex<OutboxQueue>,
    /// The maximum size of the queued lines.
    max_line_bytes: usize,
    wake: Notify,
    /// Why the connection is closed, once it is.
    closed: OnceLock<CloseReason>,
}

#[derive(Debug, Default)]
struct OutboxQueue {
    items: VecDeque<OutboxItem>,
    line_bytes: usize,
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
    pub fn new(id: ConnectionId, event_form: EventForm) -> Arc<Self> {
        Self::with_line_bytes(id, event_form, usize::MAX)
    }

    /// Creates the queue of the connection `id`, for at most `max_line_bytes` of shared lines.
    pub fn with_line_bytes(id: ConnectionId, event_form: EventForm, max_line_bytes: usize) -> Arc<Self> {
        let (queue, wake, closed) = (Mutex::default(), Notify::new(), OnceLock::new());
        Arc::new(Self { id, event_form, queue, max_line_bytes, wake, closed })
    }

    /// Returns the form in which the connection reads events.
    pub const fn event_form(&self) -> EventForm {
        self.event_form
    }

    /// Returns the number of the connection.
    pub const fn id(&self) -> ConnectionId {
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

    /// Adds a line that connections share. If the peer does not read its lines, the connection is closed.
    pub fn push_line(&self, line: Bytes) {
        let mut queue = self.lock();
        // A single line may exceed the bound, so that no reply is too large by itself.
        if queue.line_bytes > 0 && queue.line_bytes.saturating_add(line.len()) > self.max_line_bytes {
            drop(queue);
            warn!(connection = self.id.0, "a connection that does not read is closed");
            return self.close_because(CloseReason::PolicyViolation);
        }
        queue.line_bytes += line.len();
        queue.items.push_back(OutboxItem::Line(line));
        drop(queue);
        self.wake.notify_one();
    }

    /// Notifies the writer that a feed has new events.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Takes all items; none while the queue is held.
    pub fn take(&self) -> VecDeque<OutboxItem> {
        let mut queue = self.lock();
        if queue.holds > 0 {
            return VecDeque::new();
        }
        queue.line_bytes = 0;
        std::mem::take(&mut queue.items)
    }

    /// Waits until the queue or a feed may have something to write.
    pub async fn wait(&self) {
        self.wake.notified().await;
    }

    /// Marks the connection as closed and wakes its writer.
    pub fn close(&self) {
        self.close_because(CloseReason::Normal);
    }

    /// Marks the connection as closed for a reason; the first one counts. Queued items are still written.
    pub fn close_because(&self, reason: CloseReason) {
        let _ = self.closed.set(reason);
        self.wake.notify_one();
    }

    /// Returns whether the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// Returns why the connection is closed.
    pub fn close_reason(&self) -> CloseReason {
        self.closed.get().copied().unwrap_or(CloseReason::Normal)
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
        let outbox = Outbox::new(ConnectionId(1), EventForm::Record);
        let (one, other) = (outbox.hold(), outbox.hold());
        outbox.push(OutboxItem::Frames { bytes: b"one\n".to_vec(), permit: None });
        assert!(outbox.take().is_empty());
        drop(one);
        outbox.push(OutboxItem::Frames { bytes: b"two\n".to_vec(), permit: None });
        assert!(outbox.take().is_empty());
        drop(other);
        assert_eq!(outbox.take().len(), 2);
    }

    #[test]
    fn a_connection_that_does_not_read_is_closed_and_what_fitted_is_still_written() {
        let outbox = Outbox::with_line_bytes(ConnectionId(1), EventForm::Event, 8);
        for _ in 0..2 {
            outbox.push_line(Bytes::from_static(b"four"));
        }
        assert_eq!(outbox.take().len(), 2);
        for _ in 0..3 {
            assert!(!outbox.is_closed());
            outbox.push_line(Bytes::from_static(b"four"));
        }
        assert_eq!((outbox.is_closed(), outbox.close_reason()), (true, CloseReason::PolicyViolation));
        outbox.close();
        assert_eq!(outbox.close_reason(), CloseReason::PolicyViolation, "the first reason counts");
        assert_eq!(outbox.take().len(), 2);
    }

    #[test]
    fn a_single_line_may_exceed_the_bound() {
        let outbox = Outbox::with_line_bytes(ConnectionId(1), EventForm::Event, 2);
        outbox.push_line(Bytes::from_static(b"larger"));
        assert!(!outbox.is_closed());
        assert_eq!(outbox.take().len(), 1);
    }
}
