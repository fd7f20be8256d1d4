//! Requests, deltas and decoding helpers for the tests of the dialects.

use serde_json::json;

use super::dialect::{Dialect, ServerContext};
use super::endpoint::Endpoint;
use super::error::ModelError;
use super::limits::TurnLimits;
use super::model::{CallOutcome, Delta, Entry, Request, Thinking, ToolCall, ToolSpec, TurnEnd};
use crate::kernel::event::Image;

/// Returns a request with one user message.
pub(super) fn text_request(text: &str) -> Request {
    Request {
        model: "m".to_owned(),
        system: String::new(),
        entries: vec![Entry::user(text.to_owned())],
        tools: Vec::new(),
        max_tokens: None,
        thinking: Thinking::ServerDefault,
    }
}

/// Returns a conversation with every kind of entry.
pub(super) fn conversation(provider_state: Option<String>) -> Request {
    let call = |id: &str, args: &str| ToolCall { id: id.into(), tool: "look".into(), args: args.into() };
    let result = |id: &str, text: &str, outcome| Entry::Result {
        id: id.into(),
        tool: "look".into(),
        text: text.into(),
        outcome,
    };
    let calls = vec![call("c1", r#"{"at":1}"#), call("c2", "{oops")];
    Request {
        system: "Be brief.".to_owned(),
        entries: vec![
            Entry::user("look".to_owned()),
            Entry::Assistant { provider_state, text: "Looking.".to_owned(), calls },
            result("c1", "a cat", CallOutcome::Succeeded),
            result("c2", "bad arguments", CallOutcome::Failed),
            Entry::user("and?".to_owned()),
        ],
        tools: vec![ToolSpec {
            name: "look".to_owned(),
            description: "Looks.".to_owned(),
            schema: json!({ "type": "object" }),
        }],
        max_tokens: Some(100),
        ..text_request("")
    }
}

/// Returns a request with an image.
pub(super) fn image_request(text: &str) -> Request {
    let images = vec![Image { mime: "image/png".to_owned(), data: "aGk=".to_owned() }];
    Request { entries: vec![Entry::User { text: text.to_owned(), images }], ..text_request("") }
}

/// Decodes a response in one chunk.
pub(super) fn decode_all(dialect: &'static dyn Dialect, bytes: &[u8]) -> Result<(Vec<Delta>, TurnEnd), ModelError> {
    decode_chunks(dialect, &[bytes])
}

/// Decodes a response at every split into two chunks, and in chunks of every size up to seven; all results must
/// agree.
pub(super) fn decode_at_every_split(
    dialect: &'static dyn Dialect,
    bytes: &[u8],
) -> Result<(Vec<Delta>, TurnEnd), ModelError> {
    let whole = decode_all(dialect, bytes);
    for at in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(at);
        assert_eq!(decode_chunks(dialect, &[head, tail]), whole, "cut at {at}");
    }
    for size in 1..=7 {
        let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(decode_chunks(dialect, &chunks), whole, "in chunks of {size}");
    }
    whole
}

/// Returns a text delta.
pub(super) fn text_delta(text: &str) -> Delta {
    Delta::Text(text.to_owned())
}

/// Returns a thinking delta.
pub(super) fn thinking_delta(text: &str) -> Delta {
    Delta::Thinking(text.to_owned())
}

/// Returns a tool call delta.
pub(super) fn call_delta(id: &str, tool: &str, args: &str) -> Delta {
    Delta::ToolCall(ToolCall { id: id.to_owned(), tool: tool.to_owned(), args: args.to_owned() })
}

fn decode_chunks(dialect: &'static dyn Dialect, chunks: &[&[u8]]) -> Result<(Vec<Delta>, TurnEnd), ModelError> {
    let endpoint = Endpoint::default_for(dialect);
    let server = ServerContext { endpoint: &endpoint, context_tokens: 1 };
    let decoder = dialect.encode(&text_request("hi"), &server).decoder;
    let mut reader = decoder(TurnLimits::default(), "t".to_owned());
    let mut merged: Vec<Delta> = Vec::new();
    let mut out = Vec::new();
    for chunk in chunks {
        reader.feed(chunk, &mut out)?;
        out.drain(..).for_each(|delta| merge(&mut merged, delta));
    }
    reader.finish(&mut out)?;
    out.drain(..).for_each(|delta| merge(&mut merged, delta));
    Ok((merged, reader.end()))
}

fn merge(merged: &mut Vec<Delta>, delta: Delta) {
    match (merged.last_mut(), delta) {
        (Some(Delta::Text(last)), Delta::Text(text)) | (Some(Delta::Thinking(last)), Delta::Thinking(text)) => {
            last.push_str(&text);
        }
        (_, delta) => merged.push(delta),
    }
}
