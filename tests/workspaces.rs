//! Attempts by which a repository, a client or another session would make the daemon work in the wrong directory or
//! wait for ever: swapped workspaces, FIFOs in place of files, hidden files and start-up files of a home.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/daemon.rs"]
mod daemon;
#[path = "workspaces/exchanged.rs"]
mod exchanged;
#[path = "workspaces/fixture.rs"]
mod fixture;
#[path = "workspaces/hidden.rs"]
mod hidden;
#[path = "support/model/mod.rs"]
mod model;
#[path = "support/ordinary_user.rs"]
mod ordinary_user;
#[path = "support/schemas.rs"]
mod schemas;
#[path = "support/skip.rs"]
mod skip;
#[path = "workspaces/startup.rs"]
mod startup;
#[path = "workspaces/waiting.rs"]
mod waiting;
