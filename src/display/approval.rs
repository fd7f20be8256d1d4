//! Pending approvals and the answers to them.
//!
//! Pure: it tracks the pending approvals of a session and turns a typed answer into a decision.

use clap::ValueEnum;
use serde_json::Value;

use super::form::{DISMISS, Form};
use super::sanitize::sanitize_line;
use super::usage::elapsed;
use crate::client::{Environment, Event, EventContent, Request};
use crate::kernel::event::{Decision as Vote, DenialEffect, EventKind, GateEvent, GateQuestion};
use crate::kernel::quorum::Quorum;

/// How the approvals of a run are answered (`--approve`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ApprovalPolicy {
    /// Deny them.
    Deny,
    /// Prompt here, or wait for an answer from another client.
    Ask,
    /// Approve them.
    All,
}

/// The approval policies of a run, by the kind of approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ApprovalPolicies {
    /// For everything that the run wants to do.
    pub(crate) work: ApprovalPolicy,
    /// For raising its budget.
    pub(crate) budget: ApprovalPolicy,
}

impl ApprovalPolicies {
    /// Returns the policy for an approval.
    pub(crate) fn for_approval(self, pending: &PendingApproval) -> ApprovalPolicy {
        if pending.question.kind == "budget" { self.budget } else { self.work }
    }
}

/// A pending approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingApproval {
    /// Its session.
    pub(crate) session: String,
    /// Its run.
    pub(crate) run: Option<String>,
    /// What it asks for.
    pub(crate) question: GateQuestion,
    /// The form to fill in, if the model asks a question.
    pub(crate) form: Option<Form>,
    /// Votes so far that leave it pending: to approve, to deny.
    pub(crate) votes: (usize, usize),
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
    const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Run => "run",
            Self::Session => "session",
            Self::Always => "always",
        }
    }
}

impl PendingApproval {
    /// Creates it from its question.
    pub(crate) fn new(session: &str, run: Option<&str>, question: &GateQuestion) -> Self {
        let (run, form) = (run.map(str::to_owned), Form::of(question));
        Self { session: session.to_owned(), run, question: question.clone(), form, votes: (0, 0) }
    }

    /// Returns its id.
    pub(crate) fn id(&self) -> &str {
        self.question.gate.as_str()
    }

    /// Returns when it expires, and the votes if it needs several; empty if neither applies.
    pub(crate) fn status(&self, now: u64) -> Vec<String> {
        let mut parts = Vec::new();
        let expires = self.question.expires.0;
        if expires > 0 {
            parts.push(format!("expires in {}", elapsed(expires.saturating_sub(now))));
        }
        if !self.question.quorum.is_single_vote() {
            let (approve, deny) = self.votes;
            let needed = quorum_words(&self.question.quorum);
            parts.push(format!("{needed}; {approve} to approve, {deny} to deny"));
        }
        parts
    }

    /// Returns whether it can be approved for a longer scope than once.
    pub(crate) const fn can_be_remembered(&self) -> bool {
        self.question.grant_rule.is_some()
    }

    /// Returns whether the run continues after a denial, with the reason passed to the model.
    fn continues_on_denial(&self) -> bool {
        self.question.on_denial == DenialEffect::InformModel
    }

    /// Returns the prompt.
    pub(crate) fn prompt(&self) -> String {
        if let Some(form) = &self.form {
            return form.prompt();
        }
        match self.question.choices.as_slice() {
            [] => {
                let lasting = if self.can_be_remembered() {
                    " once, r this run, s this session, w always in this repository,"
                } else {
                    ","
                };
                let why = if self.continues_on_denial() { ", n REASON" } else { "" };
                match (self.can_be_remembered(), self.continues_on_denial()) {
                    (false, false) => "approve? [y/n]".to_owned(),
                    (_, _) => format!("approve? [y{lasting} n{why}, v view all]"),
                }
            }
            choices => format!("choose one: [{}]", sanitize_line(&choices.join("/"))),
        }
    }

    /// Parses a typed answer; none if it is not valid.
    pub(crate) fn parse_answer(&self, typed: &str) -> Option<Decision> {
        let written = typed.trim();
        if let Some(form) = &self.form {
            let dismissed = written == DISMISS;
            return if dismissed { Some(Decision::Deny(None)) } else { form.parse_line(written).map(Decision::Answer) };
        }
        let typed = written.to_lowercase();
        let lasting = |scope| self.can_be_remembered().then_some(Decision::ApproveForScope(scope));
        match typed.as_str() {
            "" => None,
            "y" | "yes" => Some(Decision::Approve(None)),
            "n" | "no" => Some(Decision::Deny(None)),
            "r" if self.question.choices.is_empty() => lasting(Scope::Run),
            "s" if self.question.choices.is_empty() => lasting(Scope::Session),
            "w" if self.question.choices.is_empty() => lasting(Scope::Always),
            _ if self.continues_on_denial() && self.question.choices.is_empty() => {
                parse_denial_reason(written).map(Decision::DenyWithReason)
            }
            _ => self.parse_choice(&typed),
        }
    }

    /// Returns the decision of a choice: the last choice denies, every other one approves.
    pub(crate) fn parse_choice(&self, typed: &str) -> Option<Decision> {
        let choices = &self.question.choices;
        let exact = choices.iter().position(|choice| choice == typed);
        let mut beginning = (0..choices.len()).filter(|at| choices[*at].starts_with(typed));
        let at = match (exact, beginning.next(), beginning.next()) {
            (Some(at), _, _) | (None, Some(at), None) => at,
            (None, _, _) => return None,
        };
        let choice = Some(choices[at].clone());
        Some(if at + 1 == choices.len() { Decision::Deny(choice) } else { Decision::Approve(choice) })
    }

    /// Returns the request that submits a decision.
    pub(crate) fn decision_request(
        &self,
        verdict: Decision,
        comment: Option<String>,
        environment: Option<&Environment>,
    ) -> Request {
        let mut answer = None;
        let (decision, choice, scope, comment) = match verdict {
            Decision::Approve(choice) => ("approve", choice, None, comment),
            Decision::ApproveForScope(scope) => ("approve", None, Some(scope.as_str()), comment),
            Decision::Answer(filled_in) => {
                answer = Some(filled_in);
                ("approve", None, None, comment)
            }
            Decision::Deny(choice) => ("deny", choice, None, comment),
            Decision::DenyWithReason(why) => ("deny", None, None, Some(why)),
        };
        Request::submit_approval(&self.session, self.id(), decision)
            .with_some("runId", self.run.clone())
            .with_some("choice", choice)
            .with_some("scope", scope)
            .with_some("comment", comment)
            .with_some("answer", answer)
            .with_environment(environment)
    }
}

fn quorum_words(quorum: &Quorum) -> String {
    match quorum {
        Quorum::Any(count) => format!("needs {count} votes"),
        Quorum::All => "needs all votes".to_owned(),
        Quorum::Majority => "needs a majority".to_owned(),
        Quorum::Specific(voters) => format!("needs the votes of {} participants", voters.len()),
        Quorum::Role { role, count } => format!("needs {count} votes of the role {role:?}"),
    }
}

/// A decision, with the choice if there are more than two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Approve.
    Approve(Option<String>),
    /// Approve, and do not ask again within this scope.
    ApproveForScope(Scope),
    /// The answer to a form.
    Answer(Value),
    /// Deny.
    Deny(Option<String>),
    /// Deny, with a reason.
    DenyWithReason(String),
}

/// Returns whether the typed answer asks for the complete approval (`v`).
pub(crate) fn wants_full_view(typed: &str) -> bool {
    typed.trim().eq_ignore_ascii_case("v")
}

/// Returns the reason that follows `n` or `no`.
fn parse_denial_reason(typed: &str) -> Option<String> {
    let (word, why) = typed.split_once([' ', ',', ':'])?;
    let says_no = matches!(word.to_lowercase().as_str(), "n" | "no");
    let why = why.trim();
    (says_no && !why.is_empty()).then(|| why.to_owned())
}

/// Returns whether an error code means that the approval is decided already: by another client, or in a replay.
pub(crate) fn is_already_decided(code: Option<&str>) -> bool {
    matches!(code, Some("APPROVAL_EXPIRED" | "APPROVAL_NOT_FOUND"))
}

/// The pending approvals of a session, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PendingApprovals {
    pending: Vec<PendingApproval>,
}

impl PendingApprovals {
    /// Applies an event and returns the approval that it opened.
    pub(crate) fn follow(&mut self, event: &Event) -> Option<&PendingApproval> {
        if event.ends_run() {
            self.pending.retain(|pending| pending.run != event.run);
        }
        if let EventContent::Snapshot(snapshot) = &event.content {
            self.pending.clear();
            let run = snapshot.active_run_id.as_deref();
            return self.open(&event.session, run, snapshot.pending_approval.as_ref()?);
        }
        let kind = event.recorded()?;
        if let EventKind::Gate(GateEvent::Settled(decision)) = kind {
            self.pending.retain(|pending| pending.question.gate != decision.gate);
        }
        if let EventKind::Gate(GateEvent::Voted { gate, decision, .. }) = kind
            && let Some(pending) = self.pending.iter_mut().find(|pending| pending.question.gate == *gate)
        {
            match decision {
                Vote::Approve => pending.votes.0 += 1,
                Vote::Deny => pending.votes.1 += 1,
            }
        }
        let EventKind::Gate(GateEvent::Opened(question)) = kind else { return None };
        self.open(&event.session, event.run.as_deref(), question)
    }

    /// Adds an approval that was listed.
    pub(crate) fn add(&mut self, session: &str, run: Option<&str>, question: &GateQuestion) {
        self.open(session, run, question);
    }

    /// Returns whether an approval is pending.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.pending.iter().any(|pending| pending.id() == id)
    }

    /// Returns how many are pending.
    pub(crate) const fn count(&self) -> usize {
        self.pending.len()
    }

    /// Returns the oldest pending approval.
    pub(crate) fn oldest(&self) -> Option<&PendingApproval> {
        self.pending.first()
    }

    fn open(&mut self, session: &str, run: Option<&str>, question: &GateQuestion) -> Option<&PendingApproval> {
        // It may have been listed before its event arrives.
        if let Some(at) = self.pending.iter().position(|pending| pending.question.gate == question.gate) {
            return self.pending.get(at);
        }
        self.pending.push(PendingApproval::new(session, run, question));
        self.pending.last()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::test_events::{event, question};

    #[test]
    fn only_yes_and_no_are_valid_answers() {
        let pending = pending(&[]);
        for typed in ["y", "Yes\n", " YES "] {
            assert_eq!(pending.parse_answer(typed), Some(Decision::Approve(None)));
        }
        for typed in ["n", "No"] {
            assert_eq!(pending.parse_answer(typed), Some(Decision::Deny(None)));
        }
        for typed in ["", "yep", "why?", "yes please"] {
            assert_eq!(pending.parse_answer(typed), None, "{typed}");
        }
    }

    #[test]
    fn an_approval_may_have_a_scope_and_a_denial_a_reason_if_offered() {
        let plain = pending(&[]);
        for typed in ["r", "s", "w", "n because", "no: because"] {
            assert_eq!(plain.parse_answer(typed), None, "{typed}");
        }
        let (grant_rule, on_denial) = (Some("allow: exec(make)".into()), DenialEffect::InformModel);
        let open = PendingApproval { question: GateQuestion { grant_rule, on_denial, ..plain.question }, ..plain };
        assert_eq!(
            open.prompt(),
            "approve? [y once, r this run, s this session, w always in this repository, n, n REASON, v view all]"
        );
        assert_eq!(open.parse_answer("R"), Some(Decision::ApproveForScope(Scope::Run)));
        assert_eq!(open.parse_answer("s"), Some(Decision::ApproveForScope(Scope::Session)));
        assert_eq!(open.parse_answer("w"), Some(Decision::ApproveForScope(Scope::Always)));
        assert_eq!(open.parse_answer("n"), Some(Decision::Deny(None)));
        assert_eq!(open.parse_answer("No, use Make"), Some(Decision::DenyWithReason("use Make".into())));
        assert_eq!(open.parse_answer("yes please"), None);
    }

    #[test]
    fn a_form_is_answered_or_dismissed() {
        let form = json!({"method": "select", "title": "Which?", "options": ["red", "blue"]});
        let payload = json!({"approvalId": "appr_1", "summary": "Which?", "details": {}, "form": form,
            "onDenial": "dismiss"});
        let pending = PendingApproval::new("s", Some("r"), &question(payload));
        assert_eq!(pending.prompt(), "choose one: [1 red, 2 blue, or /dismiss]");
        assert_eq!(pending.parse_answer("2\n"), Some(Decision::Answer(json!("blue"))));
        assert_eq!(pending.parse_answer("/dismiss"), Some(Decision::Deny(None)));
        assert_eq!(pending.parse_answer("green"), None);
        let line = pending.decision_request(Decision::Answer(json!("blue")), None, None).line("r");
        let request: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(request["payload"]["answer"], "blue");
        assert_eq!(request["payload"]["decision"], "approve");
    }

    #[test]
    fn a_choice_may_be_abbreviated_and_the_last_choice_denies() {
        let pending = pending(&["run_again", "skip", "stop"]);
        assert_eq!(pending.parse_answer("r"), Some(Decision::Approve(Some("run_again".into()))));
        assert_eq!(pending.parse_answer("sk"), Some(Decision::Approve(Some("skip".into()))));
        assert_eq!(pending.parse_answer("stop"), Some(Decision::Deny(Some("stop".into()))));
        assert_eq!(pending.parse_answer("s"), None);
        assert_eq!(pending.parse_answer("y"), Some(Decision::Approve(None)));
        assert_eq!(pending.prompt(), "choose one: [run_again/skip/stop]");
    }

    #[test]
    fn a_decision_request_has_all_given_fields_and_no_others() {
        let line = pending(&["a", "b"])
            .decision_request(
                Decision::Deny(Some("b".into())),
                None,
                Some(&Environment::from([("L".into(), "C".into())])),
            )
            .line("r");
        let request: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            request["payload"],
            json!({"sessionId": "s", "runId": "r", "approvalId": "appr_1", "decision": "deny", "choice": "b",
                "environment": {"L": "C"}})
        );
    }

    #[test]
    fn pending_approvals_are_tracked() {
        let mut board = PendingApprovals::default();
        let opened = board.follow(&event("approval_required", json!({"approvalId": "a", "summary": "x"})));
        assert_eq!(opened.map(|pending| pending.id().to_owned()), Some("a".to_owned()));
        board.follow(&event("approval_required", json!({"approvalId": "b"})));
        assert_eq!(board.oldest().map(|pending| pending.id().to_owned()), Some("a".to_owned()));
        board.follow(&event("approval_received", json!({"approvalId": "a", "decision": "deny"})));
        assert_eq!(board.oldest().map(|pending| pending.id().to_owned()), Some("b".to_owned()));
        board.follow(&event("run_complete", json!({"outcome": "denied"})));
        assert_eq!(board.oldest(), None);
    }

    #[test]
    fn a_snapshot_replaces_the_pending_approvals() {
        let mut board = PendingApprovals::default();
        board.follow(&event("approval_required", json!({"approvalId": "old"})));
        board.follow(&event("session_snapshot", json!({"activeRunId": "r", "pendingApproval": {"approvalId": "new"}})));
        assert_eq!(board.oldest().map(|pending| pending.id().to_owned()), Some("new".to_owned()));
        board.follow(&event("session_snapshot", json!({"activeRunId": null, "pendingApproval": null})));
        assert_eq!(board.oldest(), None);
    }

    fn pending(choices: &[&str]) -> PendingApproval {
        let payload = json!({"approvalId": "appr_1", "summary": "x", "details": {"choices": choices}});
        PendingApproval::new("s", Some("r"), &question(payload))
    }
}
