//! Anthropic's messages API over server-sent events.

pub(super) mod encode;
pub(super) mod read;
