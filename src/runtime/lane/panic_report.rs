//! A report that is sent if a task panics.

use tokio::sync::mpsc;

use crate::provider::Reported;

/// Sends a report if the task that holds it panics, so that the session does not wait for the task.
pub(super) struct IfBroken {
    reports: mpsc::Sender<Box<Reported>>,
    reported: Option<Box<Reported>>,
}

impl IfBroken {
    pub(super) fn new(reports: mpsc::Sender<Box<Reported>>, reported: Reported) -> Self {
        Self { reports, reported: Some(Box::new(reported)) }
    }
}

impl Drop for IfBroken {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(reported) = self.reported.take()
        {
            let reports = self.reports.clone();
            // The lane may have ended; then the report is not needed.
            tokio::spawn(async move { drop(reports.send(reported).await) });
        }
    }
}
