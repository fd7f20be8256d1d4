//! All limits of the command log. They are passed in, so that tests can use single digits and reach each limit.

use super::super::rate::RateLimits;

/// The limits of a command log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandLogLimits {
    /// How many commands may be in flight, waiting repetitions included.
    pub in_flight: usize,
    /// How many outcomes are cached; the oldest are evicted first.
    pub outcomes: usize,
    /// Up to how many bytes a reply body is always kept with its outcome.
    pub body_bytes: usize,
    /// How many bytes all larger bodies may take together. Beyond it the oldest bodies are dropped, but not their
    /// outcomes.
    pub large_bytes: usize,
    /// How many commands one command may depend on.
    pub dependencies: usize,
    /// How long a command whose turn has come waits for its dependencies, in milliseconds.
    pub dependency_millis: u64,
    /// How long after its outcome a key stays valid, in milliseconds.
    pub key_millis: u64,
    /// How much of a failed dependency's error is quoted, in bytes.
    pub error_bytes: usize,
    /// The rate limits for admission.
    pub rate: RateLimits,
}

impl Default for CommandLogLimits {
    fn default() -> Self {
        Self {
            in_flight: 10_000,
            outcomes: 2_000,
            body_bytes: 64 * 1024,
            large_bytes: 64 * 1024 * 1024,
            dependencies: 32,
            dependency_millis: 30_000,
            key_millis: 10 * 60 * 1000,
            error_bytes: 1_000,
            rate: RateLimits::default(),
        }
    }
}
