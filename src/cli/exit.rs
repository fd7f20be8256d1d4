//! Exit codes and the errors that lead to them.

use std::io;
use std::process::ExitCode;

use super::ids::{self, NameError};
use super::sanitize::sanitize_line;
use crate::client::{Client, RequestError, STOPPED_EXIT, UnreachableError};
use crate::config::file::ConfigError;
use crate::config::paths::PathsError;
use crate::journal::backup::BackupError;
use crate::provider::keys::KeyError;
use crate::token::TokenStoreError;
use crate::tui::TuiError;

/// An exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    /// Success.
    pub(crate) const SUCCESS: Self = Self(0);
    /// Failure.
    pub(crate) const FAILURE: Self = Self(1);
    /// Cancelled by the user.
    pub(crate) const CANCELLED: Self = Self(2);
    /// Bad usage.
    pub(crate) const USAGE: Self = Self(64);
    /// The daemon cannot be reached or started.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// The daemon was stopped, and the command must not start it.
    pub(crate) const STOPPED: Self = Self(STOPPED_EXIT);
    /// The timeout of `push wait` has expired.
    pub(crate) const TIMED_OUT: Self = Self(124);
    /// The reader of the output closed it before the run ended.
    pub(crate) const BROKEN_PIPE: Self = Self(141);

    /// Returns the exit code that the daemon derived from a run.
    pub(crate) const fn from_run(code: u8) -> Self {
        Self(code)
    }

    /// Returns the number.
    pub(crate) const fn number(self) -> u8 {
        self.0
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.0.into()
    }
}

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The daemon refused a request or cannot be reached.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The command line is not valid.
    #[error("{0}")]
    Usage(String),
    /// An id or name cannot be resolved, or is ambiguous.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
    /// The terminal cannot be used.
    #[error("cannot use the terminal; --plain needs no cursor movement")]
    Terminal(#[source] io::Error),
    /// The task that owns the connection has ended without a report.
    #[error("{0}")]
    View(TuiError),
    /// A file or directory cannot be used.
    #[error("cannot {action} {what}")]
    File {
        /// The action, as a verb.
        action: &'static str,
        /// The file or object.
        what: String,
        /// The system error.
        source: io::Error,
    },
    /// The paths of the daemon cannot be determined.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A backup cannot be made or used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// Tokens cannot be read or changed.
    #[error(transparent)]
    Token(#[from] TokenStoreError),
    /// A key cannot be stored.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// An environment variable names an unknown provider.
    #[error("{variable} names the provider {name}, which is neither built in nor configured")]
    UnknownProvider {
        /// The variable.
        variable: &'static str,
        /// Its value.
        name: String,
    },
    /// The events with the outcome of the run are lost.
    #[error("the outcome of the run is unknown: its events are lost; `push log SESSION` shows what is left")]
    OutcomeLost,
    /// The session has no run to wait for.
    #[error("session {session} has no run yet")]
    NoRun {
        /// The session.
        session: String,
    },
    /// The daemon did not answer the cancellation.
    #[error("pushd did not answer, so the run may continue; `push cancel {session}` cancels it")]
    NotCancelled {
        /// The session.
        session: String,
    },
    /// The daemon is stopped, so the run cannot be cancelled.
    #[error(
        "pushd is stopped, so no step of the run is running; if the run is unfinished it continues at the next start, \
         and `push cancel {session}` cancels it"
    )]
    DaemonStopped {
        /// The session.
        session: String,
    },
    /// The compaction failed.
    #[error("cannot compact session {session}: {message}")]
    NotCompacted {
        /// The session.
        session: String,
        /// The reason.
        message: String,
    },
    /// The daemon did not exit.
    #[error("pushd did not stop; `push daemon stop --force` kills it")]
    StillRunning,
    /// Active runs would be interrupted.
    #[error("{}; `push purge --force` stops active runs", if *count == 1 { "1 run is active".to_owned() } else { format!("{count} runs are active") })]
    RunsActive {
        /// The number of active runs.
        count: u64,
    },
    /// A daemon at another socket uses the same state, or a daemon was just started.
    #[error("another daemon holds {lock}; stop it first")]
    StateInUse {
        /// Its lock.
        lock: String,
    },
    /// There is no log file.
    #[error("there is no log file in {directory}")]
    NoLog {
        /// The directory of the logs.
        directory: String,
    },
}

impl From<TuiError> for CliError {
    fn from(error: TuiError) -> Self {
        match error {
            TuiError::Request(error) => Self::Request(error),
            TuiError::Terminal(error) => Self::Terminal(error),
            TuiError::ConnectionTask => Self::View(error),
        }
    }
}

impl CliError {
    /// Returns the error for a run that could not be cancelled.
    pub(crate) fn not_cancelled(client: &Client, session: &str) -> Self {
        let session = sanitize_line(session);
        if client.awaits_start() { Self::DaemonStopped { session } } else { Self::NotCancelled { session } }
    }

    /// Returns the error of a request; if no run is active, it names the session.
    pub(crate) fn in_session(mut error: RequestError, session: &str) -> Self {
        if let RequestError::Refused(fault) = &mut error
            && fault.code == NO_ACTIVE_RUN
        {
            fault.message = format!("session {} has no active run", sanitize_line(session));
        }
        Self::Request(error)
    }

    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::NoRun { .. } | Self::Request(RequestError::TooLong { .. }) => Exit::USAGE,
            // 1 would mean that a run of that session failed.
            Self::Name(error) if error.what() == ids::SESSION => Exit::USAGE,
            // Several match, so the command line has to be more precise.
            Self::Name(NameError::Several { .. } | NameError::Ambiguous { .. }) => Exit::USAGE,
            Self::Request(RequestError::Refused(fault)) if fault.code == "SESSION_NOT_FOUND" => Exit::USAGE,
            Self::Request(RequestError::Unreachable(_))
            | Self::Paths(_)
            | Self::NotCancelled { .. }
            | Self::DaemonStopped { .. } => Exit::UNAVAILABLE,
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::SUCCESS,
            Self::Request(
                RequestError::Refused(_) | RequestError::NoReply { .. } | RequestError::UnreadableReply { .. },
            )
            | Self::Name(_)
            | Self::Output(_)
            | Self::Terminal(_)
            | Self::View(_)
            | Self::File { .. }
            | Self::Config(_)
            | Self::Backup(_)
            | Self::Key(_)
            | Self::Token(_)
            | Self::UnknownProvider { .. }
            | Self::OutcomeLost
            | Self::NotCompacted { .. }
            | Self::StillRunning
            | Self::RunsActive { .. }
            | Self::StateInUse { .. }
            | Self::NoLog { .. } => Exit::FAILURE,
        }
    }

    /// Returns whether the reader closed the output, which is not reported.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns whether the daemon is not running.
    pub(crate) const fn is_not_running(&self) -> bool {
        matches!(self, Self::Request(RequestError::Unreachable(UnreachableError::NotRunning)))
    }

    /// Returns a hint for the user.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        if let Self::Name(NameError::UnknownSession { .. }) = self {
            return Some("`push sessions` lists the sessions");
        }
        let Self::Request(RequestError::Refused(fault)) = self else { return None };
        match fault.code.as_str() {
            "RUN_IN_PROGRESS" => Some(
                "a run is active: `push queue` sends the message after it, `push steer` sends it to the active run",
            ),
            NO_ACTIVE_RUN => Some("`push send SESSION MESSAGE` starts a run; `push show SESSION` shows the last one"),
            "SESSION_NOT_FOUND" => Some("`push sessions` lists the sessions"),
            "APPROVAL_NOT_FOUND" | "APPROVAL_EXPIRED" => Some("`push approvals` lists pending approvals"),
            "PROVIDER_NOT_CONFIGURED" => Some("without a model, `--provider playbook` runs the steps in the message"),
            _ => None,
        }
    }
}

const NO_ACTIVE_RUN: &str = "NO_ACTIVE_RUN";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ResponseError;

    #[test]
    fn usage_is_64_and_an_unreachable_daemon_69_and_a_refusal_1() {
        assert_eq!(CliError::Usage("x".into()).exit(), Exit::USAGE);
        assert_eq!(CliError::Request(UnreachableError::NotRunning.into_request_error()).exit(), Exit::UNAVAILABLE);
        let fault = ResponseError { code: "X".into(), message: "x".into(), retryable: false, detail: None };
        assert_eq!(CliError::Request(fault.into()).exit(), Exit::FAILURE);
    }

    #[test]
    fn a_session_without_a_run_is_named_with_the_next_step() {
        let refused =
            |code: &str| ResponseError { code: code.into(), message: "x".into(), retryable: false, detail: None };
        let error = CliError::in_session(refused("NO_ACTIVE_RUN").into(), "ses_1");
        assert_eq!(error.to_string(), "session ses_1 has no active run (NO_ACTIVE_RUN)");
        assert!(error.hint().is_some_and(|hint| hint.contains("push send")), "{:?}", error.hint());
        assert_eq!(CliError::in_session(refused("Y").into(), "ses_1").to_string(), "x (Y)");
    }

    #[test]
    fn a_broken_pipe_is_not_reported() {
        let error = CliError::Output(io::ErrorKind::BrokenPipe.into());
        assert!(error.is_broken_pipe());
        assert_eq!(error.exit(), Exit::SUCCESS);
        assert!(!CliError::Output(io::ErrorKind::StorageFull.into()).is_broken_pipe());
    }

    impl UnreachableError {
        fn into_request_error(self) -> RequestError {
            self.into()
        }
    }
}
