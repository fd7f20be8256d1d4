//! The programs as people and scripts use them: real binaries, each test with its own home.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

#[path = "support/model/mod.rs"]
mod model;
#[path = "support/schemas.rs"]
mod schemas;
#[path = "support/skip.rs"]
mod skip;

#[path = "cli/config.rs"]
mod config;
#[path = "cli/crash.rs"]
mod crash;
#[path = "cli/daemon.rs"]
mod daemon;
#[path = "cli/exits.rs"]
mod exits;
#[path = "cli/home.rs"]
mod home;
#[path = "cli/maintenance.rs"]
mod maintenance;
#[path = "cli/messages.rs"]
mod messages;
#[path = "cli/reports.rs"]
mod reports;
#[path = "cli/run.rs"]
mod run;
#[path = "cli/sessions.rs"]
mod sessions;
