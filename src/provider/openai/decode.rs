//! Decodes the responses of chat completions servers, event by event, with the quirks of their implementations.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

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
    /// The field in which the server sends its thinking.
    thinking_field: &'static str,
    thinking: String,
    refusal: RefusalState,
    completion: Completion,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusalState {
    None,
    Refused,
}

/// Whether the response is complete: usage follows the stop reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Completion {
    Pending,
    Complete,
}

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<WireUsage>,
    error: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Option<ChunkDelta>,
    /// Sent in place of a delta by servers that do not stream.
    message: Option<ChunkDelta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ChunkDelta {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Fragment>>,
}

#[derive(Deserialize)]
struct Fragment {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    /// The cost in dollars, where the server reports it.
    cost: Option<f64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl Decoder {
    pub(super) fn new(limits: TurnLimits, label: String) -> Self {
        let state = DecoderState {
            turn: TurnBuilder::new(limits, label),
            thinking_field: REASONING_CONTENT,
            thinking: String::new(),
            refusal: RefusalState::None,
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
        if data == b"[DONE]" {
            return self.accept_done();
        }
        let chunk: Chunk = parse_event(data)?;
        check_error(chunk.error)?;
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index == 0) {
            self.accept_choice(choice)?;
        }
        if let Some(spent) = chunk.usage {
            self.record_usage(&spent);
        }
        Ok(())
    }

    fn turn(&mut self) -> &mut TurnBuilder {
        &mut self.turn
    }

    fn is_complete(&self) -> bool {
        matches!(self.completion, Completion::Complete)
    }

    fn end(&self) -> TurnEnd {
        let mut end = self.turn.end();
        end.provider_state = encode_state(self.thinking_field, &self.thinking);
        end
    }
}

impl DecoderState {
    fn accept_done(&mut self) -> Result<(), ModelError> {
        if !self.turn.has_stopped() {
            let reason = if self.turn.has_calls() { StopReason::ToolCalls } else { StopReason::Done };
            self.turn.finish(reason);
        }
        self.completion = Completion::Complete;
        Ok(())
    }

    fn accept_choice(&mut self, choice: Choice) -> Result<(), ModelError> {
        for delta in choice.delta.into_iter().chain(choice.message) {
            self.accept_delta(delta)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty())
            && !self.turn.has_stopped()
        {
            self.turn.finish(match self.refusal {
                RefusalState::Refused => StopReason::Refused,
                RefusalState::None => stop_reason(&reason),
            });
        }
        Ok(())
    }

    fn accept_delta(&mut self, delta: ChunkDelta) -> Result<(), ModelError> {
        if let Some(text) = delta.reasoning_content.filter(|text| !text.is_empty()) {
            self.push_thinking(REASONING_CONTENT, &text)?;
        } else if let Some(text) = delta.reasoning.filter(|text| !text.is_empty()) {
            self.push_thinking("reasoning", &text)?;
        }
        if let Some(text) = delta.content {
            self.turn.push_text(&text)?;
        }
        if let Some(text) = delta.refusal.filter(|text| !text.is_empty()) {
            self.refusal = RefusalState::Refused;
            self.turn.push_text(&text)?;
        }
        for fragment in delta.tool_calls.into_iter().flatten() {
            self.accept_fragment(&fragment)?;
        }
        Ok(())
    }

    fn push_thinking(&mut self, field: &'static str, text: &str) -> Result<(), ModelError> {
        self.turn.push_thinking(text)?;
        self.thinking_field = field;
        self.thinking.push_str(text);
        Ok(())
    }

    fn accept_fragment(&mut self, fragment: &Fragment) -> Result<(), ModelError> {
        let function = fragment.function.as_ref();
        let raw = function.and_then(|function| function.arguments.as_deref()).map_or("null", RawValue::get);
        // Arguments are a string that contains JSON; some servers send the JSON value itself.
        let unquoted = if raw.starts_with('"') { serde_json::from_str::<String>(raw).ok() } else { None };
        let args = unquoted.as_deref().unwrap_or(if raw == "null" { "" } else { raw });
        self.turn.push_fragment(CallFragment {
            slot: fragment.index,
            id: fragment.id.as_deref().unwrap_or_default(),
            tool: function.and_then(|function| function.name.as_deref()).unwrap_or_default(),
            args,
        })
    }

    fn record_usage(&mut self, spent: &WireUsage) {
        let usage = &mut self.turn.usage;
        usage.input = spent.prompt_tokens.unwrap_or(usage.input);
        usage.output = spent.completion_tokens.unwrap_or(usage.output);
        if let Some(details) = &spent.prompt_tokens_details {
            usage.cache_read = details.cached_tokens.unwrap_or_default();
            usage.cache_write = details.cache_write_tokens.unwrap_or_default();
        }
        if let Some(cost) = spent.cost {
            usage.cost_microusd = microusd(cost);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cost is checked to be in range, and a fraction of a millionth is negligible"
)]
fn microusd(dollars: f64) -> Option<u64> {
    (0.0..1e9).contains(&dollars).then(|| (dollars * 1e6).round() as u64)
}

fn stop_reason(reason: &str) -> StopReason {
    match reason {
        "stop" | "eos" => StopReason::Done,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "length" => StopReason::Length,
        "content_filter" => StopReason::Refused,
        _ => StopReason::Other(excerpt(reason, STOP_BYTES)),
    }
}

fn encode_state(field: &str, thinking: &str) -> Option<String> {
    let carried = || serde_json::json!({ "openai": { "field": field, "text": thinking } }).to_string();
    (!thinking.is_empty()).then(carried)
}

/// Returns the thinking in a provider state and its field name, if the state is of this dialect.
pub(super) fn thinking_from_state(provider_state: &str) -> Option<(&'static str, String)> {
    let value: Value = serde_json::from_str(provider_state).ok()?;
    let carried = value.get("openai")?;
    let field =
        [REASONING_CONTENT, "reasoning"].into_iter().find(|field| carried.get("field") == Some(&(*field).into()))?;
    Some((field, carried.get("text")?.as_str()?.to_owned()))
}

const REASONING_CONTENT: &str = "reasoning_content";

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
