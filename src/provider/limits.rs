//! Timeouts and size limits of model servers, passed as arguments so that tests can set them small.

use std::time::Duration;

use super::breaker;
use super::retry;

/// The limits on the traffic of one provider.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// The timeout until the first bytes of the response body.
    ///
    /// A local model is loaded and processes the whole prompt in this time.
    pub first_byte_timeout: Duration,
    /// The idle timeout within a response.
    pub idle_timeout: Duration,
    /// The timeout of a request that involves no model: a list of models, a version.
    pub lookup_timeout: Duration,
    /// The limits on one response.
    pub turn: TurnLimits,
    /// When a request is retried.
    pub retry: retry::RetryPolicy,
    /// When the circuit breaker of a server opens.
    pub breaker: breaker::BreakerPolicy,
}

/// The limits on one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnLimits {
    /// The maximum length of a line.
    pub line_bytes: usize,
    /// The maximum size of text and thinking together.
    pub text_bytes: usize,
    /// The maximum number of tool calls.
    pub calls: usize,
    /// The maximum size of the arguments of all calls together.
    pub args_bytes: usize,
    /// The maximum size of a text delta that is merged from several.
    pub delta_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(300),
            lookup_timeout: Duration::from_secs(5),
            turn: TurnLimits::default(),
            retry: retry::RetryPolicy::default(),
            breaker: breaker::BreakerPolicy::default(),
        }
    }
}

impl Default for TurnLimits {
    fn default() -> Self {
        Self {
            line_bytes: 8 * 1024 * 1024,
            text_bytes: 16 * 1024 * 1024,
            calls: 128,
            args_bytes: 8 * 1024 * 1024,
            delta_bytes: 4 * 1024,
        }
    }
}
