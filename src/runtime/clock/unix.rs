//! A clock that counts the time a machine sleeps, on Unix.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
/// Elsewhere the monotonic clock goes on while the machine sleeps.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Returns the time since the machine was started.
pub(super) fn since_boot() -> Duration {
    clock_gettime(CLOCK).map_or(Duration::ZERO, Duration::from)
}
