//! Connections by WebSocket: who is admitted, who is refused and how, and the handling of bad messages; a real daemon,
//! real connections, and a third-party client.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "web/admission.rs"]
mod admission;
#[path = "web/client.rs"]
mod client;
#[path = "support/daemon.rs"]
mod daemon;
#[path = "web/environment.rs"]
mod environment;
#[path = "web/messages.rs"]
mod messages;
#[path = "web/other_users.rs"]
mod other_users;
#[path = "support/schemas.rs"]
mod schemas;
#[path = "support/skip.rs"]
mod skip;
#[path = "web/stdio.rs"]
mod stdio;
#[path = "web/tokens.rs"]
mod tokens;
