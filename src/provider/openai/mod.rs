//! Chat completions: server-sent events, as OpenAI, vLLM, llama.cpp, LM Studio, OpenRouter and others serve them.

pub(super) mod encode;
pub(super) mod read;
