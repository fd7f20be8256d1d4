//! What each event requires of its commit.

use super::{
    ContextEvent, Decision, EventKind, GateEvent, NoticeEvent, ParticipantEvent, RunEvent, SessionEvent, ToolEvent,
    ToolOutcome,
};

/// What an event requires of its commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitClass {
    /// Whether the commit must be on disk before the event takes effect.
    pub synced: bool,
    /// Whether the stored summary of the session changes.
    pub changes_summary: bool,
    /// Whether the event ends something, so that it must succeed on a full disk.
    pub urgent: bool,
}

impl CommitClass {
    const PLAIN: Self = Self { synced: false, changes_summary: false, urgent: false };
    const SYNCED: Self = Self { synced: true, ..Self::PLAIN };
    const SUMMARY: Self = Self { changes_summary: true, ..Self::PLAIN };
    const SYNCED_SUMMARY: Self = Self { synced: true, ..Self::SUMMARY };
    const END: Self = Self { urgent: true, ..Self::SUMMARY };
    const SYNCED_END: Self = Self { synced: true, ..Self::END };
}

impl EventKind {
    /// Returns the class of the event. An approval, the start of a tool and the end of a run take effect only on disk.
    pub fn commit_class(&self) -> CommitClass {
        match self {
            Self::Session(event) => event.commit_class(),
            Self::Run(event) => event.commit_class(),
            Self::Tool(event) => event.commit_class(),
            Self::Gate(event) => event.commit_class(),
            Self::Participant(event) => event.commit_class(),
            Self::Context(event) => event.commit_class(),
            Self::Notice(
                NoticeEvent::Status { .. }
                | NoticeEvent::Warned { .. }
                | NoticeEvent::Failed { .. }
                | NoticeEvent::EventsLost { .. }
                | NoticeEvent::Unknown(_),
            ) => CommitClass::PLAIN,
        }
    }
}

impl SessionEvent {
    const fn commit_class(&self) -> CommitClass {
        match self {
            Self::Opened(_) => CommitClass::SYNCED_SUMMARY,
            Self::Renamed { .. } | Self::Ended { .. } | Self::Loaded { .. } | Self::Adjusted { .. } => {
                CommitClass::SUMMARY
            }
            Self::VersionBumped { .. } => CommitClass::PLAIN,
        }
    }
}

impl RunEvent {
    const fn commit_class(&self) -> CommitClass {
        match self {
            Self::Ended(_) => CommitClass::SYNCED_END,
            Self::Stopping { .. } | Self::RetryEnded { .. } => CommitClass::END,
            Self::Started(_)
            | Self::MessageQueued(_)
            | Self::MessageUnqueued { .. }
            | Self::Steered(_)
            | Self::TextDone { .. }
            | Self::Recovered { .. } => CommitClass::SUMMARY,
            Self::ThinkingDelta { .. } | Self::TextDelta { .. } | Self::TurnUsage(_) | Self::RetryStarted(_) => {
                CommitClass::PLAIN
            }
        }
    }
}

impl ToolEvent {
    fn commit_class(&self) -> CommitClass {
        match self {
            Self::Started { .. } => CommitClass::SYNCED,
            Self::Settled(result) if result.outcome == ToolOutcome::Aborted => CommitClass::END,
            Self::Intended(_) | Self::Settled(_) => CommitClass::SUMMARY,
            Self::Output { .. } => CommitClass::PLAIN,
        }
    }
}

impl GateEvent {
    fn commit_class(&self) -> CommitClass {
        match self {
            Self::Settled(gate) if gate.decision == Decision::Approve => CommitClass::SYNCED_SUMMARY,
            Self::Settled(_) => CommitClass::SYNCED_END,
            Self::Opened(_) | Self::Voted { .. } => CommitClass::SUMMARY,
        }
    }
}

impl ParticipantEvent {
    /// A change of rights takes effect only on disk: a restart must not bring a revoked right back.
    const fn commit_class(&self) -> CommitClass {
        match self {
            Self::Posted(_) => CommitClass::PLAIN,
            Self::Joined { .. } | Self::RolesChanged { .. } | Self::Audited { .. } => CommitClass::SYNCED,
            Self::Left { .. } | Self::ApprovalGranted { .. } => CommitClass { urgent: true, ..CommitClass::SYNCED },
        }
    }
}

impl ContextEvent {
    const fn commit_class(&self) -> CommitClass {
        match self {
            Self::CompactionFailed { .. } => CommitClass::END,
            Self::Branched { .. } => CommitClass::SUMMARY,
            Self::CompactionStarted { .. } | Self::Compacted(_) => CommitClass::PLAIN,
        }
    }
}
