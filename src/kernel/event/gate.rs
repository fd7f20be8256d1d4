//! Events of gates.

use std::collections::BTreeSet;

use crate::kernel::gate::GateSubject;
use crate::kernel::id::{CallId, GateId, Json, ParticipantId};
use crate::kernel::quorum::Quorum;
use crate::kernel::time::Now;

/// An event of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateEvent {
    /// A gate was opened; the run of the event waits for its decision.
    Opened(Box<GateQuestion>),
    /// A vote was counted and the gate is still open.
    Voted {
        /// The gate.
        gate: GateId,
        /// Approve or deny.
        decision: Decision,
        /// Who voted: the source of the connection.
        by: String,
        /// The participant that voted; `None` means the owner of the daemon.
        participant: Option<ParticipantId>,
    },
    /// The gate was decided and is closed.
    Settled(Box<GateDecision>),
}

/// The question of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateQuestion {
    /// The gate.
    pub gate: GateId,
    /// What it asks about.
    pub subject: GateSubject,
    /// A machine-readable kind.
    pub kind: String,
    /// A title for people.
    pub title: String,
    /// The exact question, redacted.
    pub summary: String,
    /// Details: a JSON object, redacted.
    pub details: Json,
    /// The options, if there are more than approve and deny; else empty. The first approves and the last denies.
    pub choices: Vec<String>,
    /// The rule by which votes settle it.
    pub quorum: Quorum,
    /// The only participants whose votes count, beside that rule; `None` where the rule alone decides.
    pub eligible: Option<BTreeSet<ParticipantId>>,
    /// When the gate expires and counts as denied.
    pub expires: Now,
    /// The rule that an approval may grant beyond this call; `None` if an approval is valid once.
    pub grant_rule: Option<String>,
    /// Digest of the exact operation, compared again when it is executed.
    pub digest: Option<String>,
    /// What a denial with a comment does.
    pub on_denial: DenialEffect,
}

impl GateQuestion {
    /// Returns the tool call that waits for it.
    pub const fn call(&self) -> Option<&CallId> {
        match &self.subject {
            GateSubject::ToolCall { call }
            | GateSubject::Budget { call, .. }
            | GateSubject::Form { call, .. }
            | GateSubject::UnknownCall { call } => Some(call),
            GateSubject::Other => None,
        }
    }

    /// Returns the form to fill in.
    pub const fn form(&self) -> Option<&Json> {
        match &self.subject {
            GateSubject::Form { form, .. } => Some(form),
            GateSubject::ToolCall { .. }
            | GateSubject::Budget { .. }
            | GateSubject::UnknownCall { .. }
            | GateSubject::Other => None,
        }
    }

    /// Returns whether it asks for more budget.
    pub const fn is_about_budget(&self) -> bool {
        matches!(self.subject, GateSubject::Budget { .. })
    }
}

/// What a denial with a comment does to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialEffect {
    /// The run ends, as it does without a comment.
    EndRun,
    /// The model is informed and the run continues.
    InformModel,
    /// The run continues without an answer, with or without a comment, and also after a timeout.
    Dismiss,
}

/// How long an approval lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApprovalScope {
    /// For this call.
    Once,
    /// Until the run ends.
    Run,
    /// Until the session ends.
    Session,
    /// In this repository, until it is revoked.
    Always,
}

/// The decision of a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateDecision {
    /// The gate.
    pub gate: GateId,
    /// Approve or deny.
    pub decision: Decision,
    /// The chosen option.
    pub choice: Option<String>,
    /// The source that decided, derived from the connection.
    pub by: String,
    /// The participant that decided; `None` means the owner of the daemon, or none at all.
    pub participant: Option<ParticipantId>,
    /// Its comment.
    pub comment: Option<String>,
    /// How long an approval lasts.
    pub scope: ApprovalScope,
    /// The rule that is granted in place of the offered one.
    pub rule: Option<String>,
    /// The submitted form, redacted.
    pub answer: Option<Json>,
}

impl GateDecision {
    /// Returns the rule that the decision grants for its scope; `None` where the gate offers none.
    pub fn granted_rule(&self, question: &GateQuestion) -> Option<String> {
        let offered = question.grant_rule.as_ref()?;
        Some(self.rule.as_ref().unwrap_or(offered).clone())
    }
}

/// Approve or deny.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Go ahead.
    Approve,
    /// Do not go ahead.
    Deny,
}
