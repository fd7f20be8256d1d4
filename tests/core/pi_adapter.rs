//! The Pi protocol without a daemon: decoded commands, encoded lines, projected sessions.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
mod cost;
pub(crate) mod event_source;
mod export;
mod lines;
mod listener;
mod pages;
mod recorded;
mod refusals;
pub(crate) mod session;
mod transcripts;
mod views;
mod votes;
mod walks;
