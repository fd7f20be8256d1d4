//! Connections by WebSocket: who is admitted, who is refused and how, and the handling of bad messages; a real daemon,
//! real connections, and a third-party client.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
mod client;
mod confined_steps;
mod environment;
mod hostile_lines;
mod http;
mod messages;
mod other_users;
mod stdio;
mod tokens;
