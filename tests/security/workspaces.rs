//! Attempts by which a repository, a client or another session would make the daemon work in the wrong directory or
//! wait for ever: swapped workspaces, FIFOs in place of files, hidden files and start-up files of a home.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod exchanged;
mod fixture;
mod hidden;
mod startup;
mod waiting;
