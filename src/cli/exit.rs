//! Exit codes and the errors that lead to them.

use std::io;
use std::process::ExitCode;

use super::ids::{self, NameError};
use crate::client::{AskError, Unreachable};
use crate::config::file::ConfigError;
use crate::config::paths::PathsError;
use crate::provider::keys::KeyError;
use crate::token::TokensError;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    /// Everything was done.
    pub(crate) const SUCCESS: Self = Self(0);
    /// Something failed.
    pub(crate) const FAILURE: Self = Self(1);
    /// The user stopped it.
    pub(crate) const CANCELLED: Self = Self(2);
    /// It was asked for in a way that cannot be understood.
    pub(crate) const USAGE: Self = Self(64);
    /// The daemon cannot be reached or started.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// The time of `push wait` is over.
    pub(crate) const TIMED_OUT: Self = Self(124);
    /// Whoever read the output went before the run was over.
    pub(crate) const BROKEN_PIPE: Self = Self(141);

    /// Returns the exit code that the daemon derived from a run; nothing is guessed.
    ///
    /// A code outside a byte cannot be told and counts as failure.
    pub(crate) fn of_run(hint: Option<u64>) -> Self {
        hint.and_then(|code| u8::try_from(code).ok()).map_or(Self::FAILURE, Self)
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

/// Why a verb ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The daemon refused or is out of reach.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// It was asked for in a way that cannot be understood.
    #[error("{0}")]
    Usage(String),
    /// A name stands for nothing, or for too much.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
    /// A file or directory cannot be used.
    #[error("cannot {action} {what}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With what.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nobody knows where the daemon would be.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// The configuration has a mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Tokens cannot be read or changed.
    #[error(transparent)]
    Token(#[from] TokensError),
    /// A key cannot be put away.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A variable names a provider that nobody knows.
    #[error("{variable} is {name}, which is neither built in nor in the configuration")]
    UnknownProvider {
        /// The variable.
        variable: &'static str,
        /// What it holds.
        name: String,
    },
    /// The events that say how a run ended are gone.
    #[error("how the run ended is no longer known: its events are gone")]
    OutcomeGone,
    /// There is nothing to wait for.
    #[error("{session} has not run anything yet")]
    NoRun {
        /// The session.
        session: String,
    },
    /// The daemon does not answer somebody who wants to stop.
    #[error("pushd did not answer, so the run may go on; `push cancel {session}` stops it")]
    NotCancelled {
        /// The session.
        session: String,
    },
    /// No summary came of it.
    #[error("{session} was not summarised: {message}")]
    NotCompacted {
        /// The session.
        session: String,
        /// Why.
        message: String,
    },
    /// The daemon did not go.
    #[error("pushd did not stop; `push daemon stop --force` ends it at once")]
    StillThere,
    /// Something runs that would be cut short.
    #[error("{}; `push purge --force` cuts short what is active", if *count == 1 { "1 run is active".to_owned() } else { format!("{count} runs are active") })]
    RunsActive {
        /// How many.
        count: u64,
    },
    /// A daemon at another socket uses the same state, or one has just been started.
    #[error("another daemon holds {lock}; stop it first")]
    StateInUse {
        /// Its lock.
        lock: String,
    },
    /// There is no log.
    #[error("no log in {directory}")]
    NoLog {
        /// Where it would be.
        directory: String,
    },
}

impl CliError {
    /// Returns how the program ends.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::NoRun { .. } | Self::Ask(AskError::TooLong { .. }) => Exit::USAGE,
            // 1 would say that a run of that session has failed.
            Self::Name(error) if error.what() == ids::SESSION => Exit::USAGE,
            // Several fit, and one has to be named.
            Self::Name(NameError::Several { .. } | NameError::Ambiguous { .. }) => Exit::USAGE,
            Self::Ask(AskError::Refused(fault)) if fault.code == "SESSION_NOT_FOUND" => Exit::USAGE,
            Self::Ask(AskError::Unreachable(_)) | Self::Paths(_) | Self::NotCancelled { .. } => {
                Exit::UNAVAILABLE
            }
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::SUCCESS,
            Self::Ask(AskError::Refused(_) | AskError::Unanswered { .. })
            | Self::Name(_)
            | Self::Output(_)
            | Self::File { .. }
            | Self::Config(_)
            | Self::Key(_)
            | Self::Token(_)
            | Self::UnknownProvider { .. }
            | Self::OutcomeGone
            | Self::NotCompacted { .. }
            | Self::StillThere
            | Self::RunsActive { .. }
            | Self::StateInUse { .. }
            | Self::NoLog { .. } => Exit::FAILURE,
        }
    }

    /// Returns whether nobody needs to be told: the reader of the output went away.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns whether no daemon runs.
    pub(crate) const fn is_not_running(&self) -> bool {
        matches!(self, Self::Ask(AskError::Unreachable(Unreachable::NotRunning)))
    }

    /// Returns what the user could do about it.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        if let Self::Name(NameError::UnknownSession { .. }) = self {
            return Some("`push sessions` lists the sessions");
        }
        let Self::Ask(AskError::Refused(fault)) = self else { return None };
        match fault.code.as_str() {
            "RUN_IN_PROGRESS" => {
                Some("a run is active: `push queue` sends it afterwards, `push steer` speaks into it")
            }
            "SESSION_NOT_FOUND" => Some("`push sessions` lists the sessions"),
            "APPROVAL_NOT_FOUND" | "APPROVAL_EXPIRED" => Some("`push approvals` lists what waits"),
            "PROVIDER_NOT_CONFIGURED" => {
                Some("without a model, `--provider playbook` runs the steps of the message")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Fault;

    #[test]
    fn the_code_of_a_run_is_the_daemons_word() {
        for code in 0..=4 {
            assert_eq!(Exit::of_run(Some(code)).number(), u8::try_from(code).unwrap());
        }
        assert_eq!(Exit::of_run(None), Exit::FAILURE);
        assert_eq!(Exit::of_run(Some(256)), Exit::FAILURE);
    }

    #[test]
    fn usage_is_64_and_an_unreachable_daemon_69_and_a_refusal_1() {
        assert_eq!(CliError::Usage("x".into()).exit(), Exit::USAGE);
        assert_eq!(CliError::Ask(Unreachable::NotRunning.into_ask()).exit(), Exit::UNAVAILABLE);
        let fault = Fault { code: "X".into(), message: "x".into(), retryable: false, detail: None };
        assert_eq!(CliError::Ask(fault.into()).exit(), Exit::FAILURE);
    }

    #[test]
    fn a_broken_pipe_is_told_to_nobody() {
        let error = CliError::Output(io::ErrorKind::BrokenPipe.into());
        assert!(error.is_quiet());
        assert_eq!(error.exit(), Exit::SUCCESS);
        assert!(!CliError::Output(io::ErrorKind::StorageFull.into()).is_quiet());
    }

    impl Unreachable {
        fn into_ask(self) -> AskError {
            self.into()
        }
    }
}
