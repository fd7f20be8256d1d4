//! The circuit breaker of a server, shared by all sessions, and the admission of each run.
//!
//! A run is admitted once: its later requests are never refused because other runs failed in the meantime. The
//! failure of a run counts once, however many requests it makes, and only after its last one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::breaker::{Breaker, BreakerAdmission, BreakerPolicy, BreakerState, Counts};
use super::error::{ModelError, ModelErrorKind};

/// The shared circuit breaker of one server.
#[derive(Debug)]
pub(super) struct Circuit(Mutex<Breaker>);

/// Who started a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Starter {
    /// A person who waits for it: the run is never refused, and probes a server whose breaker is open.
    #[default]
    Person,
    /// A program, which can retry later.
    Program,
}

/// The admission of a run at the breaker of its server.
#[derive(Debug)]
pub struct RunAdmission {
    starter: Starter,
    admitted: Mutex<Option<AdmittedCircuit>>,
}

#[derive(Debug)]
struct AdmittedCircuit {
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
    /// Creates the admission of a run that has made no request yet.
    pub const fn new(starter: Starter) -> Self {
        Self { starter, admitted: Mutex::new(None) }
    }

    fn admitted(&self) -> MutexGuard<'_, Option<AdmittedCircuit>> {
        self.admitted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether the failure of the run is counted, and returns the previous value.
    fn set_failure(&self, failure: Failure) -> Failure {
        let mut admitted = self.admitted();
        admitted.as_mut().map_or(Failure::NotCounted, |admitted| std::mem::replace(&mut admitted.failure, failure))
    }
}

impl Circuit {
    /// Creates a closed breaker.
    pub(super) const fn new(policy: BreakerPolicy) -> Self {
        Self(Mutex::new(Breaker::new(policy)))
    }

    /// Requests a permit for one request of a run; the error is the approximate wait.
    pub(super) fn admit(self: &Arc<Self>, run: &Arc<RunAdmission>) -> Result<CircuitPermit, Duration> {
        let mut admitted = run.admitted();
        let known = admitted.as_ref().is_some_and(|admitted| Arc::ptr_eq(&admitted.circuit, self));
        let admission = match (known, run.starter) {
            (true, _) => BreakerAdmission::Pass,
            (false, Starter::Person) => self.breaker().admit_always(),
            (false, Starter::Program) => self.breaker().admit(Instant::now()),
        };
        if let BreakerAdmission::Refused(wait) = admission {
            return Err(wait);
        }
        if !known {
            *admitted = Some(AdmittedCircuit { circuit: Arc::clone(self), failure: Failure::NotCounted });
        }
        Ok(CircuitPermit {
            circuit: Arc::clone(self),
            run: Arc::clone(run),
            admission,
            state: PermitState::Outstanding,
        })
    }

    /// Returns the state and the counters.
    pub(super) fn snapshot(&self) -> (BreakerState, Counts) {
        let breaker = self.breaker();
        (breaker.state(Instant::now()), breaker.counts())
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permit for one request. Its holder reports the outcome; a dropped permit reports an abandoned request.
#[derive(Debug)]
pub(super) struct CircuitPermit {
    circuit: Arc<Circuit>,
    run: Arc<RunAdmission>,
    admission: BreakerAdmission,
    state: PermitState,
}

/// Whether the outcome of a request was reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PermitState {
    Outstanding,
    Reported,
}

impl CircuitPermit {
    /// Records that the server started to respond.
    pub(super) fn record_response(&self) {
        self.circuit.breaker().record_response();
    }

    /// Records a complete response.
    pub(super) fn record_success(mut self) {
        self.state = PermitState::Reported;
        self.run.set_failure(Failure::NotCounted);
        self.circuit.breaker().record_success();
    }

    /// Records the final failure of the request.
    pub(super) fn record_failure(mut self, error: &ModelError) {
        self.state = PermitState::Reported;
        let counts = error.kind.is_outage() && self.run.set_failure(Failure::Counted) == Failure::NotCounted;
        let mut breaker = self.circuit.breaker();
        if counts {
            breaker.record_failure(self.admission, Instant::now());
        } else if error.kind.is_outage()
            || matches!(error.kind, ModelErrorKind::InvalidResponse | ModelErrorKind::NotConfigured)
        {
            // The failure was counted before, another program may have answered in the server's place, or nothing
            // was sent.
            breaker.record_abandoned(self.admission);
        } else {
            breaker.record_success();
        }
    }
}

impl Drop for CircuitPermit {
    fn drop(&mut self) {
        match self.state {
            PermitState::Outstanding => self.circuit.breaker().record_abandoned(self.admission),
            PermitState::Reported => {}
        }
    }
}
