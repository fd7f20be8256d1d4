//! A clock that includes the time a machine sleeps, on Unix.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
/// On other systems the monotonic clock advances while the machine sleeps.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Returns the time since boot.
pub(super) fn since_boot() -> Duration {
    clock_gettime(CLOCK).map_or(Duration::ZERO, Duration::from)
}
