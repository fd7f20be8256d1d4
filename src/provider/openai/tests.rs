//! Streams of several servers, decoded at every split.

use super::super::OpenAi;
use super::{Decoder, thinking_from_state};
use crate::provider::dialect::ResponseDecoder;
use crate::provider::error::ModelErrorKind;
use crate::provider::limits::TurnLimits;
use crate::provider::model::{StopReason, Usage};
use crate::provider::samples::{call_delta, decode_all, decode_at_every_split, text_delta, thinking_delta};

const STREAM: &str = concat!(
    ": OPENROUTER PROCESSING\n\n",
    r#"data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":null,"reasoning_content":"hm "},"finish_reason":null}],"usage":null}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"reasoning_content":"né €"}}]}"#,
    "\r\n\r\n",
    r#"data: {"choices":[{"index":0,"delta":{"content":"Let 😀"},"logprobs":null,"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":1,"delta":{"content":"another"}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"look","arguments":""}}]}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"é\""}}]}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","function":{"name":"list","arguments":"{}"}}]}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
    "\n\n",
    r#"data: {"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":20},"cost":0.0012345}}"#,
    "\n\ndata: [DONE]\n\n",
);

#[test]
fn a_response_decodes_identically_at_every_split() {
    let (pieces, end) = decode_at_every_split(&OpenAi, STREAM.as_bytes()).unwrap();
    assert_eq!(
        pieces,
        [
            thinking_delta("hm né €"),
            text_delta("Let 😀"),
            call_delta("call_a", "look", r#"{"é":1}"#),
            call_delta("call_b", "list", "{}")
        ]
    );
    assert_eq!(end.stop, StopReason::ToolCalls);
    let usage = Usage { input: 30, output: 9, cache_read: 20, cache_write: 0, cost_microusd: Some(1_235) };
    assert_eq!(end.usage, usage);
    let provider_state = end.provider_state.unwrap();
    assert_eq!(thinking_from_state(&provider_state), Some(("reasoning_content", "hm né €".to_owned())));
    assert_eq!(thinking_from_state(r#"{"ollama":{"thinking":"x"}}"#), None);
}

#[test]
fn the_quirks_of_other_servers_are_supported() {
    let cases = [
        // No usage, no last word, no index, no name of the call, arguments as JSON.
        (
            r#"data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"look","arguments":{"at":1}}},{"function":{"name":"list","arguments":null}}]},"finish_reason":"stop"}]}"#,
            vec![call_delta("t_1", "look", r#"{"at":1}"#), call_delta("t_2", "list", "{}")],
            StopReason::ToolCalls,
        ),
        // A last word without a reason to stop.
        (
            "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]",
            vec![text_delta("hi")],
            StopReason::Done,
        ),
        // A complete message, because the server does not stream.
        (
            r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#,
            vec![text_delta("hi")],
            StopReason::Done,
        ),
        // Thinking under another name, and once although it is in both fields.
        (
            concat!(
                r#"data: {"choices":[{"delta":{"content":"","reasoning":"hm"},"finish_reason":""}]}"#,
                "\n\n",
                r#"data: {"choices":[{"delta":{"reasoning":"!","reasoning_content":"!"},"finish_reason":"length"}]}"#,
            ),
            vec![thinking_delta("hm!")],
            StopReason::Length,
        ),
        (
            r#"data: {"choices":[{"delta":{"refusal":"No."},"finish_reason":"stop"}]}"#,
            vec![text_delta("No.")],
            StopReason::Refused,
        ),
        (
            r#"data: {"choices":[{"delta":{"content":"x"},"finish_reason":"content_filter"}]}"#,
            vec![text_delta("x")],
            StopReason::Refused,
        ),
        (
            r#"data: {"choices":[{"delta":null,"finish_reason":"abort"}]}"#,
            vec![],
            StopReason::Other("abort".to_owned()),
        ),
    ];
    for (text, pieces, stop) in cases {
        let (read, end) = decode_at_every_split(&OpenAi, text.as_bytes()).unwrap();
        assert_eq!((read, end.stop), (pieces, stop), "{text}");
    }
}

#[test]
fn an_invalid_response_is_an_error() {
    for (text, kind) in [
        ("", ModelErrorKind::Interrupted),
        ("dat", ModelErrorKind::Interrupted),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", ModelErrorKind::Interrupted),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"a", ModelErrorKind::Interrupted),
        ("data: {\"error\":{\"message\":\"slow\",\"code\":429}}\n\n", ModelErrorKind::RateLimited),
        ("data: {\"error\":{\"message\":\"bad\",\"type\":\"server_error\"}}\n\n", ModelErrorKind::Failed),
        ("{\"error\":{\"message\":\"bad key\",\"code\":\"invalid_api_key\"}}", ModelErrorKind::Unauthorized),
        ("event: error\ndata: {\"error\":\"gone\"}\n\n", ModelErrorKind::Failed),
        ("data: hello\n\n", ModelErrorKind::InvalidResponse),
        ("<!DOCTYPE html>\n", ModelErrorKind::InvalidResponse),
    ] {
        assert_eq!(decode_at_every_split(&OpenAi, text.as_bytes()).unwrap_err().kind, kind, "{text}");
    }
    let invalid = b"data: {\"choices\":[{\"delta\":{\"content\":\"\xe2\x82\"}}]}\n\n";
    assert_eq!(decode_at_every_split(&OpenAi, invalid).unwrap_err().kind, ModelErrorKind::InvalidResponse);
}

#[test]
fn an_invalid_cost_is_ignored() {
    for (cost, expected) in [("0", Some(0)), ("-1", None), ("1e300", None), ("null", None), ("2.5", Some(2_500_000))] {
        let text = format!("data: {{\"choices\":[{{\"finish_reason\":\"stop\"}}],\"usage\":{{\"cost\":{cost}}}}}\n\n");
        assert_eq!(decode_all(&OpenAi, text.as_bytes()).unwrap().1.usage.cost_microusd, expected, "{cost}");
    }
}

#[test]
fn text_is_appended_to_the_last_undrained_delta() {
    let mut reader = Decoder::new(TurnLimits { delta_bytes: 5, ..TurnLimits::default() }, "t".to_owned());
    let mut out = Vec::new();
    for _ in 0..4 {
        reader.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\n", &mut out).unwrap();
    }
    assert_eq!(out, [text_delta("abab"), text_delta("abab")]);
}
