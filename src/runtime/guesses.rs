//! How often a wrong token may be tried: a bucket of guesses for each session or guesser, which fills again with time.
//!
//! A guess is taken before the token is looked at and given back when it was right, so that many who guess at once get no
//! more than one who does. While a bucket is empty no token is looked at, not even the right one; whoever needs no token
//! is not held up. It reads no clock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The guesses that were made of late.
#[derive(Debug)]
pub(super) struct Guesses<K> {
    most: u32,
    refill: Duration,
    made: Mutex<Made<K>>,
}

#[derive(Debug)]
struct Made<K> {
    buckets: BTreeMap<K, Bucket>,
    /// How many buckets there may be before the full ones are swept out.
    sweep_at: usize,
}

/// What is left of the guesses under one key.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: u32,
    /// When `left` was last right.
    at: Duration,
}

impl<K: Ord + Clone> Guesses<K> {
    /// Allows `most` wrong guesses at once, and one more after each `refill`.
    pub(super) const fn new(most: u32, refill: Duration) -> Self {
        Self { most, refill, made: Mutex::new(Made { buckets: BTreeMap::new(), sweep_at: 0 }) }
    }

    /// Takes one guess under a key, or says after which time there is one.
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

    /// Gives back a guess that was right.
    pub(super) fn give_back(&self, key: &K) {
        if let Some(bucket) = self.lock().buckets.get_mut(key) {
            bucket.left = bucket.left.saturating_add(1).min(self.most);
        }
    }

    /// Adds what has come back since the bucket was last looked at.
    fn fill(&self, bucket: &mut Bucket, now: Duration) {
        let passed = now.saturating_sub(bucket.at).as_nanos();
        // Without a pause between guesses there is no limit to them.
        let come = passed.checked_div(self.refill.as_nanos()).unwrap_or(u128::MAX);
        let come = u32::try_from(come).unwrap_or(u32::MAX);
        bucket.left = bucket.left.saturating_add(come).min(self.most);
        // A full bucket has no use for the part of a guess that has come; the others keep it.
        bucket.at = if bucket.left == self.most { now } else { bucket.at + self.refill * come };
    }

    /// Drops full buckets, so that only what is guessed at takes memory.
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

/// So many buckets are not worth sweeping.
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
        assert_eq!(guesses.take(&session, 5 * SECOND), Err(6 * SECOND), "asking does not prolong it");
        assert_eq!(guesses.take(&session, 12 * SECOND), Ok(()));
        assert_eq!(guesses.take(&session, 12 * SECOND), Err(9 * SECOND), "the part that has come is kept");
        assert_eq!(
            guesses.take(&SessionId::from("sess_2"), SECOND),
            Ok(()),
            "another session is not held up"
        );
        for _ in 0..3 {
            assert_eq!(guesses.take(&session, 1_000 * SECOND), Ok(()), "it never holds more than it did");
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
