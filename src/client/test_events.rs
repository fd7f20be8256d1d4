//! Events for tests, decoded from the lines that a daemon would send.

use serde_json::{Value, json};

use super::Event;
use crate::kernel::event::{EventKind, GateEvent, GateQuestion};
use crate::protocol::push::client::{Incoming, decode_line};

/// Returns an event of the run `r` of the session `s`; fields that the payload lacks have defaults.
pub(crate) fn event(kind: &str, payload: Value) -> Event {
    let line = json!({"v": "push.runtime.v1", "kind": "event", "sessionId": "s", "runId": "r", "seq": 1, "ts": 0,
        "type": kind, "payload": complete(kind, payload)});
    let Ok(Incoming::Event(event)) = decode_line(line.to_string()) else { panic!("not an event: {line}") };
    *event
}

/// Returns the question of an approval with this payload.
pub(crate) fn question(payload: Value) -> GateQuestion {
    let event = event("approval_required", payload);
    let Some(EventKind::Gate(GateEvent::Opened(question))) = event.recorded() else {
        panic!("not an approval: {event:?}")
    };
    (**question).clone()
}

/// Adds the fields of a payload that its type requires.
pub(crate) fn complete(kind: &str, mut payload: Value) -> Value {
    let mut fields = required_fields(kind);
    if payload["isError"] == true {
        fields["status"] = "failed".into();
    }
    for name in ["pendingApproval", "structuredError", "acceptance"] {
        if payload[name].is_object() {
            payload[name] = complete(name, payload[name].take());
        }
    }
    if let Some(results) = payload.get_mut("results").and_then(Value::as_array_mut) {
        results.iter_mut().for_each(|result| *result = complete("result", result.take()));
    }
    if let (Some(given), Some(fields)) = (payload.as_object_mut(), fields.as_object()) {
        for (name, value) in fields {
            given.entry(name).or_insert_with(|| value.clone());
        }
    }
    payload
}

fn required_fields(kind: &str) -> Value {
    match kind {
        "assistant_token" | "thinking_token" => json!({"text": ""}),
        "assistant_done" => json!({"messageId": ""}),
        "user_message" | "message_queued" => {
            json!({"messageId": "", "text": "", "by": "", "fingerprint": "0", "queuedRunId": "q"})
        }
        "message_unqueued" => json!({"messageId": "", "by": ""}),
        "status" => json!({"source": "", "phase": "", "detail": ""}),
        "usage" => json!({"model": "", "inputTokens": 0, "outputTokens": 0}),
        "context_compacted" => json!({"summary": "", "keptFromSeq": 0, "tokensBefore": 0}),
        "tool_call" => json!({"source": "sandbox", "toolName": "", "args": {}, "callId": "", "check": 0}),
        "tool_output" => json!({"callId": "", "stream": "stdout", "text": ""}),
        "tool_result" => json!({"source": "sandbox", "toolName": "", "durationMs": 0, "isError": false, "text": "",
            "callId": "", "status": "done", "check": 0}),
        "structuredError" => json!({"type": "", "retryable": false, "message": ""}),
        "approval_required" | "pendingApproval" => json!({"approvalId": "", "kind": "", "title": "", "summary": "",
            "details": {}, "options": ["approve", "deny"], "expiresAt": 0, "callId": ""}),
        "approval_vote" | "approval_received" => json!({"approvalId": "", "decision": "approve", "by": ""}),
        "warning" => json!({"code": "", "message": ""}),
        "error" => json!({"code": "", "message": "", "retryable": false}),
        "run_recovered" => json!({"found": "working"}),
        "events_lost" => json!({"afterSeq": 0, "untilSeq": 1, "cause": "damage"}),
        "run_complete" => json!({"runId": "r", "outcome": "success", "summary": "", "headless": {"exitCodeHint": 0}}),
        "acceptance" => json!({"total": 0, "passed": 0, "results": []}),
        "result" => json!({"id": "", "passed": false, "exitCode": null, "output": ""}),
        "session_renamed" => json!({"name": ""}),
        "session_ended" => json!({"by": ""}),
        _ => json!({}),
    }
}
