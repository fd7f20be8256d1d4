//! The bounds of the protocol, passed in, so that tests set them to single digits and reach the edge.

use std::time::Duration;

use crate::kernel::book::BookLimits;

/// The bounds of the protocol.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Those of the book of commands.
    pub book: BookLimits,
    /// How long a message may be, in bytes.
    pub message_bytes: usize,
    /// How many bytes may wait for a connection that does not read.
    pub waiting_bytes: usize,
    /// How many sessions may be open for the protocol's clients.
    pub sessions: usize,
    /// Those of shell commands.
    pub bash: BashLimits,
}

/// When shell commands are refused because they keep taking too long.
#[derive(Debug, Clone, Copy)]
pub struct BashLimits {
    /// How many must have run into their limit, one after the other.
    pub timeouts: u32,
    /// How long none is run then.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            book: BookLimits::default(),
            message_bytes: 10 * 1024 * 1024,
            waiting_bytes: 32 * 1024 * 1024,
            sessions: 100,
            bash: BashLimits { timeouts: 3, pause: Duration::from_secs(60) },
        }
    }
}
