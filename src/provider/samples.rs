//! Requests, deltas and decoding helpers for the tests of the dialects.

use serde_json::json;

use super::dialect::{Dialect, Reader};
use super::error::ModelError;
use super::limits::TurnLimits;
use super::model::{Entry, Outcome, Piece, Request, Thinking, ToolSpec, TurnEnd, Wanted};
use crate::kernel::event::Image;

/// Returns a request with one user message.
pub(super) fn question(text: &str) -> Request {
    Request {
        model: "m".to_owned(),
        system: String::new(),
        entries: vec![Entry::user(text.to_owned())],
        tools: Vec::new(),
        max_tokens: None,
        thinking: Thinking::Usual,
    }
}

/// Returns a conversation with every kind of entry.
pub(super) fn conversation(carry: Option<String>) -> Request {
    let wanted = |id: &str, args: &str| Wanted { id: id.into(), tool: "look".into(), args: args.into() };
    let result = |id: &str, text: &str, outcome| Entry::Result {
        id: id.into(),
        tool: "look".into(),
        text: text.into(),
        outcome,
    };
    let calls = vec![wanted("c1", r#"{"at":1}"#), wanted("c2", "{oops")];
    Request {
        system: "Be brief.".to_owned(),
        entries: vec![
            Entry::user("look".to_owned()),
            Entry::Assistant { carry, said: "Looking.".to_owned(), calls },
            result("c1", "a cat", Outcome::Fine),
            result("c2", "bad arguments", Outcome::Failed),
            Entry::user("and?".to_owned()),
        ],
        tools: vec![ToolSpec {
            name: "look".to_owned(),
            description: "Looks.".to_owned(),
            schema: json!({ "type": "object" }),
        }],
        max_tokens: Some(100),
        ..question("")
    }
}

/// Returns a request with an image.
pub(super) fn picture(text: &str) -> Request {
    let images = vec![Image { mime: "image/png".to_owned(), data: "aGk=".to_owned() }];
    Request { entries: vec![Entry::User { text: text.to_owned(), images }], ..question("") }
}

/// Decodes a response in one chunk.
pub(super) fn read_whole(dialect: Dialect, bytes: &[u8]) -> Result<(Vec<Piece>, TurnEnd), ModelError> {
    read(dialect, &[bytes])
}

/// Decodes a response at every split into two chunks, and in chunks of every size up to seven; all results must
/// agree.
pub(super) fn read_in_every_cut(dialect: Dialect, bytes: &[u8]) -> Result<(Vec<Piece>, TurnEnd), ModelError> {
    let whole = read_whole(dialect, bytes);
    for at in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(at);
        assert_eq!(read(dialect, &[head, tail]), whole, "cut at {at}");
    }
    for size in 1..=7 {
        let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(read(dialect, &chunks), whole, "in chunks of {size}");
    }
    whole
}

/// Returns a text delta.
pub(super) fn said(text: &str) -> Piece {
    Piece::Said(text.to_owned())
}

/// Returns a thinking delta.
pub(super) fn thought(text: &str) -> Piece {
    Piece::Thought(text.to_owned())
}

/// Returns a tool call delta.
pub(super) fn call(id: &str, tool: &str, args: &str) -> Piece {
    Piece::Call(Wanted { id: id.to_owned(), tool: tool.to_owned(), args: args.to_owned() })
}

fn read(dialect: Dialect, chunks: &[&[u8]]) -> Result<(Vec<Piece>, TurnEnd), ModelError> {
    let mut reader = Reader::new(dialect, TurnLimits::default(), "t");
    let mut merged: Vec<Piece> = Vec::new();
    let mut out = Vec::new();
    for chunk in chunks {
        reader.feed(chunk, &mut out)?;
        out.drain(..).for_each(|piece| merge(&mut merged, piece));
    }
    reader.finish(&mut out)?;
    out.drain(..).for_each(|piece| merge(&mut merged, piece));
    Ok((merged, reader.end()))
}

fn merge(merged: &mut Vec<Piece>, piece: Piece) {
    match (merged.last_mut(), piece) {
        (Some(Piece::Said(last)), Piece::Said(text)) | (Some(Piece::Thought(last)), Piece::Thought(text)) => {
            last.push_str(&text);
        }
        (_, piece) => merged.push(piece),
    }
}
