//! The requests of a client: one variant per command, with its parameters.

use super::command_policy::CommandPolicy;
use super::kind::Kind;
use crate::kernel::event::Image;
use crate::kernel::id::{Json, SessionId};

/// A decoded command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The client's id for the command.
    pub id: Option<String>,
    /// The command type.
    pub kind: Kind,
    /// The session the command names; the command waits in the lane of that session.
    pub session: Option<SessionId>,
    /// Client ids of the commands that must succeed first.
    pub depends_on: Vec<String>,
    /// The session version that the command requires.
    pub if_session_version: Option<u64>,
    /// The idempotency key that a retry repeats.
    pub idempotency_key: Option<String>,
    /// The command's parameters.
    pub body: RequestBody,
    /// The command without its id and idempotency key, as canonical JSON: two equivalent commands have equal text.
    pub canonical: String,
}

/// A command with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestBody {
    /// Lists the sessions.
    ListSessions,
    /// Creates a session, under the id that the command names if it names one.
    CreateSession {
        /// The working directory of its tools, an absolute path.
        cwd: Option<String>,
    },
    /// Unloads a session.
    DeleteSession,
    /// Subscribes the connection to a session.
    SwitchSession,
    /// Returns the server's metrics.
    GetMetrics,
    /// Returns the server's health.
    HealthCheck,
    /// Lists the sessions that are stored in files.
    ListStoredSessions,
    /// Loads a session from a file, under the id that the command names if it names one.
    LoadSession {
        /// The file: an absolute path without `..`.
        path: String,
    },
    /// Lists the models that can be used.
    GetAvailableModels,
    /// Lists the slash commands.
    GetCommands,
    /// Lists the skills.
    GetSkills,
    /// Lists the tools a model may call.
    GetTools,
    /// Lists the session files.
    ListSessionFiles,
    /// Sends a user message.
    Prompt {
        /// The message.
        input: Box<UserInput>,
        /// What to do with the message while a run is active; without it the message is refused then.
        streaming_behavior: Option<StreamingBehavior>,
    },
    /// Sends a message into the active run.
    Steer(Box<UserInput>),
    /// Queues a message behind the active run.
    FollowUp(Box<UserInput>),
    /// Stops the active run.
    Abort,
    /// Returns the session's state.
    GetState,
    /// Returns the conversation.
    GetMessages,
    /// Selects a model.
    SetModel {
        /// The model's provider.
        provider: String,
        /// The model's id at the provider.
        model: String,
    },
    /// Selects the next model.
    CycleModel {
        /// The direction.
        direction: Direction,
    },
    /// Sets the thinking level.
    SetThinkingLevel {
        /// The level.
        level: Thinking,
    },
    /// Selects the next thinking level.
    CycleThinkingLevel,
    /// Renames the session.
    SetSessionName {
        /// The name.
        name: String,
    },
    /// Replaces the older part of the conversation with a summary.
    Compact {
        /// Instructions for the summary.
        instructions: Option<String>,
    },
    /// Aborts the running compaction.
    AbortCompaction,
    /// Turns automatic compaction on or off.
    SetAutoCompaction {
        /// Whether it is on.
        enabled: bool,
    },
    /// Turns automatic retries of failed turns on or off.
    SetAutoRetry {
        /// Whether they are on.
        enabled: bool,
    },
    /// Aborts the pending retry.
    AbortRetry,
    /// Runs a shell command for the user.
    Bash {
        /// The command.
        command: String,
        /// Whether the command and its output become part of the model's context.
        context: ContextInclusion,
    },
    /// Stops the user's shell commands.
    AbortBash,
    /// Returns the session's statistics.
    GetSessionStats,
    /// Exports the conversation as an HTML page.
    ExportHtml {
        /// The output path.
        path: Option<String>,
    },
    /// Starts a new conversation.
    NewSession {
        /// The parent as the client names it: a session id or a file.
        parent: Option<String>,
    },
    /// Switches to the conversation of a file.
    SwitchSessionFile {
        /// The file: an absolute path without `..`.
        path: String,
    },
    /// Forks the conversation before a user message.
    Fork {
        /// The entry id of that message.
        entry: String,
    },
    /// Lists the messages that a fork can start from.
    GetForkMessages,
    /// Returns the text of the last assistant message.
    GetLastAssistantText,
    /// Returns the usage of the model's context window.
    GetContextUsage,
    /// Answers a UI request.
    ExtensionUiResponse {
        /// The request id.
        request: String,
        /// The response.
        response: Box<UiResponse>,
    },
}

impl RequestBody {
    /// Returns the command type.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::ListSessions => Kind::ListSessions,
            Self::CreateSession { .. } => Kind::CreateSession,
            Self::DeleteSession => Kind::DeleteSession,
            Self::SwitchSession => Kind::SwitchSession,
            Self::GetMetrics => Kind::GetMetrics,
            Self::HealthCheck => Kind::HealthCheck,
            Self::ListStoredSessions => Kind::ListStoredSessions,
            Self::LoadSession { .. } => Kind::LoadSession,
            Self::GetAvailableModels => Kind::GetAvailableModels,
            Self::GetCommands => Kind::GetCommands,
            Self::GetSkills => Kind::GetSkills,
            Self::GetTools => Kind::GetTools,
            Self::ListSessionFiles => Kind::ListSessionFiles,
            Self::Prompt { .. } => Kind::Prompt,
            Self::Steer(_) => Kind::Steer,
            Self::FollowUp(_) => Kind::FollowUp,
            Self::Abort => Kind::Abort,
            Self::GetState => Kind::GetState,
            Self::GetMessages => Kind::GetMessages,
            Self::SetModel { .. } => Kind::SetModel,
            Self::CycleModel { .. } => Kind::CycleModel,
            Self::SetThinkingLevel { .. } => Kind::SetThinkingLevel,
            Self::CycleThinkingLevel => Kind::CycleThinkingLevel,
            Self::SetSessionName { .. } => Kind::SetSessionName,
            Self::Compact { .. } => Kind::Compact,
            Self::AbortCompaction => Kind::AbortCompaction,
            Self::SetAutoCompaction { .. } => Kind::SetAutoCompaction,
            Self::SetAutoRetry { .. } => Kind::SetAutoRetry,
            Self::AbortRetry => Kind::AbortRetry,
            Self::Bash { .. } => Kind::Bash,
            Self::AbortBash => Kind::AbortBash,
            Self::GetSessionStats => Kind::GetSessionStats,
            Self::ExportHtml { .. } => Kind::ExportHtml,
            Self::NewSession { .. } => Kind::NewSession,
            Self::SwitchSessionFile { .. } => Kind::SwitchSessionFile,
            Self::Fork { .. } => Kind::Fork,
            Self::GetForkMessages => Kind::GetForkMessages,
            Self::GetLastAssistantText => Kind::GetLastAssistantText,
            Self::GetContextUsage => Kind::GetContextUsage,
            Self::ExtensionUiResponse { .. } => Kind::ExtensionUiResponse,
        }
    }

    /// Returns the execution policy of the command.
    pub const fn policy(&self) -> CommandPolicy {
        self.kind().policy()
    }
}

/// The text and images of a user message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserInput {
    /// The text.
    pub message: String,
    /// The attached images.
    pub images: Vec<Image>,
}

/// What to do with a message while a run is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamingBehavior {
    /// Deliver it into the run.
    Steer,
    /// Queue it behind the run.
    FollowUp,
}

/// The direction in which `cycle_model` steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the next model.
    Forward,
    /// To the previous model.
    Backward,
}

/// Whether a user's shell command becomes part of the model's context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextInclusion {
    /// It does.
    Included,
    /// It does not.
    Excluded,
}

/// A thinking level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thinking {
    /// No thinking.
    Off,
    /// The least the model supports.
    Minimal,
    /// Low.
    Low,
    /// Medium.
    Medium,
    /// High.
    High,
    /// The most the model supports.
    XHigh,
}

impl Thinking {
    /// All levels in ascending order.
    pub const ALL: [Self; 6] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh];

    /// Returns the protocol's name of the level.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
        }
    }

    /// Parses a level by name; `none` is an older name for `off`.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "none" => Some(Self::Off),
            _ => Self::ALL.into_iter().find(|level| level.as_str() == word),
        }
    }
}

/// The response to a UI request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UiResponse {
    /// One of the options.
    Select {
        /// The chosen option.
        value: String,
    },
    /// A confirmation.
    Confirm {
        /// Whether the user confirmed.
        confirmed: bool,
    },
    /// A single-line input.
    Input {
        /// The text.
        value: String,
    },
    /// A multi-line input.
    Editor {
        /// The text.
        value: String,
    },
    /// A completed form.
    Interview {
        /// The answers keyed by question: a JSON object.
        responses: Json,
    },
    /// The user dismissed the request.
    Cancelled,
}

impl UiResponse {
    /// Returns the protocol's name of the response method.
    pub const fn method(&self) -> &'static str {
        match self {
            Self::Select { .. } => "select",
            Self::Confirm { .. } => "confirm",
            Self::Input { .. } => "input",
            Self::Editor { .. } => "editor",
            Self::Interview { .. } => "interview",
            Self::Cancelled => "cancelled",
        }
    }
}
