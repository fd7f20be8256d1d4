//! Push, the native protocol.

pub mod client;
