//! Sequences of a session's events, written as the journal keeps them and short of what does not matter.

use pushd::kernel::event::Event;
use pushd::kernel::id::SessionId;
use pushd::protocol::pi::encode;
use pushd::protocol::pi::projection::{Projection, SessionEvent};
use pushd::record::decode_event;
use serde_json::{Value, json};

use crate::pages::check_line;

/// A session whose events are made one after the other, a second apart.
#[derive(Default)]
pub(crate) struct Scene {
    seq: u64,
}

impl Scene {
    /// Makes the next event: its type and payload as the journal writes them, without what is always the same.
    pub(crate) fn event(&mut self, kind: &str, run: Option<&str>, payload: Value) -> Event {
        self.seq += 1;
        let ts = self.seq * 1000;
        let mut line = json!({
            "v": "push.runtime.v1", "kind": "event", "sessionId": "s", "seq": self.seq, "ts": ts, "type": kind,
            "payload": usual(kind, run, ts),
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

    /// Makes the event of a line such as `assistant_token r1 {"text":"Hi"}`; a run `-` is none.
    pub(crate) fn line(&mut self, line: &str) -> Event {
        let mut parts = line.splitn(3, ' ');
        let (kind, run) = (parts.next().unwrap(), parts.next().unwrap_or("-"));
        let payload = parts.next().map_or_else(|| json!({}), |text| serde_json::from_str(text).expect(line));
        self.event(kind, Some(run).filter(|run| *run != "-"), payload)
    }
}

/// Makes the events of some lines.
pub(crate) fn events(lines: &[&str]) -> Vec<Event> {
    let mut scene = Scene::default();
    lines.iter().map(|line| scene.line(line)).collect()
}

/// Makes the story of some lines, told in one batch.
pub(crate) fn story(lines: &[&str]) -> (Projection, Vec<Value>) {
    let mut story = Projection::default();
    let told = story.project(&events(lines));
    let told = told.iter().map(read).collect();
    (story, told)
}

/// Reads an event that was told, and checks that its line is valid.
pub(crate) fn read(event: &SessionEvent) -> Value {
    let line = encode::event(&SessionId::from("s"), event);
    check_line(&line);
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line["event"]["type"], event.name());
    line["event"].clone()
}

/// Writes a line with the choices of a question where the journal keeps them: at the end of its details.
fn choices_last(mut line: Value) -> String {
    let choices = line["payload"].as_object_mut().and_then(|payload| payload.remove("choices"));
    let Some(choices) = choices else { return line.to_string() };
    let details = line["payload"]["details"].to_string();
    line["payload"]["details"] = json!("here");
    let details = format!(r#""details":{},"choices":{choices}}}"#, details.trim_end_matches('}'));
    line.to_string().replace(r#""details":"here""#, &details)
}

/// What an event of a kind says if it is not told otherwise.
fn usual(kind: &str, run: Option<&str>, ts: u64) -> Value {
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
