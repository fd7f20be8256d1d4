//! The operations that a command can request, independent of any protocol.

use crate::kernel::event::Image;
use crate::kernel::id::Json;

/// A request that the command log admits: it has a lifecycle, and its outcome is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRequest {
    /// Client ids of the commands that must succeed first.
    pub depends_on: Vec<String>,
    /// The session version that the command requires.
    pub if_version: Option<u64>,
    /// The idempotency key that a retry repeats.
    pub idempotency_key: Option<String>,
    /// The time limit in milliseconds; the command fails when it is exceeded.
    pub time_limit: Option<u64>,
    /// The command without its id and idempotency key: two equivalent commands have equal text.
    pub canonical: String,
    /// What it does.
    pub operation: Operation,
}

/// An operation with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Lists the sessions.
    ListSessions,
    /// Creates a session, under the id that the command names if it names one.
    CreateSession {
        /// The working directory of its tools, an absolute path.
        cwd: Option<String>,
    },
    /// Stops a session and hides it from the clients of the protocol.
    UnloadSession,
    /// Subscribes the connection to a session.
    Subscribe,
    /// Returns the server's metrics.
    Metrics,
    /// Returns the server's health.
    Health,
    /// Lists the sessions that are stored in files.
    ListStoredSessions,
    /// Loads a session from a file, under the id that the command names if it names one.
    LoadSession {
        /// The file: an absolute path without `..`.
        path: String,
    },
    /// Lists the models that can be used.
    ListModels,
    /// Lists the slash commands.
    ListSlashCommands,
    /// Lists the skills.
    ListSkills,
    /// Lists the tools a model may call.
    ListTools,
    /// Lists the session files.
    ListSessionFiles,
    /// Sends a user message.
    Prompt {
        /// The message.
        input: Box<UserInput>,
        /// What to do with the message while a run is active; without it the message is refused then.
        during_run: Option<Delivery>,
    },
    /// Sends a message into the active run.
    Steer(Box<UserInput>),
    /// Queues a message behind the active run.
    Queue(Box<UserInput>),
    /// Stops the active run.
    Cancel,
    /// Returns the session's state.
    Describe,
    /// Returns the conversation.
    Messages,
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
    SetThinking {
        /// The level.
        level: Thinking,
    },
    /// Selects the next thinking level.
    CycleThinking,
    /// Renames the session.
    Rename {
        /// The name.
        name: String,
    },
    /// Replaces the older part of the conversation with a summary.
    Compact {
        /// Instructions for the summary.
        instructions: Option<String>,
    },
    /// Aborts the running compaction.
    StopCompaction,
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
    StopRetry,
    /// Runs a shell command for the user.
    RunShell {
        /// The command.
        command: String,
        /// Whether the command and its output become part of the model's context.
        context: ContextInclusion,
    },
    /// Stops the user's shell commands.
    StopShell,
    /// Returns the session's statistics.
    Statistics,
    /// Exports the conversation as a page.
    Export {
        /// The output path.
        path: Option<String>,
    },
    /// Starts a new conversation.
    NewConversation {
        /// The parent as the client names it: a session id or a file.
        parent: Option<String>,
    },
    /// Switches to the conversation of a file.
    SwitchFile {
        /// The file: an absolute path without `..`.
        path: String,
    },
    /// Forks the conversation before a user message.
    Fork {
        /// The entry id of that message.
        entry: String,
    },
    /// Lists the messages that a fork can start from.
    ForkMessages,
    /// Returns the text of the last assistant message.
    LastText,
    /// Returns the usage of the model's context window.
    ContextUsage,
    /// Answers a UI request.
    Answer {
        /// The request id.
        request: String,
        /// The response.
        response: Box<UiResponse>,
    },
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
pub enum Delivery {
    /// Deliver it into the run.
    Steer,
    /// Queue it behind the run.
    Queue,
}

/// The direction of [`Operation::CycleModel`].
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

    /// Returns the name of the level.
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
    /// Returns the name of the response method.
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
