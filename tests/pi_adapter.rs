//! The Pi protocol without a daemon: decoded commands, encoded lines, projected sessions.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/events.rs"]
mod events;
#[path = "support/random.rs"]
mod random;

#[path = "pi_adapter/commands.rs"]
mod commands;
#[path = "pi_adapter/cost.rs"]
mod cost;
#[path = "pi_adapter/export.rs"]
mod export;
#[path = "pi_adapter/lines.rs"]
mod lines;
#[path = "pi_adapter/listener.rs"]
mod listener;
#[path = "pi_adapter/pages.rs"]
mod pages;
#[path = "pi_adapter/refusals.rs"]
mod refusals;
#[path = "pi_adapter/scene.rs"]
mod scene;
#[path = "pi_adapter/session.rs"]
mod session;
#[path = "pi_adapter/stories.rs"]
mod stories;
#[path = "pi_adapter/views.rs"]
mod views;
#[path = "pi_adapter/votes.rs"]
mod votes;
#[path = "pi_adapter/walks.rs"]
mod walks;
