//! A clock that counts the time a machine sleeps, on Windows.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the time since the first call; the performance counter behind it goes on while the machine sleeps.
pub(super) fn since_boot() -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}
