//! A message that the model is making: it grows, and is written down as it does.
//!
//! What has been said is kept as the JSON that it will be. A piece is therefore escaped once, and an update copies
//! what is there; nothing is gone over again.

use std::sync::Arc;

use super::out::Out;
use super::write::Object;
use crate::kernel::event::Used;
use crate::kernel::id::Seq;
use crate::kernel::time::Now;
use crate::protocol::json;
use crate::protocol::pi::encode::dollars;
use crate::protocol::pi::interface;

/// A message under way.
#[derive(Debug)]
pub(super) struct Open {
    /// The first event of it.
    pub(super) since: Seq,
    /// The last event that added to it.
    pub(super) till: Seq,
    pub(super) at: Now,
    provider: String,
    model: String,
    /// The blocks of its content, the last of them perhaps not ended.
    content: Vec<u8>,
    blocks: usize,
    /// The block that is being written, and where its text begins.
    writing: Option<(Block, usize)>,
    /// How many tools it wants used.
    pub(super) calls: u64,
    used: Option<Used>,
    /// Whether its words are whole.
    pub(super) whole: bool,
    /// Whether anybody was told of it.
    pub(super) shown: bool,
    /// The entry of a session file that it was imported from.
    pub(super) origin: Option<Arc<str>>,
}

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// Words for the user.
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

/// Why a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop<'a> {
    /// Everything is said.
    Said,
    /// The run was ended, for this reason.
    Aborted(&'a str),
    /// Something went wrong.
    Failed(&'a str),
}

impl Open {
    /// Begins a message of a model.
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

    /// Tells whether nothing is in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Tells whether what the turn used is known.
    pub(super) const fn is_taken(&self) -> bool {
        self.used.is_some()
    }

    /// Tells whether a piece of this kind goes on with the block that is being written.
    pub(super) fn is_writing(&self, block: Block) -> bool {
        self.writing.is_some_and(|(writing, _)| writing == block)
    }

    /// Learns what the turn used, and of which model it was.
    pub(super) fn take(&mut self, model: &str, used: Used) {
        if !model.is_empty() {
            model.clone_into(&mut self.model);
        }
        self.used = Some(used);
    }

    /// Begins a block.
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

    /// Adds a piece to the block that is being written; telling it is for [`Self::tell_piece`].
    pub(super) fn add(&mut self, piece: &str) {
        let before = self.content.len();
        json::string(&mut self.content, piece);
        // Between its quotes a piece is what it is within the whole text.
        self.content.remove(before);
        self.content.pop();
    }

    /// Tells a piece, or several, that were added.
    pub(super) fn tell_piece(&self, piece: &str, out: &mut Out) {
        if let Some((block, _)) = self.writing {
            self.update(out, block.updates()[1], |event| event.text("delta", piece));
        }
    }

    /// Ends the block that is being written.
    pub(super) fn end_block(&mut self, out: &mut Out) {
        let Some((block, from)) = self.writing.take() else { return };
        self.content.extend_from_slice(b"\"}");
        if out.listens() {
            // The text with its quotes is JSON as it stands.
            let text = &self.content[from - 1..self.content.len() - 1];
            self.update(out, block.updates()[2], |event| event.raw("content", text));
        }
    }

    /// Adds a tool that the model wants used.
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

    /// Ends the message and returns it.
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
            // A message begins with nothing in it.
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

/// Writes the arguments of a call: an object, whatever the model wrote.
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
            // What each part cost is not known, the sum is.
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
