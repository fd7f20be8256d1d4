//! The counters of the command service.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::kernel::command_log::AdmissionRefusal;
use crate::kernel::rate::RateExceeded;
use crate::protocol::operation_result::RejectionCounts;

/// Counters of commands.
#[derive(Debug, Default)]
pub(in crate::runtime) struct CommandMetrics(Mutex<CommandCounts>);

/// How many commands were executed and rejected.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CommandCounts {
    pub(super) executed: u64,
    pub(super) rejected: RejectionCounts,
}

impl CommandMetrics {
    /// Counts an execution.
    pub(super) fn executed(&self) {
        self.lock().executed += 1;
    }

    /// Counts a message over the size limit.
    pub(in crate::runtime) fn too_long(&self) {
        self.lock().rejected.message_size += 1;
    }

    /// Counts a session over the limit.
    pub(super) fn session_refused(&self) {
        self.lock().rejected.session_limit += 1;
    }

    /// Counts a command that was not admitted; answers to questions are counted apart.
    pub(super) fn refused(&self, refusal: &AdmissionRefusal, is_answer: bool) {
        let rejected = &mut self.lock().rejected;
        match refusal {
            AdmissionRefusal::Busy { .. } => rejected.in_flight += 1,
            AdmissionRefusal::RateLimited(_) if is_answer => rejected.answer_rate += 1,
            AdmissionRefusal::RateLimited(RateExceeded::Session(_)) => rejected.session_rate += 1,
            AdmissionRefusal::RateLimited(RateExceeded::Overall(_)) => rejected.overall_rate += 1,
            AdmissionRefusal::TooManyDependencies { .. } | AdmissionRefusal::ShuttingDown => {}
        }
    }

    /// Returns the counts.
    pub(super) fn counts(&self) -> CommandCounts {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, CommandCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
