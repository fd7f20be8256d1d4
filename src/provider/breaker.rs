//! The circuit breaker: after repeated failures of runs a server gets no requests for a while, then one run probes
//! it. The shell commands of Pi clients use it as well.
//!
//! It is pure: the caller passes the time and the outcome of each run. A rejection by a working server (a wrong
//! key, an invalid request) is not a failure here.

use std::time::{Duration, Instant};

/// When the breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// The number of consecutive failed runs that opens it.
    pub failure_threshold: u32,
    /// How long it stays open before a probe.
    pub open_duration: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self { failure_threshold: 5, open_duration: Duration::from_secs(30) }
    }
}

/// The state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Requests are admitted.
    Closed,
    /// Requests are refused.
    Open,
    /// One request is admitted as a probe; its outcome decides.
    HalfOpen,
}

impl BreakerState {
    /// Returns the name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The admission of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerAdmission {
    /// Admitted.
    Pass,
    /// Admitted as the probe, whose outcome decides the state.
    Probe,
    /// Refused, for about this long.
    Refused(Duration),
}

/// The counters of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Runs that failed since the last success.
    pub consecutive_failures: u32,
    /// How often the breaker opened.
    pub opened: u64,
    /// How many requests it refused.
    pub refused: u64,
}

/// The circuit breaker of one server.
#[derive(Debug, Clone)]
pub struct Breaker {
    policy: BreakerPolicy,
    opened_at: Option<Instant>,
    probing: ProbeState,
    counts: Counts,
}

/// Whether a probe is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeState {
    Idle,
    InProgress,
}

impl Breaker {
    /// Creates a closed breaker.
    pub const fn new(policy: BreakerPolicy) -> Self {
        let counts = Counts { consecutive_failures: 0, opened: 0, refused: 0 };
        Self { policy, opened_at: None, probing: ProbeState::Idle, counts }
    }

    /// Decides whether a request is admitted now.
    pub fn admit(&mut self, now: Instant) -> BreakerAdmission {
        let Some(opened_at) = self.opened_at else { return BreakerAdmission::Pass };
        let left = self.policy.open_duration.saturating_sub(now.saturating_duration_since(opened_at));
        if left.is_zero() && self.probing == ProbeState::Idle {
            self.probing = ProbeState::InProgress;
            return BreakerAdmission::Probe;
        }
        self.counts.refused = self.counts.refused.saturating_add(1);
        // Other requests wait at least as long as a probe may need.
        BreakerAdmission::Refused(left.max(MIN_PROBE_WAIT))
    }

    /// Admits a request in every state; if the breaker is not closed the request is a probe.
    pub fn admit_always(&mut self) -> BreakerAdmission {
        if self.opened_at.is_none() {
            return BreakerAdmission::Pass;
        }
        self.probing = ProbeState::InProgress;
        BreakerAdmission::Probe
    }

    /// Records that the server responds: it started to answer, or it rejected a request for a reason of its own.
    pub fn record_response(&mut self) {
        if self.opened_at.is_some() {
            self.record_success();
        }
    }

    /// Records a complete response.
    pub fn record_success(&mut self) {
        self.opened_at = None;
        self.probing = ProbeState::Idle;
        self.counts.consecutive_failures = 0;
    }

    /// Records the failure of a request with this admission.
    pub fn record_failure(&mut self, admission: BreakerAdmission, now: Instant) {
        self.counts.consecutive_failures = self.counts.consecutive_failures.saturating_add(1);
        let probed = admission == BreakerAdmission::Probe;
        let enough = self.counts.consecutive_failures >= self.policy.failure_threshold;
        if probed || (self.opened_at.is_none() && enough) {
            self.opened_at = Some(now);
            self.counts.opened = self.counts.opened.saturating_add(1);
        }
        self.record_abandoned(admission);
    }

    /// Records a request that was dropped without an outcome; if it was the probe, another request may become the
    /// probe.
    pub fn record_abandoned(&mut self, admission: BreakerAdmission) {
        if admission == BreakerAdmission::Probe {
            self.probing = ProbeState::Idle;
        }
    }

    /// Returns the state at `now`.
    pub fn state(&self, now: Instant) -> BreakerState {
        match self.opened_at {
            None => BreakerState::Closed,
            Some(at) if now.saturating_duration_since(at) < self.policy.open_duration => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Returns whether it is not closed.
    pub const fn is_open(&self) -> bool {
        self.opened_at.is_some()
    }

    /// Returns whether a probe is in progress.
    pub const fn is_probed(&self) -> bool {
        matches!(self.probing, ProbeState::InProgress)
    }

    /// Returns the counters.
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}

/// The minimum wait of a request that is refused during a probe.
const MIN_PROBE_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BreakerPolicy = BreakerPolicy { failure_threshold: 3, open_duration: Duration::from_secs(30) };

    #[test]
    fn it_opens_after_consecutive_failures_and_a_success_resets_the_count() {
        let (mut breaker, now) = fresh();
        breaker.record_failure(BreakerAdmission::Pass, now);
        breaker.record_failure(BreakerAdmission::Pass, now);
        breaker.record_success();
        breaker.record_failure(BreakerAdmission::Pass, now);
        breaker.record_failure(BreakerAdmission::Pass, now);
        assert_eq!((breaker.state(now), breaker.admit(now)), (BreakerState::Closed, BreakerAdmission::Pass));
        breaker.record_failure(BreakerAdmission::Pass, now);
        assert_eq!(breaker.state(now), BreakerState::Open);
        assert_eq!(breaker.admit(now), BreakerAdmission::Refused(POLICY.open_duration));
        assert_eq!(breaker.counts(), Counts { consecutive_failures: 3, opened: 1, refused: 1 });
    }

    #[test]
    fn a_response_that_only_started_does_not_reset_the_count() {
        let (mut breaker, now) = fresh();
        for _ in 0..3 {
            breaker.record_response();
            breaker.record_failure(BreakerAdmission::Pass, now);
        }
        assert_eq!(breaker.state(now), BreakerState::Open);
    }

    #[test]
    fn one_probe_is_admitted_after_the_pause_and_its_success_closes_the_breaker() {
        let (mut breaker, later) = opened();
        assert_eq!(breaker.state(later), BreakerState::HalfOpen);
        assert_eq!(breaker.admit(later), BreakerAdmission::Probe);
        assert_eq!(breaker.admit(later), BreakerAdmission::Refused(MIN_PROBE_WAIT));
        breaker.record_response();
        assert_eq!((breaker.state(later), breaker.admit(later)), (BreakerState::Closed, BreakerAdmission::Pass));
        assert_eq!(breaker.counts().consecutive_failures, 0);
    }

    #[test]
    fn a_failed_probe_reopens_the_breaker_for_the_full_pause() {
        let (mut breaker, later) = opened();
        assert_eq!(breaker.admit(later), BreakerAdmission::Probe);
        breaker.record_failure(BreakerAdmission::Probe, later);
        assert_eq!(breaker.state(later), BreakerState::Open);
        assert_eq!(breaker.admit(later), BreakerAdmission::Refused(POLICY.open_duration));
        assert_eq!(breaker.counts().opened, 2);
        assert_eq!(breaker.admit(later + POLICY.open_duration), BreakerAdmission::Probe);
    }

    #[test]
    fn an_unconditional_admission_probes_an_open_breaker_before_its_pause_ends() {
        let (mut breaker, now) = fresh();
        assert_eq!(breaker.admit_always(), BreakerAdmission::Pass);
        (0..3).for_each(|_| breaker.record_failure(BreakerAdmission::Pass, now));
        assert_eq!(breaker.admit(now), BreakerAdmission::Refused(POLICY.open_duration));
        assert_eq!(breaker.admit_always(), BreakerAdmission::Probe);
        breaker.record_response();
        assert_eq!((breaker.state(now), breaker.admit(now)), (BreakerState::Closed, BreakerAdmission::Pass));
    }

    #[test]
    fn a_dropped_probe_allows_another() {
        let (mut breaker, later) = opened();
        let probe = breaker.admit(later);
        breaker.record_abandoned(BreakerAdmission::Pass);
        assert_eq!(
            breaker.admit(later),
            BreakerAdmission::Refused(MIN_PROBE_WAIT),
            "the end of another request does not end the probe"
        );
        breaker.record_abandoned(probe);
        assert_eq!(breaker.admit(later), BreakerAdmission::Probe);
    }

    #[test]
    fn a_late_failure_does_not_extend_the_pause() {
        let (mut breaker, now) = fresh();
        (0..3).for_each(|_| breaker.record_failure(BreakerAdmission::Pass, now));
        breaker.record_failure(BreakerAdmission::Pass, now + Duration::from_secs(29));
        assert_eq!(breaker.state(now + POLICY.open_duration), BreakerState::HalfOpen);
        assert_eq!(breaker.counts().opened, 1);
    }

    #[test]
    fn a_late_failure_of_an_earlier_request_is_not_counted_as_the_probe() {
        let (mut breaker, later) = opened();
        assert_eq!(breaker.admit(later), BreakerAdmission::Probe);
        breaker.record_failure(BreakerAdmission::Pass, later);
        assert_eq!(
            (breaker.state(later), breaker.admit(later)),
            (BreakerState::HalfOpen, BreakerAdmission::Refused(MIN_PROBE_WAIT))
        );
    }

    fn opened() -> (Breaker, Instant) {
        let (mut breaker, now) = fresh();
        (0..3).for_each(|_| breaker.record_failure(BreakerAdmission::Pass, now));
        (breaker, now + POLICY.open_duration)
    }

    fn fresh() -> (Breaker, Instant) {
        (Breaker::new(POLICY), Instant::now())
    }
}
