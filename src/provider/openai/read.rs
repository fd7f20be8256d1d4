//! Decodes the responses of chat completions servers, event by event, with the quirks of their implementations.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

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
    /// The field in which the server sends its thinking.
    thinking_field: &'static str,
    thinking: String,
    refused: Refused,
    whole: Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    No,
    Yes,
}

/// Whether the response is complete: usage follows the stop reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    NotYet,
    Yes,
}

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Spent>,
    error: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u64,
    delta: Option<Delta>,
    /// Sent in place of a delta by servers that do not stream.
    message: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
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
struct Spent {
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

impl Reading {
    pub(in crate::provider) fn new(limits: TurnLimits, label: String) -> Self {
        let state = State {
            turn: Gathering::new(limits, label),
            thinking_field: CONTENT,
            thinking: String::new(),
            refused: Refused::No,
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
        // Some servers close the stream without `[DONE]`.
        if state.turn.has_stopped() { Ok(()) } else { Err(cut()) }
    }

    pub(in crate::provider) const fn is_done(&self) -> bool {
        matches!(self.state.whole, Whole::Yes)
    }

    pub(in crate::provider) fn end(&self) -> TurnEnd {
        let mut end = self.state.turn.end();
        end.carry = carry(self.state.thinking_field, &self.state.thinking);
        end
    }
}

impl State {
    fn event(&mut self, data: &[u8]) -> Result<(), ModelError> {
        if self.whole == Whole::Yes || data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            return self.last_word();
        }
        let chunk: Chunk = serde_json::from_slice(data).map_err(|error| {
            ModelError::garbage(format!("the server sent an event that cannot be read: {error}"), data)
        })?;
        if let Some(error) = chunk.error {
            return Err(
                Complaint::of_error(&serde_json::from_str(error.get()).unwrap_or_default()).in_answer()
            );
        }
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index == 0) {
            self.choice(choice)?;
        }
        if let Some(spent) = chunk.usage {
            self.spent(&spent);
        }
        Ok(())
    }

    fn last_word(&mut self) -> Result<(), ModelError> {
        if !self.turn.has_stopped() {
            let reason = if self.turn.has_calls() { Stop::Calls } else { Stop::Done };
            self.turn.stopped(reason);
        }
        self.whole = Whole::Yes;
        Ok(())
    }

    fn choice(&mut self, choice: Choice) -> Result<(), ModelError> {
        for delta in choice.delta.into_iter().chain(choice.message) {
            self.delta(delta)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty())
            && !self.turn.has_stopped()
        {
            self.turn.stopped(match self.refused {
                Refused::Yes => Stop::Refused,
                Refused::No => stop(&reason),
            });
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta) -> Result<(), ModelError> {
        if let Some(text) = delta.reasoning_content.filter(|text| !text.is_empty()) {
            self.thought(CONTENT, &text)?;
        } else if let Some(text) = delta.reasoning.filter(|text| !text.is_empty()) {
            self.thought("reasoning", &text)?;
        }
        if let Some(text) = delta.content {
            self.turn.said(&text)?;
        }
        if let Some(text) = delta.refusal.filter(|text| !text.is_empty()) {
            self.refused = Refused::Yes;
            self.turn.said(&text)?;
        }
        for fragment in delta.tool_calls.into_iter().flatten() {
            self.fragment(&fragment)?;
        }
        Ok(())
    }

    fn thought(&mut self, field: &'static str, text: &str) -> Result<(), ModelError> {
        self.turn.thought(text)?;
        self.thinking_field = field;
        self.thinking.push_str(text);
        Ok(())
    }

    fn fragment(&mut self, fragment: &Fragment) -> Result<(), ModelError> {
        let function = fragment.function.as_ref();
        let raw = function.and_then(|function| function.arguments.as_deref()).map_or("null", RawValue::get);
        // Arguments are a string that contains JSON; some servers send the JSON value itself.
        let unquoted = if raw.starts_with('"') { serde_json::from_str::<String>(raw).ok() } else { None };
        let args = unquoted.as_deref().unwrap_or(if raw == "null" { "" } else { raw });
        self.turn.part(Part {
            slot: fragment.index,
            id: fragment.id.as_deref().unwrap_or_default(),
            tool: function.and_then(|function| function.name.as_deref()).unwrap_or_default(),
            args,
        })
    }

    fn spent(&mut self, spent: &Spent) {
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

fn stop(reason: &str) -> Stop {
    match reason {
        "stop" | "eos" => Stop::Done,
        "tool_calls" | "function_call" => Stop::Calls,
        "length" => Stop::Length,
        "content_filter" => Stop::Refused,
        _ => Stop::Other(excerpt(reason, STOP_BYTES)),
    }
}

fn carry(field: &str, thinking: &str) -> Option<String> {
    let carried = || serde_json::json!({ "openai": { "field": field, "text": thinking } }).to_string();
    (!thinking.is_empty()).then(carried)
}

/// Returns the thinking in a provider state and its field name, if the state is of this dialect.
pub(super) fn thinking_of(carry: &str) -> Option<(&'static str, String)> {
    let value: Value = serde_json::from_str(carry).ok()?;
    let carried = value.get("openai")?;
    let field =
        [CONTENT, "reasoning"].into_iter().find(|field| carried.get("field") == Some(&(*field).into()))?;
    Some((field, carried.get("text")?.as_str()?.to_owned()))
}

const CONTENT: &str = "reasoning_content";

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
