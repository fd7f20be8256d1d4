//! The report of a task that panics.

use tokio::sync::mpsc;

use crate::provider::Reported;

/// Reports for a task that panics, so that nobody waits for it.
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
            // The lane may have ended; then nobody needs to know.
            tokio::spawn(async move { drop(reports.send(reported).await) });
        }
    }
}
