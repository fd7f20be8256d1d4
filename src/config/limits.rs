//! Every bound of the daemon in one place, passed in, so that tests set them to single digits and reach the edge.

use std::ffi::OsString;
use std::time::Duration;

use crate::kernel::limits::Limits as SessionLimits;

/// The bounds of the daemon.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Those of a session.
    pub session: SessionLimits,
    /// How long a line may be, in bytes.
    pub line_bytes: usize,
    /// How deep a line may nest.
    pub line_depth: usize,
    /// How long a connection may take for its first line.
    pub first_line: Duration,
    /// How long a listener may make no progress at all.
    pub stalled: Duration,
    /// How many connections are served at once.
    pub connections: usize,
    /// How many wrong attach tokens may be tried at a session before they are no longer looked at.
    pub wrong_tokens: u32,
    /// After how long one more may be tried.
    pub wrong_token_pause: Duration,
    /// How many requests of one connection may be unanswered.
    pub requests: usize,
    /// How many commands may wait for a session, and as many for its control.
    pub inbox: usize,
    /// How many reports of a run may wait for its session.
    pub reports: usize,
    /// How many bytes of events a session gathers before it takes no more reports; also about how large a block is.
    pub batch_bytes: usize,
    /// How many bytes of events a session keeps in memory for its listeners.
    pub ring_bytes: usize,
    /// How many bytes a listener is written at once.
    pub write_bytes: usize,
    /// How long a session stays in memory when nothing happens to it.
    pub park_after: Duration,
    /// How long a step may take.
    pub step: Duration,
    /// How many bytes of a tool's output its result keeps.
    pub result_bytes: usize,
    /// How large a file a tool may read.
    pub read_bytes: usize,
    /// How long running work may go on after the daemon was asked to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            session: SessionLimits::default(),
            line_bytes: 8 * 1024 * 1024,
            line_depth: 64,
            first_line: Duration::from_secs(10),
            stalled: Duration::from_secs(300),
            connections: 20_000,
            wrong_tokens: 10,
            wrong_token_pause: Duration::from_secs(6),
            requests: 64,
            inbox: 256,
            reports: 1024,
            batch_bytes: 64 * 1024,
            ring_bytes: 1024 * 1024,
            write_bytes: 64 * 1024,
            park_after: Duration::from_secs(60),
            step: Duration::from_secs(60 * 60),
            result_bytes: 64 * 1024,
            read_bytes: 1024 * 1024,
            grace: Duration::from_secs(10),
        }
    }
}

/// A variable that sets a limit does not hold a number of seconds.
#[derive(Debug, thiserror::Error)]
#[error("{variable} must be a number of seconds, but is {value:?}")]
pub struct LimitError {
    /// Which variable.
    pub variable: &'static str,
    /// What it holds.
    pub value: OsString,
}

impl Limits {
    /// Returns the defaults, with the times that the environment sets.
    pub fn from_environment(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, LimitError> {
        let mut limits = Self::default();
        let seconds = |name: &'static str| match variable(name) {
            None => Ok(None),
            Some(value) => match value.to_str().and_then(|text| text.parse().ok()) {
                Some(seconds) if (0.0..=1e9).contains(&seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
                Some(_) | None => Err(LimitError { variable: name, value }),
            },
        };
        if let Some(park) = seconds("PUSH_PARK_SECONDS")? {
            limits.park_after = park;
        }
        if let Some(step) = seconds("PUSH_STEP_SECONDS")? {
            limits.step = step;
        }
        if let Some(grace) = seconds("PUSH_GRACE_SECONDS")? {
            limits.grace = grace;
        }
        if let Some(first) = seconds("PUSH_FIRST_LINE_SECONDS")? {
            limits.first_line = first;
        }
        if let Some(pause) = seconds("PUSH_WRONG_TOKEN_SECONDS")? {
            limits.wrong_token_pause = pause;
        }
        if let Some(approval) = seconds("PUSH_APPROVAL_SECONDS")? {
            limits.session.gate_millis = u64::try_from(approval.as_millis()).unwrap_or(u64::MAX);
        }
        Ok(limits)
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
}
