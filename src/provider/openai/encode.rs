//! Encodes requests for chat completions servers.

use serde_json::{Value, json};

use crate::kernel::event::Image;
use crate::provider::dialect::sanitize_tool_name;
use crate::provider::model::{Entry, Request, Thinking, ToolCall, ToolSpec};

/// The field for the token limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenLimit {
    /// `max_tokens`, which all servers but one accept.
    MaxTokens,
    /// `max_completion_tokens`, which OpenAI's server requires.
    MaxCompletionTokens,
}

/// Encodes the body of a request.
pub(super) fn body(request: &Request, token_limit: TokenLimit) -> Value {
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(json!({ "role": "system", "content": request.system }));
    }
    // Thinking is sent back with the calls of the current turn and never with older ones: some servers reject it
    // there.
    let last_message = request.entries.iter().rposition(|entry| matches!(entry, Entry::User { .. })).unwrap_or(0);
    let position = |at| if at > last_message { TurnPosition::Current } else { TurnPosition::Older };
    messages.extend(request.entries.iter().enumerate().map(|(at, entry)| message(entry, position(at))));
    let mut body = json!({
        "model": request.model,
        "messages": messages,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(tokens) = request.max_tokens {
        let name = match token_limit {
            TokenLimit::MaxTokens => "max_tokens",
            TokenLimit::MaxCompletionTokens => "max_completion_tokens",
        };
        body[name] = tokens.into();
    }
    if let Some(effort) = reasoning_effort(request.thinking) {
        body["reasoning_effort"] = effort.into();
    }
    body
}

/// Whether an entry belongs to the current turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TurnPosition {
    Older,
    Current,
}

fn message(entry: &Entry, position: TurnPosition) -> Value {
    match entry {
        Entry::User { text, images } if images.is_empty() => json!({ "role": "user", "content": text }),
        Entry::User { text, images } => json!({ "role": "user", "content": content_parts(text, images) }),
        Entry::Assistant { provider_state, text, calls } => {
            let mut message = json!({ "role": "assistant", "content": text });
            if !calls.is_empty() {
                message["tool_calls"] = calls.iter().map(call).collect();
                if text.is_empty() {
                    message["content"] = Value::Null;
                }
                if let Some((field, thinking)) = provider_state.as_deref().and_then(super::decode::thinking_from_state)
                    && position == TurnPosition::Current
                {
                    message[field] = thinking.into();
                }
            }
            message
        }
        Entry::Result { id, tool: _, text, outcome: _ } => {
            json!({ "role": "tool", "tool_call_id": id, "content": text })
        }
    }
}

/// Encodes a text with its images, which are `data:` URLs.
fn content_parts(text: &str, images: &[Image]) -> Vec<Value> {
    let text_part = Some(text).filter(|text| !text.is_empty()).map(|text| json!({ "type": "text", "text": text }));
    let image_parts = images.iter().map(|Image { mime, data }| {
        json!({ "type": "image_url", "image_url": { "url": format!("data:{mime};base64,{data}") } })
    });
    text_part.into_iter().chain(image_parts).collect()
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": { "name": sanitize_tool_name(&call.tool), "arguments": call.args },
    })
}

fn tool(tool: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": { "name": tool.name, "description": tool.description, "parameters": tool.schema },
    })
}

const fn reasoning_effort(thinking: Thinking) -> Option<&'static str> {
    match thinking {
        Thinking::ServerDefault => None,
        Thinking::Off => Some("none"),
        Thinking::Low => Some("low"),
        Thinking::Medium => Some("medium"),
        Thinking::High => Some("high"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::samples;

    #[test]
    fn images_are_encoded_as_data_urls() {
        let picture = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,aGk=" } });
        assert_eq!(
            body(&samples::image_request("what is it?"), TokenLimit::MaxTokens)["messages"],
            json!([{ "role": "user", "content": [{ "type": "text", "text": "what is it?" }, picture] }])
        );
        let alone = body(&samples::image_request(""), TokenLimit::MaxTokens);
        assert_eq!(alone["messages"][0]["content"], json!([picture]), "an empty text is left out");
    }

    #[test]
    fn a_conversation_is_encoded_as_chat_completions() {
        let body = body(&samples::conversation(None), TokenLimit::MaxTokens);
        assert_eq!(
            body,
            json!({
                "model": "m",
                "stream": true,
                "stream_options": { "include_usage": true },
                "max_tokens": 100,
                "tools": [{ "type": "function", "function": { "name": "look", "description": "Looks.", "parameters": { "type": "object" } } }],
                "messages": [
                    { "role": "system", "content": "Be brief." },
                    { "role": "user", "content": "look" },
                    { "role": "assistant", "content": "Looking.", "tool_calls": [
                        { "id": "c1", "type": "function", "function": { "name": "look", "arguments": "{\"at\":1}" } },
                        { "id": "c2", "type": "function", "function": { "name": "look", "arguments": "{oops" } },
                    ] },
                    { "role": "tool", "tool_call_id": "c1", "content": "a cat" },
                    { "role": "tool", "tool_call_id": "c2", "content": "bad arguments" },
                    { "role": "user", "content": "and?" },
                ],
            })
        );
    }

    #[test]
    fn only_the_thinking_of_the_current_turn_is_sent_back() {
        let provider_state = json!({ "openai": { "field": "reasoning_content", "text": "hm" } }).to_string();
        let mut request = samples::conversation(Some(provider_state));
        assert_eq!(body(&request, TokenLimit::MaxTokens)["messages"][2].get("reasoning_content"), None);
        request.entries.pop();
        assert_eq!(body(&request, TokenLimit::MaxTokens)["messages"][2]["reasoning_content"], "hm");
    }

    #[test]
    fn the_token_limit_and_the_effort_use_the_server_s_field_names() {
        let request = Request { max_tokens: Some(5), thinking: Thinking::High, ..samples::text_request("hi") };
        let body = body(&request, TokenLimit::MaxCompletionTokens);
        assert_eq!((&body["max_completion_tokens"], body.get("max_tokens")), (&json!(5), None));
        assert_eq!(body["reasoning_effort"], "high");
        assert_eq!(body.get("tools"), None);
    }
}
