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
pub mod session_file;
pub mod story;
pub mod text;

/// The version of the protocol.
pub const PROTOCOL: &str = "1.0.0";

/// Returns the protocol's name of the interface that a kind of provider is spoken to in.
///
/// The protocol has no name for the native interface of Ollama, which is called by its own.
pub fn interface(kind: &str) -> &str {
    match kind {
        "anthropic" => "anthropic-messages",
        "openai" => "openai-completions",
        other => other,
    }
}
