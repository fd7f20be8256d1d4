//! What a model's server may take and send, passed in, so that tests set it small and reach the edge.

use std::time::Duration;

use super::breaker;
use super::retry;

/// The bounds on one provider's traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// How long a connection may take.
    pub connect: Duration,
    /// How long the server may take until the first bytes of its answer's body.
    ///
    /// A local model is loaded and reads the whole prompt in this time.
    pub first_byte: Duration,
    /// How long it may be silent in the middle of its answer.
    pub silence: Duration,
    /// How long the answer to a question that needs no model may take: a list of models, a version.
    pub lookup: Duration,
    /// What one answer may hold.
    pub turn: TurnLimits,
    /// When a question is asked again.
    pub retry: retry::Policy,
    /// When a server is left alone.
    pub breaker: breaker::Policy,
}

/// What one answer may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnLimits {
    /// How long a line of it may be.
    pub line_bytes: usize,
    /// How much text and thinking it may have in all.
    pub text_bytes: usize,
    /// How many calls it may want.
    pub calls: usize,
    /// How much all their arguments may have.
    pub args_bytes: usize,
    /// How much text that arrived together is passed on as one piece.
    pub piece_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(300),
            silence: Duration::from_secs(300),
            lookup: Duration::from_secs(5),
            turn: TurnLimits::default(),
            retry: retry::Policy::default(),
            breaker: breaker::Policy::default(),
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
            piece_bytes: 4 * 1024,
        }
    }
}
