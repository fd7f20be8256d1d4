//! Decodes the responses of the messages API, event by event.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::provider::error::{ModelError, excerpt};
use crate::provider::limits::TurnLimits;
use crate::provider::lines::SseDecoder;
use crate::provider::model::{StopReason, TurnEnd};
use crate::provider::turn_builder::{CallFragment, STOP_BYTES, TurnBuilder};
use crate::provider::turn_decoder::{EventHandler, TurnDecoder, check_error, parse_event};

/// The decoder of one response.
pub(super) type Decoder = TurnDecoder<SseDecoder, DecoderState>;

/// The state of a response.
#[derive(Debug)]
pub(super) struct DecoderState {
    turn: TurnBuilder,
    usage: WireUsage,
    /// The thinking, to be sent back unchanged.
    thinking_blocks: Vec<ThinkingBlock>,
    completion: Completion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completion {
    Pending,
    Complete,
}

#[derive(Debug)]
enum ThinkingBlock {
    Signed { block: u64, text: String, signature: String },
    Redacted { data: String },
}

#[derive(Deserialize)]
struct Event {
    r#type: String,
    #[serde(default)]
    index: u64,
    message: Option<Message>,
    content_block: Option<ContentBlock>,
    delta: Option<BlockDelta>,
    usage: Option<WireUsage>,
    error: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Message {
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct ContentBlock {
    r#type: String,
    id: Option<String>,
    name: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
}

#[derive(Deserialize)]
struct BlockDelta {
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl Decoder {
    pub(super) fn new(limits: TurnLimits, label: String) -> Self {
        let state = DecoderState {
            turn: TurnBuilder::new(limits, label),
            usage: WireUsage::default(),
            thinking_blocks: Vec::new(),
            completion: Completion::Pending,
        };
        Self::with_parts(SseDecoder::new(limits.line_bytes), state)
    }
}

impl EventHandler for DecoderState {
    fn accept_event(&mut self, data: &[u8]) -> Result<(), ModelError> {
        if self.completion == Completion::Complete || data.is_empty() {
            return Ok(());
        }
        let event: Event = parse_event(data)?;
        check_error(event.error)?;
        match event.r#type.as_str() {
            "content_block_delta" => event.delta.map_or(Ok(()), |delta| self.accept_delta(event.index, &delta)),
            "content_block_start" => event.content_block.map_or(Ok(()), |block| self.accept_block(event.index, block)),
            "message_start" => {
                self.record_usage(event.message.and_then(|message| message.usage));
                Ok(())
            }
            "message_delta" => {
                self.record_usage(event.usage);
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.turn.finish(stop_reason(&reason));
                }
                Ok(())
            }
            "message_stop" => {
                if !self.turn.has_stopped() {
                    self.turn.finish(StopReason::Done);
                }
                self.completion = Completion::Complete;
                Ok(())
            }
            // Pings, ends of blocks, and event types that are not known yet.
            _ => Ok(()),
        }
    }

    fn turn(&mut self) -> &mut TurnBuilder {
        &mut self.turn
    }

    fn is_complete(&self) -> bool {
        matches!(self.completion, Completion::Complete)
    }

    fn end(&self) -> TurnEnd {
        let mut end = self.turn.end();
        end.provider_state = encode_state(&self.thinking_blocks);
        end
    }
}

impl DecoderState {
    fn accept_block(&mut self, index: u64, block: ContentBlock) -> Result<(), ModelError> {
        match block.r#type.as_str() {
            "text" => self.turn.push_text(block.text.as_deref().unwrap_or_default()),
            "thinking" => {
                let text = block.thinking.unwrap_or_default();
                self.turn.push_thinking(&text)?;
                let signature = block.signature.unwrap_or_default();
                self.turn.count_state(&signature)?;
                self.thinking_blocks.push(ThinkingBlock::Signed { block: index, text, signature });
                Ok(())
            }
            "redacted_thinking" => {
                let data = block.data.unwrap_or_default();
                self.turn.count_state(&data)?;
                self.thinking_blocks.push(ThinkingBlock::Redacted { data });
                Ok(())
            }
            "tool_use" => self.turn.push_fragment(CallFragment {
                slot: Some(index),
                id: block.id.as_deref().unwrap_or_default(),
                tool: block.name.as_deref().unwrap_or_default(),
                args: "",
            }),
            _ => Ok(()),
        }
    }

    fn accept_delta(&mut self, index: u64, delta: &BlockDelta) -> Result<(), ModelError> {
        if let Some(text) = &delta.text {
            self.turn.push_text(text)?;
        }
        if let Some(args) = &delta.partial_json {
            self.turn.push_fragment(CallFragment { slot: Some(index), args, ..CallFragment::default() })?;
        }
        if let Some(more) = &delta.thinking {
            self.turn.push_thinking(more)?;
        }
        if let Some(more) = &delta.signature {
            self.turn.count_state(more)?;
        }
        if let Some(ThinkingBlock::Signed { block, text, signature }) = self.thinking_blocks.last_mut()
            && *block == index
        {
            text.push_str(delta.thinking.as_deref().unwrap_or_default());
            signature.push_str(delta.signature.as_deref().unwrap_or_default());
        }
        Ok(())
    }

    /// Updates the usage: later numbers are totals, and some are sent only once.
    fn record_usage(&mut self, spent: Option<WireUsage>) {
        let Some(now) = spent else { return };
        let all = &mut self.usage;
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

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "end_turn" | "stop_sequence" => StopReason::Done,
        "tool_use" => StopReason::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refused,
        _ => StopReason::Other(excerpt(reason, STOP_BYTES)),
    }
}

/// Encodes the provider state; the server rejects thinking without its signature, so such blocks are omitted.
fn encode_state(thoughts: &[ThinkingBlock]) -> Option<String> {
    let blocks: Vec<Value> = thoughts
        .iter()
        .filter_map(|thought| match thought {
            ThinkingBlock::Signed { signature, .. } if signature.is_empty() => None,
            ThinkingBlock::Signed { block: _, text, signature } => {
                Some(json!({ "type": "thinking", "thinking": text, "signature": signature }))
            }
            ThinkingBlock::Redacted { data } => Some(json!({ "type": "redacted_thinking", "data": data })),
        })
        .collect();
    (!blocks.is_empty()).then(|| json!({ "anthropic": blocks }).to_string())
}

/// Returns the thinking blocks in a provider state, if the state is of this dialect.
pub(super) fn blocks_from_state(provider_state: &str) -> Option<Vec<Value>> {
    let mut value: Value = serde_json::from_str(provider_state).ok()?;
    match value.get_mut("anthropic")?.take() {
        Value::Array(blocks) if !blocks.is_empty() => Some(blocks),
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
