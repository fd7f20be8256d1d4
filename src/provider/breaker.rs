//! The circuit breaker: a server at which runs keep failing is left alone for a while, then tried by one run.
//!
//! It is pure: it is told the time and what came of each run's questions. What is refused by a server that works (a wrong
//! key, a request it does not like) is no failure here.

use std::time::{Duration, Instant};

/// When a server is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// After how many failed runs in a row.
    pub failures: u32,
    /// For how long.
    pub pause: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { failures: 5, pause: Duration::from_secs(30) }
    }
}

/// What a breaker does with questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It lets them pass.
    Closed,
    /// It refuses them.
    Open,
    /// It lets one pass and waits what comes of it.
    HalfOpen,
}

impl State {
    /// Returns its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Whether a question may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Pass,
    /// It may, and decides what becomes of the others.
    Probe,
    /// It may not, for about this long.
    Refused(Duration),
}

/// What has been counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Runs that failed since the last success.
    pub failures_in_a_row: u32,
    /// How often the breaker opened.
    pub opened: u64,
    /// How many questions it refused.
    pub refused: u64,
}

/// One server's breaker.
#[derive(Debug, Clone)]
pub struct Breaker {
    policy: Policy,
    opened_at: Option<Instant>,
    probing: Probing,
    counts: Counts,
}

/// Whether a probe is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probing {
    No,
    Yes,
}

impl Breaker {
    /// Makes a closed one.
    pub const fn new(policy: Policy) -> Self {
        let counts = Counts { failures_in_a_row: 0, opened: 0, refused: 0 };
        Self { policy, opened_at: None, probing: Probing::No, counts }
    }

    /// Asks whether a question may be asked now.
    pub fn admit(&mut self, now: Instant) -> Admission {
        let Some(opened_at) = self.opened_at else { return Admission::Pass };
        let left = self.policy.pause.saturating_sub(now.saturating_duration_since(opened_at));
        if left.is_zero() && self.probing == Probing::No {
            self.probing = Probing::Yes;
            return Admission::Probe;
        }
        self.counts.refused = self.counts.refused.saturating_add(1);
        // The others ask again when the probe has had a moment.
        Admission::Refused(left.max(PROBE_MOMENT))
    }

    /// Admits a question whatever the state: where others are refused it is a probe.
    pub fn admit_always(&mut self) -> Admission {
        if self.opened_at.is_none() {
            return Admission::Pass;
        }
        self.probing = Probing::Yes;
        Admission::Probe
    }

    /// The server has begun to answer, or has refused a question for a reason of its own: it is there.
    pub fn answered(&mut self) {
        if self.opened_at.is_some() {
            self.succeeded();
        }
    }

    /// A question was answered to the end.
    pub fn succeeded(&mut self) {
        self.opened_at = None;
        self.probing = Probing::No;
        self.counts.failures_in_a_row = 0;
    }

    /// The server failed at a question that was admitted so.
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

    /// A question was dropped before anything was known; if it was the probe, another may be one.
    pub fn abandoned(&mut self, admission: Admission) {
        if admission == Admission::Probe {
            self.probing = Probing::No;
        }
    }

    /// Returns what it does with questions now.
    pub fn state(&self, now: Instant) -> State {
        match self.opened_at {
            None => State::Closed,
            Some(at) if now.saturating_duration_since(at) < self.policy.pause => State::Open,
            Some(_) => State::HalfOpen,
        }
    }

    /// Returns what has been counted.
    pub const fn counts(&self) -> Counts {
        self.counts
    }
}

/// How long a question waits, at least, for what comes of a probe.
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
            "another one's end is not the probe's"
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
