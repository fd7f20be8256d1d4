//! The documentation: its commands run and print what the pages show, and what it names exists; texts and request
//! bodies are compared with snapshots.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

#[path = "../support/mod.rs"]
mod support;

mod commands;
mod guides;
mod normalize;
mod page;
mod references;
mod snapshots;
mod terminal;
mod tutorial;
mod walkthrough;
