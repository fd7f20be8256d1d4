//! A stream with every kind of event, decoded at every split, and invalid streams.

use super::super::Anthropic;
use super::{Decoder, blocks_from_state};
use crate::provider::dialect::ResponseDecoder;
use crate::provider::error::ModelErrorKind;
use crate::provider::limits::TurnLimits;
use crate::provider::model::{StopReason, Usage};
use crate::provider::samples::{call_delta, decode_all, decode_at_every_split, text_delta, thinking_delta};

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
fn a_response_decodes_identically_at_every_split() {
    let (pieces, end) = decode_at_every_split(&Anthropic, STREAM.as_bytes()).unwrap();
    assert_eq!(
        pieces,
        [
            thinking_delta("hm né €"),
            text_delta("Let 😀"),
            call_delta("toolu_1", "look", r#"{"é":1}"#),
            call_delta("toolu_2", "list", "{}")
        ]
    );
    assert_eq!(end.stop, StopReason::ToolCalls);
    let usage = Usage { input: 115, output: 42, cache_read: 100, cache_write: 5, cost_microusd: None };
    assert_eq!(end.usage, usage);
    let blocks = serde_json::json!([
        { "type": "thinking", "thinking": "hm né €", "signature": "sig==" },
        { "type": "redacted_thinking", "data": "zzz" },
    ]);
    assert_eq!(blocks_from_state(&end.provider_state.unwrap()).map(Into::into), Some(blocks));
    assert_eq!(blocks_from_state(r#"{"ollama":{"thinking":"x"}}"#), None);
}

#[test]
fn stop_reasons_are_mapped() {
    for (reason, stop) in [
        ("end_turn", StopReason::Done),
        ("stop_sequence", StopReason::Done),
        ("tool_use", StopReason::Done),
        ("max_tokens", StopReason::Length),
        ("model_context_window_exceeded", StopReason::Length),
        ("refusal", StopReason::Refused),
        ("pause_turn", StopReason::Other("pause_turn".to_owned())),
    ] {
        let text = format!("data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}}}}\n\n");
        assert_eq!(decode_all(&Anthropic, text.as_bytes()).unwrap().1.stop, stop, "{reason}");
    }
}

#[test]
fn a_call_truncated_by_the_length_limit_is_omitted() {
    let text = STREAM
        .replace(r#":1}"}}"#, r#":"}}"#)
        .replace("\"stop_reason\":\"tool_use\"", "\"stop_reason\":\"max_tokens\"");
    let (pieces, end) = decode_at_every_split(&Anthropic, text.as_bytes()).unwrap();
    assert_eq!(pieces, [thinking_delta("hm né €"), text_delta("Let 😀"), call_delta("toolu_2", "list", "{}")]);
    assert_eq!(end.stop, StopReason::Length);
}

#[test]
fn thinking_without_a_signature_is_not_sent_back() {
    let text = STREAM.replace("sig==", "").replace("redacted_thinking", "novelty");
    assert_eq!(decode_all(&Anthropic, text.as_bytes()).unwrap().1.provider_state, None);
}

#[test]
fn an_invalid_response_is_an_error() {
    let middle = STREAM.find("event: message_stop").unwrap();
    let early = STREAM.find(r#"data: {"type":"message_delta""#).unwrap();
    assert!(decode_all(&Anthropic, &STREAM.as_bytes()[..middle]).is_ok(), "the reason to stop is known");
    for (text, kind) in [
        ("", ModelErrorKind::Interrupted),
        ("dat", ModelErrorKind::Interrupted),
        (&STREAM[..early], ModelErrorKind::Interrupted),
        ("data: {\"type\":\"content_bl", ModelErrorKind::Interrupted),
        (
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
            ModelErrorKind::Overloaded,
        ),
        (
            "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"oops\"}}\n\n",
            ModelErrorKind::Failed,
        ),
        (
            "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"no\"}}",
            ModelErrorKind::Unauthorized,
        ),
        ("data: []\n\n", ModelErrorKind::InvalidResponse),
        ("<html>\n", ModelErrorKind::InvalidResponse),
    ] {
        assert_eq!(decode_at_every_split(&Anthropic, text.as_bytes()).unwrap_err().kind, kind, "{text}");
    }
}

#[test]
fn provider_state_is_bounded() {
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking"}}"#;
    for more in [
        start,
        r#"{"type":"content_block_delta","index":0,"delta":{"signature":"ssssssssssssssssssssssss"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"dddddddddddd"}}"#,
    ] {
        let limits = TurnLimits { text_bytes: 4_096, ..TurnLimits::default() };
        let mut reader = Decoder::new(limits, "t".to_owned());
        let mut out = Vec::new();
        reader.feed(format!("data: {start}\n\n").as_bytes(), &mut out).unwrap();
        let event = format!("data: {more}\n\n");
        let refused = (0..1_000).find_map(|_| reader.feed(event.as_bytes(), &mut out).err());
        assert_eq!(refused.map(|error| error.kind), Some(ModelErrorKind::InvalidResponse), "{more}");
    }
}
