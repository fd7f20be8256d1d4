//! Decodes the responses of the messages API, event by event.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::provider::complaint::Complaint;
use crate::provider::dialect::{at_the_end, cut};
use crate::provider::error::{ModelError, excerpt};
use crate::provider::limits::TurnLimits;
use crate::provider::lines::Events;
use crate::provider::model::{Piece, Stop, TurnEnd};
use crate::provider::turn::{Gathering, Part, STOP_BYTES};

/// The decoder of one response.
#[derive(Debug)]
pub(in crate::provider) struct Reading {
    events: Events,
    state: State,
}

#[derive(Debug)]
struct State {
    turn: Gathering,
    spent: Spent,
    /// The thinking, to be sent back unchanged.
    thoughts: Vec<Thought>,
    whole: Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    NotYet,
    Yes,
}

#[derive(Debug)]
enum Thought {
    Signed { block: u64, text: String, signature: String },
    Hidden { data: String },
}

#[derive(Deserialize)]
struct Event {
    r#type: String,
    #[serde(default)]
    index: u64,
    message: Option<Message>,
    content_block: Option<Block>,
    delta: Option<Delta>,
    usage: Option<Spent>,
    error: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Message {
    usage: Option<Spent>,
}

#[derive(Deserialize)]
struct Block {
    r#type: String,
    id: Option<String>,
    name: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct Spent {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl Reading {
    pub(in crate::provider) fn new(limits: TurnLimits, label: String) -> Self {
        let state = State {
            turn: Gathering::new(limits, label),
            spent: Spent::default(),
            thoughts: Vec::new(),
            whole: Whole::NotYet,
        };
        Self { events: Events::new(limits.line_bytes), state }
    }

    pub(in crate::provider) fn feed(&mut self, bytes: &[u8], out: &mut Vec<Piece>) -> Result<(), ModelError> {
        let Self { events, state } = self;
        state.turn.exchange(out);
        let outcome = events.feed(bytes, |data| state.event(data));
        state.turn.exchange(out);
        outcome
    }

    pub(in crate::provider) fn finish(&mut self, out: &mut Vec<Piece>) -> Result<(), ModelError> {
        let Self { events, state } = self;
        state.turn.exchange(out);
        let outcome = events.finish(|data| state.event(data));
        state.turn.exchange(out);
        outcome.map_err(at_the_end)?;
        if state.turn.has_stopped() { Ok(()) } else { Err(cut()) }
    }

    pub(in crate::provider) const fn is_done(&self) -> bool {
        matches!(self.state.whole, Whole::Yes)
    }

    pub(in crate::provider) fn end(&self) -> TurnEnd {
        let mut end = self.state.turn.end();
        end.carry = carry(&self.state.thoughts);
        end
    }
}

impl State {
    fn event(&mut self, data: &[u8]) -> Result<(), ModelError> {
        if self.whole == Whole::Yes || data.is_empty() {
            return Ok(());
        }
        let event: Event = serde_json::from_slice(data).map_err(|error| {
            ModelError::garbage(format!("the server sent an event that cannot be read: {error}"), data)
        })?;
        if let Some(error) = event.error {
            return Err(
                Complaint::of_error(&serde_json::from_str(error.get()).unwrap_or_default()).in_answer()
            );
        }
        match event.r#type.as_str() {
            "content_block_delta" => event.delta.map_or(Ok(()), |delta| self.delta(event.index, &delta)),
            "content_block_start" => {
                event.content_block.map_or(Ok(()), |block| self.block(event.index, block))
            }
            "message_start" => {
                self.spend(event.message.and_then(|message| message.usage));
                Ok(())
            }
            "message_delta" => {
                self.spend(event.usage);
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.turn.stopped(stop(&reason));
                }
                Ok(())
            }
            "message_stop" => {
                if !self.turn.has_stopped() {
                    self.turn.stopped(Stop::Done);
                }
                self.whole = Whole::Yes;
                Ok(())
            }
            // Pings, ends of blocks, and event types that are not known yet.
            _ => Ok(()),
        }
    }

    fn block(&mut self, index: u64, block: Block) -> Result<(), ModelError> {
        match block.r#type.as_str() {
            "text" => self.turn.said(block.text.as_deref().unwrap_or_default()),
            "thinking" => {
                let text = block.thinking.unwrap_or_default();
                self.turn.thought(&text)?;
                let signature = block.signature.unwrap_or_default();
                self.turn.carries(&signature)?;
                self.thoughts.push(Thought::Signed { block: index, text, signature });
                Ok(())
            }
            "redacted_thinking" => {
                let data = block.data.unwrap_or_default();
                self.turn.carries(&data)?;
                self.thoughts.push(Thought::Hidden { data });
                Ok(())
            }
            "tool_use" => self.turn.part(Part {
                slot: Some(index),
                id: block.id.as_deref().unwrap_or_default(),
                tool: block.name.as_deref().unwrap_or_default(),
                args: "",
            }),
            _ => Ok(()),
        }
    }

    fn delta(&mut self, index: u64, delta: &Delta) -> Result<(), ModelError> {
        if let Some(text) = &delta.text {
            self.turn.said(text)?;
        }
        if let Some(args) = &delta.partial_json {
            self.turn.part(Part { slot: Some(index), args, ..Part::default() })?;
        }
        if let Some(more) = &delta.thinking {
            self.turn.thought(more)?;
        }
        if let Some(more) = &delta.signature {
            self.turn.carries(more)?;
        }
        if let Some(Thought::Signed { block, text, signature }) = self.thoughts.last_mut()
            && *block == index
        {
            text.push_str(delta.thinking.as_deref().unwrap_or_default());
            signature.push_str(delta.signature.as_deref().unwrap_or_default());
        }
        Ok(())
    }

    /// Updates the usage: later numbers are totals, and some are sent only once.
    fn spend(&mut self, spent: Option<Spent>) {
        let Some(now) = spent else { return };
        let all = &mut self.spent;
        all.input_tokens = now.input_tokens.or(all.input_tokens);
        all.output_tokens = now.output_tokens.or(all.output_tokens);
        all.cache_read_input_tokens = now.cache_read_input_tokens.or(all.cache_read_input_tokens);
        all.cache_creation_input_tokens = now.cache_creation_input_tokens.or(all.cache_creation_input_tokens);
        let usage = &mut self.turn.usage;
        usage.cache_read = all.cache_read_input_tokens.unwrap_or_default();
        usage.cache_write = all.cache_creation_input_tokens.unwrap_or_default();
        let fresh = all.input_tokens.unwrap_or_default();
        usage.input = fresh.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        usage.output = all.output_tokens.unwrap_or_default();
    }
}

fn stop(reason: &str) -> Stop {
    match reason {
        "end_turn" | "stop_sequence" => Stop::Done,
        "tool_use" => Stop::Calls,
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "refusal" => Stop::Refused,
        _ => Stop::Other(excerpt(reason, STOP_BYTES)),
    }
}

/// Encodes the provider state; the server rejects thinking without its signature, so such blocks are omitted.
fn carry(thoughts: &[Thought]) -> Option<String> {
    let blocks: Vec<Value> = thoughts
        .iter()
        .filter_map(|thought| match thought {
            Thought::Signed { signature, .. } if signature.is_empty() => None,
            Thought::Signed { block: _, text, signature } => {
                Some(json!({ "type": "thinking", "thinking": text, "signature": signature }))
            }
            Thought::Hidden { data } => Some(json!({ "type": "redacted_thinking", "data": data })),
        })
        .collect();
    (!blocks.is_empty()).then(|| json!({ "anthropic": blocks }).to_string())
}

/// Returns the thinking blocks in a provider state, if the state is of this dialect.
pub(super) fn blocks_of(carry: &str) -> Option<Vec<Value>> {
    let mut value: Value = serde_json::from_str(carry).ok()?;
    match value.get_mut("anthropic")?.take() {
        Value::Array(blocks) if !blocks.is_empty() => Some(blocks),
        Value::Array(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Object(_) => None,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
