//! What the test programs share. It is compiled once for each program.
#![allow(dead_code, reason = "not every program uses everything")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(unix)]
pub(crate) mod daemon;
pub(crate) mod events;
#[cfg(unix)]
pub(crate) mod home;
pub(crate) mod model;
#[cfg(unix)]
pub(crate) mod ordinary_user;
#[cfg(unix)]
pub(crate) mod program;
#[cfg(unix)]
pub(crate) mod pty;
pub(crate) mod random;
pub(crate) mod samples;
pub(crate) mod schemas;
pub(crate) mod skip;
pub(crate) mod test_name;
#[cfg(unix)]
pub(crate) mod websocket;
