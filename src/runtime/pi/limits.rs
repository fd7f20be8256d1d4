//! The bounds of the protocol, passed in, so that tests set them to single digits and reach the edge.

use std::time::Duration;

use crate::kernel::command_log::CommandLogLimits;

/// The bounds of the protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Those of the book of commands.
    pub(super) book: CommandLogLimits,
    /// How long a message may be, in bytes.
    pub(super) message_bytes: usize,
    /// How many bytes may wait for a connection that does not read.
    pub(super) waiting_bytes: usize,
    /// How long a command may take that may take only so long, where that is not as usual.
    pub(super) command_millis: Option<u64>,
    /// How many sessions may be open for the protocol's clients.
    pub(super) sessions: usize,
    /// Those of shell commands.
    pub(super) bash: BashLimits,
}

/// When shell commands are refused because they keep taking too long.
#[derive(Debug, Clone, Copy)]
pub(super) struct BashLimits {
    /// How many must have run into their limit, one after the other.
    pub(super) timeouts: u32,
    /// How long none is run then.
    pub(super) pause: Duration,
}

impl Limits {
    /// Returns the bounds with what is configured of them.
    pub(super) fn of(limits: &crate::config::limits::Limits) -> Self {
        let mut of_pi = Self { message_bytes: limits.pi_message_bytes, ..Self::default() };
        of_pi.book.rate.overall = limits.pi_commands;
        of_pi.book.rate.session = limits.pi_session_commands;
        of_pi.book.dependency_millis = millis(limits.pi_dependency_timeout);
        of_pi.book.key_millis = millis(limits.pi_key_lifetime);
        of_pi.sessions = limits.pi_sessions;
        of_pi.command_millis = limits.pi_command_timeout.map(millis);
        of_pi
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            book: CommandLogLimits::default(),
            message_bytes: 10 * 1024 * 1024,
            waiting_bytes: 32 * 1024 * 1024,
            command_millis: None,
            sessions: 100,
            bash: BashLimits { timeouts: 3, pause: Duration::from_secs(60) },
        }
    }
}
