//! The list of panes: a further one is a file and a line here.

use super::approvals_pane::ApprovalsPane;
use super::pane::{Pane, ReportKind};
use super::report_pane::ReportPane;
use super::search_pane::SearchPane;
use super::sessions_pane::SessionsPane;

/// Returns the panes in the order of their numbers.
pub(crate) fn all() -> Vec<Box<dyn Pane>> {
    vec![
        Box::new(SessionsPane::default()),
        Box::new(ApprovalsPane::default()),
        Box::new(SearchPane::default()),
        Box::new(ReportPane::new("Settings", ReportKind::Settings)),
        Box::new(ReportPane::new("Doctor", ReportKind::Doctor)),
    ]
}

/// The pane that Esc returns to.
pub(crate) const SESSIONS: usize = 0;
/// The pane with the approvals.
pub(crate) const APPROVALS: usize = 1;
