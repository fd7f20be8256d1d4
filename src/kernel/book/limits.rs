//! Every bound of the book, passed in, so that tests set them to single digits and reach the edge.

use super::super::rate::RateLimits;

/// The bounds of a book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookLimits {
    /// How many commands may be under way, repetitions that wait for another's outcome included.
    pub in_flight: usize,
    /// How many outcomes are remembered; the oldest go first.
    pub outcomes: usize,
    /// How many bytes an answer may have to be remembered whatever the others have.
    pub body_bytes: usize,
    /// How many bytes all larger answers may have together; past it the oldest of them are forgotten, their outcomes not.
    pub large_bytes: usize,
    /// How many commands one command may depend on.
    pub dependencies: usize,
    /// How long a command whose turn it is waits for what it depends on, in milliseconds.
    pub dependency_millis: u64,
    /// How long after its outcome a key is remembered, in milliseconds.
    pub key_millis: u64,
    /// How much of the error of a failed dependency is repeated, in bytes.
    pub error_bytes: usize,
    /// How many commands are admitted in a span of time.
    pub rate: RateLimits,
}

impl Default for BookLimits {
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
