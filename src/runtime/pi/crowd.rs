//! Everybody who is connected, and what waits to be sent to each.
//!
//! A line is encoded once and shared by all who get it. Who does not read loses its connection and nothing of
//! anybody else's: what waits for one connection is bounded, and nobody waits for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::transport::frames::CloseReason;

/// What waits to be sent to one connection.
#[derive(Debug)]
pub(super) struct Mailbox {
    id: u64,
    limit: usize,
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// Why it takes nothing more, once it does not.
    closed: OnceLock<CloseReason>,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: Vec<Bytes>,
    bytes: usize,
}

impl Mailbox {
    /// Makes the mailbox of the connection `id`, for at most `limit` bytes.
    pub(super) fn new(id: u64, limit: usize) -> Arc<Self> {
        let (waiting, closed) = (Mutex::default(), OnceLock::new());
        Arc::new(Self { id, limit, waiting, wake: Notify::new(), closed })
    }

    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    /// Adds a line; a mailbox that overflows is closed.
    pub(super) fn push(&self, frame: Bytes) {
        let mut waiting = self.lock();
        // One line may be as large as it is, so that no answer by itself is too much.
        if !waiting.frames.is_empty() && waiting.bytes.saturating_add(frame.len()) > self.limit {
            drop(waiting);
            tracing::warn!(connection = self.id, "a connection that does not read is closed");
            return self.close(CloseReason::PolicyViolation);
        }
        waiting.bytes += frame.len();
        waiting.frames.push(frame);
        drop(waiting);
        self.wake.notify_one();
    }

    /// Waits for lines and takes all of them; `None` when the mailbox is closed and empty.
    pub(super) async fn take(&self) -> Option<Vec<Bytes>> {
        loop {
            let closed = self.is_closed();
            let frames = {
                let mut waiting = self.lock();
                waiting.bytes = 0;
                std::mem::take(&mut waiting.frames)
            };
            if !frames.is_empty() {
                return Some(frames);
            }
            if closed {
                return None;
            }
            self.wake.notified().await;
        }
    }

    /// Takes nothing more; what waits is still sent. The first reason counts.
    pub(super) fn close(&self, why: CloseReason) {
        let _ = self.closed.set(why);
        self.wake.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    /// Returns why nothing more is taken.
    pub(super) fn parting(&self) -> CloseReason {
        self.closed.get().copied().unwrap_or(CloseReason::Normal)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everybody who is connected.
#[derive(Debug, Default)]
pub(super) struct Crowd(Mutex<BTreeMap<u64, Arc<Mailbox>>>);

impl Crowd {
    pub(super) fn join(&self, mailbox: Arc<Mailbox>) {
        self.lock().insert(mailbox.id(), mailbox);
    }

    pub(super) fn leave(&self, id: u64) {
        self.lock().remove(&id);
    }

    /// Sends a line to everybody.
    pub(super) fn tell(&self, frame: &Bytes) {
        for mailbox in self.lock().values() {
            mailbox.push(frame.clone());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Mailbox>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_does_not_read_is_closed_and_nobody_else() {
        let crowd = Crowd::default();
        let (slow, quick) = (Mailbox::new(1, 8), Mailbox::new(2, 8));
        crowd.join(Arc::clone(&slow));
        crowd.join(Arc::clone(&quick));
        for _ in 0..3 {
            crowd.tell(&Bytes::from_static(b"four"));
            assert_eq!(quick.take().await.map(|frames| frames.len()), Some(1));
        }
        assert!(slow.is_closed() && !quick.is_closed());
        assert_eq!(slow.take().await.map(|frames| frames.len()), Some(2), "what fitted is still sent");
        assert_eq!(slow.take().await, None);
    }

    #[tokio::test]
    async fn one_line_may_be_larger_than_what_may_wait() {
        let mailbox = Mailbox::new(1, 2);
        mailbox.push(Bytes::from_static(b"larger"));
        assert!(!mailbox.is_closed());
        assert_eq!(mailbox.take().await.map(|frames| frames.len()), Some(1));
    }
}
