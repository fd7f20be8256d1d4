//! A clock that includes the time a machine sleeps, on Windows.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the time since the first call. The performance counter behind it advances while the machine sleeps.
pub(super) fn since_boot() -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}
