//! The command types of the protocol, with the properties that depend on the type alone.

use super::command_policy::{CommandPolicy, Persistence, RateClass, Scheduling, VersionEffect};

macro_rules! kinds {
    ($($kind:ident = $name:literal,)+) => {
        /// A command's type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = concat!("`", $name, "`")] $kind,)+
        }

        impl Kind {
            /// All command types.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Returns the name on the wire.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            /// Parses a command type.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    ListSessions = "list_sessions",
    CreateSession = "create_session",
    DeleteSession = "delete_session",
    SwitchSession = "switch_session",
    GetMetrics = "get_metrics",
    HealthCheck = "health_check",
    ListStoredSessions = "list_stored_sessions",
    LoadSession = "load_session",
    GetAvailableModels = "get_available_models",
    GetCommands = "get_commands",
    GetSkills = "get_skills",
    GetTools = "get_tools",
    ListSessionFiles = "list_session_files",
    Prompt = "prompt",
    Steer = "steer",
    FollowUp = "follow_up",
    Abort = "abort",
    GetState = "get_state",
    GetMessages = "get_messages",
    SetModel = "set_model",
    CycleModel = "cycle_model",
    SetThinkingLevel = "set_thinking_level",
    CycleThinkingLevel = "cycle_thinking_level",
    SetSessionName = "set_session_name",
    Compact = "compact",
    AbortCompaction = "abort_compaction",
    SetAutoCompaction = "set_auto_compaction",
    SetAutoRetry = "set_auto_retry",
    AbortRetry = "abort_retry",
    Bash = "bash",
    AbortBash = "abort_bash",
    GetSessionStats = "get_session_stats",
    ExportHtml = "export_html",
    NewSession = "new_session",
    SwitchSessionFile = "switch_session_file",
    Fork = "fork",
    GetForkMessages = "get_fork_messages",
    GetLastAssistantText = "get_last_assistant_text",
    GetContextUsage = "get_context_usage",
    ExtensionUiResponse = "extension_ui_response",
}

/// Whether a command type requires a session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRequirement {
    /// It may name a session, and then waits in the lane of that session.
    Optional,
    /// It must name a session.
    Required,
}

impl Kind {
    /// Returns whether the command requires a session id.
    pub const fn session_requirement(self) -> SessionRequirement {
        match self {
            Self::ListSessions
            | Self::GetMetrics
            | Self::HealthCheck
            | Self::ListStoredSessions
            | Self::CreateSession
            | Self::LoadSession => SessionRequirement::Optional,
            Self::DeleteSession
            | Self::SwitchSession
            | Self::GetAvailableModels
            | Self::GetCommands
            | Self::GetSkills
            | Self::GetTools
            | Self::ListSessionFiles
            | Self::Prompt
            | Self::Steer
            | Self::FollowUp
            | Self::Abort
            | Self::GetState
            | Self::GetMessages
            | Self::SetModel
            | Self::CycleModel
            | Self::SetThinkingLevel
            | Self::CycleThinkingLevel
            | Self::SetSessionName
            | Self::Compact
            | Self::AbortCompaction
            | Self::SetAutoCompaction
            | Self::SetAutoRetry
            | Self::AbortRetry
            | Self::Bash
            | Self::AbortBash
            | Self::GetSessionStats
            | Self::ExportHtml
            | Self::NewSession
            | Self::SwitchSessionFile
            | Self::Fork
            | Self::GetForkMessages
            | Self::GetLastAssistantText
            | Self::GetContextUsage
            | Self::ExtensionUiResponse => SessionRequirement::Required,
        }
    }

    /// Returns the execution policy of the command.
    pub const fn policy(self) -> CommandPolicy {
        match self {
            Self::ListSessions
            | Self::SwitchSession
            | Self::GetMetrics
            | Self::HealthCheck
            | Self::ListStoredSessions
            | Self::GetAvailableModels
            | Self::GetCommands
            | Self::GetSkills
            | Self::GetTools
            | Self::ListSessionFiles
            | Self::GetState
            | Self::GetMessages
            | Self::GetSessionStats
            | Self::GetForkMessages
            | Self::GetLastAssistantText
            | Self::GetContextUsage => CommandPolicy {
                scheduling: Scheduling::Read,
                time_limit: Some(SHORT_TIMEOUT_MILLIS),
                persistence: Persistence::Relaxed,
                version_effect: VersionEffect::Unchanged,
                rate_class: RateClass::Ordinary,
            },
            Self::CreateSession | Self::LoadSession => CommandPolicy::write(None, VersionEffect::Created),
            Self::DeleteSession => {
                CommandPolicy { rate_class: RateClass::Control, ..CommandPolicy::write(None, VersionEffect::Removed) }
            }
            Self::SetSessionName | Self::ExportHtml => CommandPolicy::write(None, VersionEffect::Incremented),
            Self::Abort | Self::AbortCompaction | Self::AbortRetry | Self::AbortBash | Self::ExtensionUiResponse => {
                CommandPolicy::control(SHORT_TIMEOUT_MILLIS)
            }
            Self::Steer => CommandPolicy {
                scheduling: Scheduling::Bypass,
                ..CommandPolicy::write(Some(LONG_TIMEOUT_MILLIS), VersionEffect::Incremented)
            },
            Self::Compact | Self::Bash => CommandPolicy {
                scheduling: Scheduling::LongWrite,
                ..CommandPolicy::write(Some(LONG_TIMEOUT_MILLIS), VersionEffect::Incremented)
            },
            Self::Prompt | Self::FollowUp | Self::NewSession | Self::SwitchSessionFile | Self::Fork => {
                CommandPolicy::write(Some(LONG_TIMEOUT_MILLIS), VersionEffect::Incremented)
            }
            Self::SetModel
            | Self::CycleModel
            | Self::SetThinkingLevel
            | Self::CycleThinkingLevel
            | Self::SetAutoCompaction
            | Self::SetAutoRetry => CommandPolicy::write(Some(SHORT_TIMEOUT_MILLIS), VersionEffect::Incremented),
        }
    }
}

/// Time limit of reads, settings and aborts: 30 seconds.
const SHORT_TIMEOUT_MILLIS: u64 = 30_000;
/// Time limit of commands that may do long work: 5 minutes.
const LONG_TIMEOUT_MILLIS: u64 = 300_000;
