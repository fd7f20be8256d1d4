//! What the records of gates leave to be derived: the subject and the quorum.
//!
//! A record names a budget in its details, and a quorum that is a number of votes by that number. Only what these do not
//! say has fields of its own, so that records of earlier versions and of today are the same.

use serde::Deserialize;

use super::wire::participant::QuorumItem;
use super::wire::word::{ResourceWord, SubjectWord};
use crate::kernel::event::GateQuestion;
use crate::kernel::gate;
use crate::kernel::gate::{BudgetResource, GateSubject, UNKNOWN_CALL};
use crate::kernel::id::{CallId, Json};
use crate::kernel::quorum::Quorum;

/// Returns the subject of a gate from the fields of its record.
pub(super) fn subject(
    kind: &str,
    call: CallId,
    details: &Json,
    form: Option<Json>,
    written: (Option<SubjectWord>, Option<ResourceWord>),
) -> GateSubject {
    match (written, form, kind) {
        ((Some(SubjectWord::Other), _), _, _) => GateSubject::Other,
        (_, Some(form), _) => GateSubject::Form { call, form },
        ((None, resource), None, gate::BUDGET) => {
            GateSubject::Budget { call, resource: resource.map(Into::into).or_else(|| named_resource(details)) }
        }
        (_, None, UNKNOWN_CALL) => GateSubject::UnknownCall { call },
        (_, None, _) => GateSubject::ToolCall { call },
    }
}

/// Returns the field for a subject of no call.
pub(crate) const fn subject_word(question: &GateQuestion) -> Option<SubjectWord> {
    match question.subject {
        GateSubject::Other => Some(SubjectWord::Other),
        GateSubject::ToolCall { .. }
        | GateSubject::Budget { .. }
        | GateSubject::Form { .. }
        | GateSubject::UnknownCall { .. } => None,
    }
}

/// Returns the field for a resource that the details do not name.
pub(crate) fn resource_word(question: &GateQuestion) -> Option<ResourceWord> {
    match question.subject {
        GateSubject::Budget { resource, .. } if resource != named_resource(&question.details) => {
            resource.map(Into::into)
        }
        GateSubject::Budget { .. }
        | GateSubject::ToolCall { .. }
        | GateSubject::Form { .. }
        | GateSubject::UnknownCall { .. }
        | GateSubject::Other => None,
    }
}

/// Returns the id of the call; empty where there is none, because every reader expects one.
pub(crate) fn call_id(question: &GateQuestion) -> &str {
    question.call().map_or("", CallId::as_str)
}

/// Returns the number of votes that a quorum needs at least, as far as it can be known.
pub(crate) fn needed(quorum: &Quorum) -> u32 {
    match quorum {
        Quorum::Any(count) | Quorum::Role { count, .. } => *count,
        Quorum::Specific(named) => u32::try_from(named.len()).unwrap_or(u32::MAX),
        Quorum::All | Quorum::Majority => 1,
    }
}

/// Returns the rule of a quorum that is not a number of votes.
pub(crate) fn quorum_item(quorum: &Quorum) -> Option<QuorumItem> {
    match quorum {
        Quorum::Any(_) => None,
        Quorum::All => Some(QuorumItem::All),
        Quorum::Majority => Some(QuorumItem::Majority),
        Quorum::Specific(named) => {
            Some(QuorumItem::Specific { participants: named.iter().map(|id| id.as_str().to_owned()).collect() })
        }
        Quorum::Role { role, count } => Some(QuorumItem::Role { role: (*role).into(), count: *count }),
    }
}

/// Returns the ids of the only participants whose votes count, where there are such.
pub(crate) fn eligible_item(question: &GateQuestion) -> Option<Vec<String>> {
    question.eligible.as_ref().map(|ids| ids.iter().map(|id| id.as_str().to_owned()).collect())
}

/// Returns the quorum from the fields of a record.
pub(super) fn quorum(needed: u32, item: Option<QuorumItem>) -> Quorum {
    match item {
        None => Quorum::Any(needed),
        Some(QuorumItem::All) => Quorum::All,
        Some(QuorumItem::Majority) => Quorum::Majority,
        Some(QuorumItem::Specific { participants }) => {
            Quorum::Specific(participants.into_iter().map(Into::into).collect())
        }
        Some(QuorumItem::Role { role, count }) => Quorum::Role { role: role.into(), count },
    }
}

/// Returns the resource that the details of a budget name, such as `"of":"costMicroUsd"`.
fn named_resource(details: &Json) -> Option<BudgetResource> {
    #[derive(Deserialize)]
    struct Details {
        of: String,
    }
    let Details { of } = serde_json::from_str(details.as_str()).ok()?;
    BudgetResource::ALL.into_iter().find(|resource| of.starts_with(resource.name()))
}
