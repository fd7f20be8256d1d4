//! Pending approvals and the answers to them.
//!
//! Pure: it tracks the pending approvals of a session and turns a typed answer into a decision.

use clap::ValueEnum;
use serde_json::Value;

use super::form::{DISMISS, Form};
use super::phrase::{choices, field};
use super::plain::plain_line;
use crate::client::{Environment, Event, Request};

/// How the approvals of a run are answered (`--approve`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Deny them.
    Deny,
    /// Prompt here, or wait for an answer from another client.
    Ask,
    /// Approve them.
    All,
}

/// The approval policies of a run, by the kind of approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policies {
    /// For everything that the run wants to do.
    pub(crate) work: Policy,
    /// For raising its budget.
    pub(crate) budget: Policy,
}

impl Policies {
    /// Returns the policy for an approval.
    pub(crate) fn of(self, pending: &Pending) -> Policy {
        if pending.kind == "budget" { self.budget } else { self.work }
    }
}

/// A pending approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Its session.
    pub(crate) session: String,
    /// Its run.
    pub(crate) run: Option<String>,
    /// Its id.
    pub(crate) id: String,
    /// Its kind, such as `exec`, `write` or `budget`.
    pub(crate) kind: String,
    /// What it asks for.
    pub(crate) summary: String,
    /// The choices, if there are more than approve and deny.
    pub(crate) choices: Vec<String>,
    /// The payload that the daemon sent.
    pub(crate) payload: Value,
    /// Whether it can be approved for a longer scope than once.
    pub(crate) can_last: bool,
    /// Whether the run continues after a denial, with the reason passed to the model.
    pub(crate) goes_on: bool,
    /// The form to fill in, if the model asks a question.
    pub(crate) form: Option<Form>,
}

/// The scope of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// This request only.
    Once,
    /// Until the run ends.
    Run,
    /// Until the session ends.
    Session,
    /// In this repository, until it is revoked.
    Always,
}

impl Scope {
    const fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Run => "run",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

impl Pending {
    /// Reads an approval from its payload.
    pub(crate) fn read(session: &str, run: Option<&str>, payload: &Value) -> Self {
        Self {
            session: session.to_owned(),
            run: run.map(str::to_owned),
            id: field(payload, "approvalId"),
            kind: field(payload, "kind"),
            summary: field(payload, "summary"),
            choices: choices(payload),
            payload: payload.clone(),
            can_last: payload.get("remember").is_some_and(Value::is_string),
            goes_on: field(payload, "onDenial") == "continue",
            form: payload.get("form").filter(|form| form.is_object()).map(Form::read),
        }
    }

    /// Returns the prompt.
    pub(crate) fn prompt(&self) -> String {
        if let Some(form) = &self.form {
            return form.prompt();
        }
        match self.choices.as_slice() {
            [] => {
                let lasting = if self.can_last {
                    " once, r this run, s this session, w always in this repository,"
                } else {
                    ","
                };
                let why = if self.goes_on { ", n REASON" } else { "" };
                match (self.can_last, self.goes_on) {
                    (false, false) => "approve? [y/n]".to_owned(),
                    (_, _) => format!("approve? [y{lasting} n{why}, v view all]"),
                }
            }
            choices => format!("choose one: [{}]", plain_line(&choices.join("/"))),
        }
    }

    /// Parses a typed answer; none if it is not valid.
    pub(crate) fn verdict(&self, typed: &str) -> Option<Verdict> {
        let written = typed.trim();
        if let Some(form) = &self.form {
            let dismissed = written == DISMISS;
            return if dismissed {
                Some(Verdict::Deny(None))
            } else {
                form.typed(written).map(Verdict::Answer)
            };
        }
        let typed = written.to_lowercase();
        let lasting = |scope| self.can_last.then_some(Verdict::ApproveFor(scope));
        match typed.as_str() {
            "" => None,
            "y" | "yes" => Some(Verdict::Approve(None)),
            "n" | "no" => Some(Verdict::Deny(None)),
            "r" if self.choices.is_empty() => lasting(Scope::Run),
            "s" if self.choices.is_empty() => lasting(Scope::Session),
            "w" if self.choices.is_empty() => lasting(Scope::Always),
            _ if self.goes_on && self.choices.is_empty() => reason(written).map(Verdict::DenyBecause),
            _ => self.choice(&typed),
        }
    }

    /// Returns the decision of a choice: the last choice denies, every other one approves.
    pub(crate) fn choice(&self, typed: &str) -> Option<Verdict> {
        let exact = self.choices.iter().position(|choice| choice == typed);
        let mut beginning = (0..self.choices.len()).filter(|at| self.choices[*at].starts_with(typed));
        let at = match (exact, beginning.next(), beginning.next()) {
            (Some(at), _, _) | (None, Some(at), None) => at,
            (None, _, _) => return None,
        };
        let choice = Some(self.choices[at].clone());
        Some(if at + 1 == self.choices.len() { Verdict::Deny(choice) } else { Verdict::Approve(choice) })
    }

    /// Returns the request that submits a decision.
    pub(crate) fn settle(
        &self,
        verdict: Verdict,
        comment: Option<String>,
        environment: &Environment,
    ) -> Request {
        let mut answer = None;
        let (decision, choice, scope, comment) = match verdict {
            Verdict::Approve(choice) => ("approve", choice, None, comment),
            Verdict::ApproveFor(scope) => ("approve", None, Some(scope.word()), comment),
            Verdict::Answer(filled_in) => {
                answer = Some(filled_in);
                ("approve", None, None, comment)
            }
            Verdict::Deny(choice) => ("deny", choice, None, comment),
            Verdict::DenyBecause(why) => ("deny", None, None, Some(why)),
        };
        Request::submit_approval(&self.session, &self.id, decision)
            .with_some("runId", self.run.clone())
            .with_some("choice", choice)
            .with_some("scope", scope)
            .with_some("comment", comment)
            .with_some("answer", answer)
            .with_environment(environment)
    }
}

/// A decision, with the choice if there are more than two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Approve.
    Approve(Option<String>),
    /// Approve, and do not ask again within this scope.
    ApproveFor(Scope),
    /// The answer to a form.
    Answer(Value),
    /// Deny.
    Deny(Option<String>),
    /// Deny, with a reason.
    DenyBecause(String),
}

/// Returns whether the typed answer asks for the complete approval (`v`).
pub(crate) fn wants_more(typed: &str) -> bool {
    typed.trim().eq_ignore_ascii_case("v")
}

/// Returns the reason that follows `n` or `no`.
fn reason(typed: &str) -> Option<String> {
    let (word, why) = typed.split_once([' ', ',', ':'])?;
    let says_no = matches!(word.to_lowercase().as_str(), "n" | "no");
    let why = why.trim();
    (says_no && !why.is_empty()).then(|| why.to_owned())
}

/// Returns whether an error code means that the approval is decided already: by another client, or in a replay.
pub(crate) fn is_settled_already(code: Option<&str>) -> bool {
    matches!(code, Some("APPROVAL_EXPIRED" | "APPROVAL_NOT_FOUND"))
}

/// The pending approvals of a session, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Board {
    waiting: Vec<Pending>,
}

impl Board {
    /// Applies an event and returns the approval that it opened.
    pub(crate) fn follow(&mut self, event: &Event) -> Option<&Pending> {
        match event.kind.as_str() {
            "approval_required" => self.open(&event.session, event.run.as_deref(), &event.payload),
            "approval_received" => {
                let id = event.text("approvalId");
                self.waiting.retain(|pending| pending.id != id);
                None
            }
            "run_complete" => {
                self.waiting.retain(|pending| pending.run != event.run);
                None
            }
            "session_snapshot" => {
                self.waiting.clear();
                let run = event.payload.get("activeRunId").and_then(Value::as_str);
                let pending = event.payload.get("pendingApproval").filter(|pending| pending.is_object())?;
                self.open(&event.session, run, pending)
            }
            _ => None,
        }
    }

    /// Returns the oldest pending approval.
    pub(crate) fn oldest(&self) -> Option<&Pending> {
        self.waiting.first()
    }

    fn open(&mut self, session: &str, run: Option<&str>, payload: &Value) -> Option<&Pending> {
        self.waiting.push(Pending::read(session, run, payload));
        self.waiting.last()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yes_and_no_are_understood_and_nothing_else() {
        let pending = pending(&[]);
        for typed in ["y", "Yes\n", " YES "] {
            assert_eq!(pending.verdict(typed), Some(Verdict::Approve(None)));
        }
        for typed in ["n", "No"] {
            assert_eq!(pending.verdict(typed), Some(Verdict::Deny(None)));
        }
        for typed in ["", "yep", "why?", "yes please"] {
            assert_eq!(pending.verdict(typed), None, "{typed}");
        }
    }

    #[test]
    fn a_yes_may_last_and_a_no_may_say_why_where_that_is_offered() {
        let plain = pending(&[]);
        for typed in ["r", "s", "w", "n because", "no: because"] {
            assert_eq!(plain.verdict(typed), None, "{typed}");
        }
        let open = Pending { can_last: true, goes_on: true, ..plain };
        assert_eq!(
            open.prompt(),
            "approve? [y once, r this run, s this session, w always in this repository, n, n REASON, v view all]"
        );
        assert_eq!(open.verdict("R"), Some(Verdict::ApproveFor(Scope::Run)));
        assert_eq!(open.verdict("s"), Some(Verdict::ApproveFor(Scope::Session)));
        assert_eq!(open.verdict("w"), Some(Verdict::ApproveFor(Scope::Always)));
        assert_eq!(open.verdict("n"), Some(Verdict::Deny(None)));
        assert_eq!(open.verdict("No, use Make"), Some(Verdict::DenyBecause("use Make".into())));
        assert_eq!(open.verdict("yes please"), None);
    }

    #[test]
    fn what_is_asked_is_answered_or_dismissed() {
        let form = json!({"method": "select", "title": "Which?", "options": ["red", "blue"]});
        let payload = json!({"approvalId": "appr_1", "summary": "Which?", "details": {}, "form": form,
            "onDenial": "dismiss"});
        let pending = Pending::read("s", Some("r"), &payload);
        assert_eq!(pending.prompt(), "choose one: [1 red, 2 blue, or /dismiss]");
        assert_eq!(pending.verdict("2\n"), Some(Verdict::Answer(json!("blue"))));
        assert_eq!(pending.verdict("/dismiss"), Some(Verdict::Deny(None)));
        assert_eq!(pending.verdict("green"), None);
        let line = pending.settle(Verdict::Answer(json!("blue")), None, &Environment::new()).line("r");
        let request: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(request["payload"]["answer"], "blue");
        assert_eq!(request["payload"]["decision"], "approve");
    }

    #[test]
    fn a_choice_may_be_shortened_and_the_last_one_is_the_no() {
        let pending = pending(&["run_again", "skip", "stop"]);
        assert_eq!(pending.verdict("r"), Some(Verdict::Approve(Some("run_again".into()))));
        assert_eq!(pending.verdict("sk"), Some(Verdict::Approve(Some("skip".into()))));
        assert_eq!(pending.verdict("stop"), Some(Verdict::Deny(Some("stop".into()))));
        assert_eq!(pending.verdict("s"), None);
        assert_eq!(pending.verdict("y"), Some(Verdict::Approve(None)));
        assert_eq!(pending.prompt(), "choose one: [run_again/skip/stop]");
    }

    #[test]
    fn a_verdict_names_everything_and_only_what_was_said() {
        let line = pending(&["a", "b"])
            .settle(Verdict::Deny(Some("b".into())), None, &Environment::from([("L".into(), "C".into())]))
            .line("r");
        let request: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            request["payload"],
            json!({"sessionId": "s", "runId": "r", "approvalId": "appr_1", "decision": "deny", "choice": "b",
                "environment": {"L": "C"}})
        );
    }

    #[test]
    fn the_board_holds_what_waits() {
        let mut board = Board::default();
        let opened = board.follow(&event("approval_required", json!({"approvalId": "a", "summary": "x"})));
        assert_eq!(opened.map(|pending| pending.id.as_str()), Some("a"));
        board.follow(&event("approval_required", json!({"approvalId": "b"})));
        assert_eq!(board.oldest().map(|pending| pending.id.as_str()), Some("a"));
        board.follow(&event("approval_received", json!({"approvalId": "a", "decision": "deny"})));
        assert_eq!(board.oldest().map(|pending| pending.id.as_str()), Some("b"));
        board.follow(&event("run_complete", json!({"outcome": "denied"})));
        assert_eq!(board.oldest(), None);
    }

    #[test]
    fn a_snapshot_is_a_new_beginning() {
        let mut board = Board::default();
        board.follow(&event("approval_required", json!({"approvalId": "old"})));
        board.follow(&event(
            "session_snapshot",
            json!({"activeRunId": "r", "pendingApproval": {"approvalId": "new"}}),
        ));
        assert_eq!(board.oldest().map(|pending| pending.id.as_str()), Some("new"));
        board.follow(&event("session_snapshot", json!({"activeRunId": null, "pendingApproval": null})));
        assert_eq!(board.oldest(), None);
    }

    fn pending(choices: &[&str]) -> Pending {
        let payload = json!({"approvalId": "appr_1", "summary": "x", "details": {"choices": choices}});
        Pending::read("s", Some("r"), &payload)
    }

    fn event(kind: &str, payload: Value) -> Event {
        Event {
            session: "s".into(),
            run: Some("r".into()),
            seq: 1,
            at: 0,
            kind: kind.into(),
            payload,
            line: String::new(),
        }
    }
}
