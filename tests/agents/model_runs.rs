//! End-to-end tests of model runs: a real daemon, real tools in a real repository, and a scripted model server.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(target_os = "linux")]
mod calls;
mod decisions;
mod exits;
mod faults;
mod fetching;
mod fixture;
mod headless;
mod home;
mod hostile;
mod limits;
#[cfg(target_os = "linux")]
mod lineage;
mod masks;
mod messages;
mod questions;
mod restarts;
mod scopes;
mod self_approval;
mod suite;
mod work;
