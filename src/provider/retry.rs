//! The retry policy: pure, with the random number passed in.
//!
//! It applies only until the first delta of a response has been passed on: a turn that has started is never
//! restarted silently.

use std::time::{Duration, SystemTime};

use super::error::{ModelError, ModelErrorKind};
use crate::backoff::Backoff;

/// When a request is retried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// The number of attempts in total; 1 means no retry.
    pub attempts: u32,
    /// The first pause, before jitter shortens it.
    pub first_pause: Duration,
    /// The maximum pause; each pause is twice the one before.
    pub max_pause: Duration,
    /// The maximum `retry-after` of a server; a request with a longer one fails.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 4,
            first_pause: Duration::from_millis(500),
            max_pause: Duration::from_secs(16),
            max_retry_after: Duration::from_secs(60),
        }
    }
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryDecision {
    /// Retry after this time.
    RetryAfter(Duration),
    /// Report the error.
    Fail(ModelError),
}

impl RetryPolicy {
    /// Decides what follows the failure of attempt `attempt` (from 1); `chance` is a random number between 0 and 1.
    ///
    /// A pause is at least half of the exponential backoff, and at least as long as the server asks for.
    pub fn decide(&self, attempt: u32, error: ModelError, chance: f64) -> RetryDecision {
        if !is_transient(error.kind) || !error.retryable || attempt >= self.attempts {
            return RetryDecision::Fail(error);
        }
        let requested = error.retry_after.unwrap_or_default();
        if requested > self.max_retry_after {
            let message = format!(
                "{}; the server asks for a retry after {} s, more than the limit of {} s",
                error.message,
                requested.as_secs(),
                self.max_retry_after.as_secs()
            );
            return RetryDecision::Fail(ModelError { message, ..error });
        }
        let backoff = Backoff { first: self.first_pause, limit: self.max_pause };
        RetryDecision::RetryAfter(backoff.delay(attempt.saturating_sub(1), chance).max(requested))
    }
}

/// Returns whether an immediate retry may help against a failure of this kind.
const fn is_transient(kind: ModelErrorKind) -> bool {
    match kind {
        ModelErrorKind::RateLimited => true,
        ModelErrorKind::Overloaded => true,
        ModelErrorKind::Failed => true,
        ModelErrorKind::Unreachable => true,
        ModelErrorKind::Interrupted => true,
        // The user has already waited for minutes.
        ModelErrorKind::TimedOut => false,
        ModelErrorKind::NotConfigured => false,
        ModelErrorKind::Unauthorized => false,
        ModelErrorKind::OutOfCredit => false,
        ModelErrorKind::InvalidResponse => false,
        ModelErrorKind::Refused => false,
        ModelErrorKind::ModelNotFound => false,
        ModelErrorKind::ContextTooLong => false,
        ModelErrorKind::CircuitOpen => false,
        // `TurnStream` has already polled the server until its timeout.
        ModelErrorKind::ModelLoading => false,
    }
}

/// Parses a `retry-after` header: a number of seconds, or a date.
pub fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds.max(0.0)).ok();
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_jitter_takes_at_most_half() {
        let policy = RetryPolicy { attempts: 9, max_pause: Duration::from_secs(3), ..RetryPolicy::default() };
        let pauses = |chance| -> Vec<u128> {
            (1..=5).map(|attempt| delay_of(policy.decide(attempt, failed(), chance)).as_millis()).collect()
        };
        assert_eq!(pauses(1.0), [500, 1000, 2000, 3000, 3000]);
        assert_eq!(pauses(0.0), [250, 500, 1000, 1500, 1500]);
        let endless = RetryPolicy { attempts: u32::MAX, ..policy };
        assert_eq!(delay_of(endless.decide(u32::MAX - 1, failed(), 7.0)), Duration::from_secs(3));
    }

    #[test]
    fn no_retry_follows_the_last_attempt() {
        let policy = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
        assert!(matches!(policy.decide(1, failed(), 0.5), RetryDecision::RetryAfter(_)));
        assert_eq!(policy.decide(2, failed(), 0.5), RetryDecision::Fail(failed()));
    }

    #[test]
    fn only_transient_errors_are_retried() {
        let policy = RetryPolicy::default();
        for kind in ModelErrorKind::ALL {
            let expected = matches!(
                kind,
                ModelErrorKind::RateLimited
                    | ModelErrorKind::Overloaded
                    | ModelErrorKind::Failed
                    | ModelErrorKind::Unreachable
                    | ModelErrorKind::Interrupted
            );
            let decision = policy.decide(1, ModelError::new(kind, "x"), 0.5);
            assert_eq!(matches!(decision, RetryDecision::RetryAfter(_)), expected, "{kind}");
        }
        let hopeless = ModelError { retryable: false, ..failed() };
        assert!(matches!(policy.decide(1, hopeless, 0.5), RetryDecision::Fail(_)));
    }

    #[test]
    fn retry_after_is_honoured_up_to_its_limit() {
        let policy = RetryPolicy::default();
        let asking = |seconds| ModelError { retry_after: Some(Duration::from_secs(seconds)), ..failed() };
        assert_eq!(policy.decide(1, asking(60), 0.5), RetryDecision::RetryAfter(Duration::from_secs(60)));
        assert_eq!(policy.decide(1, asking(0), 1.0), RetryDecision::RetryAfter(Duration::from_millis(500)));
        let RetryDecision::Fail(error) = policy.decide(1, asking(61), 0.5) else { panic!("it waits") };
        assert_eq!(error.message, "x; the server asks for a retry after 61 s, more than the limit of 60 s");
        assert_eq!((error.kind, error.retry_after), (ModelErrorKind::Failed, Some(Duration::from_secs(61))));
    }

    #[test]
    fn retry_after_is_parsed_from_seconds_and_dates() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let cases = [
            ("7", Some(7_000)),
            (" 0 ", Some(0)),
            ("1.5", Some(1_500)),
            ("-3", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7_000)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("soon", None),
            ("", None),
            ("inf", None),
            ("NaN", Some(0)),
        ];
        for (value, expected) in cases {
            let millis = parse_retry_after(value, now).map(|pause| pause.as_millis());
            assert_eq!(millis, expected, "{value:?}");
        }
    }

    fn delay_of(decision: RetryDecision) -> Duration {
        match decision {
            RetryDecision::RetryAfter(pause) => pause,
            RetryDecision::Fail(error) => panic!("gave up: {error}"),
        }
    }

    fn failed() -> ModelError {
        ModelError::new(ModelErrorKind::Failed, "x")
    }
}
