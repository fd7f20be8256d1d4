//! Encodes requests for Ollama.

use serde_json::{Value, json};

use crate::provider::dialect::{parse_arguments, sanitize_tool_name};
use crate::provider::model::{Entry, Request, Thinking, ToolCall, ToolSpec};

/// Encodes the body of a request with the context size that the server is to allocate.
pub(super) fn body(request: &Request, context_tokens: u32) -> Value {
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(json!({ "role": "system", "content": request.system }));
    }
    messages.extend(request.entries.iter().map(message));
    let mut body = json!({ "model": request.model, "messages": messages, "stream": true });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(think) = think_parameter(request) {
        body["think"] = think;
    }
    if let Some(tokens) = request.max_tokens {
        body["options"]["num_predict"] = tokens.into();
    }
    body["options"]["num_ctx"] = context_tokens.into();
    body
}

fn message(entry: &Entry) -> Value {
    match entry {
        Entry::User { text, images } => {
            let mut message = json!({ "role": "user", "content": text });
            if !images.is_empty() {
                message["images"] = images.iter().map(|image| Value::from(image.data.as_str())).collect();
            }
            message
        }
        Entry::Assistant { provider_state, text, calls } => {
            let mut message = json!({ "role": "assistant", "content": text });
            if let Some(thinking) = provider_state.as_deref().and_then(super::decode::thinking_from_state) {
                message["thinking"] = thinking.into();
            }
            if !calls.is_empty() {
                message["tool_calls"] = calls.iter().map(call).collect();
            }
            message
        }
        Entry::Result { id, tool, text, outcome: _ } => {
            json!({ "role": "tool", "tool_name": sanitize_tool_name(tool), "tool_call_id": id, "content": text })
        }
    }
}

fn call(call: &ToolCall) -> Value {
    json!({ "id": call.id, "function": { "name": sanitize_tool_name(&call.tool), "arguments": parse_arguments(&call.args) } })
}

fn tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": { "name": tool.name, "description": tool.description, "parameters": tool.schema },
    })
}

/// Returns the `think` parameter: one family of models takes a level, the others a boolean.
fn think_parameter(request: &Request) -> Option<Value> {
    let degrees = request.model.contains("gpt-oss");
    let degree = match request.thinking {
        Thinking::ServerDefault => return None,
        Thinking::Off => return Some(false.into()),
        Thinking::Low => "low",
        Thinking::Medium => "medium",
        Thinking::High => "high",
    };
    Some(if degrees { degree.into() } else { true.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::samples;

    #[test]
    fn images_are_a_field_beside_the_text() {
        assert_eq!(
            body(&samples::image_request("what is it?"), 32_768)["messages"],
            json!([{ "role": "user", "content": "what is it?", "images": ["aGk="] }])
        );
    }

    #[test]
    fn a_conversation_is_encoded_for_ollama() {
        let provider_state = json!({ "ollama": { "thinking": "hm" } }).to_string();
        let body = body(&samples::conversation(Some(provider_state)), 32_768);
        assert_eq!(
            body,
            json!({
                "model": "m",
                "stream": true,
                "options": { "num_predict": 100, "num_ctx": 32_768 },
                "tools": [{ "type": "function", "function": { "name": "look", "description": "Looks.", "parameters": { "type": "object" } } }],
                "messages": [
                    { "role": "system", "content": "Be brief." },
                    { "role": "user", "content": "look" },
                    { "role": "assistant", "content": "Looking.", "thinking": "hm", "tool_calls": [
                        { "id": "c1", "function": { "name": "look", "arguments": { "at": 1 } } },
                        { "id": "c2", "function": { "name": "look", "arguments": { "invalid_arguments": "{oops" } } },
                    ] },
                    { "role": "tool", "tool_name": "look", "tool_call_id": "c1", "content": "a cat" },
                    { "role": "tool", "tool_name": "look", "tool_call_id": "c2", "content": "bad arguments" },
                    { "role": "user", "content": "and?" },
                ],
            })
        );
    }

    #[test]
    fn the_thinking_level_is_encoded_for_each_model_family() {
        let think = |model: &str, thinking| {
            think_parameter(&Request { model: model.to_owned(), thinking, ..samples::text_request("hi") })
        };
        assert_eq!(think("qwen3", Thinking::ServerDefault), None);
        assert_eq!(think("qwen3", Thinking::Off), Some(json!(false)));
        assert_eq!(think("qwen3", Thinking::High), Some(json!(true)));
        assert_eq!(think("gpt-oss:20b", Thinking::Low), Some(json!("low")));
    }
}
