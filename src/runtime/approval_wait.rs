//! The request of a connection that waits for a change of the pending approvals.

use std::sync::atomic::{AtomicBool, Ordering};

use super::server::Server;
use super::services::Latch;

/// The wait of one connection.
pub(super) struct ApprovalWait {
    is_waiting: AtomicBool,
    /// Set when the peer sends no more requests.
    input_ended: Latch,
}

impl ApprovalWait {
    pub(super) fn new() -> Self {
        Self { is_waiting: AtomicBool::new(false), input_ended: Latch::new() }
    }

    /// Ends the wait, because the peer sends no more requests.
    pub(super) fn end(&self) {
        self.input_ended.set();
    }

    /// Waits until the list of pending approvals has another revision than `known`, and returns that; `None` if the
    /// requests of the connection or the daemon end before.
    ///
    /// A connection has one wait: a further one is answered at once, so that a change costs one answer for each
    /// connection.
    pub(super) async fn changed(&self, server: &Server, known: u64) -> Option<u64> {
        let services = server.hub().services();
        if self.is_waiting.swap(true, Ordering::AcqRel) {
            return Some(*services.approvals_revision.borrow());
        }
        let mut revision = services.approvals_revision.subscribe();
        let changed = tokio::select! {
            biased;
            () = self.input_ended.wait() => None,
            () = services.closing.wait() => None,
            changed = revision.wait_for(|revision| *revision != known) => changed.ok().map(|revision| *revision),
        };
        self.is_waiting.store(false, Ordering::Release);
        changed
    }
}
