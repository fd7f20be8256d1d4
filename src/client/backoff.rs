//! Exponential backoff with jitter for connection attempts.
//!
//! Pure: randomness is an argument.

use std::time::Duration;

/// Delays that double up to a limit. Jitter keeps many clients from reconnecting at the same time.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LIMIT: Duration = Duration::from_secs(2);

    /// Starts with the shortest delay.
    pub(super) const fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// Returns to the shortest delay, after a success.
    pub(super) const fn reset(&mut self) {
        self.next = Self::FIRST;
    }

    /// Returns the next delay: between 50 % and 100 % of the current step, selected by the random byte `chance`.
    pub(super) fn advance(&mut self, chance: u8) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(Self::LIMIT);
        due / 2 + due / 2 * u32::from(chance) / 255
    }
}

/// Returns a random byte for the jitter, or 127 if the system has no random source.
pub(super) fn random_byte() -> u8 {
    let mut byte = [127];
    // Without randomness the delays are only spread less evenly.
    let _ = getrandom::fill(&mut byte);
    byte[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_from_50_ms_to_2_s_and_restart_after_success() {
        let mut backoff = Backoff::new();
        let waits: Vec<_> = (0..8).map(|_| backoff.advance(255).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        backoff.reset();
        assert_eq!(backoff.advance(255).as_millis(), 50);
    }

    #[test]
    fn jitter_removes_at_most_half_of_the_delay() {
        assert_eq!(Backoff::new().advance(0).as_millis(), 25);
        assert_eq!(Backoff::new().advance(255).as_millis(), 50);
    }
}
