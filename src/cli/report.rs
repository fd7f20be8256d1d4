//! How a run went, gathered from its events.
//!
//! Pure. The outcome and the exit code are the daemon's words; nothing is concluded here.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::phrase::field;
use crate::client::Event;

/// What is known of one run.
#[derive(Debug)]
pub(crate) struct Report {
    session: String,
    run: String,
    text: String,
    asked: BTreeMap<String, String>,
    denials: Vec<Value>,
    ending: Ending,
}

/// Whether the run is over.
#[derive(Debug, Clone, PartialEq)]
enum Ending {
    /// It goes on.
    Open,
    /// It is over, and this is what was said of it.
    Complete(Value),
    /// It is over, and what was said of it is gone.
    Gone,
}

/// What a follower should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Go on.
    Going,
    /// The run is over.
    Over(Exit),
    /// The run is over and nobody knows how.
    Unknown,
}

impl Report {
    /// Begins with nothing known.
    pub(crate) fn new(session: &str, run: &str) -> Self {
        Self {
            session: session.to_owned(),
            run: run.to_owned(),
            text: String::new(),
            asked: BTreeMap::new(),
            denials: Vec::new(),
            ending: Ending::Open,
        }
    }

    /// Returns the session and the run.
    pub(crate) fn names(&self) -> (&str, &str) {
        (&self.session, &self.run)
    }

    /// Returns whether an event is of this run, or of no run at all.
    pub(crate) fn concerns(&self, event: &Event) -> bool {
        event.run.as_ref().is_none_or(|run| *run == self.run)
    }

    /// Follows one event of the run.
    pub(crate) fn follow(&mut self, event: &Event) {
        match event.kind.as_str() {
            "assistant_token" => self.text.push_str(event.text("text")),
            "assistant_done" if !self.text.is_empty() && !self.text.ends_with('\n') => self.text.push('\n'),
            "approval_required" => {
                self.asked.insert(event.text("approvalId").to_owned(), event.text("summary").to_owned());
            }
            "approval_received" if event.text("decision") == "deny" => {
                let id = event.text("approvalId");
                let summary = self.asked.get(id).cloned().unwrap_or_default();
                self.denials.push(json!({"approvalId": id, "summary": summary}));
            }
            "run_complete" => self.ending = Ending::Complete(event.payload.clone()),
            "session_snapshot" => self.rebase(&event.payload),
            _ => {}
        }
    }

    /// Returns whether the run is over.
    pub(crate) fn progress(&self) -> Progress {
        match &self.ending {
            Ending::Open => Progress::Going,
            Ending::Complete(payload) => Progress::Over(exit_of(payload)),
            Ending::Gone => Progress::Unknown,
        }
    }

    /// Returns what was said of the run when it was over; null while it is not.
    pub(crate) const fn completion(&self) -> &Value {
        match &self.ending {
            Ending::Complete(payload) => payload,
            Ending::Open | Ending::Gone => &Value::Null,
        }
    }

    /// Returns the result for programs.
    pub(crate) fn to_json(&self) -> Value {
        let mut result = Map::new();
        let payload = self.completion();
        result.insert("sessionId".into(), self.session.as_str().into());
        result.insert("runId".into(), self.run.as_str().into());
        result.insert("outcome".into(), field(payload, "outcome").into());
        result.insert("exitCode".into(), exit_of(payload).number().into());
        result.insert("summary".into(), field(payload, "summary").into());
        for name in ["reason", "acceptance"] {
            if let Some(value) = payload.get(name).filter(|value| !value.is_null()) {
                result.insert(name.into(), value.clone());
            }
        }
        result.insert("denials".into(), self.denials.clone().into());
        result.insert("text".into(), self.text.trim_end_matches('\n').into());
        Value::Object(result)
    }

    /// Takes a snapshot as a fresh baseline: the end of the run may be among the events that are gone.
    pub(crate) fn rebase(&mut self, snapshot: &Value) {
        let is_ours = |pointer| snapshot.pointer(pointer).and_then(Value::as_str) == Some(self.run.as_str());
        if is_ours("/lastRun/runId") {
            let last = &snapshot["lastRun"];
            self.ending = Ending::Complete(json!({
                "outcome": last["outcome"],
                "summary": "",
                "headless": {"exitCodeHint": last["exitCode"]},
            }));
        } else if !is_ours("/activeRunId") {
            self.ending = Ending::Gone;
        }
    }
}

fn exit_of(payload: &Value) -> Exit {
    Exit::of_run(payload.pointer("/headless/exitCodeHint").and_then(Value::as_u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_holds_what_the_events_said() {
        let mut report = Report::new("sess_1", "run_1");
        let complete = json!({"runId": "run_1", "outcome": "denied", "summary": "no", "reason": "approval",
            "acceptance": {"total": 1, "passed": 0, "results": []}, "headless": {"exitCodeHint": 3}});
        for (kind, payload) in [
            ("assistant_token", json!({"text": "one"})),
            ("assistant_done", json!({"messageId": "a"})),
            ("assistant_token", json!({"text": "two\n"})),
            ("approval_required", json!({"approvalId": "a", "summary": "rm"})),
            ("approval_received", json!({"approvalId": "a", "decision": "deny", "by": "cli"})),
            ("approval_received", json!({"approvalId": "b", "decision": "approve", "by": "cli"})),
        ] {
            report.follow(&event(kind, payload));
            assert_eq!(report.progress(), Progress::Going);
        }
        report.follow(&event("run_complete", complete));
        assert_eq!(report.progress(), Progress::Over(Exit::of_run(Some(3))));
        assert_eq!(
            report.to_json(),
            json!({"sessionId": "sess_1", "runId": "run_1", "outcome": "denied", "exitCode": 3, "summary": "no",
                "reason": "approval", "acceptance": {"total": 1, "passed": 0, "results": []},
                "denials": [{"approvalId": "a", "summary": "rm"}], "text": "one\ntwo"})
        );
    }

    #[test]
    fn every_hint_is_the_exit_code() {
        for (outcome, hint) in [("success", 0), ("failed", 1), ("cancelled", 2), ("denied", 3), ("failed", 4)]
        {
            let mut report = Report::new("s", "run_1");
            report.follow(&event(
                "run_complete",
                json!({"outcome": outcome, "headless": {"exitCodeHint": hint}}),
            ));
            assert_eq!(report.progress(), Progress::Over(Exit::of_run(Some(hint))));
        }
    }

    #[test]
    fn an_end_among_lost_events_is_read_from_the_snapshot() {
        let after = |snapshot| {
            let mut report = Report::new("s", "run_1");
            report.follow(&event("session_snapshot", snapshot));
            report.progress()
        };
        let over =
            json!({"activeRunId": null, "lastRun": {"runId": "run_1", "outcome": "failed", "exitCode": 4}});
        assert_eq!(after(over), Progress::Over(Exit::of_run(Some(4))));
        assert_eq!(after(json!({"activeRunId": "run_1"})), Progress::Going);
        assert_eq!(after(json!({"activeRunId": "run_2"})), Progress::Unknown);
    }

    #[test]
    fn other_runs_do_not_concern_it() {
        let report = Report::new("s", "run_1");
        let mut other = event("status", json!({}));
        assert!(report.concerns(&other));
        other.run = Some("run_2".into());
        assert!(!report.concerns(&other));
        other.run = None;
        assert!(report.concerns(&other));
    }

    fn event(kind: &str, payload: Value) -> Event {
        Event {
            session: "s".into(),
            run: Some("run_1".into()),
            seq: 1,
            at: 0,
            kind: kind.into(),
            payload,
            line: String::new(),
        }
    }
}
