//! Captures the output of playbook steps for the JSON result.

use serde_json::{Map, Value};

use crate::cli::step_output::{StepOutput, Stream};
use crate::client::Event;

/// The maximum size of each stream in a result, in bytes.
const STREAM_BYTES: usize = 8 * 1024 * 1024;

/// The two output streams of all steps, truncated to the limit.
#[derive(Debug)]
pub(super) struct CapturedOutput {
    steps: StepOutput,
    out: String,
    err: String,
    limit: usize,
    truncated: bool,
}

impl CapturedOutput {
    /// Starts empty.
    pub(super) fn new() -> Self {
        Self::bounded(STREAM_BYTES)
    }

    fn bounded(limit: usize) -> Self {
        Self { steps: StepOutput::default(), out: String::new(), err: String::new(), limit, truncated: false }
    }

    /// Applies one event of the run.
    pub(super) fn follow(&mut self, event: &Event) {
        let (stream, text) = match self.steps.follow(event) {
            Some((Stream::Out, text)) => (&mut self.out, text),
            Some((Stream::Err, text)) => (&mut self.err, text),
            None => return,
        };
        let free = self.limit.saturating_sub(stream.len());
        let taken = text.floor_char_boundary(free);
        stream.push_str(&text[..taken]);
        if taken < text.len() {
            // Keep nothing after the truncation.
            self.limit = 0;
            self.truncated = true;
        }
    }

    /// Returns standard output of the steps.
    pub(super) fn stdout(&self) -> &str {
        &self.out
    }

    /// Adds the streams to a result.
    pub(super) fn add_to(&self, result: &mut Map<String, Value>) {
        result.insert("stdout".into(), self.out.as_str().into());
        result.insert("stderr".into(), self.err.as_str().into());
        if self.truncated {
            result.insert("outputTruncated".into(), true.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::test_events::event;

    #[test]
    fn streams_are_kept_apart_and_truncated_between_letters() {
        let mut captured = CapturedOutput::bounded(5);
        for (stream, text) in [("stdout", "abcd"), ("stderr", "x"), ("stdout", "éé"), ("stdout", "z")] {
            captured.follow(&event("tool_output", json!({"callId": "c", "stream": stream, "text": text})));
        }
        let mut result = Map::new();
        captured.add_to(&mut result);
        assert_eq!(Value::Object(result), json!({"stdout": "abcd", "stderr": "x", "outputTruncated": true}));
    }
}
