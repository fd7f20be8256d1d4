//! What may go wrong with a tool, in closed words that programs and models can tell apart.

use crate::kernel::event;
use crate::sandbox::ground::GroundError;
use crate::sandbox::repository::RepositoryError;

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// There is no such tool.
    UnknownTool,
    /// The arguments do not fit the tool.
    BadArguments,
    /// Nothing is there.
    NotFound,
    /// The path leads out of the workspace.
    OutsideWorkspace,
    /// The path leads to the repository itself, to the project's own rules, or to what is hidden.
    ProtectedPath,
    /// The path leads to credentials, or to what the daemon keeps for itself.
    HiddenPath,
    /// A file was wanted and a directory is there.
    IsDirectory,
    /// A directory was wanted and something else is there.
    NotADirectory,
    /// A file was wanted and a device, a pipe or a socket is there.
    NotAFile,
    /// The file is no text.
    BinaryFile,
    /// The file has fewer lines than were asked to be skipped.
    OutOfRange,
    /// What is to be replaced occurs more than once.
    Ambiguous,
    /// What is to be replaced does not occur.
    NoMatch,
    /// More than may be read or written at once.
    TooLarge,
    /// The system does not let us.
    PermissionDenied,
    /// The system could not do it.
    IoFailed,
    /// The command left with another code than 0.
    ExitCode,
    /// The command was ended by a signal.
    Signal,
    /// It took too long and was ended.
    TimeLimit,
    /// It used more memory than it may and was ended.
    MemoryLimit,
    /// It ended with its run.
    Cut,
    /// Something else was approved than what would be done.
    ApprovalStale,
    /// The command could not be run.
    ExecFailed,
    /// The place of the tools cannot be used.
    SandboxUnavailable,
    /// The workspace is in no git repository.
    NotARepository,
    /// There is nothing that could be committed.
    NothingToCommit,
    /// Git refused.
    GitFailed,
    /// The network may not be used.
    NetworkOff,
    /// The other side could not be reached, or broke off.
    NetworkFailed,
    /// The other side answered with an error.
    HttpStatus,
    /// The answer leads to another host, which was not asked for.
    RedirectedAway,
    /// The answer is no text.
    NotText,
    /// The arguments held a secret, which is not kept over a restart.
    SecretNotKept,
    /// The daemon failed.
    Internal,
}

impl FaultKind {
    /// Returns the word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::UnknownTool => "UNKNOWN_TOOL",
            Self::BadArguments => "BAD_ARGUMENTS",
            Self::NotFound => "NOT_FOUND",
            Self::OutsideWorkspace => "OUTSIDE_WORKSPACE",
            Self::ProtectedPath => "PROTECTED_PATH",
            Self::HiddenPath => "HIDDEN_PATH",
            Self::IsDirectory => "IS_DIRECTORY",
            Self::NotADirectory => "NOT_A_DIRECTORY",
            Self::NotAFile => "NOT_A_FILE",
            Self::BinaryFile => "BINARY_FILE",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Ambiguous => "AMBIGUOUS",
            Self::NoMatch => "NO_MATCH",
            Self::TooLarge => "TOO_LARGE",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::IoFailed => "IO_FAILED",
            Self::ExitCode => "EXIT_CODE",
            Self::Signal => "SIGNAL",
            Self::TimeLimit => "TIME_LIMIT",
            Self::MemoryLimit => "MEMORY_LIMIT",
            Self::Cut => "CUT",
            Self::ExecFailed => "EXEC_FAILED",
            Self::SandboxUnavailable => "SANDBOX_UNAVAILABLE",
            Self::NotARepository => "NOT_A_REPOSITORY",
            Self::NothingToCommit => "NOTHING_TO_COMMIT",
            Self::GitFailed => "GIT_FAILED",
            Self::NetworkOff => "NETWORK_OFF",
            Self::NetworkFailed => "NETWORK_FAILED",
            Self::HttpStatus => "HTTP_STATUS",
            Self::RedirectedAway => "REDIRECTED_AWAY",
            Self::NotText => "NOT_TEXT",
            Self::ApprovalStale => "APPROVAL_STALE",
            Self::SecretNotKept => "SECRET_NOT_KEPT",
            Self::Internal => "INTERNAL_ERROR",
        }
    }

    /// Tells whether the same call may succeed when it is tried again.
    pub const fn retryable(self) -> bool {
        match self {
            Self::IoFailed
            | Self::TimeLimit
            | Self::ExecFailed
            | Self::SandboxUnavailable
            | Self::NetworkFailed
            | Self::ApprovalStale => true,
            Self::UnknownTool
            | Self::BadArguments
            | Self::NotFound
            | Self::OutsideWorkspace
            | Self::ProtectedPath
            | Self::HiddenPath
            | Self::IsDirectory
            | Self::NotADirectory
            | Self::NotAFile
            | Self::BinaryFile
            | Self::OutOfRange
            | Self::Ambiguous
            | Self::NoMatch
            | Self::TooLarge
            | Self::PermissionDenied
            | Self::ExitCode
            | Self::Signal
            | Self::MemoryLimit
            | Self::Cut
            | Self::NotARepository
            | Self::NothingToCommit
            | Self::GitFailed
            | Self::NetworkOff
            | Self::HttpStatus
            | Self::RedirectedAway
            | Self::NotText
            | Self::SecretNotKept
            | Self::Internal => false,
        }
    }
}

/// What went wrong with a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A word for programs.
    pub kind: FaultKind,
    /// A sentence for people and models.
    pub message: String,
    /// The particulars.
    pub detail: Option<String>,
}

impl Fault {
    /// Makes a fault without particulars.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), detail: None }
    }

    /// Adds particulars, unless there are none.
    #[must_use]
    pub fn with_detail(self, detail: String) -> Self {
        Self { detail: Some(detail).filter(|detail| !detail.is_empty()), ..self }
    }
}

impl From<Fault> for event::Fault {
    fn from(fault: Fault) -> Self {
        let Fault { kind, message, detail } = fault;
        Self { kind: kind.word().to_owned(), retryable: kind.retryable(), message, detail }
    }
}

impl From<RepositoryError> for Fault {
    fn from(error: RepositoryError) -> Self {
        let kind = match error {
            RepositoryError::NotFound => FaultKind::NotARepository,
            RepositoryError::Untrusted { .. } => FaultKind::GitFailed,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<GroundError> for Fault {
    fn from(error: GroundError) -> Self {
        let kind = match &error {
            GroundError::Outside { .. } => FaultKind::OutsideWorkspace,
            GroundError::Protected { .. } => FaultKind::ProtectedPath,
            GroundError::Hidden { .. } => FaultKind::HiddenPath,
            GroundError::NotFound { .. } => FaultKind::NotFound,
            GroundError::IsDirectory { .. } => FaultKind::IsDirectory,
            GroundError::NotADirectory { .. } => FaultKind::NotADirectory,
            GroundError::NotAFile { .. } => FaultKind::NotAFile,
            GroundError::TooLarge { .. } => FaultKind::TooLarge,
            GroundError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                FaultKind::PermissionDenied
            }
            GroundError::Io { .. } => FaultKind::IoFailed,
        };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::FaultKind as Kind;

    /// Every kind, in the order of the documentation.
    const ALL: [Kind; 34] = [
        Kind::UnknownTool,
        Kind::BadArguments,
        Kind::NotFound,
        Kind::OutsideWorkspace,
        Kind::ProtectedPath,
        Kind::HiddenPath,
        Kind::IsDirectory,
        Kind::NotADirectory,
        Kind::NotAFile,
        Kind::BinaryFile,
        Kind::OutOfRange,
        Kind::Ambiguous,
        Kind::NoMatch,
        Kind::TooLarge,
        Kind::PermissionDenied,
        Kind::IoFailed,
        Kind::ExitCode,
        Kind::Signal,
        Kind::TimeLimit,
        Kind::MemoryLimit,
        Kind::Cut,
        Kind::ExecFailed,
        Kind::SandboxUnavailable,
        Kind::NotARepository,
        Kind::NothingToCommit,
        Kind::GitFailed,
        Kind::NetworkOff,
        Kind::NetworkFailed,
        Kind::HttpStatus,
        Kind::RedirectedAway,
        Kind::NotText,
        Kind::ApprovalStale,
        Kind::SecretNotKept,
        Kind::Internal,
    ];

    #[test]
    fn every_kind_is_documented_as_it_is() {
        let page = include_str!("../../docs/tools.md");
        let (_, table) = page.split_once("## What can go wrong").unwrap();
        let rows: Vec<(&str, bool)> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(word, rest)| (word, rest.ends_with("| yes |")))
            .collect();
        assert_eq!(rows, ALL.map(|kind| (kind.word(), kind.retryable())));
    }
}
