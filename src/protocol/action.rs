//! The actions of requests and operations: the rows of the kernel's table that say how each is handled.

use super::intent::{Intent, ParticipantIntent, SessionIntent};
use super::operation::{Operation, UiResponse};
use crate::kernel::command::Action;

impl Intent {
    /// Returns the action of the request.
    pub const fn action(&self) -> Action {
        match self {
            Self::Hello { .. } | Self::Ping | Self::SwitchProtocol(_) | Self::Command(_) => Action::Connection,
            Self::StartSession(_) => Action::Start,
            Self::ListSessions(_)
            | Self::ListApprovals { .. }
            | Self::ListProviders
            | Self::Search(_)
            | Self::Stats(_)
            | Self::Metrics { .. } => Action::Query,
            Self::ListGrants | Self::CheckJournal { .. } => Action::Inspect,
            Self::Reload | Self::RevokeGrant { .. } | Self::Drain { .. } => Action::Administer,
            Self::Session { body, .. } => body.action(),
        }
    }
}

impl SessionIntent {
    /// Returns the action of the request.
    pub const fn action(&self) -> Action {
        match self {
            Self::Attach(attach) if attach.as_owner => Action::Audit,
            Self::Attach(_) => Action::Attach,
            Self::Detach => Action::Detach,
            Self::Prompt(_) => Action::Prompt,
            Self::Queue(_) => Action::Queue,
            Self::Steer { .. } => Action::Steer,
            Self::ListQueue => Action::ListQueue,
            Self::Unqueue { .. } => Action::Unqueue,
            Self::Decide(vote) => Action::of_decision(vote.decision),
            Self::Cancel { .. } => Action::Cancel,
            Self::UserCommand(_) => Action::UserCommand,
            Self::StopUserCommand { .. } => Action::StopUserCommand,
            Self::Snapshot | Self::Messages { .. } => Action::Query,
            Self::Rename { .. } => Action::Rename,
            Self::End => Action::End,
            Self::Compact { .. } => Action::Compact,
            Self::Fork(_) => Action::Fork,
            Self::Delete { .. } => Action::Delete,
            Self::Participant(intent) => intent.action(),
        }
    }
}

impl ParticipantIntent {
    const fn action(&self) -> Action {
        match self {
            Self::List => Action::ListParticipants,
            Self::Join(_) => Action::Join,
            Self::Leave { participant: None, .. } => Action::Leave,
            Self::Leave { .. } => Action::Remove,
            Self::ChangeRoles { .. } => Action::ChangeRoles,
            Self::GrantApproval { granted, .. } => Action::of_grant(*granted),
            Self::Post(_) => Action::Post,
            Self::OpenGate(_) => Action::OpenGate,
        }
    }
}

impl Operation {
    /// Returns the action of the operation.
    pub const fn action(&self) -> Action {
        match self {
            Self::ListSessions
            | Self::Subscribe
            | Self::Metrics
            | Self::Health
            | Self::ListStoredSessions
            | Self::ListModels
            | Self::ListSlashCommands
            | Self::ListSkills
            | Self::ListTools
            | Self::ListSessionFiles
            | Self::Describe
            | Self::Messages
            | Self::Statistics
            | Self::ForkMessages
            | Self::LastText
            | Self::ContextUsage => Action::Query,
            Self::CreateSession { .. } => Action::Start,
            Self::UnloadSession => Action::Unload,
            Self::Prompt { .. } => Action::Prompt,
            Self::Queue(_) => Action::Queue,
            Self::Steer(_) => Action::Steer,
            Self::Answer { response, .. } => match **response {
                UiResponse::Cancelled | UiResponse::Confirm { confirmed: false } => Action::Deny,
                UiResponse::Confirm { confirmed: true }
                | UiResponse::Select { .. }
                | UiResponse::Input { .. }
                | UiResponse::Editor { .. }
                | UiResponse::Interview { .. } => Action::Approve,
            },
            Self::Cancel => Action::Cancel,
            Self::Compact { .. } => Action::Compact,
            Self::StopCompaction => Action::StopCompaction,
            Self::StopRetry => Action::StopRetry,
            Self::RunShell { .. } => Action::UserCommand,
            Self::StopShell => Action::StopUserCommand,
            Self::Rename { .. } => Action::Rename,
            Self::SetModel { .. }
            | Self::CycleModel { .. }
            | Self::SetThinking { .. }
            | Self::CycleThinking
            | Self::SetAutoCompaction { .. }
            | Self::SetAutoRetry { .. } => Action::Adjust,
            Self::Fork { .. } => Action::Fork,
            Self::LoadSession { .. } | Self::SwitchFile { .. } | Self::NewConversation { .. } => {
                Action::ReplaceConversation
            }
            Self::Export { .. } => Action::Export,
        }
    }
}
