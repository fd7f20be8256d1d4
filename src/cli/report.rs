//! Collects the result of a run from its events.
//!
//! Pure. Outcome and exit code are those that the daemon reports.

mod captured;
mod usage;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::captured::CapturedOutput;
use self::usage::Usage;
use super::exit::Exit;
use super::final_message::FinalMessage;
use super::format::outcome_name;
use crate::client::{Event, EventContent, SessionSnapshot};
use crate::kernel::event::{
    CallResult, Decision, EventKind, GateDecision, GateEvent, Message, NoticeEvent, Purpose, RunEvent, RunReport,
    ToolEvent, is_turn_interrupted,
};

/// The state of one run.
#[derive(Debug)]
pub(crate) struct Report {
    session: String,
    run: String,
    text: String,
    /// The answer of a model.
    message: FinalMessage,
    /// Where the unfinished message starts in the text.
    open_message_start: Option<usize>,
    approvals: BTreeMap<String, ApprovalSubject>,
    denials: Vec<Denial>,
    usage: Usage,
    checks: Vec<Check>,
    started_at: Option<u64>,
    ended_at: Option<u64>,
    completion: Completion,
    /// The output of the steps, if the run is a playbook.
    output: Option<CapturedOutput>,
}

/// What an approval asks for.
#[derive(Debug, Clone, Default)]
struct ApprovalSubject {
    kind: String,
    summary: String,
}

/// A denied approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    /// The approval.
    pub(crate) id: String,
    /// The kind of the request.
    pub(crate) kind: String,
    /// The summary of the request.
    pub(crate) summary: String,
    /// Who denied it.
    pub(crate) by: String,
    /// The reason; may be empty.
    pub(crate) reason: String,
}

/// An acceptance criterion of the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    /// Its id.
    pub(crate) id: String,
    /// Its command.
    pub(crate) command: String,
    /// Its duration, after it has run.
    pub(crate) millis: Option<u64>,
}

/// Whether the run has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Completion {
    /// It is running.
    Running,
    /// It has ended with this report.
    Complete(RunReport),
    /// It has ended, and its completion event is lost.
    Lost,
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is running.
    Running,
    /// It has ended.
    Finished(Exit),
    /// It has ended with an unknown outcome.
    Unknown,
}

impl Report {
    /// Starts empty.
    pub(crate) fn new(session: &str, run: &str) -> Self {
        Self {
            session: session.to_owned(),
            run: run.to_owned(),
            text: String::new(),
            message: FinalMessage::default(),
            open_message_start: None,
            approvals: BTreeMap::new(),
            denials: Vec::new(),
            usage: Usage::default(),
            checks: Vec::new(),
            started_at: None,
            ended_at: None,
            completion: Completion::Running,
            output: None,
        }
    }

    /// Includes the output of playbook steps in the result.
    pub(crate) fn with_step_output(self) -> Self {
        Self { output: Some(CapturedOutput::new()), ..self }
    }

    /// Returns the ids of the session and the run.
    pub(crate) fn ids(&self) -> (&str, &str) {
        (&self.session, &self.run)
    }

    /// Returns whether an event belongs to this run or to no run.
    pub(crate) fn includes(&self, event: &Event) -> bool {
        event.run.as_ref().is_none_or(|run| *run == self.run)
    }

    /// Applies one event of the run.
    pub(crate) fn follow(&mut self, event: &Event) {
        if let Some(output) = &mut self.output {
            output.follow(event);
        }
        self.message.follow(event);
        match &event.content {
            EventContent::Recorded(kind) => self.follow_recorded(kind, event.at),
            EventContent::Snapshot(snapshot) => self.rebase(snapshot),
            EventContent::Unreadable { .. } if event.ends_run() => self.completion = Completion::Lost,
            EventContent::Gap { .. } | EventContent::Deleted | EventContent::Unreadable { .. } => {}
        }
    }

    fn follow_recorded(&mut self, kind: &EventKind, at: u64) {
        match kind {
            EventKind::Run(RunEvent::Started(message)) => self.start(at, Some(message)),
            EventKind::Run(RunEvent::Steered(_)) => self.start(at, None),
            EventKind::Run(RunEvent::TextDelta { text }) => {
                self.open_message_start.get_or_insert(self.text.len());
                self.text.push_str(text);
            }
            EventKind::Run(RunEvent::TextDone { .. }) => {
                self.open_message_start = None;
                if !self.text.is_empty() && !self.text.ends_with('\n') {
                    self.text.push('\n');
                }
            }
            EventKind::Run(RunEvent::Recovered { .. }) => self.discard_open_message(),
            EventKind::Notice(NoticeEvent::Warned { code, .. }) if is_turn_interrupted(code) => {
                self.discard_open_message()
            }
            EventKind::Gate(GateEvent::Opened(question)) => {
                let subject = ApprovalSubject { kind: question.kind.clone(), summary: question.summary.clone() };
                self.approvals.insert(question.gate.to_string(), subject);
            }
            EventKind::Gate(GateEvent::Settled(decision)) if decision.decision == Decision::Deny => {
                self.record_denial(decision)
            }
            EventKind::Tool(ToolEvent::Settled(result)) => self.record_check(result),
            EventKind::Run(RunEvent::TurnUsage(usage)) => self.usage.add(usage),
            EventKind::Run(RunEvent::Ended(report)) => {
                self.ended_at = Some(at);
                self.completion = Completion::Complete((**report).clone());
            }
            EventKind::Session(_)
            | EventKind::Context(_)
            | EventKind::Participant(_)
            | EventKind::Run(_)
            | EventKind::Notice(_)
            | EventKind::Tool(_)
            | EventKind::Gate(_) => {}
        }
    }

    /// Returns the progress of the run.
    pub(crate) fn progress(&self) -> Progress {
        match &self.completion {
            Completion::Running => Progress::Running,
            Completion::Complete(report) => Progress::Finished(Exit::from_run(report.exit_code)),
            Completion::Lost => Progress::Unknown,
        }
    }

    /// Returns how the run ended; none while it is active.
    pub(crate) const fn completion(&self) -> Option<&RunReport> {
        match &self.completion {
            Completion::Complete(report) => Some(report),
            Completion::Running | Completion::Lost => None,
        }
    }

    /// Returns the denied approvals.
    pub(crate) fn denials(&self) -> &[Denial] {
        &self.denials
    }

    /// Returns the acceptance criteria, in the order in which they are checked.
    pub(crate) fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Returns the start and the end of the run in milliseconds since 1970, if these events were received.
    pub(crate) const fn times(&self) -> (Option<u64>, Option<u64>) {
        (self.started_at, self.ended_at)
    }

    /// Returns all messages of the assistant.
    pub(crate) fn assistant_text(&self) -> &str {
        self.text.trim_end_matches('\n')
    }

    /// Returns the answer: the final message of a model, or the output of the steps.
    fn answer(&self) -> &str {
        match &self.output {
            Some(output) => output.stdout().trim_end_matches('\n'),
            None => self.message.text(),
        }
    }

    /// Returns the usage as JSON; none without any.
    pub(crate) fn usage(&self) -> Option<Value> {
        self.usage.to_json()
    }

    /// Returns the result as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let mut result = Map::new();
        let completion = self.completion();
        result.insert("sessionId".into(), self.session.as_str().into());
        result.insert("runId".into(), self.run.as_str().into());
        result.insert("outcome".into(), completion.map_or("", |report| outcome_name(report.outcome)).into());
        let exit = completion.map_or(Exit::FAILURE, |report| Exit::from_run(report.exit_code));
        result.insert("exitCode".into(), exit.number().into());
        result.insert("summary".into(), completion.map_or("", |report| report.summary.as_str()).into());
        if let Some(reason) = completion.and_then(|report| report.reason.as_deref()) {
            result.insert("reason".into(), reason.into());
        }
        if let Some(acceptance) = completion.and_then(acceptance) {
            result.insert("acceptance".into(), acceptance);
        }
        if let Some(usage) = self.usage() {
            result.insert("usage".into(), usage);
        }
        result.insert("denials".into(), self.denials.iter().map(Denial::to_json).collect());
        result.insert("text".into(), self.answer().into());
        if let Some(output) = &self.output {
            output.add_to(&mut result);
        }
        Value::Object(result)
    }

    /// Applies a snapshot: the end of the run may be among the lost events.
    pub(crate) fn rebase(&mut self, snapshot: &SessionSnapshot) {
        let ended = snapshot.last_run.as_ref().filter(|last| last.run_id == self.run);
        if let Some(last) = ended {
            self.completion = Completion::Complete(RunReport {
                outcome: last.outcome,
                reason: None,
                summary: String::new(),
                checks: Vec::new(),
                checks_requested: 0,
                exit_code: last.exit_code,
            });
        } else if snapshot.active_run_id.as_ref() != Some(&self.run) {
            self.completion = Completion::Lost;
        }
    }

    /// Reads the acceptance criteria from the first message of the run; later messages steer it and have none.
    fn start(&mut self, at: u64, message: Option<&Message>) {
        if self.started_at.is_some() {
            return;
        }
        self.started_at = Some(at);
        let criteria = message.map(|message| message.criteria.as_slice()).unwrap_or_default();
        let checks = criteria.iter();
        self.checks =
            checks.map(|check| Check { id: check.id.clone(), command: check.check.clone(), millis: None }).collect();
    }

    /// Drops an unfinished message: the model writes it again.
    fn discard_open_message(&mut self) {
        if let Some(from) = self.open_message_start.take() {
            self.text.truncate(from);
        }
    }

    fn record_denial(&mut self, decision: &GateDecision) {
        let id = decision.gate.to_string();
        let ApprovalSubject { kind, summary } = self.approvals.get(&id).cloned().unwrap_or_default();
        let (by, reason) = (decision.by.clone(), decision.comment.clone().unwrap_or_default());
        self.denials.push(Denial { id, kind, summary, by, reason });
    }

    fn record_check(&mut self, result: &CallResult) {
        let Purpose::Check(index) = result.purpose else { return };
        if let Some(check) = usize::try_from(index).ok().and_then(|at| self.checks.get_mut(at)) {
            check.millis = Some(result.millis);
        }
    }
}

/// Returns the results of the acceptance criteria as JSON; none without criteria.
fn acceptance(report: &RunReport) -> Option<Value> {
    let results: Vec<Value> = report
        .checks
        .iter()
        .map(|check| {
            json!({"id": check.id, "passed": check.passed, "exitCode": check.exit_code, "output": check.output})
        })
        .collect();
    let passed = report.checks.iter().filter(|check| check.passed).count();
    let has_criteria = report.checks_requested > 0 || !results.is_empty();
    has_criteria.then(|| json!({"total": report.checks_requested, "passed": passed, "results": results}))
}

impl Denial {
    fn to_json(&self) -> Value {
        let mut denial = json!({"approvalId": self.id, "kind": self.kind, "summary": self.summary, "by": self.by});
        if !self.reason.is_empty() {
            denial["reason"] = self.reason.as_str().into();
        }
        denial
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::test_events;

    #[test]
    fn a_result_has_the_content_of_the_events() {
        let mut report = Report::new("sess_1", "run_1");
        let complete = json!({"runId": "run_1", "outcome": "denied", "summary": "no", "reason": "approval",
            "acceptance": {"total": 1, "passed": 0, "results": []}, "headless": {"exitCodeHint": 3}});
        for (kind, payload) in [
            ("assistant_token", json!({"text": "one"})),
            ("assistant_done", json!({"messageId": "a"})),
            ("tool_call", json!({"callId": "c", "toolName": "sandbox_exec"})),
            ("assistant_token", json!({"text": "two\n"})),
            ("assistant_done", json!({"messageId": "b"})),
            ("approval_required", json!({"approvalId": "a", "kind": "command", "summary": "rm"})),
            ("usage", json!({"model": "m", "inputTokens": 7, "outputTokens": 1, "costMicroUsd": 250_000})),
            ("approval_received", json!({"approvalId": "a", "decision": "deny", "by": "cli"})),
            ("approval_received", json!({"approvalId": "c", "decision": "deny", "by": "policy", "comment": "why"})),
            ("approval_received", json!({"approvalId": "b", "decision": "approve", "by": "cli"})),
        ] {
            report.follow(&event(kind, payload));
            assert_eq!(report.progress(), Progress::Running);
        }
        report.follow(&event("run_complete", complete));
        assert_eq!(report.progress(), Progress::Finished(Exit::from_run(3)));
        assert_eq!(
            report.to_json(),
            json!({"sessionId": "sess_1", "runId": "run_1", "outcome": "denied", "exitCode": 3, "summary": "no",
                "reason": "approval", "acceptance": {"total": 1, "passed": 0, "results": []},
                "usage": {"models": ["m"], "inputTokens": 7, "outputTokens": 1, "cacheReadTokens": 0,
                    "cacheWriteTokens": 0, "costUsd": 0.25},
                "denials": [{"approvalId": "a", "kind": "command", "summary": "rm", "by": "cli"},
                    {"approvalId": "c", "kind": "", "summary": "", "by": "policy", "reason": "why"}],
                "text": "two"})
        );
    }

    #[test]
    fn an_incomplete_message_is_no_answer() {
        let mut report = Report::new("s", "run_1");
        report.follow(&event("assistant_token", json!({"text": "half"})));
        report.follow(&event("run_complete", json!({"outcome": "cancelled"})));
        assert_eq!((report.to_json()["text"].as_str(), report.assistant_text()), (Some(""), "half"));
    }

    #[test]
    fn an_interrupted_message_that_is_repeated_counts_once() {
        for (kind, payload) in [
            ("warning", json!({"code": "MODEL_TURN_INTERRUPTED"})),
            ("warning", json!({"code": "MODEL_TURN_CUT"})),
            ("run_recovered", json!({"found": "working"})),
        ] {
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
            assert_eq!(report.assistant_text(), "one\nthe whole");
        }
    }

    #[test]
    fn every_exit_code_hint_is_the_exit_code() {
        for (outcome, hint) in [("success", 0), ("failed", 1), ("cancelled", 2), ("denied", 3), ("failed", 4)] {
            let mut report = Report::new("s", "run_1");
            report.follow(&event("run_complete", json!({"outcome": outcome, "headless": {"exitCodeHint": hint}})));
            assert_eq!(report.progress(), Progress::Finished(Exit::from_run(hint)));
        }
    }

    #[test]
    fn an_end_among_lost_events_is_read_from_the_snapshot() {
        let after = |snapshot| {
            let mut report = Report::new("s", "run_1");
            report.follow(&event("session_snapshot", snapshot));
            report.progress()
        };
        let over = json!({"activeRunId": null, "lastRun": {"runId": "run_1", "outcome": "failed", "exitCode": 4}});
        assert_eq!(after(over), Progress::Finished(Exit::from_run(4)));
        assert_eq!(after(json!({"activeRunId": "run_1"})), Progress::Running);
        assert_eq!(after(json!({"activeRunId": "run_2"})), Progress::Unknown);
    }

    #[test]
    fn events_of_other_runs_are_not_included() {
        let report = Report::new("s", "run_1");
        let mut other = event("status", json!({}));
        assert!(report.includes(&other));
        other.run = Some("run_2".into());
        assert!(!report.includes(&other));
        other.run = None;
        assert!(report.includes(&other));
    }

    fn event(kind: &str, payload: Value) -> Event {
        Event { run: Some("run_1".into()), ..test_events::event(kind, payload) }
    }
}
