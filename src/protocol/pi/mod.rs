//! The Pi protocol, version 1.0.0: commands with ids, dependencies and versions; responses; events of sessions.
//!
//! Lenient in, strict out. [`decode`] parses a line into a command or the refusal to send;
//! [`encode`] writes responses and events; a [`Projection`](projection::Projection) is the Pi view of a session, folded
//! from the session's events. The protocol is documented in `docs/protocols/pi.md`, its schemas are in `schemas/pi/`.

pub mod decode;
pub mod encode;
pub mod error_text;
pub mod kind;
pub mod projection;
mod protocol;
pub mod session_file;
mod timestamp;

pub use protocol::PiProtocol;

/// The version of the protocol.
pub const PROTOCOL: &str = "1.0.0";

/// Returns the protocol's `api` name for a provider kind.
///
/// The protocol defines none for Ollama's native API, which keeps its own name.
pub fn interface(kind: &str) -> &str {
    match kind {
        "anthropic" => "anthropic-messages",
        "openai" => "openai-completions",
        other => other,
    }
}
