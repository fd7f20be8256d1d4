//! The command types of the protocol: one row each, with whether a session is required and how the command log treats
//! the command.

use crate::protocol::command_policy::{CommandPolicy, Persistence, RateClass, Scheduling};

macro_rules! kinds {
    ($($kind:ident, $name:literal, $session:ident, $policy:ident;)+) => {
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

            /// Returns the execution policy of the command.
            pub const fn policy(self) -> CommandPolicy {
                match self {
                    $(Self::$kind => $policy,)+
                }
            }
        }
    };
}

kinds! {
    ListSessions, "list_sessions", Optional, READ;
    CreateSession, "create_session", Optional, WRITE;
    DeleteSession, "delete_session", Required, DELETE;
    SwitchSession, "switch_session", Required, READ;
    GetMetrics, "get_metrics", Optional, READ;
    HealthCheck, "health_check", Optional, READ;
    ListStoredSessions, "list_stored_sessions", Optional, READ;
    LoadSession, "load_session", Optional, WRITE;
    GetAvailableModels, "get_available_models", Required, READ;
    GetCommands, "get_commands", Required, READ;
    GetSkills, "get_skills", Required, READ;
    GetTools, "get_tools", Required, READ;
    ListSessionFiles, "list_session_files", Required, READ;
    Prompt, "prompt", Required, MESSAGE;
    Steer, "steer", Required, STEER;
    FollowUp, "follow_up", Required, MESSAGE;
    Abort, "abort", Required, CONTROL;
    GetState, "get_state", Required, READ;
    GetMessages, "get_messages", Required, READ;
    SetModel, "set_model", Required, SETTING;
    CycleModel, "cycle_model", Required, SETTING;
    SetThinkingLevel, "set_thinking_level", Required, CHANGE;
    CycleThinkingLevel, "cycle_thinking_level", Required, SETTING;
    SetSessionName, "set_session_name", Required, RENAME;
    Compact, "compact", Required, LONG_WORK;
    AbortCompaction, "abort_compaction", Required, CONTROL;
    SetAutoCompaction, "set_auto_compaction", Required, CHANGE;
    SetAutoRetry, "set_auto_retry", Required, CHANGE;
    AbortRetry, "abort_retry", Required, CONTROL;
    Bash, "bash", Required, LONG_WORK;
    AbortBash, "abort_bash", Required, CONTROL;
    GetSessionStats, "get_session_stats", Required, READ;
    ExportHtml, "export_html", Required, WRITE;
    NewSession, "new_session", Required, WORK;
    SwitchSessionFile, "switch_session_file", Required, WORK;
    Fork, "fork", Required, WORK;
    GetForkMessages, "get_fork_messages", Required, READ;
    GetLastAssistantText, "get_last_assistant_text", Required, READ;
    GetContextUsage, "get_context_usage", Required, READ;
    ExtensionUiResponse, "extension_ui_response", Required, CONTROL;
}

/// Whether a command type requires a session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionRequirement {
    /// It may name a session, and then waits in the lane of that session.
    Optional,
    /// It must name a session.
    Required,
}

/// Time limit of reads, settings and aborts: 30 seconds.
const SHORT_MILLIS: Option<u64> = Some(30_000);
/// Time limit of commands that may do long work: 5 minutes.
const LONG_MILLIS: Option<u64> = Some(300_000);

/// A command that only reads.
const READ: CommandPolicy = CommandPolicy {
    scheduling: Scheduling::Read,
    time_limit: SHORT_MILLIS,
    persistence: Persistence::Cached,
    rate_class: RateClass::Ordinary,
};
/// A command that changes state, and waits for its turn in the lane.
const WRITE: CommandPolicy = CommandPolicy {
    scheduling: Scheduling::Write,
    time_limit: None,
    persistence: Persistence::Durable,
    rate_class: RateClass::Ordinary,
};
/// A deletion is possible while too many other commands are sent.
const DELETE: CommandPolicy = CommandPolicy { rate_class: RateClass::Control, ..WRITE };
const SETTING: CommandPolicy = CommandPolicy { time_limit: SHORT_MILLIS, ..WRITE };
const WORK: CommandPolicy = CommandPolicy { time_limit: LONG_MILLIS, ..WRITE };
/// Work during which reads continue.
const LONG_WORK: CommandPolicy = CommandPolicy { scheduling: Scheduling::LongWrite, ..WORK };
/// Commands that are one change of their session and return nothing: their outcome is stored with the change.
const RENAME: CommandPolicy = CommandPolicy { persistence: Persistence::WithEffect, ..WRITE };
const CHANGE: CommandPolicy = CommandPolicy { persistence: Persistence::WithEffect, ..SETTING };
const MESSAGE: CommandPolicy = CommandPolicy { persistence: Persistence::WithEffect, ..WORK };
const STEER: CommandPolicy = CommandPolicy { scheduling: Scheduling::Bypass, ..MESSAGE };
/// A command that stops or answers running work.
///
/// It does not wait for the disk and works while nothing can be written. Its effect is recorded in the events of its
/// session, and the session itself refuses to grant anything while storage fails.
const CONTROL: CommandPolicy = CommandPolicy {
    scheduling: Scheduling::Bypass,
    time_limit: SHORT_MILLIS,
    persistence: Persistence::Relaxed,
    rate_class: RateClass::Control,
};
