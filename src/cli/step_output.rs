//! Extracts the output of playbook steps from the events of a run.
//!
//! Pure. The output of acceptance checks is left out, and so are the results of tools other than `read_file`.

use std::collections::BTreeMap;

use super::format::is_error;
use crate::client::Event;
use crate::kernel::event::{EventKind, OutputStream, Purpose, ToolEvent};

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
        let kind = event.recorded()?;
        if let EventKind::Tool(ToolEvent::Intended(call)) = kind {
            let is_check = matches!(call.purpose, Purpose::Check(_));
            let kind = if is_check { CallKind::Check } else { CallKind::Step };
            self.calls.insert(call.call.to_string(), kind);
        }
        if let EventKind::Tool(ToolEvent::Output { call, stream, text }) = kind
            && self.calls.get(call.as_str()) != Some(&CallKind::Check)
        {
            let stream = match stream {
                OutputStream::Stdout => Stream::Out,
                OutputStream::Stderr => Stream::Err,
            };
            return Some((stream, text));
        }
        let EventKind::Tool(ToolEvent::Settled(result)) = kind else { return None };
        let kind = self.calls.remove(result.call.as_str());
        let is_shown_file = result.tool == "sandbox_read_file" && !is_error(result);
        (is_shown_file && kind != Some(CallKind::Check)).then_some((Stream::Out, &result.text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::test_events::event;

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
            let event = event(kind, payload);
            assert_eq!(output.follow(&event), expected, "{event:?}");
        }
    }
}
