//! Encodes requests for the messages API, with cache marks.

use serde_json::{Value, json};

use crate::kernel::event::Image;
use crate::provider::dialect::{parse_arguments, sanitize_tool_name};
use crate::provider::model::{CallOutcome, Entry, Request, Thinking, ToolCall, ToolSpec};

/// Encodes the body of a request.
///
/// The server caches the prompt up to each mark: the tools, the system prompt, and the conversation up to the last
/// two user messages, so that the next turn finds the cache entry of this one.
pub(super) fn body(request: &Request) -> Value {
    let mut messages = messages(&request.entries);
    let mut marks = CONVERSATION_CACHE_MARKS;
    for message in messages.iter_mut().rev().filter(|message| message["role"] == "user") {
        if marks > 0
            && let Some(block) = message["content"].as_array_mut().and_then(|blocks| blocks.last_mut())
        {
            mark_cacheable(block);
            marks -= 1;
        }
    }
    let mut tools: Vec<Value> = request.tools.iter().map(tool_block).collect();
    if let Some(last) = tools.last_mut() {
        mark_cacheable(last);
    }
    let mut body = json!({ "model": request.model, "messages": messages, "stream": true });
    if !request.system.is_empty() {
        let mut system = json!({ "type": "text", "text": request.system });
        mark_cacheable(&mut system);
        body["system"] = json!([system]);
    }
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    set_token_limits(&mut body, request);
    body
}

/// Sets the token limit and the thinking budget, in the terms of the model.
fn set_token_limits(body: &mut Value, request: &Request) {
    let tokens = request.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    body["max_tokens"] = tokens.into();
    let (effort, budget) = match request.thinking {
        Thinking::ServerDefault => return,
        Thinking::Off => return,
        Thinking::Low => ("low", 2_048),
        Thinking::Medium => ("medium", 8_192),
        Thinking::High => ("high", 24_576),
    };
    if is_thinking_missing(&request.entries) {
        return;
    }
    if !takes_budget(&request.model) {
        body["thinking"] = json!({ "type": "adaptive", "display": "summarized" });
        body["output_config"] = json!({ "effort": effort });
    } else if request.max_tokens.is_none() {
        body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget });
        body["max_tokens"] = (tokens + budget).into();
    } else if tokens > 2 * MIN_THINKING_BUDGET {
        // The budget is part of the limit, and the answer needs a share of it.
        body["thinking"] = json!({ "type": "enabled", "budget_tokens": budget.min(tokens / 2) });
    }
}

/// Returns whether the model is an older one, which takes a number of thinking tokens.
fn takes_budget(model: &str) -> bool {
    let older = ["claude-3", "-4-0", "-4-1", "-4-5", "-4-2025"];
    older.iter().any(|part| model.contains(part)) || model.ends_with("-4")
}

/// Returns whether the calls of the current turn lack the thinking that led to them.
///
/// The server refuses to continue thinking within a turn whose earlier thinking it does not receive.
fn is_thinking_missing(entries: &[Entry]) -> bool {
    let turn_start = entries.iter().rposition(|entry| matches!(entry, Entry::User { .. })).map_or(0, |at| at + 1);
    entries.get(turn_start..).unwrap_or_default().iter().any(|entry| match entry {
        Entry::Assistant { provider_state, text: _, calls } => {
            !calls.is_empty() && provider_state.as_deref().and_then(super::decode::blocks_from_state).is_none()
        }
        Entry::User { .. } => false,
        Entry::Result { .. } => false,
    })
}

fn messages(entries: &[Entry]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for entry in entries {
        let (role, blocks) = match entry {
            Entry::User { text, images } => ("user", user_blocks(text, images)),
            Entry::Assistant { provider_state, text, calls } => {
                ("assistant", assistant_blocks(provider_state.as_deref(), text, calls))
            }
            Entry::Result { id, tool: _, text, outcome } => ("user", vec![result_block(id, text, *outcome)]),
        };
        match messages.last_mut().filter(|last| last["role"] == role) {
            // The results of one turn must be in one message, and the user's text may be in it too.
            Some(last) => {
                if let Some(content) = last["content"].as_array_mut() {
                    content.extend(blocks);
                }
            }
            None if blocks.is_empty() => {}
            None => messages.push(json!({ "role": role, "content": blocks })),
        }
    }
    messages
}

/// Encodes a user message with its images before the text, as the server recommends.
fn user_blocks(text: &str, images: &[Image]) -> Vec<Value> {
    let image_blocks = images.iter().map(|Image { mime, data }| {
        json!({ "type": "image", "source": { "type": "base64", "media_type": mime, "data": data } })
    });
    image_blocks.chain(text_block(text)).collect()
}

fn assistant_blocks(provider_state: Option<&str>, text: &str, calls: &[ToolCall]) -> Vec<Value> {
    let mut blocks = provider_state.and_then(super::decode::blocks_from_state).unwrap_or_default();
    blocks.extend(text_block(text));
    blocks.extend(calls.iter().map(|call| {
        json!({ "type": "tool_use", "id": sanitize_id(&call.id), "name": sanitize_tool_name(&call.tool), "input": parse_arguments(&call.args) })
    }));
    blocks
}

/// Encodes a text; the server rejects a text of only white space, so it is omitted.
fn text_block(text: &str) -> Vec<Value> {
    if text.trim().is_empty() { Vec::new() } else { vec![json!({ "type": "text", "text": text })] }
}

fn result_block(id: &str, text: &str, outcome: CallOutcome) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": sanitize_id(id), "content": text });
    match outcome {
        CallOutcome::Succeeded => {}
        CallOutcome::Failed => block["is_error"] = true.into(),
    }
    block
}

/// Returns a call id that this server accepts; the id may come from another server.
fn sanitize_id(id: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    id.chars().map(safe).collect()
}

fn tool_block(tool: &ToolSpec) -> Value {
    json!({ "name": tool.name, "description": tool.description, "input_schema": tool.schema })
}

fn mark_cacheable(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// The number of cache marks in the conversation; the server accepts four, and the tools and the system prompt take
/// one each.
const CONVERSATION_CACHE_MARKS: usize = 2;
/// The default token limit; the server requires one.
const DEFAULT_MAX_TOKENS: u32 = 16_384;
/// The smallest thinking budget that the server accepts.
const MIN_THINKING_BUDGET: u32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::samples;

    #[test]
    fn a_conversation_is_encoded_as_messages_with_cache_marks() {
        let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let provider_state = json!({ "anthropic": [thinking] }).to_string();
        let cached = json!({ "type": "ephemeral" });
        assert_eq!(
            body(&samples::conversation(Some(provider_state))),
            json!({
                "model": "m",
                "stream": true,
                "max_tokens": 100,
                "system": [{ "type": "text", "text": "Be brief.", "cache_control": cached }],
                "tools": [{ "name": "look", "description": "Looks.", "input_schema": { "type": "object" }, "cache_control": cached }],
                "messages": [
                    { "role": "user", "content": [{ "type": "text", "text": "look", "cache_control": cached }] },
                    { "role": "assistant", "content": [
                        thinking,
                        { "type": "text", "text": "Looking." },
                        { "type": "tool_use", "id": "c1", "name": "look", "input": { "at": 1 } },
                        { "type": "tool_use", "id": "c2", "name": "look", "input": { "invalid_arguments": "{oops" } },
                    ] },
                    { "role": "user", "content": [
                        { "type": "tool_result", "tool_use_id": "c1", "content": "a cat" },
                        { "type": "tool_result", "tool_use_id": "c2", "content": "bad arguments", "is_error": true },
                        { "type": "text", "text": "and?", "cache_control": cached },
                    ] },
                ],
            })
        );
    }

    #[test]
    fn images_are_blocks_before_the_text() {
        let picture =
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "aGk=" } });
        let text = json!({ "type": "text", "text": "what is it?", "cache_control": { "type": "ephemeral" } });
        assert_eq!(
            body(&samples::image_request("what is it?"))["messages"],
            json!([{ "role": "user", "content": [picture, text] }])
        );
        assert_eq!(body(&samples::image_request(""))["messages"][0]["content"][0]["type"], "image");
    }

    #[test]
    fn empty_texts_are_omitted_and_unusual_names_are_sanitized() {
        let mut request = samples::text_request(" ");
        let calls = vec![ToolCall { id: "functions.look:0".into(), tool: "look".into(), args: "{}".into() }];
        request.entries.push(Entry::Assistant { provider_state: None, text: "\n".into(), calls });
        assert_eq!(
            body(&request)["messages"],
            json!([{ "role": "assistant", "content": [
                { "type": "tool_use", "id": "functions_look_0", "name": "look", "input": {} },
            ] }])
        );
    }

    #[test]
    fn the_thinking_level_is_encoded_for_each_model_family() {
        let limits = |model: &str, thinking, max_tokens| {
            let request = Request { model: model.into(), thinking, max_tokens, ..samples::text_request("hi") };
            let body = body(&request);
            (body["max_tokens"].clone(), body["thinking"].clone(), body["output_config"].clone())
        };
        let budget = |tokens: u32| json!({ "type": "enabled", "budget_tokens": tokens });
        let adaptive = json!({ "type": "adaptive", "display": "summarized" });
        for (model, thinking, tokens, expected) in [
            ("claude-opus-4-7", Thinking::ServerDefault, None, (json!(16_384), Value::Null, Value::Null)),
            ("claude-opus-4-7", Thinking::Off, Some(9), (json!(9), Value::Null, Value::Null)),
            ("claude-opus-4-7", Thinking::High, Some(9), (json!(9), adaptive.clone(), json!({ "effort": "high" }))),
            ("claude-sonnet-4-5", Thinking::Low, None, (json!(18_432), budget(2_048), Value::Null)),
            ("claude-sonnet-4-20250514", Thinking::High, Some(8_000), (json!(8_000), budget(4_000), Value::Null)),
            ("claude-opus-4", Thinking::High, Some(1_000), (json!(1_000), Value::Null, Value::Null)),
            ("claude-sonnet-5", Thinking::Low, None, (json!(16_384), adaptive, json!({ "effort": "low" }))),
        ] {
            assert_eq!(limits(model, thinking, tokens), expected, "{model} {thinking:?}");
        }
    }

    #[test]
    fn a_turn_with_missing_thinking_continues_without_it() {
        let provider_state = json!({ "anthropic": [{ "type": "redacted_thinking", "data": "x" }] }).to_string();
        let thinks = |provider_state: Option<String>, user_spoke: Option<()>| {
            let mut request = Request { thinking: Thinking::High, ..samples::conversation(provider_state) };
            if user_spoke.is_none() {
                request.entries.pop();
            }
            request.max_tokens = None;
            body(&request).get("thinking").is_some()
        };
        assert!(thinks(Some(provider_state), None));
        assert!(!thinks(None, None));
        assert!(!thinks(Some(r#"{"openai":{}}"#.to_owned()), None), "another dialect's is none of ours");
        assert!(thinks(None, Some(())), "the user has spoken since");
    }
}
