//! Runs another program as a child process, on Windows, which has no `exec`.

use std::io;
use std::process::{Command, ExitCode};

/// Runs a command to its end and returns its exit code.
pub(crate) fn execute(command: &mut Command) -> io::Result<ExitCode> {
    let code = command.status()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
