//! What the protocol counts, for `get_metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::command_log::AdmissionRefusal;
use crate::kernel::rate::RateExceeded;
use crate::protocol::pi::encode::RejectionCounts;
use crate::protocol::pi::kind::Kind;

/// What is counted.
#[derive(Debug, Default)]
pub(super) struct Figures {
    executed: AtomicU64,
    busy: AtomicU64,
    sessions: AtomicU64,
    too_long: AtomicU64,
    too_fast_session: AtomicU64,
    too_fast_all: AtomicU64,
    too_fast_answers: AtomicU64,
}

impl Figures {
    pub(super) fn executed(&self) {
        self.executed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message over the limit.
    pub(super) fn too_long(&self) {
        self.too_long.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a session too many.
    pub(super) fn session_refused(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a command that was not admitted.
    pub(super) fn refused(&self, refusal: &AdmissionRefusal, kind: Kind) {
        let counter = match refusal {
            AdmissionRefusal::Busy { .. } => &self.busy,
            AdmissionRefusal::RateLimited(_) if kind == Kind::ExtensionUiResponse => &self.too_fast_answers,
            AdmissionRefusal::RateLimited(RateExceeded::Session(_)) => &self.too_fast_session,
            AdmissionRefusal::RateLimited(RateExceeded::Overall(_)) => &self.too_fast_all,
            AdmissionRefusal::TooManyDependencies { .. } | AdmissionRefusal::ShuttingDown => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn total_executed(&self) -> u64 {
        self.executed.load(Ordering::Relaxed)
    }

    /// How many commands were refused because too many were under way.
    pub(super) fn total_busy(&self) -> u64 {
        self.busy.load(Ordering::Relaxed)
    }

    pub(super) fn rejected(&self, connections: u64) -> RejectionCounts {
        RejectionCounts {
            session_limit: self.sessions.load(Ordering::Relaxed),
            message_size: self.too_long.load(Ordering::Relaxed),
            rate_limit: self.too_fast_session.load(Ordering::Relaxed),
            global_rate_limit: self.too_fast_all.load(Ordering::Relaxed),
            connection_limit: connections,
            extension_ui_response_rate_limit: self.too_fast_answers.load(Ordering::Relaxed),
        }
    }
}
