//! The daemon's clock: the wall-clock time at startup, advanced by a clock that cannot be set.
//!
//! Setting the system clock while the daemon runs changes neither the order of events nor the expiry of an approval.
//! Time during which the machine sleeps counts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::kernel::time::Now;

#[cfg(unix)]
#[path = "clock/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "clock/windows.rs"]
mod os;

/// A clock that never runs backwards.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall: Duration,
    started: Duration,
}

impl Clock {
    /// Starts the clock at the current time.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall, started: os::since_boot() }
    }

    /// Starts the clock ahead of the current time.
    #[cfg(test)]
    pub(super) fn start_ahead(by: Duration) -> Self {
        let clock = Self::start();
        Self { wall: clock.wall + by, ..clock }
    }

    /// Returns the current time.
    pub fn now(&self) -> Now {
        let millis = (self.wall + self.uptime()).as_millis();
        Now(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// Returns the time since the clock was started.
    pub fn uptime(&self) -> Duration {
        os::since_boot().saturating_sub(self.started)
    }

    /// Waits until `deadline`; forever without one.
    pub async fn sleep_until(&self, deadline: Option<Now>) {
        match deadline {
            Some(deadline) => tokio::time::sleep(Duration::from_millis(deadline.since(self.now()))).await,
            None => std::future::pending().await,
        }
    }
}
