//! Extracts the output of playbook steps from the events of a run.
//!
//! Pure. The output of acceptance checks is left out, and so are the results of tools other than `read_file`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::client::Event;

/// One of the two output streams of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Tracks the tool calls of one run and extracts the output of its steps.
#[derive(Debug, Default)]
pub(crate) struct StepOutput {
    /// The active calls, and whether each is a step or an acceptance check.
    calls: BTreeMap<String, CallKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    Step,
    Check,
}

impl StepOutput {
    /// Returns the output of a step in this event; not sanitized.
    pub(crate) fn follow<'a>(&mut self, event: &'a Event) -> Option<(Stream, &'a str)> {
        match event.kind.as_str() {
            "tool_call" => {
                let is_check = event.is_acceptance_check();
                let kind = if is_check { CallKind::Check } else { CallKind::Step };
                self.calls.insert(event.text("callId").to_owned(), kind);
                None
            }
            "tool_output" if self.calls.get(event.text("callId")) != Some(&CallKind::Check) => {
                let stream = if event.text("stream") == "stderr" { Stream::Err } else { Stream::Out };
                Some((stream, event.text("text")))
            }
            "tool_result" => {
                let kind = self.calls.remove(event.text("callId"));
                let is_error = event.payload.get("isError").and_then(Value::as_bool).unwrap_or_default();
                let is_shown_file = event.text("toolName") == "sandbox_read_file" && !is_error;
                (is_shown_file && kind != Some(CallKind::Check)).then(|| (Stream::Out, event.text("text")))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_output_of_steps_is_separated_from_checks_and_other_tools() {
        let mut output = StepOutput::default();
        let table = [
            ("tool_call", json!({"callId": "a", "source": "sandbox"}), None),
            ("tool_output", json!({"callId": "a", "stream": "stdout", "text": "one"}), Some((Stream::Out, "one"))),
            ("tool_output", json!({"callId": "a", "stream": "stderr", "text": "two"}), Some((Stream::Err, "two"))),
            ("tool_result", json!({"callId": "a", "toolName": "sandbox_exec", "text": "onetwo"}), None),
            ("tool_call", json!({"callId": "b", "source": "acceptance"}), None),
            ("tool_output", json!({"callId": "b", "stream": "stdout", "text": "check"}), None),
            ("tool_call", json!({"callId": "c", "source": "sandbox"}), None),
            (
                "tool_result",
                json!({"callId": "c", "toolName": "sandbox_read_file", "text": "file"}),
                Some((Stream::Out, "file")),
            ),
            (
                "tool_result",
                json!({"callId": "d", "toolName": "sandbox_read_file", "isError": true, "text": "no"}),
                None,
            ),
            ("tool_result", json!({"callId": "e", "toolName": "sandbox_write_file", "text": "written"}), None),
        ];
        for (kind, payload, expected) in table {
            let event = Event {
                session: "s".into(),
                run: Some("r".into()),
                seq: 1,
                at: 0,
                kind: kind.into(),
                payload,
                line: String::new(),
            };
            assert_eq!(output.follow(&event), expected, "{event:?}");
        }
    }
}
