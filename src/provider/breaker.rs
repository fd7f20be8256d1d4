//! The circuit breaker: after repeated failures of runs a server gets no requests for a while, then one run probes
//! it.
//!
//! It is pure: the caller passes the time and the outcome of each run. A rejection by a working server (a wrong
//! key, an invalid request) is not a failure here.

use std::time::{Duration, Instant};

/// When the breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The number of consecutive failed runs that opens it.
    pub failures: u32,
    /// How long it stays open before a probe.
    pub pause: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { failures: 5, pause: Duration::from_secs(30) }
    }
}

/// The state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Requests are admitted.
    Closed,
    /// Requests are refused.
    Open,
    /// One request is admitted as a probe; its outcome decides.
    HalfOpen,
}

impl State {
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
pub enum Admission {
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
    pub failures_in_a_row: u32,
    /// How often the breaker opened.
    pub opened: u64,
    /// How many requests it refused.
    pub refused: u64,
}

/// The circuit breaker of one server.
#[derive(Debug, Clone)]
pub struct Breaker {
    policy: Policy,
    opened_at: Option<Instant>,
    probing: Probing,
    counts: Counts,
}

/// Whether a probe is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probing {
    No,
    Yes,
}

impl Breaker {
    /// Creates a closed breaker.
    pub const fn new(policy: Policy) -> Self {
        let counts = Counts { failures_in_a_row: 0, opened: 0, refused: 0 };
        Self { policy, opened_at: None, probing: Probing::No, counts }
    }

    /// Decides whether a request is admitted now.
    pub fn admit(&mut self, now: Instant) -> Admission {
        let Some(opened_at) = self.opened_at else { return Admission::Pass };
        let left = self.policy.pause.saturating_sub(now.saturating_duration_since(opened_at));
        if left.is_zero() && self.probing == Probing::No {
            self.probing = Probing::Yes;
            return Admission::Probe;
        }
        self.counts.refused = self.counts.refused.saturating_add(1);
        // Other requests wait at least as long as a probe may need.
        Admission::Refused(left.max(PROBE_MOMENT))
    }

    /// Admits a request in every state; if the breaker is not closed the request is a probe.
    pub fn admit_always(&mut self) -> Admission {
        if self.opened_at.is_none() {
            return Admission::Pass;
        }
        self.probing = Probing::Yes;
        Admission::Probe
    }

    /// Records that the server responds: it started to answer, or it rejected a request for a reason of its own.
    pub fn answered(&mut self) {
        if self.opened_at.is_some() {
            self.succeeded();
        }
    }

    /// Records a complete response.
    pub fn succeeded(&mut self) {
        self.opened_at = None;
        self.probing = Probing::No;
        self.counts.failures_in_a_row = 0;
    }

    /// Records the failure of a request with this admission.
    pub fn failed(&mut self, admission: Admission, now: Instant) {
        self.counts.failures_in_a_row = self.counts.failures_in_a_row.saturating_add(1);
        let probed = admission == Admission::Probe;
        let enough = self.counts.failures_in_a_row >= self.policy.failures;
        if probed || (self.opened_at.is_none() && enough) {
            self.opened_at = Some(now);
            self.counts.opened = self.counts.opened.saturating_add(1);
        }
        self.abandoned(admission);
    }

    /// Records a request that was dropped without an outcome; if it was the probe, another request may become the
    /// probe.
    pub fn abandoned(&mut self, admission: Admission) {
        if admission == Admission::Probe {
            self.probing = Probing::No;
        }
    }

    /// Returns the state at `now`.
    pub fn state(&self, now: Instant) -> State {
        match self.opened_at {
            None => State::Closed,
            Some(at) if now.saturating_duration_since(at) < self.policy.pause => State::Open,
            Some(_) => State::HalfOpen,
        }
    }

    /// Returns the counters.
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}

/// The minimum wait of a request that is refused during a probe.
const PROBE_MOMENT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { failures: 3, pause: Duration::from_secs(30) };

    #[test]
    fn it_opens_after_failures_in_a_row_and_a_success_starts_the_count_again() {
        let (mut breaker, now) = fresh();
        breaker.failed(Admission::Pass, now);
        breaker.failed(Admission::Pass, now);
        breaker.succeeded();
        breaker.failed(Admission::Pass, now);
        breaker.failed(Admission::Pass, now);
        assert_eq!((breaker.state(now), breaker.admit(now)), (State::Closed, Admission::Pass));
        breaker.failed(Admission::Pass, now);
        assert_eq!(breaker.state(now), State::Open);
        assert_eq!(breaker.admit(now), Admission::Refused(POLICY.pause));
        assert_eq!(breaker.counts(), Counts { failures_in_a_row: 3, opened: 1, refused: 1 });
    }

    #[test]
    fn an_answer_that_only_began_does_not_start_the_count_again() {
        let (mut breaker, now) = fresh();
        for _ in 0..3 {
            breaker.answered();
            breaker.failed(Admission::Pass, now);
        }
        assert_eq!(breaker.state(now), State::Open);
    }

    #[test]
    fn one_probe_passes_after_the_pause_and_its_success_closes() {
        let (mut breaker, later) = opened();
        assert_eq!(breaker.state(later), State::HalfOpen);
        assert_eq!(breaker.admit(later), Admission::Probe);
        assert_eq!(breaker.admit(later), Admission::Refused(PROBE_MOMENT));
        breaker.answered();
        assert_eq!((breaker.state(later), breaker.admit(later)), (State::Closed, Admission::Pass));
        assert_eq!(breaker.counts().failures_in_a_row, 0);
    }

    #[test]
    fn a_failed_probe_opens_again_for_the_whole_pause() {
        let (mut breaker, later) = opened();
        assert_eq!(breaker.admit(later), Admission::Probe);
        breaker.failed(Admission::Probe, later);
        assert_eq!(breaker.state(later), State::Open);
        assert_eq!(breaker.admit(later), Admission::Refused(POLICY.pause));
        assert_eq!(breaker.counts().opened, 2);
        assert_eq!(breaker.admit(later + POLICY.pause), Admission::Probe);
    }

    #[test]
    fn whoever_is_always_admitted_probes_an_open_circuit_before_its_pause_is_over() {
        let (mut breaker, now) = fresh();
        assert_eq!(breaker.admit_always(), Admission::Pass);
        (0..3).for_each(|_| breaker.failed(Admission::Pass, now));
        assert_eq!(breaker.admit(now), Admission::Refused(POLICY.pause));
        assert_eq!(breaker.admit_always(), Admission::Probe);
        breaker.answered();
        assert_eq!((breaker.state(now), breaker.admit(now)), (State::Closed, Admission::Pass));
    }

    #[test]
    fn a_dropped_probe_makes_room_for_another() {
        let (mut breaker, later) = opened();
        let probe = breaker.admit(later);
        breaker.abandoned(Admission::Pass);
        assert_eq!(
            breaker.admit(later),
            Admission::Refused(PROBE_MOMENT),
            "the end of another request does not end the probe"
        );
        breaker.abandoned(probe);
        assert_eq!(breaker.admit(later), Admission::Probe);
    }

    #[test]
    fn what_fails_late_while_it_is_open_does_not_lengthen_the_pause() {
        let (mut breaker, now) = fresh();
        (0..3).for_each(|_| breaker.failed(Admission::Pass, now));
        breaker.failed(Admission::Pass, now + Duration::from_secs(29));
        assert_eq!(breaker.state(now + POLICY.pause), State::HalfOpen);
        assert_eq!(breaker.counts().opened, 1);
    }

    #[test]
    fn a_question_from_before_that_fails_late_is_not_taken_for_the_probe() {
        let (mut breaker, later) = opened();
        assert_eq!(breaker.admit(later), Admission::Probe);
        breaker.failed(Admission::Pass, later);
        assert_eq!(
            (breaker.state(later), breaker.admit(later)),
            (State::HalfOpen, Admission::Refused(PROBE_MOMENT))
        );
    }

    fn opened() -> (Breaker, Instant) {
        let (mut breaker, now) = fresh();
        (0..3).for_each(|_| breaker.failed(Admission::Pass, now));
        (breaker, now + POLICY.pause)
    }

    fn fresh() -> (Breaker, Instant) {
        (Breaker::new(POLICY), Instant::now())
    }
}
