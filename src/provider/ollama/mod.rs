//! Ollama's own chat API: one JSON object per line.

pub(super) mod encode;
pub(super) mod read;
