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
pub(super) struct TokenThrottle<K> {
    burst: u32,
    refill_interval: Duration,
    state: Mutex<ThrottleState<K>>,
}

#[derive(Debug)]
struct ThrottleState<K> {
    buckets: BTreeMap<K, Bucket>,
    /// The number of buckets at which full ones are evicted.
    sweep_at: usize,
}

/// The remaining attempts of one key.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    remaining: u32,
    /// The time for which `remaining` is exact.
    updated_at: Duration,
}

impl<K: Ord + Clone> TokenThrottle<K> {
    /// Allows `most` wrong attempts in a burst, and one more after each `refill`.
    pub(super) const fn new(burst: u32, refill_interval: Duration) -> Self {
        Self { burst, refill_interval, state: Mutex::new(ThrottleState { buckets: BTreeMap::new(), sweep_at: 0 }) }
    }

    /// Takes one attempt of a key; fails with the time until the next attempt is available.
    pub(super) fn try_acquire(&self, key: &K, now: Duration) -> Result<(), Duration> {
        let mut made = self.lock();
        self.sweep(&mut made, now);
        let bucket = made.buckets.entry(key.clone()).or_insert(Bucket { remaining: self.burst, updated_at: now });
        self.refill(bucket, now);
        if bucket.remaining == 0 {
            return Err(self.refill_interval.saturating_sub(now.saturating_sub(bucket.updated_at)));
        }
        bucket.remaining -= 1;
        Ok(())
    }

    /// Returns the attempt of a correct token.
    pub(super) fn refund(&self, key: &K) {
        if let Some(bucket) = self.lock().buckets.get_mut(key) {
            bucket.remaining = bucket.remaining.saturating_add(1).min(self.burst);
        }
    }

    /// Adds the attempts that have accrued since the last update.
    fn refill(&self, bucket: &mut Bucket, now: Duration) {
        let passed = now.saturating_sub(bucket.updated_at).as_nanos();
        // Without an interval there is no limit.
        let come = passed.checked_div(self.refill_interval.as_nanos()).unwrap_or(u128::MAX);
        let come = u32::try_from(come).unwrap_or(u32::MAX);
        bucket.remaining = bucket.remaining.saturating_add(come).min(self.burst);
        // A full bucket discards the fraction of an interval that has passed; others keep it.
        bucket.updated_at =
            if bucket.remaining == self.burst { now } else { bucket.updated_at + self.refill_interval * come };
    }

    /// Evicts full buckets, so that only keys with recent wrong attempts take memory.
    fn sweep(&self, made: &mut ThrottleState<K>, now: Duration) {
        if made.buckets.len() >= made.sweep_at {
            made.buckets.retain(|_, bucket| {
                self.refill(bucket, now);
                bucket.remaining < self.burst
            });
            made.sweep_at = MIN_SWEEP.max(2 * made.buckets.len());
        }
    }

    fn lock(&self) -> MutexGuard<'_, ThrottleState<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of buckets below which no eviction takes place.
const MIN_SWEEP: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::id::SessionId;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn attempts_run_out_and_refill_one_by_one() {
        let throttle = TokenThrottle::new(3, 10 * SECOND);
        let session = SessionId::from("sess_1");
        for _ in 0..3 {
            assert_eq!(throttle.try_acquire(&session, SECOND), Ok(()));
        }
        assert_eq!(throttle.try_acquire(&session, SECOND), Err(10 * SECOND));
        assert_eq!(
            throttle.try_acquire(&session, 5 * SECOND),
            Err(6 * SECOND),
            "a refused attempt does not extend the wait"
        );
        assert_eq!(throttle.try_acquire(&session, 12 * SECOND), Ok(()));
        assert_eq!(throttle.try_acquire(&session, 12 * SECOND), Err(9 * SECOND), "the fraction of an interval is kept");
        assert_eq!(throttle.try_acquire(&SessionId::from("sess_2"), SECOND), Ok(()), "other keys are not limited");
        for _ in 0..3 {
            assert_eq!(throttle.try_acquire(&session, 1_000 * SECOND), Ok(()), "a bucket never exceeds its burst");
        }
        assert!(throttle.try_acquire(&session, 1_000 * SECOND).is_err());
    }

    #[test]
    fn a_correct_token_costs_no_attempt_and_adds_none() {
        let throttle = TokenThrottle::new(2, 10 * SECOND);
        let session = SessionId::from("sess_1");
        for _ in 0..100 {
            assert_eq!(throttle.try_acquire(&session, SECOND), Ok(()));
            throttle.refund(&session);
        }
        throttle.refund(&session);
        assert_eq!(throttle.try_acquire(&session, SECOND), Ok(()));
        assert_eq!(throttle.try_acquire(&session, SECOND), Ok(()));
        assert!(throttle.try_acquire(&session, SECOND).is_err());
    }

    #[test]
    fn idle_keys_are_evicted() {
        let throttle = TokenThrottle::new(2, SECOND);
        for number in 0..10_000_u32 {
            let now = SECOND * (number / 10);
            assert_eq!(throttle.try_acquire(&SessionId::from(format!("sess_{number}")), now), Ok(()));
        }
        assert!(throttle.lock().buckets.len() <= 2 * MIN_SWEEP, "{}", throttle.lock().buckets.len());
    }

    #[test]
    fn a_zero_refill_interval_means_no_limit() {
        let throttle = TokenThrottle::new(1, Duration::ZERO);
        let session = SessionId::from("sess_1");
        assert!((0..100).all(|_| throttle.try_acquire(&session, SECOND).is_ok()));
    }
}
