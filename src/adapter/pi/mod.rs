//! The Pi protocol, version 1.0.0: commands with ids, dependencies and versions; responses; events of sessions.
//!
//! Lenient in, strict out. [`decode`] reads a line into an [`Asked`](ask::Asked) or says how to refuse it; [`encode`]
//! writes responses and events; a [`Story`](story::Story) is a session as this protocol tells it, folded from the
//! session's events. The page of the protocol is `docs/protocols/pi.md`, its schemas are in `schemas/pi/`.

pub mod ask;
pub mod decode;
pub mod encode;
pub mod kind;
pub mod nature;
pub mod story;
pub mod text;

/// The version of the protocol.
pub const PROTOCOL: &str = "1.0.0";

/// How it can be spoken.
pub const TRANSPORTS: [&str; 2] = ["websocket", "stdio"];
