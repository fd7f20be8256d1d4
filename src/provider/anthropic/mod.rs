//! Anthropic's messages API: server-sent events with a type each.

pub(super) mod encode;
pub(super) mod read;
