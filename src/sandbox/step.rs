//! The words of the executor: a step, what it says, how it ends.
//!
//! Plain values; nothing here starts or ends anything.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use super::confine::Leave;

/// One command of a run.
#[derive(Clone)]
pub struct Step {
    /// What `/bin/sh -c` is given.
    pub command: String,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Its whole environment; nothing of the daemon's is added.
    pub env: Vec<(OsString, OsString)>,
    /// How long it may take before it is ended with everything it started.
    pub time_limit: Duration,
    /// What it may do beyond what its room allows.
    pub leave: Leave,
    /// Whether its two outputs are told apart.
    pub outputs: Outputs,
}

/// Whether the two outputs of a step are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outputs {
    /// Each has a pipe of its own: the order between the two is not kept.
    #[default]
    Apart,
    /// Both are one pipe, as on a terminal: everything comes in its order, as [`Stream::Stdout`].
    Joined,
}

/// Commands and environments carry secrets, so neither is shown.
impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("cwd", &self.cwd)
            .field("variables", &self.env.len())
            .field("time_limit", &self.time_limit)
            .field("leave", &self.leave)
            .finish_non_exhaustive()
    }
}

/// Which of its two outputs a step wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of a step's output, at most 16 KiB, as it was written.
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Where it was written.
    pub stream: Stream,
    /// The bytes, which may end in the middle of a character.
    pub bytes: Bytes,
}

/// Output has not passed redaction here, so it is not shown.
impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("stream", &self.stream).field("bytes", &self.bytes.len()).finish()
    }
}

/// How a step that was started came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepEnd {
    /// The shell left with this code.
    Exited(i32),
    /// The shell was ended by this signal, which was not ours.
    Signaled(i32),
    /// The time limit passed; everything of the step was ended.
    TimedOut,
    /// It used more memory than it may; everything of the step was ended.
    OutOfMemory,
    /// The run was stopped, before or during the step.
    Stopped,
}

/// Why a step could not be run, or not be followed to its end.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The step cannot be handed to a process.
    #[error("the step cannot be started: {problem}")]
    Unusable {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The keeper, this program executed once more, did not start.
    #[error("cannot start the keeper {}: {source}", .path.display())]
    Keeper {
        /// The program that was to be executed.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("cannot enter the directory {}: {source}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The shell cannot be started.
    #[error("cannot start /bin/sh: {source}")]
    Shell {
        /// What the system said.
        source: io::Error,
    },
    /// The walls around the step could not be built, and it did not run.
    #[error("the command did not run, as the sandbox could not be set up: {what}{}", cause(.source))]
    Walls {
        /// What failed.
        what: &'static str,
        /// What the system said, if it said something.
        source: Option<io::Error>,
    },
    /// The keeper ended without saying how the step ended; somebody killed it.
    #[error("the keeper of the step was killed, how the step ended is unknown")]
    KeeperLost,
}

fn cause(source: &Option<io::Error>) -> String {
    source.as_ref().map(|source| format!(": {source}")).unwrap_or_default()
}

/// Processes of a run are still there after the time given to a stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("processes of the run could not be ended in time; still at it: keepers {keepers:?}")]
pub struct Left {
    /// The process ids of the keepers that go on trying.
    pub keepers: Vec<u32>,
}
