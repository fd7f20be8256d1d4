//! One server's circuit breaker, shared by all sessions, and the passes it gives out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::breaker::{Admission, Breaker, Counts, Policy, State};
use super::error::{Kind, ModelError};

/// One server's breaker.
#[derive(Debug)]
pub(super) struct Circuit(Mutex<Breaker>);

impl Circuit {
    /// Makes a closed one.
    pub(super) const fn new(policy: Policy) -> Self {
        Self(Mutex::new(Breaker::new(policy)))
    }

    /// Asks for a pass for one question; the error is how long to wait, about.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Pass, Duration> {
        match self.breaker().admit(Instant::now()) {
            Admission::Refused(wait) => Err(wait),
            admission @ (Admission::Pass | Admission::Probe) => {
                Ok(Pass { circuit: Arc::clone(self), admission, fate: Fate::Open })
            }
        }
    }

    /// Returns what the breaker does and what it has counted.
    pub(super) fn look(&self) -> (State, Counts) {
        let breaker = self.breaker();
        (breaker.state(Instant::now()), breaker.counts())
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to ask one question, and the duty to say what came of it; one that is dropped says that nothing did.
#[derive(Debug)]
pub(super) struct Pass {
    circuit: Arc<Circuit>,
    admission: Admission,
    fate: Fate,
}

/// Whether it has been said what came of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Settled,
}

impl Pass {
    /// The server has begun to answer.
    pub(super) fn answered(&self) {
        self.circuit.breaker().answered();
    }

    /// The answer is whole.
    pub(super) fn succeeded(mut self) {
        self.fate = Fate::Settled;
        self.circuit.breaker().succeeded();
    }

    /// The question failed.
    pub(super) fn failed(mut self, error: &ModelError) {
        self.fate = Fate::Settled;
        let mut breaker = self.circuit.breaker();
        if error.kind.outage() {
            breaker.failed(self.admission, Instant::now());
        } else if error.kind == Kind::Garbage {
            // Somebody else may have answered in the server's place.
            breaker.abandoned(self.admission);
        } else {
            breaker.succeeded();
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        match self.fate {
            Fate::Open => self.circuit.breaker().abandoned(self.admission),
            Fate::Settled => {}
        }
    }
}
