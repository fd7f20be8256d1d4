//! What waits to be written to one connection: answers, and changes of what it listens to.
//!
//! Its length is bounded by the connection's unanswered requests: each answer carries the permit that its request
//! took, and gives it back when it has been written. Events do not wait here; a feed holds them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::feed::Feed;
use crate::kernel::id::{ParticipantId, Seq, SessionId};

/// One thing for the writer of a connection.
#[derive(Debug)]
pub enum Out {
    /// Lines to write.
    Lines {
        /// The lines, each with its line feed.
        bytes: Vec<u8>,
        /// What the answered request took.
        permit: Option<OwnedSemaphorePermit>,
    },
    /// Feed the connection with the events after a position.
    Subscribe {
        /// From where.
        feed: Arc<Feed>,
        /// The last position not to be sent.
        after: Seq,
    },
    /// Write a line after the events up to a position, and before those that follow.
    After {
        /// Of which session the events are.
        session: SessionId,
        /// The last event before it.
        after: Seq,
        /// The line, with its line feed.
        line: Bytes,
    },
    /// Go on at the same place in the next life of a session that broke.
    Follow(Arc<Feed>),
    /// Feed the connection no longer.
    Unsubscribe(SessionId),
    /// The session is gone: what it had shown is followed by its last line, and nothing comes after that.
    Last {
        /// Which one.
        session: SessionId,
        /// The line, with its line feed.
        line: Bytes,
    },
}

/// The queue of one connection.
#[derive(Debug)]
pub struct Outbox {
    id: ParticipantId,
    queue: Mutex<Queue>,
    wake: Notify,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Out>,
    held: usize,
}

/// Keeps what is added from the writer until it is dropped.
#[derive(Debug)]
pub struct Held(Arc<Outbox>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().held -= 1;
        self.0.wake.notify_one();
    }
}

impl Outbox {
    /// Makes the queue of the connection `id`.
    pub fn new(id: ParticipantId) -> Arc<Self> {
        Arc::new(Self { id, queue: Mutex::default(), wake: Notify::new(), closed: AtomicBool::new(false) })
    }

    /// Returns the number of the connection.
    pub const fn id(&self) -> ParticipantId {
        self.id
    }

    /// Has the writer take what is added from now on together, when everything has been added.
    #[must_use = "it holds as long as it lives"]
    pub fn hold(self: &Arc<Self>) -> Held {
        self.lock().held += 1;
        Held(Arc::clone(self))
    }

    /// Adds something to write.
    pub fn push(&self, out: Out) {
        self.lock().waiting.push_back(out);
        self.wake.notify_one();
    }

    /// Tells the writer that a feed has something.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Takes everything that waits and is not held.
    pub fn take(&self) -> VecDeque<Out> {
        let mut queue = self.lock();
        if queue.held == 0 { std::mem::take(&mut queue.waiting) } else { VecDeque::new() }
    }

    /// Waits until there may be something to do.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Marks the connection as gone and wakes its writer.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Tells whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_taken_together() {
        let outbox = Outbox::new(ParticipantId(1));
        let (one, other) = (outbox.hold(), outbox.hold());
        outbox.push(Out::Lines { bytes: b"one\n".to_vec(), permit: None });
        assert!(outbox.take().is_empty());
        drop(one);
        outbox.push(Out::Lines { bytes: b"two\n".to_vec(), permit: None });
        assert!(outbox.take().is_empty());
        drop(other);
        assert_eq!(outbox.take().len(), 2);
    }
}
