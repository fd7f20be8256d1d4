//! The full-screen dashboard: sessions, approvals, search, settings and checks in panes.
//!
//! The state ([`model`]), its changes ([`update`]) and its rows ([`view`]) are pure; [`app`] reads keys, talks to the daemon
//! and writes to the terminal. A pane is one file and one line in [`panes`].

mod app;
mod approval_list;
mod approvals_pane;
mod columns;
mod field;
mod model;
mod pane;
mod panes;
mod preview;
mod report_pane;
mod requests;
mod search_pane;
mod session_list;
mod session_rows;
mod sessions_pane;
mod shared;
mod update;
mod view;
mod watcher;

#[cfg(test)]
mod tests;

pub(crate) use app::{Connections, run};
pub(crate) use model::{Dashboard, DashboardExit, DashboardSetup};
pub(crate) use pane::{ReportKind, Reports};
