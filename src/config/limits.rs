//! All limits of the daemon. They are passed in, so that tests can use small values.

use std::ffi::OsString;
use std::time::Duration;

use crate::kernel::limits::Limits as SessionLimits;

/// The maximum length of a line of the native protocol, in bytes; clients refuse to send a longer one.
pub const LINE_BYTES: usize = 8 * 1024 * 1024;

/// The limits of the daemon.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The limits of a session.
    pub session: SessionLimits,
    /// The maximum length of a line, in bytes.
    pub line_bytes: usize,
    /// The maximum nesting depth of a line.
    pub line_depth: usize,
    /// How long a connection may take to send its first line.
    pub first_line_timeout: Duration,
    /// How long a subscriber may make no progress before it is disconnected.
    pub stall_timeout: Duration,
    /// The maximum number of concurrent connections.
    pub connections: usize,
    /// How many wrong attach tokens a session accepts before it stops checking tokens.
    pub wrong_tokens: u32,
    /// The interval after which one more wrong token is accepted.
    pub wrong_token_interval: Duration,
    /// How long a WebSocket handshake may take.
    pub handshake_timeout: Duration,
    /// The maximum number of concurrent Pi connections.
    pub pi_connections: usize,
    /// The maximum length of a Pi message, in bytes.
    pub pi_message_bytes: usize,
    /// The maximum number of Pi commands per minute.
    pub pi_commands: usize,
    /// The maximum number of Pi commands per minute in one session.
    pub pi_session_commands: usize,
    /// The maximum number of open Pi sessions.
    pub pi_sessions: usize,
    /// The timeout of those Pi commands that have one; `None` uses the protocol's value.
    pub pi_command_timeout: Option<Duration>,
    /// How long a Pi command waits for the commands it depends on.
    pub pi_dependency_timeout: Duration,
    /// How long the idempotency key of a Pi command is remembered.
    pub pi_key_lifetime: Duration,
    /// The maximum number of unanswered requests of one connection.
    pub pending_requests: usize,
    /// The capacity of a session's command inbox; its control inbox has the same.
    pub inbox: usize,
    /// The capacity of a session's queue of run reports.
    pub reports: usize,
    /// How many bytes of events a session batches before it stops accepting reports; also the approximate size of a
    /// block.
    pub batch_bytes: usize,
    /// How many bytes of events a session keeps in memory for its subscribers.
    pub ring_bytes: usize,
    /// The maximum number of bytes per write to a subscriber.
    pub write_bytes: usize,
    /// How long an idle session stays in memory.
    pub park_after: Duration,
    /// How long an idle session keeps what it can read from the journal again.
    pub release_after: Duration,
    /// How many bytes an idle session may keep for longer than that; one that needs more leaves memory.
    pub idle_bytes: usize,
    /// The maximum duration of a step.
    pub step_timeout: Duration,
    /// The maximum number of bytes of tool output in a result.
    pub result_bytes: usize,
    /// How many bytes of a file a tool scans for its lines.
    pub read_bytes: u64,
    /// How long a model's server may be silent; `None` uses the provider's value.
    pub model_silence_timeout: Option<Duration>,
    /// How many attempts a model request gets before the run fails; `None` uses the provider's value.
    pub model_attempts: Option<u32>,
    /// How long running work may continue after a stop request.
    pub grace_period: Duration,
    /// The retention policy of the journal.
    pub retention: Retention,
}

/// The retention policy of the journal; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long an inactive session is kept.
    pub keep_for: Option<Duration>,
    /// The size of the journal above which the oldest sessions are removed.
    pub keep_bytes: Option<u64>,
    /// The size of a session's events above which the oldest are removed.
    pub session_bytes: Option<u64>,
    /// The minimum time between two retention passes.
    pub min_interval: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            keep_for: None,
            keep_bytes: Some(10 * 1024 * 1024 * 1024),
            session_bytes: Some(1024 * 1024 * 1024),
            min_interval: Duration::from_secs(60 * 60),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            session: SessionLimits::default(),
            line_bytes: LINE_BYTES,
            line_depth: 64,
            first_line_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(300),
            connections: 20_000,
            wrong_tokens: 10,
            wrong_token_interval: Duration::from_secs(6),
            handshake_timeout: Duration::from_secs(10),
            pi_connections: 1_000,
            pi_message_bytes: 10 * 1024 * 1024,
            pi_commands: 1_000,
            pi_session_commands: 100,
            pi_sessions: 100,
            pi_command_timeout: None,
            pi_dependency_timeout: Duration::from_secs(30),
            pi_key_lifetime: Duration::from_secs(10 * 60),
            pending_requests: 64,
            inbox: 256,
            reports: 1024,
            batch_bytes: 64 * 1024,
            ring_bytes: 1024 * 1024,
            write_bytes: 64 * 1024,
            park_after: Duration::from_secs(60),
            release_after: Duration::from_secs(2),
            idle_bytes: 2 * 1024,
            step_timeout: Duration::from_secs(60 * 60),
            result_bytes: 64 * 1024,
            read_bytes: 64 * 1024 * 1024,
            model_silence_timeout: None,
            model_attempts: None,
            grace_period: Duration::from_secs(10),
            retention: Retention::default(),
        }
    }
}

/// A variable that sets a limit has an invalid value.
#[derive(Debug, thiserror::Error)]
#[error("{variable} must be {expected}, but is {value:?}")]
pub struct LimitError {
    /// The variable.
    pub variable: &'static str,
    /// What its value must be.
    pub expected: &'static str,
    /// Its value.
    pub value: OsString,
}

impl Limits {
    /// Returns the defaults, with the values that the environment sets.
    pub fn from_environment(variable: EnvironmentLookup<'_>) -> Result<Self, LimitError> {
        let mut limits = Self::default();
        let seconds = |name| parse_duration(variable, name, "a number of seconds", 1.0);
        if let Some(park) = seconds("PUSH_PARK_SECONDS")? {
            limits.park_after = park;
        }
        if let Some(step) = seconds("PUSH_STEP_SECONDS")? {
            limits.step_timeout = step;
        }
        if let Some(grace) = seconds("PUSH_GRACE_SECONDS")? {
            limits.grace_period = grace;
        }
        if let Some(first) = seconds("PUSH_FIRST_LINE_SECONDS")? {
            limits.first_line_timeout = first;
        }
        if let Some(pause) = seconds("PUSH_WRONG_TOKEN_SECONDS")? {
            limits.wrong_token_interval = pause;
        }
        if let Some(handshake) = seconds("PUSH_HANDSHAKE_SECONDS")? {
            limits.handshake_timeout = handshake;
        }
        limits.pi_from_environment(variable)?;
        if let Some(approval) = seconds("PUSH_APPROVAL_SECONDS")? {
            limits.session.gate_millis = u64::try_from(approval.as_millis()).unwrap_or(u64::MAX);
        }
        limits.model_silence_timeout = seconds("PUSH_MODEL_SILENCE_SECONDS")?;
        limits.model_attempts = parse_count(variable, "PUSH_MODEL_ATTEMPTS")?;
        let retention = &mut limits.retention;
        if let Some(age) = parse_duration(variable, "PUSH_KEEP_DAYS", "a number of days", 86_400.0)? {
            retention.keep_for = Some(age).filter(|age| !age.is_zero());
        }
        if let Some(most) = parse_bytes(variable, "PUSH_KEEP_BYTES")? {
            retention.keep_bytes = Some(most).filter(|most| *most > 0);
        }
        if let Some(most) = parse_bytes(variable, "PUSH_SESSION_BYTES")? {
            retention.session_bytes = Some(most).filter(|most| *most > 0);
        }
        if let Some(pause) = seconds("PUSH_RETENTION_SECONDS")? {
            retention.min_interval = pause;
        }
        Ok(limits)
    }

    fn pi_from_environment(&mut self, variable: EnvironmentLookup<'_>) -> Result<(), LimitError> {
        for (name, limit) in [
            ("PUSH_PI_CONNECTIONS", &mut self.pi_connections),
            ("PUSH_PI_COMMANDS", &mut self.pi_commands),
            ("PUSH_PI_SESSION_COMMANDS", &mut self.pi_session_commands),
            ("PUSH_PI_SESSIONS", &mut self.pi_sessions),
        ] {
            if let Some(most) = parse_count(variable, name)? {
                *limit = usize::try_from(most).unwrap_or(usize::MAX);
            }
        }
        let seconds = |name| parse_duration(variable, name, "a number of seconds", 1.0);
        self.pi_command_timeout = seconds("PUSH_PI_COMMAND_SECONDS")?;
        if let Some(wait) = seconds("PUSH_PI_DEPENDENCY_SECONDS")? {
            self.pi_dependency_timeout = wait;
        }
        if let Some(life) = seconds("PUSH_PI_KEY_SECONDS")? {
            self.pi_key_lifetime = life;
        }
        Ok(())
    }
}

type EnvironmentLookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Parses a duration in units of `seconds` seconds.
fn parse_duration(
    variable: EnvironmentLookup<'_>,
    name: &'static str,
    expected: &'static str,
    seconds: f64,
) -> Result<Option<Duration>, LimitError> {
    let Some(value) = variable(name) else { return Ok(None) };
    match value.to_str().and_then(|text| text.parse::<f64>().ok()) {
        Some(count) if (0.0..=1e9).contains(&(count * seconds)) => Ok(Some(Duration::from_secs_f64(count * seconds))),
        Some(_) | None => Err(LimitError { variable: name, expected, value }),
    }
}

fn parse_count(variable: EnvironmentLookup<'_>, name: &'static str) -> Result<Option<u32>, LimitError> {
    let Some(value) = variable(name) else { return Ok(None) };
    match value.to_str().and_then(|text| text.parse().ok()).filter(|count| *count > 0) {
        Some(count) => Ok(Some(count)),
        None => Err(LimitError { variable: name, expected: "a whole number above zero", value }),
    }
}

fn parse_bytes(variable: EnvironmentLookup<'_>, name: &'static str) -> Result<Option<u64>, LimitError> {
    let Some(value) = variable(name) else { return Ok(None) };
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(LimitError { variable: name, expected: "a number of bytes", value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_sets_its_limit_and_a_wrong_one_is_named() {
        let limits = Limits::from_environment(&|name| (name == "PUSH_PARK_SECONDS").then(|| "0.5".into()));
        assert_eq!(limits.unwrap().park_after, Duration::from_millis(500));
        let wrong = Limits::from_environment(&|name| (name == "PUSH_STEP_SECONDS").then(|| "soon".into()));
        assert!(wrong.unwrap_err().to_string().contains("PUSH_STEP_SECONDS"));
        assert!(Limits::from_environment(&|_| Some("-1".into())).is_err());
    }

    #[test]
    fn the_model_timeout_and_attempts_can_be_set() {
        let set = |name: &'static str, value: &'static str| {
            Limits::from_environment(&move |variable| (variable == name).then(|| value.into()))
        };
        assert_eq!(set("PUSH_MODEL_ATTEMPTS", "2").unwrap().model_attempts, Some(2));
        assert!(set("PUSH_MODEL_ATTEMPTS", "0").is_err());
        let silence = set("PUSH_MODEL_SILENCE_SECONDS", "1.5").unwrap().model_silence_timeout;
        assert_eq!(silence, Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn a_retention_limit_of_zero_means_no_limit() {
        let set = |value: &'static str| {
            let is_one = |name: &str| ["PUSH_KEEP_DAYS", "PUSH_KEEP_BYTES", "PUSH_SESSION_BYTES"].contains(&name);
            Limits::from_environment(&move |name| is_one(name).then(|| value.into())).map(|limits| limits.retention)
        };
        let none = set("0").unwrap();
        assert_eq!((none.keep_for, none.keep_bytes, none.session_bytes), (None, None, None));
        let some = set("3").unwrap();
        assert_eq!(some.keep_for, Some(Duration::from_secs(3 * 86_400)));
        assert_eq!((some.keep_bytes, some.session_bytes), (Some(3), Some(3)));
        assert!(set("10GiB").unwrap_err().to_string().ends_with("must be a number of days, but is \"10GiB\""));
    }
}
