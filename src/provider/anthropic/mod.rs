//! Anthropic's messages API over server-sent events.

pub(super) mod decode;
pub(super) mod encode;
