//! The programs as people and scripts use them: real binaries, each test with its own home.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

mod backup;
mod completions;
mod config;
mod crash;
mod daemon;
mod exits;
mod export;
mod maintenance;
mod messages;
mod notify;
mod reports;
mod run;
mod search;
mod sessions;
