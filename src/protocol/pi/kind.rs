//! The command types of the protocol: one row each, with whether a session is required and the time limit.
//!
//! Both are part of the protocol's specification. Everything else about a command follows from its operation.

macro_rules! kinds {
    ($($kind:ident, $name:literal, $session:ident, $limit:ident;)+) => {
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

            /// Returns whether the command requires a session id.
            pub const fn session_requirement(self) -> SessionRequirement {
                match self {
                    $(Self::$kind => SessionRequirement::$session,)+
                }
            }

            /// Returns the time limit in milliseconds.
            pub const fn time_limit(self) -> Option<u64> {
                match self {
                    $(Self::$kind => $limit,)+
                }
            }
        }
    };
}

kinds! {
    ListSessions, "list_sessions", Optional, SHORT;
    CreateSession, "create_session", Optional, UNLIMITED;
    DeleteSession, "delete_session", Required, UNLIMITED;
    SwitchSession, "switch_session", Required, SHORT;
    GetMetrics, "get_metrics", Optional, SHORT;
    HealthCheck, "health_check", Optional, SHORT;
    ListStoredSessions, "list_stored_sessions", Optional, SHORT;
    LoadSession, "load_session", Optional, UNLIMITED;
    GetAvailableModels, "get_available_models", Required, SHORT;
    GetCommands, "get_commands", Required, SHORT;
    GetSkills, "get_skills", Required, SHORT;
    GetTools, "get_tools", Required, SHORT;
    ListSessionFiles, "list_session_files", Required, SHORT;
    Prompt, "prompt", Required, LONG;
    Steer, "steer", Required, LONG;
    FollowUp, "follow_up", Required, LONG;
    Abort, "abort", Required, SHORT;
    GetState, "get_state", Required, SHORT;
    GetMessages, "get_messages", Required, SHORT;
    SetModel, "set_model", Required, SHORT;
    CycleModel, "cycle_model", Required, SHORT;
    SetThinkingLevel, "set_thinking_level", Required, SHORT;
    CycleThinkingLevel, "cycle_thinking_level", Required, SHORT;
    SetSessionName, "set_session_name", Required, UNLIMITED;
    Compact, "compact", Required, LONG;
    AbortCompaction, "abort_compaction", Required, SHORT;
    SetAutoCompaction, "set_auto_compaction", Required, SHORT;
    SetAutoRetry, "set_auto_retry", Required, SHORT;
    AbortRetry, "abort_retry", Required, SHORT;
    Bash, "bash", Required, LONG;
    AbortBash, "abort_bash", Required, SHORT;
    GetSessionStats, "get_session_stats", Required, SHORT;
    ExportHtml, "export_html", Required, UNLIMITED;
    NewSession, "new_session", Required, LONG;
    SwitchSessionFile, "switch_session_file", Required, LONG;
    Fork, "fork", Required, LONG;
    GetForkMessages, "get_fork_messages", Required, SHORT;
    GetLastAssistantText, "get_last_assistant_text", Required, SHORT;
    GetContextUsage, "get_context_usage", Required, SHORT;
    ExtensionUiResponse, "extension_ui_response", Required, SHORT;
}

/// Whether a command type requires a session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRequirement {
    /// It may name a session, and then waits in the lane of that session.
    Optional,
    /// It must name a session.
    Required,
}

/// Reads, settings and aborts: 30 seconds.
const SHORT: Option<u64> = Some(30_000);
/// Commands that may do long work: 5 minutes.
const LONG: Option<u64> = Some(300_000);
const UNLIMITED: Option<u64> = None;
