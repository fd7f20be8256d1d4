//! One server's circuit breaker, shared by all sessions, and how each run stands with it.
//!
//! A run is admitted once: what it asks later is never refused because others failed meanwhile. However often it asks, its
//! failure counts once, and only when it asks no more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::breaker::{Admission, Breaker, Counts, Policy, State};
use super::error::{Kind, ModelError};

/// One server's breaker.
#[derive(Debug)]
pub(super) struct Circuit(Mutex<Breaker>);

/// Who started a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Starter {
    /// A person who waits for it: it is never refused, and probes a server that is left alone.
    #[default]
    Person,
    /// A program, which can be told to come back later.
    Program,
}

/// How a run stands with the breaker of the server that it asks.
#[derive(Debug)]
pub struct RunAdmission {
    starter: Starter,
    standing: Mutex<Option<Standing>>,
}

#[derive(Debug)]
struct Standing {
    circuit: Arc<Circuit>,
    failure: Failure,
}

/// Whether the failure of a run was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    NotCounted,
    Counted,
}

impl RunAdmission {
    /// Makes one for a run that has asked nobody yet.
    pub const fn new(starter: Starter) -> Self {
        Self { starter, standing: Mutex::new(None) }
    }

    fn standing(&self) -> MutexGuard<'_, Option<Standing>> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether the failure of the run is counted, and returns whether it was.
    fn set_failure(&self, failure: Failure) -> Failure {
        let mut standing = self.standing();
        standing
            .as_mut()
            .map_or(Failure::NotCounted, |standing| std::mem::replace(&mut standing.failure, failure))
    }
}

impl Circuit {
    /// Makes a closed one.
    pub(super) const fn new(policy: Policy) -> Self {
        Self(Mutex::new(Breaker::new(policy)))
    }

    /// Asks for a pass for one question of a run; the error is how long to wait, about.
    pub(super) fn admit(self: &Arc<Self>, run: &Arc<RunAdmission>) -> Result<Pass, Duration> {
        let mut standing = run.standing();
        let known = standing.as_ref().is_some_and(|standing| Arc::ptr_eq(&standing.circuit, self));
        let admission = match (known, run.starter) {
            (true, _) => Admission::Pass,
            (false, Starter::Person) => self.breaker().admit_always(),
            (false, Starter::Program) => self.breaker().admit(Instant::now()),
        };
        if let Admission::Refused(wait) = admission {
            return Err(wait);
        }
        if !known {
            *standing = Some(Standing { circuit: Arc::clone(self), failure: Failure::NotCounted });
        }
        Ok(Pass { circuit: Arc::clone(self), run: Arc::clone(run), admission, fate: Fate::Open })
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
    run: Arc<RunAdmission>,
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
        self.run.set_failure(Failure::NotCounted);
        self.circuit.breaker().succeeded();
    }

    /// The question failed, and is not asked again under this pass.
    pub(super) fn failed(mut self, error: &ModelError) {
        self.fate = Fate::Settled;
        let counts = error.kind.outage() && self.run.set_failure(Failure::Counted) == Failure::NotCounted;
        let mut breaker = self.circuit.breaker();
        if counts {
            breaker.failed(self.admission, Instant::now());
        } else if error.kind.outage() || matches!(error.kind, Kind::Garbage | Kind::NotConfigured) {
            // It is counted already, somebody else may have answered in the server's place, or nothing was sent.
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
