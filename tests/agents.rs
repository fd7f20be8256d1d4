//! End-to-end tests of model runs: a real daemon, real tools in a real repository, and a scripted model server.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(target_os = "linux")]
#[path = "agents/calls.rs"]
mod calls;
#[path = "support/daemon.rs"]
mod daemon;
#[path = "agents/decisions.rs"]
mod decisions;
#[path = "agents/exits.rs"]
mod exits;
#[path = "agents/faults.rs"]
mod faults;
#[path = "agents/fetching.rs"]
mod fetching;
#[path = "agents/fixture.rs"]
mod fixture;
#[path = "agents/headless.rs"]
mod headless;
#[path = "agents/home.rs"]
mod home;
#[path = "agents/hostile.rs"]
mod hostile;
#[path = "agents/limits.rs"]
mod limits;
#[cfg(target_os = "linux")]
#[path = "agents/lineage.rs"]
mod lineage;
#[path = "agents/masks.rs"]
mod masks;
#[path = "agents/messages.rs"]
mod messages;
#[path = "support/model/mod.rs"]
mod model;
#[path = "support/ordinary_user.rs"]
mod ordinary_user;
#[path = "agents/questions.rs"]
mod questions;
#[path = "agents/restarts.rs"]
mod restarts;
#[path = "support/schemas.rs"]
mod schemas;
#[path = "agents/scopes.rs"]
mod scopes;
#[path = "agents/self_approval.rs"]
mod self_approval;
#[path = "support/skip.rs"]
mod skip;
#[path = "agents/suite.rs"]
mod suite;
#[path = "agents/work.rs"]
mod work;
