//! A stream with every kind of event, decoded at every split, and invalid streams.

use super::blocks_of;
use crate::provider::dialect::Dialect::Anthropic;
use crate::provider::dialect::Reader;
use crate::provider::error::Kind;
use crate::provider::limits::TurnLimits;
use crate::provider::model::{Stop, Usage};
use crate::provider::samples::{call, read_in_every_cut, read_whole, said, thought};

const STREAM: &str = concat!(
    "event: message_start\n",
    r#"data: {"type":"message_start","message":{"id":"msg","role":"assistant","content":[],"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"output_tokens":1}}}"#,
    "\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
    "\n\n",
    r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm né €"}}"#,
    "\r\n\r\n",
    r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig=="}}"#,
    "\n\n",
    r#"data: {"type":"content_block_stop","index":0}"#,
    "\n\n",
    r#"data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"zzz"}}"#,
    "\n\n",
    r#"data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
    "\n\n",
    r#"data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Let 😀"}}"#,
    "\n\n",
    r#"data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"look","input":{}}}"#,
    "\n\n",
    r#"data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}"#,
    "\n\n",
    r#"data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"é\""}}"#,
    "\n\n",
    r#"data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":":1}"}}"#,
    "\n\n",
    r#"data: {"type":"content_block_stop","index":3}"#,
    "\n\n",
    r#"data: {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_2","name":"list","input":{}}}"#,
    "\n\n",
    r#"data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":42}}"#,
    "\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

#[test]
fn an_answer_is_the_same_however_it_is_cut() {
    let (pieces, end) = read_in_every_cut(Anthropic, STREAM.as_bytes()).unwrap();
    assert_eq!(
        pieces,
        [
            thought("hm né €"),
            said("Let 😀"),
            call("toolu_1", "look", r#"{"é":1}"#),
            call("toolu_2", "list", "{}")
        ]
    );
    assert_eq!(end.stop, Stop::Calls);
    let usage = Usage { input: 115, output: 42, cache_read: 100, cache_write: 5, cost_microusd: None };
    assert_eq!(end.usage, usage);
    let blocks = serde_json::json!([
        { "type": "thinking", "thinking": "hm né €", "signature": "sig==" },
        { "type": "redacted_thinking", "data": "zzz" },
    ]);
    assert_eq!(blocks_of(&end.carry.unwrap()).map(Into::into), Some(blocks));
    assert_eq!(blocks_of(r#"{"ollama":{"thinking":"x"}}"#), None);
}

#[test]
fn stops_are_understood() {
    for (reason, stop) in [
        ("end_turn", Stop::Done),
        ("stop_sequence", Stop::Done),
        ("tool_use", Stop::Done),
        ("max_tokens", Stop::Length),
        ("model_context_window_exceeded", Stop::Length),
        ("refusal", Stop::Refused),
        ("pause_turn", Stop::Other("pause_turn".to_owned())),
    ] {
        let text =
            format!("data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}}}}\n\n");
        assert_eq!(read_whole(Anthropic, text.as_bytes()).unwrap().1.stop, stop, "{reason}");
    }
}

#[test]
fn a_call_that_was_cut_by_the_length_is_left_out() {
    let text = STREAM
        .replace(r#":1}"}}"#, r#":"}}"#)
        .replace("\"stop_reason\":\"tool_use\"", "\"stop_reason\":\"max_tokens\"");
    let (pieces, end) = read_in_every_cut(Anthropic, text.as_bytes()).unwrap();
    assert_eq!(pieces, [thought("hm né €"), said("Let 😀"), call("toolu_2", "list", "{}")]);
    assert_eq!(end.stop, Stop::Length);
}

#[test]
fn thinking_without_its_signature_does_not_go_back() {
    let text = STREAM.replace("sig==", "").replace("redacted_thinking", "novelty");
    assert_eq!(read_whole(Anthropic, text.as_bytes()).unwrap().1.carry, None);
}

#[test]
fn what_is_no_answer_is_an_error() {
    let middle = STREAM.find("event: message_stop").unwrap();
    let early = STREAM.find(r#"data: {"type":"message_delta""#).unwrap();
    assert!(read_whole(Anthropic, &STREAM.as_bytes()[..middle]).is_ok(), "the reason to stop is known");
    for (text, kind) in [
        ("", Kind::Cut),
        ("dat", Kind::Cut),
        (&STREAM[..early], Kind::Cut),
        ("data: {\"type\":\"content_bl", Kind::Cut),
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            Kind::Overloaded,
        ),
        (
            "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"oops\"}}\n\n",
            Kind::Failed,
        ),
        (
            "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"no\"}}",
            Kind::Unauthorized,
        ),
        ("data: []\n\n", Kind::Garbage),
        ("<html>\n", Kind::Garbage),
    ] {
        assert_eq!(read_in_every_cut(Anthropic, text.as_bytes()).unwrap_err().kind, kind, "{text}");
    }
}

#[test]
fn whatever_is_to_be_given_back_is_bounded() {
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking"}}"#;
    for more in [
        start,
        r#"{"type":"content_block_delta","index":0,"delta":{"signature":"ssssssssssssssssssssssss"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"dddddddddddd"}}"#,
    ] {
        let limits = TurnLimits { text_bytes: 4_096, ..TurnLimits::default() };
        let mut reader = Reader::new(Anthropic, limits, "t");
        let mut out = Vec::new();
        reader.feed(format!("data: {start}\n\n").as_bytes(), &mut out).unwrap();
        let event = format!("data: {more}\n\n");
        let refused = (0..1_000).find_map(|_| reader.feed(event.as_bytes(), &mut out).err());
        assert_eq!(refused.map(|error| error.kind), Some(Kind::Garbage), "{more}");
    }
}
