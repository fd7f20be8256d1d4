//! Decodes the responses of Ollama, line by line.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::provider::error::{ModelError, excerpt};
use crate::provider::limits::TurnLimits;
use crate::provider::lines::LineSplitter;
use crate::provider::model::{StopReason, TurnEnd};
use crate::provider::turn_builder::{STOP_BYTES, TurnBuilder};
use crate::provider::turn_decoder::{EventHandler, TurnDecoder, check_error, parse_event};

/// The decoder of one response.
pub(super) type Decoder = TurnDecoder<LineSplitter, DecoderState>;

/// The state of a response.
#[derive(Debug)]
pub(super) struct DecoderState {
    turn: TurnBuilder,
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

impl Decoder {
    pub(super) fn new(limits: TurnLimits, label: String) -> Self {
        let state = DecoderState { turn: TurnBuilder::new(limits, label), thinking: String::new() };
        Self::with_parts(LineSplitter::new(limits.line_bytes), state)
    }
}

impl EventHandler for DecoderState {
    fn accept_event(&mut self, data: &[u8]) -> Result<(), ModelError> {
        if data.is_empty() || self.turn.has_stopped() {
            return Ok(());
        }
        let line: Line = parse_event(data)?;
        check_error(line.error)?;
        if let Some(message) = line.message {
            self.accept_message(message)?;
        }
        if line.done {
            self.turn.usage.input = line.prompt_eval_count.unwrap_or_default();
            self.turn.usage.output = line.eval_count.unwrap_or_default();
            self.turn.provider_state = encode_state(&self.thinking);
            self.turn.finish(stop_reason(line.done_reason.as_deref().unwrap_or("stop")));
        }
        Ok(())
    }

    fn turn(&mut self) -> &mut TurnBuilder {
        &mut self.turn
    }

    fn is_complete(&self) -> bool {
        self.turn.has_stopped()
    }

    fn end(&self) -> TurnEnd {
        self.turn.end()
    }
}

impl DecoderState {
    fn accept_message(&mut self, message: Message) -> Result<(), ModelError> {
        if let Some(thinking) = message.thinking {
            self.turn.push_thinking(&thinking)?;
            self.thinking.push_str(&thinking);
        }
        if let Some(content) = message.content {
            self.turn.push_text(&content)?;
        }
        for call in message.tool_calls.into_iter().flatten() {
            let args = call.function.arguments.as_deref().map_or("{}", RawValue::get);
            self.turn.push_call(call.id.as_deref().unwrap_or_default(), &call.function.name, args)?;
        }
        Ok(())
    }
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "stop" => StopReason::Done,
        "length" => StopReason::Length,
        _ => StopReason::Other(excerpt(word, STOP_BYTES)),
    }
}

fn encode_state(thinking: &str) -> Option<String> {
    (!thinking.is_empty()).then(|| serde_json::json!({ "ollama": { "thinking": thinking } }).to_string())
}

/// Returns the thinking in a provider state, if the state is of this dialect.
pub(super) fn thinking_from_state(provider_state: &str) -> Option<String> {
    let value: Value = serde_json::from_str(provider_state).ok()?;
    Some(value.get("ollama")?.get("thinking")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Ollama;
    use crate::provider::error::ModelErrorKind;
    use crate::provider::model::{StopReason, Usage};
    use crate::provider::samples::{call_delta, decode_all, decode_at_every_split, text_delta, thinking_delta};

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
    fn a_response_decodes_identically_at_every_split() {
        let (pieces, end) = decode_at_every_split(&Ollama, STREAM.as_bytes()).unwrap();
        assert_eq!(
            pieces,
            [
                thinking_delta("hm, né €"),
                text_delta("Let 😀 us 😀"),
                call_delta("t_1", "look", r#"{"at": 1.50,"é":"€"}"#),
                call_delta("call_x", "look", "{}"),
            ]
        );
        assert_eq!(end.stop, StopReason::ToolCalls);
        assert_eq!(end.usage, Usage { input: 26, output: 7, ..Usage::default() });
        assert_eq!(end.provider_state.as_deref(), Some(r#"{"ollama":{"thinking":"hm, né €"}}"#));
        assert_eq!(super::thinking_from_state(&end.provider_state.unwrap()).as_deref(), Some("hm, né €"));
        assert_eq!(super::thinking_from_state(r#"{"openai":{}}"#), None);
    }

    #[test]
    fn stop_reasons_are_mapped() {
        for (line, stop) in [
            (r#"{"done":true}"#, StopReason::Done),
            (r#"{"done":true,"done_reason":"length"}"#, StopReason::Length),
            (r#"{"done":true,"done_reason":"load"}"#, StopReason::Other("load".to_owned())),
        ] {
            assert_eq!(decode_all(&Ollama, line.as_bytes()).unwrap().1.stop, stop, "{line}");
        }
    }

    #[test]
    fn an_invalid_response_is_an_error() {
        for (text, kind) in [
            ("", ModelErrorKind::Interrupted),
            ("{\"message\":{\"content\":\"a\"}}\n", ModelErrorKind::Interrupted),
            ("{\"message\":{\"content\":\"a", ModelErrorKind::Interrupted),
            ("{\"error\":\"out of memory\"}\n", ModelErrorKind::Failed),
            ("[]\n", ModelErrorKind::InvalidResponse),
            ("<html></html>", ModelErrorKind::InvalidResponse),
            ("{\"message\":{\"content\":7}}\n", ModelErrorKind::InvalidResponse),
        ] {
            assert_eq!(decode_at_every_split(&Ollama, text.as_bytes()).unwrap_err().kind, kind, "{text}");
        }
        let invalid = b"{\"message\":{\"content\":\"\xff\"}}\n";
        assert_eq!(decode_at_every_split(&Ollama, invalid).unwrap_err().kind, ModelErrorKind::InvalidResponse);
    }
}
