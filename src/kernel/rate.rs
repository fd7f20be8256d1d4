//! How many commands come in a span of time, for each session and for all together.
//!
//! The window slides: what is older than the span does not count. Refused commands do not count either, so that one
//! who is too fast is served again as soon as there is room. It remembers one moment for each counted command of the
//! span, which the limit over all bounds.

use std::collections::{BTreeMap, VecDeque};

use super::id::SessionId;
use super::time::Now;

/// The bounds of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// How many commands one session may get in a span.
    pub session: usize,
    /// How many commands all sessions, and what concerns none, may get together.
    pub overall: usize,
    /// The span, in milliseconds.
    pub millis: u64,
}

impl Default for RateLimits {
    fn default() -> Self {
        Self { session: 100, overall: 1_000, millis: 60_000 }
    }
}

/// Which limit was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooFast {
    /// That of the session.
    Session(RateLimits),
    /// That over all.
    Overall(RateLimits),
}

/// The commands of the last span.
#[derive(Debug, Clone)]
pub struct Rate {
    limits: RateLimits,
    /// When each of them came, and to whom, the oldest first.
    moments: VecDeque<(Now, Option<SessionId>)>,
    /// How many of them each session got; no session stands here with none.
    counts: BTreeMap<SessionId, usize>,
}

impl Rate {
    /// Begins with nothing counted.
    pub const fn new(limits: RateLimits) -> Self {
        Self { limits, moments: VecDeque::new(), counts: BTreeMap::new() }
    }

    /// Counts one command, or says which limit it would exceed and does not count it.
    pub fn take(&mut self, session: Option<&SessionId>, now: Now) -> Result<(), TooFast> {
        self.forget(now);
        if self.moments.len() >= self.limits.overall {
            return Err(TooFast::Overall(self.limits));
        }
        if let Some(session) = session {
            let count = self.counts.entry(session.clone()).or_default();
            if *count >= self.limits.session {
                // A limit of nothing would otherwise leave a count of nothing behind.
                if *count == 0 {
                    self.counts.remove(session);
                }
                return Err(TooFast::Session(self.limits));
            }
            *count += 1;
        }
        self.moments.push_back((now, session.cloned()));
        Ok(())
    }

    /// Returns how many commands count at this moment.
    pub fn used(&mut self, now: Now) -> usize {
        self.forget(now);
        self.moments.len()
    }

    /// Returns the limits.
    pub const fn limits(&self) -> RateLimits {
        self.limits
    }

    fn forget(&mut self, now: Now) {
        while let Some((at, _)) = self.moments.front()
            && now.since(*at) >= self.limits.millis
        {
            let Some((_, Some(session))) = self.moments.pop_front() else { continue };
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

    const LIMITS: RateLimits = RateLimits { session: 2, overall: 3, millis: 10 };

    #[test]
    fn a_session_that_is_too_fast_is_served_again_when_its_oldest_command_is_old() {
        let mut rate = Rate::new(LIMITS);
        let session = SessionId::from("s");
        assert_eq!(rate.take(Some(&session), Now(100)), Ok(()));
        assert_eq!(rate.take(Some(&session), Now(105)), Ok(()));
        assert_eq!(rate.take(Some(&session), Now(109)), Err(TooFast::Session(LIMITS)));
        assert_eq!(rate.take(Some(&session), Now(110)), Ok(()));
        assert_eq!(rate.take(Some(&session), Now(114)), Err(TooFast::Session(LIMITS)));
    }

    #[test]
    fn the_limit_over_all_counts_commands_with_and_without_a_session() {
        let mut rate = Rate::new(LIMITS);
        assert_eq!(rate.take(None, Now(1)), Ok(()));
        assert_eq!(rate.take(None, Now(1)), Ok(()));
        assert_eq!(rate.take(Some(&SessionId::from("s")), Now(1)), Ok(()));
        assert_eq!(rate.take(None, Now(2)), Err(TooFast::Overall(LIMITS)));
        assert_eq!(rate.take(Some(&SessionId::from("t")), Now(2)), Err(TooFast::Overall(LIMITS)));
        assert_eq!((rate.used(Now(10)), rate.used(Now(11))), (3, 0));
    }

    #[test]
    fn nothing_is_remembered_of_refused_and_of_old_commands() {
        let mut rate = Rate::new(RateLimits { session: 0, ..LIMITS });
        assert!(rate.take(Some(&SessionId::from("s")), Now(1)).is_err());
        assert!(rate.counts.is_empty() && rate.moments.is_empty());
        let mut rate = Rate::new(LIMITS);
        for n in 0..1_000_u64 {
            let session = SessionId::from(n.to_string());
            let _ = rate.take(Some(&session), Now(n));
            assert!(rate.moments.len() <= 3 && rate.counts.len() <= 3);
        }
        assert_eq!(rate.used(Now(5_000)), 0);
        assert!(rate.counts.is_empty());
    }
}
