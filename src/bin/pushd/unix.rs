//! Replaces this process by another program with `exec`, on Unix. The process id stays, so a service manager keeps
//! tracking its child.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Executes a command in place of this process; returns only if that fails.
pub(crate) fn execute(command: &mut Command) -> io::Result<ExitCode> {
    Err(command.exec())
}
