//! The errors of tools, with a closed set of codes for programs and models.

use crate::kernel::event;
use crate::sandbox::repository::RepositoryError;
use crate::sandbox::workspace::WorkspaceError;

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolErrorKind {
    /// There is no such tool.
    UnknownTool,
    /// The arguments are invalid.
    BadArguments,
    /// The path does not exist.
    NotFound,
    /// The path leads out of the workspace.
    OutsideWorkspace,
    /// The path is in `.git` or `.push`, which tools do not change, or a git command changed a trusted file.
    ProtectedPath,
    /// The path leads to credentials, or to files of the daemon.
    HiddenPath,
    /// The path is a directory instead of a file.
    IsDirectory,
    /// The path is not a directory.
    NotADirectory,
    /// The path is a device, a pipe or a socket instead of a file.
    NotAFile,
    /// The file is not text.
    BinaryFile,
    /// The file has fewer lines than the requested offset.
    OutOfRange,
    /// The text to replace occurs more than once.
    Ambiguous,
    /// The text to replace does not occur.
    NoMatch,
    /// The content is larger than the limit.
    TooLarge,
    /// The operating system denied the access.
    PermissionDenied,
    /// The operating system returned an error.
    IoFailed,
    /// The command exited with a code other than 0.
    ExitCode,
    /// The command was killed by a signal.
    Signal,
    /// The time limit was reached.
    TimeLimit,
    /// The command exceeded its memory limit.
    MemoryLimit,
    /// The call was aborted with its run.
    Aborted,
    /// The call differs from the approved one.
    ApprovalStale,
    /// The command could not be run.
    ExecFailed,
    /// The workspace or the sandbox is not available.
    SandboxUnavailable,
    /// The workspace is not in a git repository.
    NotARepository,
    /// There is nothing to commit.
    NothingToCommit,
    /// Git returned an error.
    GitFailed,
    /// Network access is not allowed.
    NetworkOff,
    /// The server could not be reached, or the connection broke.
    NetworkFailed,
    /// The server returned an error status.
    HttpStatus,
    /// The server redirects to another host.
    RedirectedAway,
    /// The response is not text.
    NotText,
    /// The arguments contained a secret, which is not persisted over a restart.
    SecretNotPersisted,
    /// The daemon failed.
    Internal,
}

impl ToolErrorKind {
    /// Returns the code for programs.
    pub const fn code(self) -> &'static str {
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
            Self::Aborted => "CUT",
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
            Self::SecretNotPersisted => "SECRET_NOT_STORED",
            Self::Internal => "INTERNAL_ERROR",
        }
    }

    /// Returns whether the same call may succeed when it is retried.
    pub const fn is_retryable(self) -> bool {
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
            | Self::Aborted
            | Self::NotARepository
            | Self::NothingToCommit
            | Self::GitFailed
            | Self::NetworkOff
            | Self::HttpStatus
            | Self::RedirectedAway
            | Self::NotText
            | Self::SecretNotPersisted
            | Self::Internal => false,
        }
    }
}

/// The error of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    /// The kind, with a code for programs.
    pub kind: ToolErrorKind,
    /// A message for people and models.
    pub message: String,
    /// Further details.
    pub detail: Option<String>,
}

impl ToolError {
    /// Creates an error without details.
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), detail: None }
    }

    /// Adds details, unless they are empty.
    #[must_use]
    pub fn with_detail(self, detail: String) -> Self {
        Self { detail: Some(detail).filter(|detail| !detail.is_empty()), ..self }
    }
}

impl From<ToolError> for event::ToolError {
    fn from(error: ToolError) -> Self {
        let ToolError { kind, message, detail } = error;
        Self { kind: kind.code().to_owned(), retryable: kind.is_retryable(), message, detail }
    }
}

impl From<RepositoryError> for ToolError {
    fn from(error: RepositoryError) -> Self {
        let kind = match error {
            RepositoryError::NotFound => ToolErrorKind::NotARepository,
            RepositoryError::Untrusted { .. } => ToolErrorKind::GitFailed,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<WorkspaceError> for ToolError {
    fn from(error: WorkspaceError) -> Self {
        let kind = match &error {
            WorkspaceError::Outside { .. } => ToolErrorKind::OutsideWorkspace,
            WorkspaceError::Protected { .. } => ToolErrorKind::ProtectedPath,
            WorkspaceError::Hidden { .. } => ToolErrorKind::HiddenPath,
            WorkspaceError::NotFound { .. } => ToolErrorKind::NotFound,
            WorkspaceError::IsDirectory { .. } => ToolErrorKind::IsDirectory,
            WorkspaceError::NotADirectory { .. } => ToolErrorKind::NotADirectory,
            WorkspaceError::NotAFile { .. } => ToolErrorKind::NotAFile,
            WorkspaceError::TooLarge { .. } => ToolErrorKind::TooLarge,
            WorkspaceError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                ToolErrorKind::PermissionDenied
            }
            WorkspaceError::Io { .. } => ToolErrorKind::IoFailed,
        };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::ToolErrorKind as Kind;

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
        Kind::Aborted,
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
        Kind::SecretNotPersisted,
        Kind::Internal,
    ];

    #[test]
    fn the_documented_error_kinds_match_the_code() {
        let page = include_str!("../../docs/tools.md");
        let (_, table) = page.split_once("## What can go wrong").unwrap();
        let rows: Vec<(&str, bool)> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(word, rest)| (word, rest.ends_with("| yes |")))
            .collect();
        assert_eq!(rows, ALL.map(|kind| (kind.code(), kind.is_retryable())));
    }
}
