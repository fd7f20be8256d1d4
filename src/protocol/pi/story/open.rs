//! The assistant message under construction, serialized incrementally.
//!
//! The content so far is stored as its final JSON. Each delta is escaped once, and an update copies the serialized
//! content.

use std::sync::Arc;

use super::out::Out;
use super::write::Object;
use crate::kernel::event::Used;
use crate::kernel::id::Seq;
use crate::kernel::time::Now;
use crate::protocol::json;
use crate::protocol::pi::encode::dollars;
use crate::protocol::pi::interface;

/// An assistant message under construction.
#[derive(Debug)]
pub(super) struct Open {
    /// The position of its first event.
    pub(super) since: Seq,
    /// The position of the last event that changed it.
    pub(super) till: Seq,
    pub(super) at: Now,
    provider: String,
    model: String,
    /// Its serialized content blocks; the last one may be unterminated.
    content: Vec<u8>,
    blocks: usize,
    /// The open block and the offset of its text.
    writing: Option<(Block, usize)>,
    /// The number of tool calls it requests.
    pub(super) calls: u64,
    used: Option<Used>,
    /// Whether its text is complete.
    pub(super) whole: bool,
    /// Whether `message_start` was emitted.
    pub(super) shown: bool,
    /// The session file entry it was imported from.
    pub(super) origin: Option<Arc<str>>,
}

/// The kind of a content block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// Text for the user.
    Text,
    /// Reasoning.
    Thinking,
}

impl Block {
    const fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Thinking => "thinking",
        }
    }

    const fn updates(self) -> [&'static str; 3] {
        match self {
            Self::Text => ["text_start", "text_delta", "text_end"],
            Self::Thinking => ["thinking_start", "thinking_delta", "thinking_end"],
        }
    }
}

/// Why a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop<'a> {
    /// It is complete.
    Said,
    /// The run was stopped, for this reason.
    Aborted(&'a str),
    /// The turn failed, with this error.
    Failed(&'a str),
}

impl Open {
    /// Opens an assistant message.
    pub(super) fn new(since: Seq, at: Now, provider: &str, model: &str) -> Self {
        Self {
            since,
            till: since,
            at,
            provider: provider.to_owned(),
            model: model.to_owned(),
            content: Vec::new(),
            blocks: 0,
            writing: None,
            calls: 0,
            used: None,
            whole: false,
            shown: false,
            origin: None,
        }
    }

    /// Returns whether it has no content blocks.
    pub(super) const fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Returns whether the usage of the turn is known.
    pub(super) const fn is_taken(&self) -> bool {
        self.used.is_some()
    }

    /// Returns whether the open block is of this kind.
    pub(super) fn is_writing(&self, block: Block) -> bool {
        self.writing.is_some_and(|(writing, _)| writing == block)
    }

    /// Sets the usage and the model of the turn.
    pub(super) fn take(&mut self, model: &str, used: Used) {
        if !model.is_empty() {
            model.clone_into(&mut self.model);
        }
        self.used = Some(used);
    }

    /// Opens a content block.
    pub(super) fn begin(&mut self, block: Block, out: &mut Out) {
        self.end_block(out);
        self.next_block();
        self.content.extend_from_slice(b"{\"type\":\"");
        self.content.extend_from_slice(block.word().as_bytes());
        self.content.extend_from_slice(b"\",\"");
        self.content.extend_from_slice(block.word().as_bytes());
        self.content.extend_from_slice(b"\":\"");
        self.writing = Some((block, self.content.len()));
        self.show(out);
        self.update(out, block.updates()[0], |event| event);
    }

    /// Appends a delta to the open block; [`Self::emit_delta`] emits it.
    pub(super) fn add(&mut self, piece: &str) {
        let before = self.content.len();
        json::string(&mut self.content, piece);
        // A string is escaped character by character, so the escaped delta without its quotes continues the text.
        self.content.remove(before);
        self.content.pop();
    }

    /// Emits one delta or several coalesced ones that were appended.
    pub(super) fn tell_piece(&self, piece: &str, out: &mut Out) {
        if let Some((block, _)) = self.writing {
            self.update(out, block.updates()[1], |event| event.text("delta", piece));
        }
    }

    /// Closes the open block.
    pub(super) fn end_block(&mut self, out: &mut Out) {
        let Some((block, from)) = self.writing.take() else { return };
        self.content.extend_from_slice(b"\"}");
        if out.listens() {
            // The stored text with its quotes is a valid JSON string.
            let text = &self.content[from - 1..self.content.len() - 1];
            self.update(out, block.updates()[2], |event| event.raw("content", text));
        }
    }

    /// Adds a tool call.
    pub(super) fn call(&mut self, id: &str, tool: &str, args: &str, out: &mut Out) {
        self.end_block(out);
        self.next_block();
        self.calls += 1;
        let from = self.content.len();
        Object::new(&mut self.content)
            .text("type", "toolCall")
            .text("id", id)
            .text("name", tool)
            .with("arguments", |content| arguments(content, args))
            .end();
        self.show(out);
        self.update(out, "toolcall_start", |event| event);
        self.update(out, "toolcall_end", |event| event.raw("toolCall", &self.content[from..]));
    }

    /// Completes the message and returns its JSON.
    pub(super) fn end(&mut self, stop: Stop<'_>, out: &mut Out) -> Arc<str> {
        self.end_block(out);
        let mut whole = Vec::with_capacity(self.content.len() + 320);
        self.write(stop, &mut whole);
        let message: Arc<str> = String::from_utf8_lossy(&whole).into();
        self.show(out);
        out.tell("message_end", |event| event.raw("message", message.as_bytes()).end());
        message
    }

    fn next_block(&mut self) {
        if self.blocks > 0 {
            self.content.push(b',');
        }
        self.blocks += 1;
    }

    fn show(&mut self, out: &mut Out) {
        if !self.shown {
            // `message_start` carries a message without content.
            let nothing = Self::new(self.since, self.at, &self.provider, &self.model);
            out.tell("message_start", |event| {
                event.with("message", |body| nothing.write(Stop::Said, body)).end();
            });
            self.shown = true;
        }
    }

    fn update(&self, out: &mut Out, name: &str, rest: impl FnOnce(Object<'_>) -> Object<'_>) {
        let at = self.blocks.saturating_sub(1) as u64;
        out.tell("message_update", |event| {
            event
                .with("message", |body| self.write(Stop::Said, body))
                .with("assistantMessageEvent", |body| {
                    rest(Object::new(body).text("type", name).number("contentIndex", at)).end();
                })
                .end();
        });
    }

    fn write(&self, stop: Stop<'_>, out: &mut Vec<u8>) {
        let (reason, message) = match stop {
            Stop::Said if self.calls > 0 => ("toolUse", None),
            Stop::Said => ("stop", None),
            Stop::Aborted(why) => ("aborted", Some(why)),
            Stop::Failed(why) => ("error", Some(why)),
        };
        Object::new(out)
            .text("role", "assistant")
            .with("content", |out| {
                out.push(b'[');
                out.extend_from_slice(&self.content);
                out.extend_from_slice(if self.writing.is_some() { b"\"}]" } else { b"]" });
            })
            .text("api", interface(&self.provider))
            .text("provider", &self.provider)
            .text("model", &self.model)
            .with("usage", |out| usage(out, &self.used.unwrap_or_default()))
            .text("stopReason", reason)
            .maybe("errorMessage", message)
            .number("timestamp", self.at.0)
            .end();
    }
}

/// Writes the arguments of a call as an object; any other value is wrapped in one.
pub(super) fn arguments(out: &mut Vec<u8>, args: &str) {
    if args.starts_with('{') {
        out.extend_from_slice(args.as_bytes());
    } else {
        let json = if args.is_empty() { "null" } else { args };
        Object::new(out).raw("value", json.as_bytes()).end();
    }
}

fn usage(out: &mut Vec<u8>, used: &Used) {
    let plain = used.input.saturating_sub(used.cache_read).saturating_sub(used.cache_write);
    Object::new(out)
        .number("input", plain)
        .number("output", used.output)
        .number("cacheRead", used.cache_read)
        .number("cacheWrite", used.cache_write)
        .number("totalTokens", used.input.saturating_add(used.output))
        .with("cost", |out| {
            // Only the total cost is known, not its parts.
            let mut total = Vec::new();
            json::value(&mut total, &dollars(used.cost.unwrap_or(0)));
            Object::new(out)
                .number("input", 0)
                .number("output", 0)
                .number("cacheRead", 0)
                .number("cacheWrite", 0)
                .raw("total", &total)
                .end();
        })
        .end();
}
