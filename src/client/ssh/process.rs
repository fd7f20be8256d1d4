//! An ssh process whose standard streams are a connection to the daemon of another machine.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::error::SshError;
use crate::client::os;

/// How much of the output of ssh is kept, in bytes.
const MAX_OUTPUT_BYTES: usize = 4 * 1024;
/// How long ssh may take to exit after it has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the rest of its error output. A process that shares its connection with others may leave one
/// behind that keeps the pipe open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// How an ssh process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshExit {
    /// With an exit code, which is that of the remote command unless it is 255.
    Code(i32),
    /// By a signal.
    Signal,
    /// It has closed its output and has not exited.
    StillRunning,
}

impl fmt::Display for SshExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal => f.write_str("a signal"),
            Self::StillRunning => f.write_str("its output closed"),
        }
    }
}

/// A running ssh process. Dropping it ends the process, and the runtime reaps it.
#[derive(Debug)]
pub(in crate::client) struct SshProcess {
    child: Child,
    output: Arc<Mutex<OutputTail>>,
    reader: JoinHandle<()>,
}

impl SshProcess {
    /// Starts ssh with its standard streams as pipes.
    pub(super) fn start(program: &OsStr, words: &[String]) -> Result<(Self, ChildStdout, ChildStdin), SshError> {
        let failed = |source| SshError::Spawn { program: program.to_string_lossy().into_owned(), source };
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for the verb, which may have to tell the daemon.
        os::ignore_interrupts(command.as_std_mut());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
        };
        let output = Arc::<Mutex<OutputTail>>::default();
        let reader = tokio::spawn(collect(stderr, Arc::clone(&output)));
        Ok((Self { child, output, reader }, stdout, stdin))
    }

    /// Waits for the end of a process that has closed its output, and returns how it ended and what it printed.
    pub(super) async fn end(mut self) -> (SshExit, String) {
        let exit = match timeout(EXIT_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) => status.code().map_or(SshExit::Signal, SshExit::Code),
            Ok(Err(_)) | Err(_) => SshExit::StillRunning,
        };
        let _ = timeout(OUTPUT_TIMEOUT, &mut self.reader).await;
        (exit, self.output())
    }

    /// Returns the last lines that it has printed to standard error.
    pub(super) fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).text()
    }
}

impl Drop for SshProcess {
    fn drop(&mut self) {
        self.reader.abort();
        // An id is only there until the process is reaped, so it is that of no other process.
        if let Some(pid) = self.child.id() {
            // ssh resets the terminal if it is asking for a password. It may have exited by itself.
            let _ = os::terminate_process(pid);
        }
    }
}

/// Reads standard error to its end, so that ssh never waits for a reader.
async fn collect(mut stderr: ChildStderr, output: Arc<Mutex<OutputTail>>) {
    let mut chunk = [0; 1024];
    while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
        output.lock().unwrap_or_else(PoisonError::into_inner).push(&chunk[..length]);
    }
}

/// The end of an output.
#[derive(Debug, Default)]
struct OutputTail(VecDeque<u8>);

impl OutputTail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let excess = self.0.len().saturating_sub(MAX_OUTPUT_BYTES);
        self.0.drain(..excess);
    }

    /// Returns the text without carriage returns and empty lines.
    fn text(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_output_is_kept() {
        let mut tail = OutputTail::default();
        tail.push(b"first\r\n\r\nsecond \r\n");
        assert_eq!(tail.text(), "first\nsecond");
        tail.push(&[b'x'; 2 * MAX_OUTPUT_BYTES]);
        tail.push(b"\nlast\n");
        assert_eq!(tail.text().len(), MAX_OUTPUT_BYTES - 1);
        assert!(tail.text().ends_with("x\nlast"));
    }
}
