//! Exponential backoff with jitter, for every retry of the daemon and the client.
//!
//! Pure but for [`random_fraction`]: randomness is an argument.

use std::time::Duration;

/// Delays that double up to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay.
    pub first: Duration,
    /// The maximum delay.
    pub limit: Duration,
}

impl Backoff {
    /// Returns the delay after so many earlier ones, without jitter.
    pub fn step(self, earlier: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(earlier)).min(self.limit)
    }

    /// Returns between 50 % and 100 % of the step, selected by a random number between 0 and 1: many clients do not
    /// retry at the same time.
    pub fn delay(self, earlier: u32, chance: f64) -> Duration {
        self.step(earlier).mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
    }
}

/// Returns a random number between 0 and 1 for the jitter, or 0.5 if the system has no random source: the delays are
/// then only spread less evenly.
pub fn random_fraction() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), limit: Duration::from_secs(2) };

    #[test]
    fn delays_double_up_to_the_limit() {
        let delays: Vec<_> = (0..8).map(|earlier| BACKOFF.step(earlier).as_millis()).collect();
        assert_eq!(delays, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(BACKOFF.step(u32::MAX), BACKOFF.limit);
    }

    #[test]
    fn jitter_removes_at_most_half_of_the_delay() {
        let delays = [-1.0, 0.0, 0.5, 1.0, 7.0].map(|chance| BACKOFF.delay(1, chance).as_millis());
        assert_eq!(delays, [50, 50, 75, 100, 100]);
    }
}
