//! Why the daemon of another machine cannot be reached.

use std::fmt;
use std::io;

use super::process::SshExit;

/// The exit code of `push stdio --resume` when the daemon there was stopped on purpose.
pub const STOPPED_EXIT: u8 = 75;

/// Why the daemon of another machine cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// The ssh program cannot be started.
    #[error("cannot start {program}")]
    Spawn {
        /// The program.
        program: String,
        /// The system error.
        source: io::Error,
    },
    /// The machine refused the user, or its key is not the known one. Trying again does not help.
    #[error("the host refused the login{}", Output(.output))]
    Denied {
        /// The output of ssh.
        output: String,
    },
    /// ssh could not connect, or lost the connection.
    #[error("ssh failed{}", Output(.output))]
    Disconnected {
        /// The output of ssh.
        output: String,
    },
    /// The shell there found no program `push`.
    #[error(
        "the shell of the host found no program `push`{}\n\
         it must be in the PATH of commands that ssh runs, such as /usr/local/bin; see `ssh HOST 'echo $PATH'`",
        Output(.output)
    )]
    NoProgram {
        /// The output of the shell.
        output: String,
    },
    /// The daemon there was stopped on purpose.
    #[error("pushd of the host was stopped; `push --host HOST daemon start` starts it")]
    Stopped,
    /// `push stdio` ended.
    #[error("`push stdio` ended on the host with {exit}{}", Output(.output))]
    Ended {
        /// How it ended.
        exit: SshExit,
        /// Its output.
        output: String,
    },
    /// Something other than `push stdio` wrote to standard output.
    #[error(
        "the output of the host is not the Push protocol; the start-up files of a shell must not print anything for commands \
         (`ssh HOST true` prints nothing){}",
        Output(.output)
    )]
    NotTheProtocol {
        /// What was printed to standard error.
        output: String,
    },
    /// Nothing answered in time.
    #[error("there was no answer within {seconds} s{}", Output(.output))]
    NoAnswer {
        /// The time limit.
        seconds: u64,
        /// The output of ssh.
        output: String,
    },
}

impl SshError {
    /// Returns the error for an ssh process that has ended before the handshake.
    pub(super) fn from_exit(exit: SshExit, output: String) -> Self {
        match exit {
            SshExit::Code(255) if REFUSALS.iter().any(|refusal| output.contains(refusal)) => Self::Denied { output },
            SshExit::Code(255) => Self::Disconnected { output },
            SshExit::Code(127) => Self::NoProgram { output },
            SshExit::Code(code) if code == i32::from(STOPPED_EXIT) => Self::Stopped,
            SshExit::Code(_) | SshExit::Signal | SshExit::StillRunning => Self::Ended { exit, output },
        }
    }

    /// Returns whether another attempt would fail in the same way.
    pub(in crate::client) const fn is_permanent(&self) -> bool {
        match self {
            Self::Spawn { .. } | Self::Denied { .. } | Self::NoProgram { .. } | Self::NotTheProtocol { .. } => true,
            // 64: a version without `push stdio`; 126: a file that cannot be executed.
            Self::Ended { exit, .. } => matches!(exit, SshExit::Code(64 | 126)),
            Self::Disconnected { .. } | Self::Stopped | Self::NoAnswer { .. } => false,
        }
    }
}

/// What ssh prints when the machine refuses the user, or the user the machine. ssh has one exit code for all errors,
/// and its messages are not translated.
const REFUSALS: [&str; 4] = [
    "Permission denied",
    "Host key verification failed",
    "Too many authentication failures",
    "No supported authentication",
];

/// The output of ssh, as the end of a message.
struct Output<'a>(&'a str);

impl fmt::Display for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ":\n{}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_and_the_output_of_ssh_decide_about_another_attempt() {
        let error = |code, output: &str| SshError::from_exit(SshExit::Code(code), output.to_owned());
        let denied = error(255, "ann@box: Permission denied (publickey).");
        assert!(matches!(denied, SshError::Denied { .. }) && denied.is_permanent());
        assert_eq!(denied.to_string(), "the host refused the login:\nann@box: Permission denied (publickey).");
        let lost = error(255, "ssh: connect to host box port 22: Connection refused");
        assert!(matches!(lost, SshError::Disconnected { .. }) && !lost.is_permanent());
        assert!(error(127, "sh: 1: push: not found").is_permanent());
        assert!(error(127, "").to_string().contains("/usr/local/bin"));
        assert!(error(64, "error: unrecognized subcommand 'stdio'").is_permanent());
        assert!(!error(69, "").is_permanent());
        assert!(matches!(error(75, ""), SshError::Stopped));
        assert_eq!(error(69, "").to_string(), "`push stdio` ended on the host with exit code 69");
    }
}
