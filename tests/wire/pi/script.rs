//! The language of transcripts: one thing a line.
//!
//! A line may begin with the name of a connection (`B:`); the first one is `A`. `${name}` is replaced by what a pattern
//! has called so. The words are those of [`Act`].

use serde_json::{Map, Value};

/// A line of a transcript.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) number: usize,
    pub(crate) text: String,
    /// Which connection.
    pub(crate) on: char,
    /// Its first word.
    pub(crate) word: String,
    pub(crate) rest: String,
}

/// Reads a transcript.
pub(crate) fn read(text: &str) -> Vec<Step> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).map(|(at, line)| step(at, line)).collect()
}

fn step(number: usize, line: &str) -> Step {
    let (on, said) = match line.as_bytes() {
        [name, b':', b' ', ..] if name.is_ascii_uppercase() => (char::from(*name), &line[3..]),
        _ => ('A', line),
    };
    let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
    Step { number, text: line.to_owned(), on, word: word.to_owned(), rest: rest.trim().to_owned() }
}

/// What a line of a transcript does.
#[derive(Debug)]
pub(crate) enum Act {
    /// `> type @session #id {fields}`: sends a command; `#-` sends it without an id, and without any one is made.
    /// `>!` sends one that the schemas must refuse too, `>?` one that only the server can judge.
    Send { command: Value, valid: Option<bool> },
    /// `raw text`: sends the text as it is.
    Raw(String),
    /// `ok #id {pattern}`: the answer to that command, or to the last, is a success.
    Ok { id: Option<String>, pattern: Value },
    /// `no #id sentence`: it is a failure with this sentence; `no ~part` with this part of it.
    No { id: Option<String>, error: String },
    /// `is #id {pattern}`: it is whatever the pattern says.
    Is { id: Option<String>, pattern: Value },
    /// `< {pattern}`: such a line comes, and no other line of the transcript has it.
    Comes(Value),
    /// `<< {pattern}`: it comes after what was looked for last.
    Follows(Value),
    /// `ev type @session {pattern}`: such an event of a session comes after what was looked for last.
    Event(Value),
    /// `never {pattern}`: no such line has come.
    Never(Value),
    /// `count 2 {pattern}`: so many such lines have come.
    Count(usize, Value),
}

/// Reads what a line that speaks of the protocol does; `None` when it speaks of something else.
pub(crate) fn act(step: &Step, rest: &str) -> Option<Act> {
    Some(match step.word.as_str() {
        ">" => Act::Send { command: command(rest), valid: Some(true) },
        ">!" => Act::Send { command: command(rest), valid: Some(false) },
        ">?" => Act::Send { command: command(rest), valid: None },
        "raw" => Act::Raw(rest.to_owned()),
        "ok" => {
            let (id, rest) = named(rest);
            Act::Ok { id, pattern: pattern(rest) }
        }
        "is" => {
            let (id, rest) = named(rest);
            Act::Is { id, pattern: pattern(rest) }
        }
        "no" => {
            let (id, rest) = named(rest);
            Act::No { id, error: rest.to_owned() }
        }
        "<" => Act::Comes(pattern(rest)),
        "<<" => Act::Follows(pattern(rest)),
        "ev" => Act::Event(event(rest)),
        "never" => Act::Never(pattern(rest)),
        "count" => {
            let (number, rest) = rest.split_once(' ').expect("a number and a pattern");
            Act::Count(number.parse().expect("a number"), pattern(rest))
        }
        _ => return None,
    })
}

/// Reads JSON; nothing is an object that anything matches.
pub(crate) fn pattern(text: &str) -> Value {
    let text = if text.is_empty() { "{}" } else { text };
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn named(rest: &str) -> (Option<String>, &str) {
    let Some(named) = rest.strip_prefix('#') else { return (None, rest) };
    let (id, rest) = named.split_once(' ').unwrap_or((named, ""));
    (Some(id.to_owned()), rest.trim())
}

fn command(rest: &str) -> Value {
    let (words, fields) = split(rest);
    let mut command: Map<String, Value> =
        serde_json::from_str(fields).unwrap_or_else(|error| panic!("{error}: {fields}"));
    for (at, word) in words.split_whitespace().enumerate() {
        match (at, word.split_at(1)) {
            (0, _) => command.insert("type".to_owned(), word.into()),
            (_, ("@", session)) => command.insert("sessionId".to_owned(), session.into()),
            (_, ("#", id)) => command.insert("id".to_owned(), id.into()),
            (_, ("=", key)) => command.insert("idempotencyKey".to_owned(), key.into()),
            _ => panic!("{word:?} in {rest}"),
        };
    }
    Value::Object(command)
}

fn event(rest: &str) -> Value {
    let (words, fields) = split(rest);
    let mut event: Map<String, Value> =
        serde_json::from_str(fields).unwrap_or_else(|error| panic!("{error}: {fields}"));
    let mut line = Map::new();
    line.insert("type".to_owned(), "event".into());
    for (at, word) in words.split_whitespace().enumerate() {
        match (at, word.strip_prefix('@')) {
            (0, _) => event.insert("type".to_owned(), word.into()),
            (_, Some(session)) => line.insert("sessionId".to_owned(), session.into()),
            _ => panic!("{word:?} in {rest}"),
        };
    }
    line.insert("event".to_owned(), Value::Object(event));
    Value::Object(line)
}

/// Splits words from the JSON after them.
fn split(rest: &str) -> (&str, &str) {
    match rest.find('{') {
        Some(at) => (&rest[..at], &rest[at..]),
        None => (rest, "{}"),
    }
}
