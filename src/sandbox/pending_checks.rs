//! Checks that run after commands and that the daemon finishes before it exits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// The number of unfinished checks of what commands have changed; clones share the count.
#[derive(Debug, Clone)]
pub struct PendingChecks(Arc<watch::Sender<usize>>);

impl Default for PendingChecks {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl PendingChecks {
    /// Counts a check until the returned guard is dropped.
    pub(super) fn begin(&self) -> PendingCheck {
        self.0.send_modify(|count| *count += 1);
        PendingCheck(self.clone())
    }

    /// Waits until all checks are finished, for at most `limit`; on timeout returns how many are not.
    pub async fn wait_finished(&self, limit: Duration) -> Result<(), usize> {
        let mut count = self.0.subscribe();
        // This value owns the sender, so the wait can end only by the count or by the timeout.
        let none_left = async { count.wait_for(|count| *count == 0).await.is_ok() };
        let _late = timeout(limit, none_left).await;
        match *self.0.borrow() {
            0 => Ok(()),
            pending => Err(pending),
        }
    }
}

/// An unfinished check.
#[derive(Debug)]
pub struct PendingCheck(PendingChecks);

impl Drop for PendingCheck {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_ends_with_the_last_check_or_at_the_limit() {
        let checks = PendingChecks::default();
        let long = Duration::from_secs(60);
        assert_eq!(checks.wait_finished(long).await, Ok(()));
        let (first, second) = (checks.begin(), checks.clone().begin());
        assert_eq!(checks.wait_finished(Duration::ZERO).await, Err(2));
        drop(first);
        assert_eq!(checks.wait_finished(Duration::ZERO).await, Err(1));
        let (finished, ()) = tokio::join!(checks.wait_finished(long), async { drop(second) });
        assert_eq!(finished, Ok(()));
    }
}
