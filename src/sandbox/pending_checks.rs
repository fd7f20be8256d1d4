//! Checks that follow commands, which the daemon finishes before it ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How many checks of what commands have changed are not finished; clones count together.
#[derive(Debug, Clone)]
pub struct PendingChecks(Arc<watch::Sender<usize>>);

impl Default for PendingChecks {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl PendingChecks {
    /// Counts a check until what is returned is dropped.
    pub(super) fn begin(&self) -> PendingCheck {
        self.0.send_modify(|count| *count += 1);
        PendingCheck(self.clone())
    }

    /// Waits until all are finished, for at most `limit`; otherwise returns how many are not.
    pub async fn finished(&self, limit: Duration) -> Result<(), usize> {
        let mut count = self.0.subscribe();
        // The sender is held here, so that only the time can run out.
        let none_left = async { count.wait_for(|count| *count == 0).await.is_ok() };
        let _late = timeout(limit, none_left).await;
        match *self.0.borrow() {
            0 => Ok(()),
            pending => Err(pending),
        }
    }
}

/// A check that is not finished.
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
    async fn checks_are_waited_for_until_the_last_is_finished_or_the_time_is_over() {
        let checks = PendingChecks::default();
        let long = Duration::from_secs(60);
        assert_eq!(checks.finished(long).await, Ok(()));
        let (first, second) = (checks.begin(), checks.clone().begin());
        assert_eq!(checks.finished(Duration::ZERO).await, Err(2));
        drop(first);
        assert_eq!(checks.finished(Duration::ZERO).await, Err(1));
        let (finished, ()) = tokio::join!(checks.finished(long), async { drop(second) });
        assert_eq!(finished, Ok(()));
    }
}
