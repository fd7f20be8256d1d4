//! Rate limiting of wrong tokens: a token bucket per session or client, refilled over time.
//!
//! An attempt is taken before the token is compared and refunded if the token was correct, so that concurrent attempts
//! get no more than sequential ones. While a bucket is empty every token is refused, the correct one included. Requests
//! that need no token are not limited. The throttle reads no clock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The rate limiter for wrong tokens, by key `K`.
#[derive(Debug)]
pub(super) struct Guesses<K> {
    most: u32,
    refill: Duration,
    made: Mutex<Made<K>>,
}

#[derive(Debug)]
struct Made<K> {
    buckets: BTreeMap<K, Bucket>,
    /// The number of buckets at which full ones are evicted.
    sweep_at: usize,
}

/// The remaining attempts of one key.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u32,
    /// The time for which `remaining` is exact.
    at: Duration,
}

impl<K: Ord + Clone> Guesses<K> {
    /// Allows `most` wrong attempts in a burst, and one more after each `refill`.
    pub(super) const fn new(most: u32, refill: Duration) -> Self {
        Self { most, refill, made: Mutex::new(Made { buckets: BTreeMap::new(), sweep_at: 0 }) }
    }

    /// Takes one attempt of a key; fails with the time until the next attempt is available.
    pub(super) fn take(&self, key: &K, now: Duration) -> Result<(), Duration> {
        let mut made = self.lock();
        self.sweep(&mut made, now);
        let bucket = made.buckets.entry(key.clone()).or_insert(Bucket { left: self.most, at: now });
        self.fill(bucket, now);
        if bucket.left == 0 {
            return Err(self.refill.saturating_sub(now.saturating_sub(bucket.at)));
        }
        bucket.left -= 1;
        Ok(())
    }

    /// Returns the attempt of a correct token.
    pub(super) fn give_back(&self, key: &K) {
        if let Some(bucket) = self.lock().buckets.get_mut(key) {
            bucket.left = bucket.left.saturating_add(1).min(self.most);
        }
    }

    /// Adds the attempts that have accrued since the last update.
    fn fill(&self, bucket: &mut Bucket, now: Duration) {
        let passed = now.saturating_sub(bucket.at).as_nanos();
        // Without an interval there is no limit.
        let come = passed.checked_div(self.refill.as_nanos()).unwrap_or(u128::MAX);
        let come = u32::try_from(come).unwrap_or(u32::MAX);
        bucket.left = bucket.left.saturating_add(come).min(self.most);
        // A full bucket discards the fraction of an interval that has passed; others keep it.
        bucket.at = if bucket.left == self.most { now } else { bucket.at + self.refill * come };
    }

    /// Evicts full buckets, so that only keys with recent wrong attempts take memory.
    fn sweep(&self, made: &mut Made<K>, now: Duration) {
        if made.buckets.len() >= made.sweep_at {
            made.buckets.retain(|_, bucket| {
                self.fill(bucket, now);
                bucket.left < self.most
            });
            made.sweep_at = FEW.max(2 * made.buckets.len());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Made<K>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of buckets below which no eviction takes place.
const FEW: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::id::SessionId;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn guesses_run_out_and_come_back_one_by_one() {
        let guesses = Guesses::new(3, 10 * SECOND);
        let session = SessionId::from("sess_1");
        for _ in 0..3 {
            assert_eq!(guesses.take(&session, SECOND), Ok(()));
        }
        assert_eq!(guesses.take(&session, SECOND), Err(10 * SECOND));
        assert_eq!(
            guesses.take(&session, 5 * SECOND),
            Err(6 * SECOND),
            "a refused attempt does not extend the wait"
        );
        assert_eq!(guesses.take(&session, 12 * SECOND), Ok(()));
        assert_eq!(
            guesses.take(&session, 12 * SECOND),
            Err(9 * SECOND),
            "the fraction of an interval is kept"
        );
        assert_eq!(guesses.take(&SessionId::from("sess_2"), SECOND), Ok(()), "other keys are not limited");
        for _ in 0..3 {
            assert_eq!(guesses.take(&session, 1_000 * SECOND), Ok(()), "a bucket never exceeds its burst");
        }
        assert!(guesses.take(&session, 1_000 * SECOND).is_err());
    }

    #[test]
    fn a_right_token_costs_nothing_and_makes_nothing() {
        let guesses = Guesses::new(2, 10 * SECOND);
        let session = SessionId::from("sess_1");
        for _ in 0..100 {
            assert_eq!(guesses.take(&session, SECOND), Ok(()));
            guesses.give_back(&session);
        }
        guesses.give_back(&session);
        assert_eq!(guesses.take(&session, SECOND), Ok(()));
        assert_eq!(guesses.take(&session, SECOND), Ok(()));
        assert!(guesses.take(&session, SECOND).is_err());
    }

    #[test]
    fn sessions_at_which_nobody_guesses_any_more_are_forgotten() {
        let guesses = Guesses::new(2, SECOND);
        for number in 0..10_000_u32 {
            let now = SECOND * (number / 10);
            assert_eq!(guesses.take(&SessionId::from(format!("sess_{number}")), now), Ok(()));
        }
        assert!(guesses.lock().buckets.len() <= 2 * FEW, "{}", guesses.lock().buckets.len());
    }

    #[test]
    fn without_a_pause_there_is_no_limit() {
        let guesses = Guesses::new(1, Duration::ZERO);
        let session = SessionId::from("sess_1");
        assert!((0..100).all(|_| guesses.take(&session, SECOND).is_ok()));
    }
}
