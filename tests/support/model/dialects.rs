//! Encodes turns for each dialect.

use serde_json::{Value, json};

use super::ServerDialect;
use super::script::{End, Fault, Step, Turn, TurnCost};

/// The next thing to send.
#[derive(Debug)]
pub(super) enum ResponsePart {
    Event(Vec<u8>),
    Fault(Fault),
}

/// The dialect of a path.
pub(super) fn spoken_at(path: &str) -> Option<ServerDialect> {
    match path {
        "/api/chat" => Some(ServerDialect::Ollama),
        "/v1/chat/completions" => Some(ServerDialect::OpenAi),
        "/v1/messages" => Some(ServerDialect::Anthropic),
        _ => None,
    }
}

/// The content type of a response.
pub(super) fn content_type(dialect: ServerDialect) -> &'static str {
    match dialect {
        ServerDialect::Ollama => "application/x-ndjson",
        ServerDialect::OpenAi | ServerDialect::Anthropic => "text/event-stream",
    }
}

/// Encodes a turn, with its faults in place.
pub(super) fn encode(dialect: ServerDialect, turn: &Turn) -> Vec<ResponsePart> {
    let mut out = match dialect {
        ServerDialect::Ollama => Vec::new(),
        ServerDialect::OpenAi => vec![ResponsePart::Event(b": a comment\n\n".to_vec())],
        ServerDialect::Anthropic => vec![message_start(turn.spent)],
    };
    let mut blocks = Blocks::default();
    for (index, step) in turn.steps.iter().enumerate() {
        match (step, dialect) {
            (Step::Fault(Fault::Error { kind, message }), _) => out.push(error(dialect, kind, message)),
            (Step::Fault(fault), _) => out.push(ResponsePart::Fault(fault.clone())),
            (step, ServerDialect::Ollama) => out.push(ollama(step)),
            (step, ServerDialect::OpenAi) => out.extend(openai(index, step)),
            (step, ServerDialect::Anthropic) => out.extend(blocks.step(step)),
        }
    }
    if dialect == ServerDialect::Anthropic {
        out.extend(blocks.close());
    }
    out.extend(end(dialect, turn));
    out
}

/// An event with this many bytes of text.
pub(super) fn huge(dialect: ServerDialect, bytes: usize) -> Vec<u8> {
    said(dialect, &"x".repeat(bytes))
}

/// An event with this text.
pub(super) fn said(dialect: ServerDialect, text: &str) -> Vec<u8> {
    let step = Step::Say(text.to_owned());
    let out = match dialect {
        ServerDialect::Ollama => ollama(&step),
        ServerDialect::OpenAi => openai(0, &step).remove(0),
        ServerDialect::Anthropic => event(
            &json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } }),
        ),
    };
    match out {
        ResponsePart::Event(bytes) => bytes,
        ResponsePart::Fault(fault) => panic!("a text became {fault:?}"),
    }
}

fn ollama(step: &Step) -> ResponsePart {
    let message = match step {
        Step::Say(text) => json!({ "role": "assistant", "content": text }),
        Step::Think(text) => json!({ "role": "assistant", "content": "", "thinking": text }),
        Step::Call { id, tool, args, .. } => {
            return ollama_call(id, tool, args);
        }
        Step::Fault(fault) => return ResponsePart::Fault(fault.clone()),
    };
    line(&json!({ "model": "test-model", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": false }))
}

/// A call with its arguments unchanged, except line feeds: they would end its line.
fn ollama_call(id: &str, tool: &str, args: &str) -> ResponsePart {
    let arguments = match serde_json::from_str::<Value>(args) {
        Ok(_) => args.replace('\n', "\r"),
        Err(_) => Value::from(args).to_string(),
    };
    let call = json!({ "id": id, "function": { "name": tool, "arguments": "ARGUMENTS" } });
    let message = json!({ "role": "assistant", "content": "", "tool_calls": [call] });
    let line = json!({ "model": "test-model", "message": message, "done": false }).to_string();
    ResponsePart::Event(format!("{}\n", line.replace("\"ARGUMENTS\"", &arguments)).into_bytes())
}

fn openai(index: usize, step: &Step) -> Vec<ResponsePart> {
    let chunk = |delta: Value| {
        event(&json!({
            "id": "chatcmpl-test",
            "object": "chat.completion.chunk",
            "model": "test-model",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": null }],
        }))
    };
    match step {
        Step::Say(text) => vec![chunk(json!({ "content": text }))],
        Step::Think(text) => vec![chunk(json!({ "content": null, "reasoning_content": text }))],
        Step::Call { id, tool, args, fragment } => {
            let head =
                json!({ "index": index, "id": id, "type": "function", "function": { "name": tool, "arguments": "" } });
            let mut out = vec![chunk(json!({ "tool_calls": [head] }))];
            out.extend(
                fragments(args, *fragment).into_iter().map(|part| {
                    chunk(json!({ "tool_calls": [{ "index": index, "function": { "arguments": part } }] }))
                }),
            );
            out
        }
        Step::Fault(fault) => vec![ResponsePart::Fault(fault.clone())],
    }
}

/// The content blocks of a Messages response: text and thinking continue in the current block.
#[derive(Default)]
struct Blocks {
    count: usize,
    open: Option<&'static str>,
}

impl Blocks {
    fn step(&mut self, step: &Step) -> Vec<ResponsePart> {
        match step {
            Step::Say(text) => {
                let mut out = self.enter("text", json!({ "type": "text", "text": "" }));
                out.push(self.delta(json!({ "type": "text_delta", "text": text })));
                out
            }
            Step::Think(text) => {
                let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                let mut out = self.enter("thinking", block);
                out.push(self.delta(json!({ "type": "thinking_delta", "thinking": text })));
                out
            }
            Step::Call { id, tool, args, fragment } => {
                let mut out = self.close();
                out.extend(self.enter("tool_use", json!({ "type": "tool_use", "id": id, "name": tool, "input": {} })));
                for part in fragments(args, *fragment) {
                    out.push(self.delta(json!({ "type": "input_json_delta", "partial_json": part })));
                }
                out.extend(self.close());
                out
            }
            Step::Fault(fault) => vec![ResponsePart::Fault(fault.clone())],
        }
    }

    fn enter(&mut self, kind: &'static str, block: Value) -> Vec<ResponsePart> {
        if self.open == Some(kind) {
            return Vec::new();
        }
        let mut out = self.close();
        self.open = Some(kind);
        self.count += 1;
        out.push(event(&json!({ "type": "content_block_start", "index": self.count - 1, "content_block": block })));
        out
    }

    fn close(&mut self) -> Vec<ResponsePart> {
        let Some(kind) = self.open.take() else { return Vec::new() };
        let mut out = Vec::new();
        if kind == "thinking" {
            out.push(self.delta(json!({ "type": "signature_delta", "signature": "signed" })));
        }
        out.push(event(&json!({ "type": "content_block_stop", "index": self.count - 1 })));
        out
    }

    fn delta(&self, delta: Value) -> ResponsePart {
        event(&json!({ "type": "content_block_delta", "index": self.count - 1, "delta": delta }))
    }
}

fn message_start(spent: Option<TurnCost>) -> ResponsePart {
    let usage = spent.map(|spent| {
        json!({
            "input_tokens": spent.fresh,
            "cache_read_input_tokens": spent.cache_read,
            "cache_creation_input_tokens": spent.cache_write,
            "output_tokens": 1,
        })
    });
    event(
        &json!({ "type": "message_start", "message": { "id": "msg_test", "role": "assistant", "content": [], "usage": usage } }),
    )
}

fn end(dialect: ServerDialect, turn: &Turn) -> Vec<ResponsePart> {
    let spent = turn.spent;
    match dialect {
        ServerDialect::Ollama => {
            let mut last =
                json!({ "model": "test-model", "message": { "role": "assistant", "content": "" }, "done": true });
            last["done_reason"] = match turn.end {
                End::Done | End::Calls => "stop".into(),
                End::Length => "length".into(),
                End::Refused => "refused".into(),
            };
            if let Some(spent) = spent {
                last["prompt_eval_count"] = (spent.fresh + spent.cache_read + spent.cache_write).into();
                last["eval_count"] = spent.output.into();
            }
            vec![line(&last)]
        }
        ServerDialect::OpenAi => {
            let reason = match turn.end {
                End::Done => "stop",
                End::Calls => "tool_calls",
                End::Length => "length",
                End::Refused => "content_filter",
            };
            let mut out = vec![event(&json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }))];
            out.extend(spent.map(|spent| {
                event(&json!({
                    "choices": [],
                    "usage": {
                        "prompt_tokens": spent.fresh + spent.cache_read + spent.cache_write,
                        "completion_tokens": spent.output,
                        "prompt_tokens_details": { "cached_tokens": spent.cache_read, "cache_write_tokens": spent.cache_write },
                        "cost": spent.dollars,
                    },
                }))
            }));
            out.push(ResponsePart::Event(b"data: [DONE]\n\n".to_vec()));
            out
        }
        ServerDialect::Anthropic => {
            let reason = match turn.end {
                End::Done => "end_turn",
                End::Calls => "tool_use",
                End::Length => "max_tokens",
                End::Refused => "refusal",
            };
            let usage = spent.map(|spent| json!({ "output_tokens": spent.output }));
            vec![
                event(
                    &json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": usage }),
                ),
                event(&json!({ "type": "message_stop" })),
            ]
        }
    }
}

fn error(dialect: ServerDialect, kind: &str, message: &str) -> ResponsePart {
    match dialect {
        ServerDialect::Ollama => line(&json!({ "error": { "type": kind, "message": message } })),
        ServerDialect::OpenAi => event(&json!({ "error": { "type": kind, "message": message, "code": null } })),
        ServerDialect::Anthropic => event(&json!({ "type": "error", "error": { "type": kind, "message": message } })),
    }
}

fn line(value: &Value) -> ResponsePart {
    ResponsePart::Event(format!("{value}\n").into_bytes())
}

fn event(value: &Value) -> ResponsePart {
    let named = value.get("type").and_then(Value::as_str).map(|name| format!("event: {name}\n"));
    ResponsePart::Event(format!("{}data: {value}\n\n", named.unwrap_or_default()).into_bytes())
}

/// Splits a text into parts of this many bytes, without splitting a character.
fn fragments(text: &str, bytes: usize) -> Vec<String> {
    if text.len() <= bytes {
        return vec![text.to_owned()];
    }
    let mut parts = vec![String::new()];
    for letter in text.chars() {
        match parts.last_mut() {
            Some(last) if last.is_empty() || last.len() + letter.len_utf8() <= bytes => last.push(letter),
            Some(_) | None => parts.push(letter.to_string()),
        }
    }
    parts
}
