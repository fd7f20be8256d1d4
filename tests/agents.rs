//! Models at work: a real daemon, real tools in a real repository, and a model's server of our own.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "agents/bench.rs"]
mod bench;
#[path = "support/daemon.rs"]
mod daemon;
#[path = "agents/decisions.rs"]
mod decisions;
#[path = "agents/exits.rs"]
mod exits;
#[path = "agents/faults.rs"]
mod faults;
#[path = "agents/hostile.rs"]
mod hostile;
#[path = "agents/limits.rs"]
mod limits;
#[path = "support/model/mod.rs"]
mod model;
#[path = "agents/own.rs"]
mod own;
#[path = "agents/questions.rs"]
mod questions;
#[path = "agents/restarts.rs"]
mod restarts;
#[path = "support/schemas.rs"]
mod schemas;
#[path = "agents/scopes.rs"]
mod scopes;
#[path = "agents/suite.rs"]
mod suite;
#[path = "agents/talk.rs"]
mod talk;
#[path = "agents/work.rs"]
mod work;
