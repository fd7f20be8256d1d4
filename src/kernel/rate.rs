//! A rate limiter for commands: a sliding window for each session and one for all of them.
//!
//! Refused commands do not count, so a client that is too fast is admitted again as soon as its oldest command leaves
//! the window. The limiter stores one timestamp for each admitted command in the window; the overall limit bounds
//! their number.

use std::collections::{BTreeMap, VecDeque};

use super::id::SessionId;
use super::time::Now;

/// The limits of a rate limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// How many commands one session may send in a window.
    pub session: usize,
    /// How many commands may arrive in a window overall, with or without a session.
    pub overall: usize,
    /// The length of the window, in milliseconds.
    pub window_millis: u64,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self { session: 100, overall: 1_000, window_millis: 60_000 }
    }
}

/// The limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateExceeded {
    /// The limit of the session.
    Session(RateLimits),
    /// The overall limit.
    Overall(RateLimits),
}

/// The commands admitted in the current window.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    limits: RateLimits,
    /// When each command was admitted and for which session, oldest first.
    admissions: VecDeque<(Now, Option<SessionId>)>,
    /// The number of commands of each session; sessions without any are absent.
    counts: BTreeMap<SessionId, usize>,
}

impl RateLimiter {
    /// Creates a limiter with an empty window.
    pub const fn new(limits: RateLimits) -> Self {
        Self { limits, admissions: VecDeque::new(), counts: BTreeMap::new() }
    }

    /// Admits and counts one command, or returns the limit that it would exceed.
    pub fn try_acquire(&mut self, session: Option<&SessionId>, now: Now) -> Result<(), RateExceeded> {
        self.evict_expired(now);
        if self.admissions.len() >= self.limits.overall {
            return Err(RateExceeded::Overall(self.limits));
        }
        if let Some(session) = session {
            let count = self.counts.entry(session.clone()).or_default();
            if *count >= self.limits.session {
                // With a limit of zero, the new count must not stay behind.
                if *count == 0 {
                    self.counts.remove(session);
                }
                return Err(RateExceeded::Session(self.limits));
            }
            *count += 1;
        }
        self.admissions.push_back((now, session.cloned()));
        Ok(())
    }

    /// Returns the number of commands in the window.
    pub fn in_window(&mut self, now: Now) -> usize {
        self.evict_expired(now);
        self.admissions.len()
    }

    /// Returns the limits.
    pub const fn limits(&self) -> RateLimits {
        self.limits
    }

    fn evict_expired(&mut self, now: Now) {
        while let Some((at, _)) = self.admissions.front()
            && now.since(*at) >= self.limits.window_millis
        {
            let Some((_, Some(session))) = self.admissions.pop_front() else { continue };
            if let Some(count) = self.counts.get_mut(&session) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&session);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RateLimits = RateLimits { session: 2, overall: 3, window_millis: 10 };

    #[test]
    fn a_rate_limited_session_is_admitted_again_when_its_oldest_command_leaves_the_window() {
        let mut rate = RateLimiter::new(LIMITS);
        let session = SessionId::from("s");
        assert_eq!(rate.try_acquire(Some(&session), Now(100)), Ok(()));
        assert_eq!(rate.try_acquire(Some(&session), Now(105)), Ok(()));
        assert_eq!(rate.try_acquire(Some(&session), Now(109)), Err(RateExceeded::Session(LIMITS)));
        assert_eq!(rate.try_acquire(Some(&session), Now(110)), Ok(()));
        assert_eq!(rate.try_acquire(Some(&session), Now(114)), Err(RateExceeded::Session(LIMITS)));
    }

    #[test]
    fn the_overall_limit_counts_commands_with_and_without_a_session() {
        let mut rate = RateLimiter::new(LIMITS);
        assert_eq!(rate.try_acquire(None, Now(1)), Ok(()));
        assert_eq!(rate.try_acquire(None, Now(1)), Ok(()));
        assert_eq!(rate.try_acquire(Some(&SessionId::from("s")), Now(1)), Ok(()));
        assert_eq!(rate.try_acquire(None, Now(2)), Err(RateExceeded::Overall(LIMITS)));
        assert_eq!(rate.try_acquire(Some(&SessionId::from("t")), Now(2)), Err(RateExceeded::Overall(LIMITS)));
        assert_eq!((rate.in_window(Now(10)), rate.in_window(Now(11))), (3, 0));
    }

    #[test]
    fn refused_and_expired_commands_take_no_memory() {
        let mut rate = RateLimiter::new(RateLimits { session: 0, ..LIMITS });
        assert!(rate.try_acquire(Some(&SessionId::from("s")), Now(1)).is_err());
        assert!(rate.counts.is_empty() && rate.admissions.is_empty());
        let mut rate = RateLimiter::new(LIMITS);
        for n in 0..1_000_u64 {
            let session = SessionId::from(n.to_string());
            let _ = rate.try_acquire(Some(&session), Now(n));
            assert!(rate.admissions.len() <= 3 && rate.counts.len() <= 3);
        }
        assert_eq!(rate.in_window(Now(5_000)), 0);
        assert!(rate.counts.is_empty());
    }
}
