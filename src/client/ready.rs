//! Start-up notification from a daemon to the client that started it.
//!
//! Standard output and standard error of the daemon are a pipe to that client. The daemon writes one status line. Any
//! other output before that line explains a failure.

use std::io::{self, BufRead, Write};

use super::os;

/// Status line: the daemon listens.
const READY: &str = "ready";
/// Status line: another daemon holds the lock.
const IN_USE: &str = "in-use";
/// How much output of a failing daemon is kept, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 * 1024;

/// The daemon's side of the notification.
///
/// If it is dropped without a status line, the client reports a failed start and shows the output.
#[derive(Debug)]
#[must_use = "the client waits for it"]
pub struct Announcement(());

impl Announcement {
    /// Creates an announcement on standard output, which must be the client's pipe.
    pub const fn on_stdout() -> Self {
        Self(())
    }

    /// Reports that the daemon listens, and releases the pipe.
    pub fn ready(self) -> io::Result<()> {
        write_line(READY)?;
        os::release_output()
    }

    /// Reports that another daemon listens or is about to.
    pub fn in_use(self) -> io::Result<()> {
        write_line(IN_USE)
    }
}

fn write_line(word: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word}")?;
    out.flush()
}

/// The result of starting a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StartOutcome {
    /// It listens.
    Ready,
    /// Another daemon listens or is about to; the output names the lock it holds.
    InUse(String),
    /// The start failed; this is the output.
    Failed(String),
}

/// Reads the status line and the output of a starting daemon from its pipe.
pub(super) fn read(pipe: impl io::Read) -> StartOutcome {
    let mut output = String::new();
    for line in io::BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        match String::from_utf8_lossy(&line).trim_end() {
            READY => return StartOutcome::Ready,
            IN_USE => return StartOutcome::InUse(output.trim_end().to_owned()),
            line if output.len() + line.len() < MAX_OUTPUT_BYTES => {
                output.push_str(line);
                output.push('\n');
            }
            _ => {}
        }
    }
    StartOutcome::Failed(output.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_is_the_outcome_and_other_output_is_the_reason() {
        assert_eq!(read(&b"ready\nmore"[..]), StartOutcome::Ready);
        assert_eq!(read(&b"warning: x\nin-use\n"[..]), StartOutcome::InUse("warning: x".into()));
        assert_eq!(read(&b"error: no\ncause: y\n"[..]), StartOutcome::Failed("error: no\ncause: y".into()));
        assert_eq!(read(&b""[..]), StartOutcome::Failed(String::new()));
        assert_eq!(read(&[b'x'; MAX_OUTPUT_BYTES + 1][..]), StartOutcome::Failed(String::new()));
    }
}
