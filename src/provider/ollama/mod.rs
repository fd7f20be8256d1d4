//! Ollama's own chat API: one JSON object per line.

pub(super) mod decode;
pub(super) mod encode;
