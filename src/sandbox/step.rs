//! The types of step execution: a step, its output, its end, and its errors.
//!
//! Plain values; nothing here starts or ends a process.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use super::confinement::StepPermissions;

/// One command of a run.
#[derive(Clone)]
pub struct Step {
    /// The argument of `/bin/sh -c`.
    pub command: String,
    /// The working directory.
    pub cwd: PathBuf,
    /// The complete environment; nothing of the daemon's environment is added.
    pub env: Vec<(OsString, OsString)>,
    /// The time limit, after which the step is killed with every process it started.
    pub time_limit: Duration,
    /// What it may do beyond the policy of its run.
    pub permissions: StepPermissions,
    /// Whether standard output and standard error are separate.
    pub output_mode: OutputMode,
}

/// Whether the standard output and standard error of a step are separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputMode {
    /// One pipe each: the order between the two streams is not preserved.
    #[default]
    Separate,
    /// One pipe for both, as on a terminal: everything arrives in order, as [`Stream::Stdout`].
    Merged,
}

/// Commands and environments may contain secrets, so neither is printed.
impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("cwd", &self.cwd)
            .field("variables", &self.env.len())
            .field("time_limit", &self.time_limit)
            .field("permissions", &self.permissions)
            .finish_non_exhaustive()
    }
}

/// The stream that a step wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of a step's output, at most 16 KiB, unmodified.
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The stream it was written to.
    pub stream: Stream,
    /// The bytes, which may end in the middle of a character.
    pub bytes: Bytes,
}

/// Output is not redacted yet, so it is not printed.
impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("stream", &self.stream).field("bytes", &self.bytes.len()).finish()
    }
}

/// How a step that was started ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEnd {
    /// The shell exited with this code.
    Exited(i32),
    /// The shell was killed by this signal, which the sandbox did not send.
    Signaled(i32),
    /// The time limit passed; all processes of the step were killed.
    TimedOut,
    /// It exceeded its memory limit; all processes of the step were killed.
    OutOfMemory,
    /// The run was stopped, before or during the step.
    Stopped,
}

/// Why a step could not be run, or why its end is unknown.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The step cannot be passed to a process.
    #[error("the step cannot be started: {problem}")]
    Invalid {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The supervisor, this program executed once more, did not start.
    #[error("cannot start the supervisor {}: {source}", .path.display())]
    SupervisorSpawn {
        /// The program to be executed.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("cannot enter the working directory {}: {source}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The shell cannot be started.
    #[error("cannot start /bin/sh: {source}")]
    Shell {
        /// The system's error.
        source: io::Error,
    },
    /// The confinement could not be set up, and the step did not run.
    #[error("the command did not run because the sandbox could not be set up: {what}{}", format_cause(.source))]
    Confinement {
        /// What failed.
        what: &'static str,
        /// The system's error, if there is one.
        source: Option<io::Error>,
    },
    /// The supervisor was killed before it reported how the step ended.
    #[error("the supervisor of the step was killed; how the step ended is unknown")]
    SupervisorLost,
}

fn format_cause(source: &Option<io::Error>) -> String {
    source.as_ref().map(|source| format!(": {source}")).unwrap_or_default()
}

/// Processes of a run remain after the time limit of a stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("processes of the run did not end in time; supervisors still killing them: {supervisors:?}")]
pub struct StopTimeoutError {
    /// The process ids of the supervisors that are still killing processes.
    pub supervisors: Vec<u32>,
}
