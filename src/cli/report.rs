//! How a run went, gathered from its events.
//!
//! Pure. The outcome and the exit code are the daemon's words; nothing is concluded here.

mod captured;
mod usage;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::captured::CapturedOutput;
use self::usage::Usage;
use super::exit::Exit;
use super::phrase::field;
use crate::client::Event;
use crate::kernel::event::TURN_CUT;

/// What is known of one run.
#[derive(Debug)]
pub(crate) struct Report {
    session: String,
    run: String,
    text: String,
    /// Where the text begins that is not whole yet.
    saying_from: Option<usize>,
    asked: BTreeMap<String, Asked>,
    denials: Vec<Denial>,
    usage: Usage,
    checks: Vec<Check>,
    began: Option<u64>,
    ended: Option<u64>,
    ending: Ending,
    /// What the steps printed, where the run is a playbook.
    output: Option<CapturedOutput>,
}

/// What an approval was about.
#[derive(Debug, Clone, Default)]
struct Asked {
    kind: String,
    summary: String,
}

/// An approval that was not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    /// The approval.
    pub(crate) id: String,
    /// What sort of thing was asked for.
    pub(crate) kind: String,
    /// What was asked for.
    pub(crate) summary: String,
    /// Who said no.
    pub(crate) by: String,
    /// Why, and what to do about it; empty where that was not said.
    pub(crate) reason: String,
}

/// An acceptance criterion, as the message named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    /// Its name.
    pub(crate) id: String,
    /// Its command.
    pub(crate) command: String,
    /// How long it took, once it has run.
    pub(crate) millis: Option<u64>,
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
            saying_from: None,
            asked: BTreeMap::new(),
            denials: Vec::new(),
            usage: Usage::default(),
            checks: Vec::new(),
            began: None,
            ended: None,
            ending: Ending::Open,
            output: None,
        }
    }

    /// Has the result hold what the steps of the playbook print.
    pub(crate) fn with_step_output(self) -> Self {
        Self { output: Some(CapturedOutput::new()), ..self }
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
        if let Some(output) = &mut self.output {
            output.follow(event);
        }
        match event.kind.as_str() {
            "user_message" => self.begin(event),
            "assistant_token" => {
                self.saying_from.get_or_insert(self.text.len());
                self.text.push_str(event.text("text"));
            }
            "assistant_done" => {
                self.saying_from = None;
                if !self.text.is_empty() && !self.text.ends_with('\n') {
                    self.text.push('\n');
                }
            }
            "run_recovered" => self.unsay(),
            "warning" if event.text("code") == TURN_CUT => self.unsay(),
            "approval_required" => {
                let asked =
                    Asked { kind: event.text("kind").to_owned(), summary: event.text("summary").to_owned() };
                self.asked.insert(event.text("approvalId").to_owned(), asked);
            }
            "approval_received" if event.text("decision") == "deny" => self.deny(event),
            "tool_result" if event.is_of_check() => self.checked(event),
            "usage" => self.usage.add(event),
            "run_complete" => {
                self.ended = Some(event.at);
                self.ending = Ending::Complete(event.payload.clone());
            }
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

    /// Returns the approvals that were not given.
    pub(crate) fn denials(&self) -> &[Denial] {
        &self.denials
    }

    /// Returns the acceptance criteria, in the order in which they are checked.
    pub(crate) fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Returns when the run began and ended, in milliseconds since 1970, as far as that was seen.
    pub(crate) const fn times(&self) -> (Option<u64>, Option<u64>) {
        (self.began, self.ended)
    }

    /// Returns what the assistant said.
    pub(crate) fn said(&self) -> &str {
        self.text.trim_end_matches('\n')
    }

    /// Returns what the models used, for programs; none when nothing was.
    pub(crate) fn usage(&self) -> Option<Value> {
        self.usage.to_json()
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
        if let Some(usage) = self.usage() {
            result.insert("usage".into(), usage);
        }
        result.insert("denials".into(), self.denials.iter().map(Denial::to_json).collect());
        result.insert("text".into(), self.said().into());
        if let Some(output) = &self.output {
            output.add_to(&mut result);
        }
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

    /// Takes what its message asked for; what is said into the run later is not its beginning.
    fn begin(&mut self, event: &Event) {
        if self.began.is_some() {
            return;
        }
        self.began = Some(event.at);
        let criteria = event.payload.get("acceptanceCriteria").and_then(Value::as_array);
        let check = |criterion: &Value| Check {
            id: field(criterion, "id"),
            command: field(criterion, "check"),
            millis: None,
        };
        self.checks = criteria.into_iter().flatten().map(check).collect();
    }

    /// Forgets a text that was cut: it is said again.
    fn unsay(&mut self) {
        if let Some(from) = self.saying_from.take() {
            self.text.truncate(from);
        }
    }

    fn deny(&mut self, event: &Event) {
        let id = event.text("approvalId").to_owned();
        let Asked { kind, summary } = self.asked.get(&id).cloned().unwrap_or_default();
        let (by, reason) = (event.text("by").to_owned(), event.text("comment").to_owned());
        self.denials.push(Denial { id, kind, summary, by, reason });
    }

    fn checked(&mut self, event: &Event) {
        let index =
            event.payload.get("check").and_then(Value::as_u64).and_then(|at| usize::try_from(at).ok());
        if let Some(check) = index.and_then(|at| self.checks.get_mut(at)) {
            check.millis = event.payload.get("durationMs").and_then(Value::as_u64);
        }
    }
}

impl Denial {
    fn to_json(&self) -> Value {
        let mut denial =
            json!({"approvalId": self.id, "kind": self.kind, "summary": self.summary, "by": self.by});
        if !self.reason.is_empty() {
            denial["reason"] = self.reason.as_str().into();
        }
        denial
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
            ("approval_required", json!({"approvalId": "a", "kind": "command", "summary": "rm"})),
            ("usage", json!({"model": "m", "inputTokens": 7, "outputTokens": 1, "costMicroUsd": 250_000})),
            ("approval_received", json!({"approvalId": "a", "decision": "deny", "by": "cli"})),
            (
                "approval_received",
                json!({"approvalId": "c", "decision": "deny", "by": "policy", "comment": "why"}),
            ),
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
                "usage": {"models": ["m"], "inputTokens": 7, "outputTokens": 1, "cacheReadTokens": 0,
                    "cacheWriteTokens": 0, "costUsd": 0.25},
                "denials": [{"approvalId": "a", "kind": "command", "summary": "rm", "by": "cli"},
                    {"approvalId": "c", "kind": "", "summary": "", "by": "policy", "reason": "why"}],
                "text": "one\ntwo"})
        );
    }

    #[test]
    fn a_text_that_was_cut_and_said_again_counts_once() {
        for (kind, payload) in
            [("warning", json!({"code": TURN_CUT})), ("run_recovered", json!({"found": "working"}))]
        {
            let mut report = Report::new("sess_1", "run_1");
            for (kind, payload) in [
                ("assistant_token", json!({"text": "one"})),
                ("assistant_done", json!({"messageId": "a"})),
                ("assistant_token", json!({"text": "half "})),
                ("assistant_token", json!({"text": "a"})),
                (kind, payload),
                ("assistant_token", json!({"text": "the whole"})),
                ("warning", json!({"code": "OTHER"})),
                ("assistant_done", json!({"messageId": "b"})),
            ] {
                report.follow(&event(kind, payload));
            }
            assert_eq!(report.said(), "one\nthe whole");
        }
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
