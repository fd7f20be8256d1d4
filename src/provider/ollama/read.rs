//! Decodes the responses of Ollama, line by line.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::provider::complaint::Complaint;
use crate::provider::dialect::{at_the_end, cut};
use crate::provider::error::{ModelError, excerpt};
use crate::provider::limits::TurnLimits;
use crate::provider::lines::Lines;
use crate::provider::model::{Piece, Stop, TurnEnd};
use crate::provider::turn::{Gathering, STOP_BYTES};

/// The decoder of one response.
#[derive(Debug)]
pub(in crate::provider) struct Reading {
    lines: Lines,
    state: State,
}

#[derive(Debug)]
struct State {
    turn: Gathering,
    thinking: String,
}

#[derive(Deserialize)]
struct Line {
    message: Option<Message>,
    error: Option<Box<RawValue>>,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: Option<Box<RawValue>>,
}

impl Reading {
    pub(in crate::provider) fn new(limits: TurnLimits, label: String) -> Self {
        let state = State { turn: Gathering::new(limits, label), thinking: String::new() };
        Self { lines: Lines::new(limits.line_bytes), state }
    }

    pub(in crate::provider) fn feed(&mut self, bytes: &[u8], out: &mut Vec<Piece>) -> Result<(), ModelError> {
        let Self { lines, state } = self;
        state.turn.exchange(out);
        let outcome = lines.feed(bytes, |line| state.line(line));
        state.turn.exchange(out);
        outcome
    }

    pub(in crate::provider) fn finish(&mut self, out: &mut Vec<Piece>) -> Result<(), ModelError> {
        let Self { lines, state } = self;
        state.turn.exchange(out);
        let outcome = lines.finish(|line| state.line(line));
        state.turn.exchange(out);
        outcome.map_err(at_the_end)?;
        if self.is_done() { Ok(()) } else { Err(cut()) }
    }

    pub(in crate::provider) const fn is_done(&self) -> bool {
        self.state.turn.has_stopped()
    }

    pub(in crate::provider) fn end(&self) -> TurnEnd {
        self.state.turn.end()
    }
}

impl State {
    fn line(&mut self, line: &[u8]) -> Result<(), ModelError> {
        if line.is_empty() || self.turn.has_stopped() {
            return Ok(());
        }
        let line: Line = serde_json::from_slice(line).map_err(|error| {
            ModelError::garbage(format!("the server sent a line that cannot be read: {error}"), line)
        })?;
        if let Some(error) = line.error {
            return Err(
                Complaint::of_error(&serde_json::from_str(error.get()).unwrap_or_default()).in_answer()
            );
        }
        if let Some(message) = line.message {
            self.message(message)?;
        }
        if line.done {
            self.turn.usage.input = line.prompt_eval_count.unwrap_or_default();
            self.turn.usage.output = line.eval_count.unwrap_or_default();
            self.turn.carry = carry(&self.thinking);
            self.turn.stopped(stop(line.done_reason.as_deref().unwrap_or("stop")));
        }
        Ok(())
    }

    fn message(&mut self, message: Message) -> Result<(), ModelError> {
        if let Some(thinking) = message.thinking {
            self.turn.thought(&thinking)?;
            self.thinking.push_str(&thinking);
        }
        if let Some(content) = message.content {
            self.turn.said(&content)?;
        }
        for call in message.tool_calls.into_iter().flatten() {
            let args = call.function.arguments.as_deref().map_or("{}", RawValue::get);
            self.turn.call(call.id.as_deref().unwrap_or_default(), &call.function.name, args)?;
        }
        Ok(())
    }
}

fn stop(word: &str) -> Stop {
    match word {
        "stop" => Stop::Done,
        "length" => Stop::Length,
        _ => Stop::Other(excerpt(word, STOP_BYTES)),
    }
}

fn carry(thinking: &str) -> Option<String> {
    (!thinking.is_empty()).then(|| serde_json::json!({ "ollama": { "thinking": thinking } }).to_string())
}

/// Returns the thinking in a provider state, if the state is of this dialect.
pub(super) fn thinking_of(carry: &str) -> Option<String> {
    let value: Value = serde_json::from_str(carry).ok()?;
    Some(value.get("ollama")?.get("thinking")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::provider::dialect::Dialect::Ollama;
    use crate::provider::error::Kind;
    use crate::provider::model::{Stop, Usage};
    use crate::provider::samples::{call, read_in_every_cut, read_whole, said, thought};

    const STREAM: &str = concat!(
        r#"{"model":"m","created_at":"x","message":{"role":"assistant","content":"","thinking":"hm, "},"done":false}"#,
        "\n",
        r#"{"message":{"role":"assistant","content":"","thinking":"né €"},"done":false}"#,
        "\r\n\n",
        r#"{"message":{"role":"assistant","content":"Let \ud83d\ude00"},"done":false}"#,
        "\n",
        r#"{"message":{"role":"assistant","content":" us 😀"},"done":false}"#,
        "\n",
        r#"{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"index":0,"name":"look","arguments":{"at": 1.50,"é":"€"}}}]},"done":false}"#,
        "\n",
        r#"{"message":{"role":"assistant","content":"","tool_calls":[{"id":"call_x","function":{"name":"look","arguments":{}}}]},"done":false}"#,
        "\n",
        r#"{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":5,"prompt_eval_count":26,"eval_count":7}"#,
        "\n",
    );

    #[test]
    fn an_answer_is_the_same_however_it_is_cut() {
        let (pieces, end) = read_in_every_cut(Ollama, STREAM.as_bytes()).unwrap();
        assert_eq!(
            pieces,
            [
                thought("hm, né €"),
                said("Let 😀 us 😀"),
                call("t_1", "look", r#"{"at": 1.50,"é":"€"}"#),
                call("call_x", "look", "{}"),
            ]
        );
        assert_eq!(end.stop, Stop::Calls);
        assert_eq!(end.usage, Usage { input: 26, output: 7, ..Usage::default() });
        assert_eq!(end.carry.as_deref(), Some(r#"{"ollama":{"thinking":"hm, né €"}}"#));
        assert_eq!(super::thinking_of(&end.carry.unwrap()).as_deref(), Some("hm, né €"));
        assert_eq!(super::thinking_of(r#"{"openai":{}}"#), None);
    }

    #[test]
    fn stops_are_understood() {
        for (line, stop) in [
            (r#"{"done":true}"#, Stop::Done),
            (r#"{"done":true,"done_reason":"length"}"#, Stop::Length),
            (r#"{"done":true,"done_reason":"load"}"#, Stop::Other("load".to_owned())),
        ] {
            assert_eq!(read_whole(Ollama, line.as_bytes()).unwrap().1.stop, stop, "{line}");
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for (text, kind) in [
            ("", Kind::Cut),
            ("{\"message\":{\"content\":\"a\"}}\n", Kind::Cut),
            ("{\"message\":{\"content\":\"a", Kind::Cut),
            ("{\"error\":\"out of memory\"}\n", Kind::Failed),
            ("[]\n", Kind::Garbage),
            ("<html></html>", Kind::Garbage),
            ("{\"message\":{\"content\":7}}\n", Kind::Garbage),
        ] {
            assert_eq!(read_in_every_cut(Ollama, text.as_bytes()).unwrap_err().kind, kind, "{text}");
        }
        let invalid = b"{\"message\":{\"content\":\"\xff\"}}\n";
        assert_eq!(read_in_every_cut(Ollama, invalid).unwrap_err().kind, Kind::Garbage);
    }
}
