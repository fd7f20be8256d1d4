//! The circuit breakers of shell commands: after several timeouts in a row, commands are refused for a while.
//!
//! Each session has its own. The state machine is that of the model servers ([`crate::provider::breaker`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::kernel::id::SessionId;
use crate::protocol::operation_result::ShellCircuits;
use crate::provider::breaker::{self, BreakerAdmission, BreakerPolicy};

/// The breakers of all sessions.
pub(super) struct ShellBreakers {
    policy: BreakerPolicy,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    circuits: BTreeMap<SessionId, breaker::Breaker>,
    calls: u64,
    timeouts: u64,
    rejected: u64,
}

impl ShellBreakers {
    pub(super) fn new(policy: BreakerPolicy) -> Self {
        Self { policy, inner: Mutex::default() }
    }

    /// Returns the admission of a command in a session, and counts it; `None` if it may not run.
    pub(super) fn admit(&self, session: &SessionId, now: Instant) -> Option<BreakerAdmission> {
        let mut inner = self.lock();
        let circuit = inner.circuits.entry(session.clone()).or_insert_with(|| breaker::Breaker::new(self.policy));
        match circuit.admit(now) {
            BreakerAdmission::Refused(_) => {
                inner.rejected += 1;
                None
            }
            admission @ (BreakerAdmission::Pass | BreakerAdmission::Probe) => {
                inner.calls += 1;
                Some(admission)
            }
        }
    }

    /// Records the end of a command with this admission.
    pub(super) fn ended(&self, session: &SessionId, admission: BreakerAdmission, timed_out: bool, now: Instant) {
        let mut inner = self.lock();
        if !timed_out {
            inner.circuits.remove(session);
            return;
        }
        inner.timeouts += 1;
        if let Some(circuit) = inner.circuits.get_mut(session) {
            circuit.record_failure(admission, now);
        }
    }

    /// Forgets a session.
    pub(super) fn forget(&self, session: &SessionId) {
        self.lock().circuits.remove(session);
    }

    /// Returns the state of the breakers.
    pub(super) fn report(&self) -> ShellCircuits {
        let inner = self.lock();
        let open = inner.circuits.values().filter(|circuit| circuit.is_open());
        let (probed, refusing): (Vec<_>, Vec<_>) = open.partition(|circuit| circuit.is_probed());
        let state = match (refusing.is_empty(), probed.is_empty()) {
            (false, _) => breaker::BreakerState::Open,
            (true, false) => breaker::BreakerState::HalfOpen,
            (true, true) => breaker::BreakerState::Closed,
        };
        ShellCircuits {
            state: state.name().to_owned(),
            sessions: inner.circuits.len() as u64,
            open_sessions: (refusing.len() + probed.len()) as u64,
            calls: inner.calls,
            timeouts: inner.timeouts,
            rejected: inner.rejected,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_circuit_opens_after_its_timeouts_lets_one_try_and_closes_when_that_ends_in_time() {
        let breaker = ShellBreakers::new(BreakerPolicy { failure_threshold: 2, open_duration: Duration::from_secs(1) });
        let (one, other) = (SessionId::from("one"), SessionId::from("other"));
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        for _ in 0..2 {
            let admission = breaker.admit(&one, at(0)).unwrap();
            breaker.ended(&one, admission, true, at(0));
        }
        assert_eq!(breaker.admit(&one, at(999)), None, "open");
        assert!(breaker.admit(&other, at(999)).is_some(), "another session's is its own");
        assert_eq!(breaker.report().state, "open");
        let probe = breaker.admit(&one, at(1000)).expect("one may try");
        assert_eq!(breaker.admit(&one, at(1000)), None, "and only one");
        assert_eq!(breaker.report().state, "half_open");
        breaker.ended(&one, probe, true, at(1000));
        assert_eq!(breaker.admit(&one, at(1999)), None, "open again");
        let probe = breaker.admit(&one, at(2000)).expect("one may try");
        breaker.ended(&one, probe, false, at(2000));
        assert!(breaker.admit(&one, at(2000)).is_some(), "closed");
        let report = breaker.report();
        assert_eq!((report.state.as_str(), report.timeouts, report.rejected), ("closed", 3, 3));
    }
}
