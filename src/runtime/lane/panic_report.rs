//! A report that is sent if a task panics.

use tokio::sync::mpsc;

use crate::kernel::effect::{FinishReport, Report};
use crate::kernel::event::{CallResult, Intention, ToolError, ToolOutcome};
use crate::provider::ReportEnvelope;

/// Sends a report if the task that holds it panics, so that the session does not wait for the task.
pub(super) struct PanicReporter {
    reports: mpsc::Sender<Box<ReportEnvelope>>,
    reported: Option<Box<ReportEnvelope>>,
}

impl PanicReporter {
    pub(super) fn new(reports: mpsc::Sender<Box<ReportEnvelope>>, reported: ReportEnvelope) -> Self {
        Self { reports, reported: Some(Box::new(reported)) }
    }
}

impl Drop for PanicReporter {
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

/// The report of a turn that panicked.
pub(super) fn turn_panicked() -> Report {
    let finish = FinishReport::permanent_failure("INTERNAL_ERROR", "the daemon panicked in a turn of the run");
    Report::Finished(Box::new(finish))
}

/// The result of a call whose task panicked.
pub(super) fn panicked_call(intention: &Intention) -> CallResult {
    let message = "the daemon panicked while the tool was executed".to_owned();
    CallResult {
        call: intention.call.clone(),
        tool: intention.tool.clone(),
        purpose: intention.purpose,
        millis: 0,
        outcome: ToolOutcome::Failed,
        exit_code: None,
        text: String::new(),
        error: Some(ToolError { kind: "INTERNAL_ERROR".to_owned(), retryable: false, message, detail: None }),
        diff: None,
    }
}
