//! Chat completions over server-sent events, as served by OpenAI, vLLM, llama.cpp, LM Studio, OpenRouter and
//! others.

pub(super) mod encode;
pub(super) mod read;
