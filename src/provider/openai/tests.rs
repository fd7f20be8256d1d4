//! Streams of several servers, decoded at every split.

use super::thinking_of;
use crate::provider::dialect::Dialect::OpenAi;
use crate::provider::dialect::Reader;
use crate::provider::error::Kind;
use crate::provider::limits::TurnLimits;
use crate::provider::model::{Stop, Usage};
use crate::provider::samples::{call, read_in_every_cut, read_whole, said, thought};

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
fn an_answer_is_the_same_however_it_is_cut() {
    let (pieces, end) = read_in_every_cut(OpenAi, STREAM.as_bytes()).unwrap();
    assert_eq!(
        pieces,
        [
            thought("hm né €"),
            said("Let 😀"),
            call("call_a", "look", r#"{"é":1}"#),
            call("call_b", "list", "{}")
        ]
    );
    assert_eq!(end.stop, Stop::Calls);
    let usage = Usage { input: 30, output: 9, cache_read: 20, cache_write: 0, cost_microusd: Some(1_235) };
    assert_eq!(end.usage, usage);
    let carry = end.carry.unwrap();
    assert_eq!(thinking_of(&carry), Some(("reasoning_content", "hm né €".to_owned())));
    assert_eq!(thinking_of(r#"{"ollama":{"thinking":"x"}}"#), None);
}

#[test]
fn the_habits_of_other_servers_are_understood() {
    let cases = [
        // No usage, no last word, no index, no name of the call, arguments as JSON.
        (
            r#"data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"look","arguments":{"at":1}}},{"function":{"name":"list","arguments":null}}]},"finish_reason":"stop"}]}"#,
            vec![call("t_1", "look", r#"{"at":1}"#), call("t_2", "list", "{}")],
            Stop::Calls,
        ),
        // A last word without a reason to stop.
        (
            "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]",
            vec![said("hi")],
            Stop::Done,
        ),
        // A complete message, because the server does not stream.
        (
            r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}"#,
            vec![said("hi")],
            Stop::Done,
        ),
        // Thinking under another name, and once although it is in both fields.
        (
            concat!(
                r#"data: {"choices":[{"delta":{"content":"","reasoning":"hm"},"finish_reason":""}]}"#,
                "\n\n",
                r#"data: {"choices":[{"delta":{"reasoning":"!","reasoning_content":"!"},"finish_reason":"length"}]}"#,
            ),
            vec![thought("hm!")],
            Stop::Length,
        ),
        (
            r#"data: {"choices":[{"delta":{"refusal":"No."},"finish_reason":"stop"}]}"#,
            vec![said("No.")],
            Stop::Refused,
        ),
        (
            r#"data: {"choices":[{"delta":{"content":"x"},"finish_reason":"content_filter"}]}"#,
            vec![said("x")],
            Stop::Refused,
        ),
        (
            r#"data: {"choices":[{"delta":null,"finish_reason":"abort"}]}"#,
            vec![],
            Stop::Other("abort".to_owned()),
        ),
    ];
    for (text, pieces, stop) in cases {
        let (read, end) = read_in_every_cut(OpenAi, text.as_bytes()).unwrap();
        assert_eq!((read, end.stop), (pieces, stop), "{text}");
    }
}

#[test]
fn what_is_no_answer_is_an_error() {
    for (text, kind) in [
        ("", Kind::Cut),
        ("dat", Kind::Cut),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", Kind::Cut),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"a", Kind::Cut),
        ("data: {\"error\":{\"message\":\"slow\",\"code\":429}}\n\n", Kind::RateLimited),
        ("data: {\"error\":{\"message\":\"bad\",\"type\":\"server_error\"}}\n\n", Kind::Failed),
        ("{\"error\":{\"message\":\"bad key\",\"code\":\"invalid_api_key\"}}", Kind::Unauthorized),
        ("event: error\ndata: {\"error\":\"gone\"}\n\n", Kind::Failed),
        ("data: hello\n\n", Kind::Garbage),
        ("<!DOCTYPE html>\n", Kind::Garbage),
    ] {
        assert_eq!(read_in_every_cut(OpenAi, text.as_bytes()).unwrap_err().kind, kind, "{text}");
    }
    let invalid = b"data: {\"choices\":[{\"delta\":{\"content\":\"\xe2\x82\"}}]}\n\n";
    assert_eq!(read_in_every_cut(OpenAi, invalid).unwrap_err().kind, Kind::Garbage);
}

#[test]
fn a_price_that_is_none_is_left_out() {
    for (cost, expected) in
        [("0", Some(0)), ("-1", None), ("1e300", None), ("null", None), ("2.5", Some(2_500_000))]
    {
        let text = format!(
            "data: {{\"choices\":[{{\"finish_reason\":\"stop\"}}],\"usage\":{{\"cost\":{cost}}}}}\n\n"
        );
        assert_eq!(read_whole(OpenAi, text.as_bytes()).unwrap().1.usage.cost_microusd, expected, "{cost}");
    }
}

#[test]
fn text_goes_on_in_the_piece_that_nobody_has_taken() {
    let mut reader = Reader::new(OpenAi, TurnLimits { piece_bytes: 5, ..TurnLimits::default() }, "t");
    let mut out = Vec::new();
    for _ in 0..4 {
        reader.feed(b"data: {\"choices\":[{\"delta\":{\"content\":\"ab\"}}]}\n\n", &mut out).unwrap();
    }
    assert_eq!(out, [said("abab"), said("abab")]);
}
