//! The daemon's time: the wall clock at its start, carried on by a clock that nobody sets.
//!
//! A clock that is moved while the daemon runs changes neither the order of events nor the moment at which an approval
//! expires, and the time a machine sleeps counts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::kernel::time::Now;

#[cfg(unix)]
#[path = "clock/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "clock/windows.rs"]
mod os;

/// A clock that never goes back.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall: Duration,
    started: Duration,
}

impl Clock {
    /// Starts the clock at the present.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall, started: os::since_boot() }
    }

    /// Returns the present.
    pub fn now(&self) -> Now {
        let millis = (self.wall + self.uptime()).as_millis();
        Now(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// Returns how long the clock has run.
    pub fn uptime(&self) -> Duration {
        os::since_boot().saturating_sub(self.started)
    }

    /// Waits until `deadline`; for ever without one.
    pub async fn sleep_until(&self, deadline: Option<Now>) {
        match deadline {
            Some(deadline) => tokio::time::sleep(Duration::from_millis(deadline.since(self.now()))).await,
            None => std::future::pending().await,
        }
    }
}
