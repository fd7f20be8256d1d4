//! Chat completions over server-sent events, as served by OpenAI, vLLM, llama.cpp, LM Studio, OpenRouter and
//! others.

pub(super) mod decode;
pub(super) mod encode;
