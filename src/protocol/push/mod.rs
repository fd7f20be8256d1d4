//! The Push runtime protocol, version 1: the native protocol of the daemon.
//!
//! Lenient in, strict out. A line is decoded in two steps, the envelope and then the payload, so that a bad payload is
//! still answered under its request id. The protocol is documented in `docs/protocols/push.md`, its schemas are in
//! `schemas/`. Events are sent as their records ([`crate::record`]).

pub mod client;
pub mod decode;
pub mod encode;
mod protocol;
mod wire;

pub use protocol::PushProtocol;

/// The version that every message carries.
pub const PROTOCOL: &str = "push.runtime.v1";

/// The code of the warning that events between the last one received and the next are missing.
const EVENT_GAP: &str = "EVENT_GAP";
/// The words before the number of the first event that still exists, at the end of that warning's detail.
const EARLIEST_SEQ: &str = "earliest retained seq is";

/// The daemon's capabilities, as `hello` reports them.
pub const CAPABILITIES: [&str; 4] = ["stream_tokens", "approvals", "replay_attach", "headless"];
