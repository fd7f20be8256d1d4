//! Sequences of events of a session, in the format of the journal, without irrelevant fields.

use pushd::kernel::event::Event;
use pushd::kernel::id::SessionId;
use pushd::protocol::pi::encode;
use pushd::protocol::pi::projection::{PiEvent, Projection};
use pushd::record::decode_event;
use serde_json::{Value, json};

use crate::pi_adapter::pages::check_line;

/// Makes the events of a session, one second apart.
#[derive(Default)]
pub(crate) struct EventSource {
    seq: u64,
}

impl EventSource {
    /// Makes the next event from its type and payload, as in the journal; missing fields have defaults.
    pub(crate) fn event(&mut self, kind: &str, run: Option<&str>, payload: Value) -> Event {
        self.seq += 1;
        let ts = self.seq * 1000;
        let mut line = json!({
            "v": "push.runtime.v1", "kind": "event", "sessionId": "s", "seq": self.seq, "ts": ts, "type": kind,
            "payload": default_payload(kind, run, ts),
        });
        if let Some(run) = run {
            line["runId"] = json!(run);
        }
        for (name, value) in payload.as_object().expect("a payload is an object") {
            line["payload"][name] = value.clone();
        }
        let line = choices_last(line);
        decode_event(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error:?}"))
    }

    /// Makes the event of a line such as `assistant_token r1 {"text":"Hi"}`; `-` is no run.
    pub(crate) fn line(&mut self, line: &str) -> Event {
        let mut parts = line.splitn(3, ' ');
        let (kind, run) = (parts.next().unwrap(), parts.next().unwrap_or("-"));
        let payload = parts.next().map_or_else(|| json!({}), |text| serde_json::from_str(text).expect(line));
        self.event(kind, Some(run).filter(|run| *run != "-"), payload)
    }
}

/// Makes the events of some lines.
pub(crate) fn events(lines: &[&str]) -> Vec<Event> {
    let mut source = EventSource::default();
    lines.iter().map(|line| source.line(line)).collect()
}

/// Projects the events of some lines in one batch.
pub(crate) fn projection(lines: &[&str]) -> (Projection, Vec<Value>) {
    let mut projection = Projection::default();
    let projected = projection.project(&events(lines));
    let projected = projected.iter().map(read).collect();
    (projection, projected)
}

/// Parses a projected event, and checks that its line is valid.
pub(crate) fn read(event: &PiEvent) -> Value {
    let line = encode::event(&SessionId::from("s"), event);
    check_line(&line);
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line["event"]["type"], event.name());
    line["event"].clone()
}

/// Writes a line with the choices of a question at the end of its details, as in the journal.
fn choices_last(mut line: Value) -> String {
    let choices = line["payload"].as_object_mut().and_then(|payload| payload.remove("choices"));
    let Some(choices) = choices else { return line.to_string() };
    let details = line["payload"]["details"].to_string();
    line["payload"]["details"] = json!("here");
    let details = format!(r#""details":{},"choices":{choices}}}"#, details.trim_end_matches('}'));
    line.to_string().replace(r#""details":"here""#, &details)
}

/// The default payload of a kind of event.
fn default_payload(kind: &str, run: Option<&str>, ts: u64) -> Value {
    match kind {
        "session_started" => json!({
            "sessionId": "s", "state": "idle", "mode": "interactive", "provider": "anthropic", "model": "m0",
            "sandboxProvider": "local", "cwd": "/w",
        }),
        "user_message" | "message_queued" => json!({ "by": "pi", "fingerprint": "0" }),
        "message_unqueued" | "session_touched" | "session_loaded" | "session_adjusted" | "session_branched"
        | "session_ended" => json!({ "by": "pi" }),
        "usage" => json!({ "model": "m1", "inputTokens": 10, "outputTokens": 2 }),
        "status" => json!({ "source": "daemon" }),
        "tool_call" => json!({ "source": "sandbox", "args": {} }),
        "tool_output" => json!({ "stream": "stdout" }),
        "tool_result" => json!({
            "source": "sandbox", "durationMs": 5, "isError": false, "text": "", "structuredError": null,
            "status": "done",
        }),
        "approval_required" => json!({
            "kind": "exec", "title": "Approve command", "summary": "ls", "details": { "risk": "low" },
            "options": ["approve", "deny"], "expiresAt": ts + 60_000,
        }),
        "approval_received" | "approval_vote" => json!({ "decision": "approve", "by": "cli" }),
        "run_complete" => json!({
            "runId": run, "outcome": "success", "summary": "done", "headless": { "exitCodeHint": 0 },
        }),
        _ => json!({}),
    }
}
