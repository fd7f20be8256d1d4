//! The assistant message under construction, serialized incrementally.
//!
//! The content so far is stored as its final JSON. Each delta is escaped once, and an update copies the serialized
//! content.

use std::sync::Arc;

use super::event_sink::EventSink;
use super::message_json::{AssistantFields, StopReason, write_assistant, write_call};
use super::object_writer::ObjectWriter;
use crate::kernel::event::TokenUsage;
use crate::kernel::id::{Json, Seq};
use crate::kernel::time::Now;
use crate::record::json;

/// An assistant message under construction.
#[derive(Debug)]
pub(super) struct OpenMessage {
    /// The position of its first event.
    pub(super) first_seq: Seq,
    at: Now,
    provider: String,
    model: String,
    /// Its serialized content blocks; the last one may be unterminated.
    content: Vec<u8>,
    block_count: usize,
    /// The open block and the offset of its text.
    open_block: Option<(BlockKind, usize)>,
    has_calls: bool,
    usage: Option<TokenUsage>,
    /// Whether `message_start` was emitted.
    pub(super) announced: bool,
}

/// The kind of a content block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// Text for the user.
    Text,
    /// Reasoning.
    Thinking,
}

impl BlockKind {
    const fn type_name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Thinking => "thinking",
        }
    }

    const fn update_names(self) -> [&'static str; 3] {
        match self {
            Self::Text => ["text_start", "text_delta", "text_end"],
            Self::Thinking => ["thinking_start", "thinking_delta", "thinking_end"],
        }
    }
}

impl OpenMessage {
    /// Opens an assistant message.
    pub(super) fn new(first_seq: Seq, at: Now, provider: &str, model: &str) -> Self {
        Self {
            first_seq,
            at,
            provider: provider.to_owned(),
            model: model.to_owned(),
            content: Vec::new(),
            block_count: 0,
            open_block: None,
            has_calls: false,
            usage: None,
            announced: false,
        }
    }

    /// Returns whether it has no content blocks.
    pub(super) const fn is_empty(&self) -> bool {
        self.block_count == 0
    }

    /// Returns whether the open block is of this kind.
    pub(super) fn has_open_block(&self, block: BlockKind) -> bool {
        self.open_block.is_some_and(|(writing, _)| writing == block)
    }

    /// Sets the usage and the model of the turn.
    pub(super) fn set_usage(&mut self, model: &str, used: TokenUsage) {
        if !model.is_empty() {
            model.clone_into(&mut self.model);
        }
        self.usage = Some(used);
    }

    /// Opens a content block.
    pub(super) fn begin_block(&mut self, block: BlockKind, out: &mut EventSink) {
        self.end_block(out);
        self.next_block();
        self.content.extend_from_slice(b"{\"type\":\"");
        self.content.extend_from_slice(block.type_name().as_bytes());
        self.content.extend_from_slice(b"\",\"");
        self.content.extend_from_slice(block.type_name().as_bytes());
        self.content.extend_from_slice(b"\":\"");
        self.open_block = Some((block, self.content.len()));
        self.announce(out);
        self.emit_update(out, block.update_names()[0], |event| event);
    }

    /// Appends a delta to the open block; [`Self::emit_delta`] emits it.
    pub(super) fn append(&mut self, delta: &str) {
        let before = self.content.len();
        json::string(&mut self.content, delta);
        // A string is escaped character by character, so the escaped delta without its quotes continues the text.
        self.content.remove(before);
        self.content.pop();
    }

    /// Emits one delta or several coalesced ones that were appended.
    pub(super) fn emit_delta(&self, delta: &str, out: &mut EventSink) {
        if let Some((block, _)) = self.open_block {
            self.emit_update(out, block.update_names()[1], |event| event.text("delta", delta));
        }
    }

    /// Closes the open block.
    pub(super) fn end_block(&mut self, out: &mut EventSink) {
        let Some((block, from)) = self.open_block.take() else { return };
        self.content.extend_from_slice(b"\"}");
        if out.is_recording() {
            // The stored text with its quotes is a valid JSON string.
            let text = &self.content[from - 1..self.content.len() - 1];
            self.emit_update(out, block.update_names()[2], |event| event.raw("content", text));
        }
    }

    /// Adds a tool call.
    pub(super) fn add_call(&mut self, id: &str, tool: &str, args: &Json, out: &mut EventSink) {
        self.end_block(out);
        self.next_block();
        self.has_calls = true;
        let from = self.content.len();
        write_call(&mut self.content, id, tool, args);
        self.announce(out);
        self.emit_update(out, "toolcall_start", |event| event);
        self.emit_update(out, "toolcall_end", |event| event.raw("toolCall", &self.content[from..]));
    }

    /// Completes the message and returns its JSON.
    pub(super) fn end(&mut self, stop: StopReason<'_>, out: &mut EventSink) -> Arc<str> {
        self.end_block(out);
        let mut whole = Vec::with_capacity(self.content.len() + 320);
        self.write(stop, &mut whole);
        let message: Arc<str> = String::from_utf8_lossy(&whole).into();
        self.announce(out);
        out.emit("message_end", |event| event.raw("message", message.as_bytes()).end());
        message
    }

    fn next_block(&mut self) {
        if self.block_count > 0 {
            self.content.push(b',');
        }
        self.block_count += 1;
    }

    fn announce(&mut self, out: &mut EventSink) {
        if !self.announced {
            // `message_start` carries a message without content.
            let nothing = Self::new(self.first_seq, self.at, &self.provider, &self.model);
            out.emit("message_start", |event| {
                event.with("message", |body| nothing.write(StopReason::Complete, body)).end();
            });
            self.announced = true;
        }
    }

    fn emit_update(&self, out: &mut EventSink, name: &str, rest: impl FnOnce(ObjectWriter<'_>) -> ObjectWriter<'_>) {
        let at = self.block_count.saturating_sub(1) as u64;
        out.emit("message_update", |event| {
            event
                .with("message", |body| self.write(StopReason::Complete, body))
                .with("assistantMessageEvent", |body| {
                    rest(ObjectWriter::new(body).text("type", name).number("contentIndex", at)).end();
                })
                .end();
        });
    }

    fn write(&self, stop: StopReason<'_>, out: &mut Vec<u8>) {
        let fields = AssistantFields {
            provider: &self.provider,
            model: &self.model,
            usage: self.usage,
            has_calls: self.has_calls,
            stop,
            at: self.at,
        };
        write_assistant(out, fields, |out| {
            out.push(b'[');
            out.extend_from_slice(&self.content);
            out.extend_from_slice(if self.open_block.is_some() { b"\"}]" } else { b"]" });
        });
    }
}
