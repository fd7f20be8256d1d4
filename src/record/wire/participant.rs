//! The payloads of events of participants.

use serde::{Deserialize, Serialize};

use super::word::{AuthenticationWord, ParticipantKindWord, RightWord, RoleWord};
use super::{Raw, Text};

/// The rule of a quorum.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case")]
pub(crate) enum QuorumItem {
    /// Every voter.
    All,
    /// More than half of the voters.
    Majority,
    /// Each of some participants.
    Specific {
        /// The participants.
        participants: Vec<String>,
    },
    /// Some participants with a role.
    Role {
        /// The role.
        role: RoleWord,
        /// The number of approvals.
        count: u32,
    },
}

/// `participant_joined`
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParticipantJoined<'a> {
    pub(crate) participant_id: Text<'a>,
    pub(crate) participant_kind: ParticipantKindWord,
    pub(crate) name: Text<'a>,
    pub(crate) roles: Vec<RoleWord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) capabilities: Vec<RightWord>,
    pub(crate) authentication: AuthenticationWord,
    /// The name of the token, if it presented one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) approval_granted: bool,
    pub(crate) by: Text<'a>,
}

/// `message_posted`
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessagePosted<'a> {
    pub(crate) kind: Text<'a>,
    pub(crate) body: Raw<'a>,
    pub(crate) by: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) participant_id: Option<Text<'a>>,
    /// Whether it is not stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ephemeral: bool,
}

/// `participant_left`
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParticipantLeft<'a> {
    pub(crate) participant_id: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Text<'a>>,
    pub(crate) by: Text<'a>,
}

/// `participant_roles_changed`
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParticipantRolesChanged<'a> {
    pub(crate) participant_id: Text<'a>,
    pub(crate) roles: Vec<RoleWord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) capabilities: Vec<RightWord>,
    pub(crate) by: Text<'a>,
}

/// `participant_approval_granted`
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParticipantApprovalGranted<'a> {
    pub(crate) participant_id: Text<'a>,
    pub(crate) granted: bool,
    pub(crate) by: Text<'a>,
}
