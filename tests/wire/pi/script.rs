//! The language of transcripts: one step per line.
//!
//! A line may begin with the name of a connection (`B:`); the first one is `A`. `${name}` is replaced by the value that
//! a pattern has bound. The words are those of [`Action`].

use serde_json::{Map, Value};

/// A line of a transcript.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) number: usize,
    pub(crate) text: String,
    /// The connection.
    pub(crate) on: char,
    /// Its first word.
    pub(crate) word: String,
    pub(crate) rest: String,
}

/// Parses a transcript.
pub(crate) fn parse(text: &str) -> Vec<Step> {
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

/// The action of a line of a transcript.
#[derive(Debug)]
pub(crate) enum Action {
    /// `> type @session #id {fields}`: sends a command; `#-` sends it without an id; otherwise one is generated.
    /// `>!` sends one that the schemas must refuse, too, `>?` one that only the server can validate.
    Send { command: Value, valid: Option<bool> },
    /// `raw text`: sends the text unchanged.
    Raw(String),
    /// `ok #id {pattern}`: the response to that command, or to the last one, is a success.
    Ok { id: Option<String>, pattern: Value },
    /// `no #id error`: it is a failure with this error; `no ~part` with an error that contains the part.
    No { id: Option<String>, error: String },
    /// `is #id {pattern}`: it matches the pattern.
    Is { id: Option<String>, pattern: Value },
    /// `< {pattern}`: such a line is received, which no other step has matched.
    Comes(Value),
    /// `<< {pattern}`: it is received after the last ordered match.
    Follows(Value),
    /// `ev type @session {pattern}`: such an event of a session is received after the last ordered match.
    Event(Value),
    /// `never {pattern}`: no such line was received.
    Never(Value),
    /// `count 2 {pattern}`: this number of such lines was received.
    Count(usize, Value),
}

/// Parses a step of the protocol; `None` for any other step.
pub(crate) fn parse_step(step: &Step, rest: &str) -> Option<Action> {
    Some(match step.word.as_str() {
        ">" => Action::Send { command: command(rest), valid: Some(true) },
        ">!" => Action::Send { command: command(rest), valid: Some(false) },
        ">?" => Action::Send { command: command(rest), valid: None },
        "raw" => Action::Raw(rest.to_owned()),
        "ok" => {
            let (id, rest) = named(rest);
            Action::Ok { id, pattern: pattern(rest) }
        }
        "is" => {
            let (id, rest) = named(rest);
            Action::Is { id, pattern: pattern(rest) }
        }
        "no" => {
            let (id, rest) = named(rest);
            Action::No { id, error: rest.to_owned() }
        }
        "<" => Action::Comes(pattern(rest)),
        "<<" => Action::Follows(pattern(rest)),
        "ev" => Action::Event(event(rest)),
        "never" => Action::Never(pattern(rest)),
        "count" => {
            let (number, rest) = rest.split_once(' ').expect("a number and a pattern");
            Action::Count(number.parse().expect("a number"), pattern(rest))
        }
        _ => return None,
    })
}

/// Parses JSON; an empty text is the pattern that matches any object.
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

/// Separates words from the JSON after them.
fn split(rest: &str) -> (&str, &str) {
    match rest.find('{') {
        Some(at) => (&rest[..at], &rest[at..]),
        None => (rest, "{}"),
    }
}
