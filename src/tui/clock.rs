//! The time of a view.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep_until};

use super::model::Millis;

/// Waits until a moment; forever without one.
pub(crate) async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
