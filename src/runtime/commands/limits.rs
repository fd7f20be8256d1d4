//! The limits of the command service, passed in, so that tests can use single digits.

use std::time::Duration;

use crate::kernel::command_log::CommandLogLimits;
use crate::provider::breaker::BreakerPolicy;

/// The limits of the command service.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandServiceLimits {
    /// Those of the command log.
    pub(super) log: CommandLogLimits,
    /// The time limit of commands that have one, if it is configured.
    pub(super) command_millis: Option<u64>,
    /// The maximum number of active sessions.
    pub(super) sessions: usize,
    /// When shell commands are refused after timeouts.
    pub(super) shell: BreakerPolicy,
}

impl CommandServiceLimits {
    /// Returns the limits of the configuration.
    pub(super) fn of(limits: &crate::config::limits::Limits) -> Self {
        let mut service = Self::default();
        service.log.rate.overall = limits.pi_commands;
        service.log.rate.session = limits.pi_session_commands;
        service.log.dependency_millis = millis(limits.pi_dependency_timeout);
        service.log.key_millis = millis(limits.pi_key_lifetime);
        service.sessions = limits.pi_sessions;
        service.command_millis = limits.pi_command_timeout.map(millis);
        service
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Default for CommandServiceLimits {
    fn default() -> Self {
        Self {
            log: CommandLogLimits::default(),
            command_millis: None,
            sessions: 100,
            shell: BreakerPolicy { failure_threshold: 3, open_duration: Duration::from_secs(60) },
        }
    }
}
