//! The circuit breaker of shell commands: where several in a row ran into their time limit, none is run for a while.
//!
//! Each session has its own circuit. When the pause is over one command is let through; if that ends in time the
//! circuit is closed again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::limits::BashLimits;
use crate::kernel::id::SessionId;
use crate::kernel::time::Now;
use crate::protocol::pi::encode::BashCircuit;

/// The circuits of all sessions.
pub(super) struct Breaker {
    limits: BashLimits,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    circuits: BTreeMap<SessionId, Circuit>,
    calls: u64,
    timeouts: u64,
    rejected: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Circuit {
    /// How many ran into their limit since one did not.
    in_a_row: u32,
    /// When it was opened.
    opened: Option<Now>,
    /// Whether the one command that tries it out is under way.
    trying: bool,
}

impl Breaker {
    pub(super) fn new(limits: BashLimits) -> Self {
        Self { limits, inner: Mutex::default() }
    }

    /// Tells whether a command may run in a session, and counts it.
    pub(super) fn admits(&self, session: &SessionId, now: Now) -> bool {
        let pause = u64::try_from(self.limits.pause.as_millis()).unwrap_or(u64::MAX);
        let mut inner = self.lock();
        let circuit = inner.circuits.entry(session.clone()).or_default();
        let admitted = match circuit.opened {
            None => true,
            Some(opened) if now.since(opened) >= pause && !circuit.trying => {
                circuit.trying = true;
                true
            }
            Some(_) => false,
        };
        if admitted {
            inner.calls += 1;
        } else {
            inner.rejected += 1;
        }
        admitted
    }

    /// Says how a command ended.
    pub(super) fn ended(&self, session: &SessionId, timed_out: bool, now: Now) {
        let limit = self.limits.timeouts;
        let mut inner = self.lock();
        if timed_out {
            inner.timeouts += 1;
        }
        let Some(circuit) = inner.circuits.get_mut(session) else { return };
        circuit.trying = false;
        if !timed_out {
            inner.circuits.remove(session);
            return;
        }
        circuit.in_a_row = circuit.in_a_row.saturating_add(1);
        if circuit.in_a_row >= limit {
            circuit.opened = Some(now);
        }
    }

    /// Forgets a session.
    pub(super) fn forget(&self, session: &SessionId) {
        self.lock().circuits.remove(session);
    }

    /// Tells how the circuits are.
    pub(super) fn report(&self) -> BashCircuit {
        let inner = self.lock();
        let open = inner.circuits.values().filter(|circuit| circuit.opened.is_some());
        let (trying, open): (Vec<&Circuit>, Vec<&Circuit>) = open.partition(|circuit| circuit.trying);
        let state = match (open.is_empty(), trying.is_empty()) {
            (false, _) => "open",
            (true, false) => "half_open",
            (true, true) => "closed",
        };
        BashCircuit {
            enabled: true,
            global_state: state.to_owned(),
            session_count: inner.circuits.len() as u64,
            open_session_count: (open.len() + trying.len()) as u64,
            total_calls: inner.calls,
            total_timeouts: inner.timeouts,
            total_rejected: inner.rejected,
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
        let breaker = Breaker::new(BashLimits { timeouts: 2, pause: Duration::from_secs(1) });
        let (one, other) = (SessionId::from("one"), SessionId::from("other"));
        for _ in 0..2 {
            assert!(breaker.admits(&one, Now(0)));
            breaker.ended(&one, true, Now(0));
        }
        assert!(!breaker.admits(&one, Now(999)), "open");
        assert!(breaker.admits(&other, Now(999)), "another session's is its own");
        assert_eq!(breaker.report().global_state, "open");
        assert!(breaker.admits(&one, Now(1000)), "one may try");
        assert!(!breaker.admits(&one, Now(1000)), "and only one");
        assert_eq!(breaker.report().global_state, "half_open");
        breaker.ended(&one, true, Now(1000));
        assert!(!breaker.admits(&one, Now(1999)), "open again");
        assert!(breaker.admits(&one, Now(2000)));
        breaker.ended(&one, false, Now(2000));
        assert!(breaker.admits(&one, Now(2000)), "closed");
        let report = breaker.report();
        assert_eq!((report.global_state.as_str(), report.total_timeouts, report.total_rejected), ("closed", 3, 3));
    }
}
