//! What a client may ask for: one variant a command, with what it says.

use super::kind::Kind;
use super::nature::Nature;
use crate::kernel::event::Image;
use crate::kernel::id::{Json, SessionId};

/// A command that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What the client calls it.
    pub id: Option<String>,
    /// Which command it is.
    pub kind: Kind,
    /// The session it names, and in whose lane it waits.
    pub session: Option<SessionId>,
    /// What must have succeeded before, by the clients' names.
    pub depends_on: Vec<String>,
    /// The version at which the session must be.
    pub if_session_version: Option<u64>,
    /// What a retry of it would carry again.
    pub idempotency_key: Option<String>,
    /// What is asked.
    pub ask: Ask,
    /// The whole command without its id and key, in one spelling: two that mean the same are equal.
    pub canonical: String,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Which sessions there are.
    ListSessions,
    /// A new session; its id is the one the command names, if it names one.
    CreateSession {
        /// Where its tools work: an absolute path.
        cwd: Option<String>,
    },
    /// Lets go of a session.
    DeleteSession,
    /// Shows what happens in a session from here on.
    SwitchSession,
    /// How the server is, in numbers.
    GetMetrics,
    /// Whether the server is well.
    HealthCheck,
    /// Which sessions are stored in files.
    ListStoredSessions,
    /// A session from a file; its id is the one the command names, if it names one.
    LoadSession {
        /// The file: absolute, and without a step back.
        path: String,
    },
    /// Which models can be used.
    GetAvailableModels,
    /// Which slash commands there are.
    GetCommands,
    /// Which skills there are.
    GetSkills,
    /// Which tools a model may use.
    GetTools,
    /// Which session files there are.
    ListSessionFiles,
    /// A message.
    Prompt {
        /// What is said.
        words: Box<Words>,
        /// What becomes of it while a run is active; without it the message is refused then.
        streaming: Option<Streaming>,
    },
    /// A message into the active run.
    Steer(Box<Words>),
    /// A message for after the active run.
    FollowUp(Box<Words>),
    /// The end of the active run.
    Abort,
    /// What the session is.
    GetState,
    /// The conversation.
    GetMessages,
    /// Another model.
    SetModel {
        /// Whose it is.
        provider: String,
        /// Its name there.
        model: String,
    },
    /// The next model.
    CycleModel {
        /// Which way round.
        direction: Direction,
    },
    /// How much the model is to think.
    SetThinkingLevel {
        /// How much.
        level: Thinking,
    },
    /// The next level of thinking.
    CycleThinkingLevel,
    /// Another name.
    SetSessionName {
        /// The name.
        name: String,
    },
    /// A summary in the place of the older part of the conversation.
    Compact {
        /// What the summary is to look at.
        instructions: Option<String>,
    },
    /// The end of a compaction that is under way.
    AbortCompaction,
    /// Whether the conversation is compacted when it gets long.
    SetAutoCompaction {
        /// Whether it is.
        enabled: bool,
    },
    /// Whether a failed turn is tried again.
    SetAutoRetry {
        /// Whether it is.
        enabled: bool,
    },
    /// No further try of a turn that failed.
    AbortRetry,
    /// A shell command of the user's.
    Bash {
        /// The command.
        command: String,
        /// Whether the model is told.
        telling: Telling,
    },
    /// The end of the user's shell commands.
    AbortBash,
    /// The session in numbers.
    GetSessionStats,
    /// The conversation as a page.
    ExportHtml {
        /// Where to write it.
        path: Option<String>,
    },
    /// A new conversation.
    NewSession {
        /// Which one it comes from, in the client's word: an id or a file.
        parent: Option<String>,
    },
    /// The conversation of a file.
    SwitchSessionFile {
        /// The file: absolute, and without a step back.
        path: String,
    },
    /// The conversation up to a message of the user's.
    Fork {
        /// That message.
        entry: String,
    },
    /// From which messages a fork may begin.
    GetForkMessages,
    /// What the model said last.
    GetLastAssistantText,
    /// How full the model's window is.
    GetContextUsage,
    /// The answer to a question.
    ExtensionUiResponse {
        /// Which question.
        request: String,
        /// The answer.
        response: Box<UiResponse>,
    },
}

impl Ask {
    /// Says which command it is.
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

    /// Says how the command is treated.
    pub const fn nature(&self) -> Nature {
        self.kind().nature()
    }
}

/// A message of a user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    /// What is said.
    pub message: String,
    /// What is shown with it.
    pub images: Vec<Image>,
}

/// What becomes of a message while a run is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streaming {
    /// It goes into the run.
    Steer,
    /// It waits for the end of the run.
    FollowUp,
}

/// Which way round the models are gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the next.
    Forward,
    /// To the one before.
    Backward,
}

/// Whether a model is told of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// It is.
    Told,
    /// It is kept from it.
    Kept,
}

/// How much a model is to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thinking {
    /// Not at all.
    Off,
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As much as it can.
    XHigh,
}

impl Thinking {
    /// All of them, from little to much.
    pub const ALL: [Self; 6] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh];

    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
        }
    }

    /// Finds a level by its word; `none` is an older one for off.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "none" => Some(Self::Off),
            _ => Self::ALL.into_iter().find(|level| level.word() == word),
        }
    }
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UiResponse {
    /// One of the options.
    Select {
        /// Which one.
        value: String,
    },
    /// Yes or no.
    Confirm {
        /// Which of them.
        confirmed: bool,
    },
    /// A line.
    Input {
        /// The line.
        value: String,
    },
    /// A text.
    Editor {
        /// The text.
        value: String,
    },
    /// A form that was filled in.
    Interview {
        /// The answers by their questions: a JSON object.
        responses: Json,
    },
    /// None: the user turned away.
    Cancelled,
}

impl UiResponse {
    /// Returns the word for the way of answering.
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
