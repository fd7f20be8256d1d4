//! Ollama's own chat API: one JSON object a line.

pub(super) mod encode;
pub(super) mod read;
