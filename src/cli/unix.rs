//! Signals, terminals and private files, on Unix.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

use nix::libc;
use nix::sys::stat::{SFlag, fstat};
use nix::sys::termios::{FlushArg, LocalFlags, SetArg, Termios, tcflush, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::input::{OnTerminate, StopRequest};

/// Creates a file that only its owner may access; it must not exist.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Creates a directory that only its owner may access, and its parents where they are missing.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The signals that ask a client to stop: SIGINT (Ctrl-C), SIGTERM, and SIGHUP at the loss of the terminal.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// None if SIGHUP was ignored at the start, as under `nohup`.
    hang_up: Option<Signal>,
    on_terminate: OnTerminate,
}

impl Interrupts {
    /// Starts listening; from here on these signals no longer end the process.
    pub(crate) fn listen(on_terminate: OnTerminate) -> io::Result<Self> {
        let hang_up = if is_hang_up_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, hang_up, on_terminate })
    }

    /// Waits for the next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> StopRequest {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // If several signals are pending, Ctrl-C takes precedence.
            biased;
            _ = self.interrupt.recv() => StopRequest::Cancel,
            _ = self.terminate.recv() => match self.on_terminate {
                OnTerminate::Cancel => StopRequest::Cancel,
                OnTerminate::Detach => StopRequest::Detach,
            },
            _ = hang_up => StopRequest::Detach,
        }
    }
}

/// Returns whether this process was started with SIGHUP ignored.
#[expect(unsafe_code, reason = "the query has no wrapper")]
fn is_hang_up_ignored() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call changes nothing and writes the present one, for which there is room.
    let answer = unsafe { libc::sigaction(libc::SIGHUP, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a valid action, and so is what the call has written.
    answer == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Discards typed input that has not been read yet.
pub(crate) fn flush_input() {
    // It fails if standard input is not a terminal; then there is nothing to discard.
    let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
}

/// Returns whether this process is in the foreground of the terminal: the system stops a background job that reads
/// it.
pub(crate) fn is_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp())
}

/// Returns whether standard input is a pipe or a file, not a terminal or a device.
pub(crate) fn input_is_piped() -> bool {
    let kind = fstat(io::stdin()).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
    kind.is_ok_and(|kind| kind == SFlag::S_IFIFO || kind == SFlag::S_IFREG)
}

/// Disables the echo of the terminal until it is dropped.
#[derive(Debug)]
pub(crate) struct HiddenInput(Termios);

impl HiddenInput {
    /// Disables the echo and discards what was typed before.
    pub(crate) fn start() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hiding = before.clone();
        hiding.local_flags.remove(LocalFlags::ECHO);
        // The line break at the end is echoed.
        hiding.local_flags.insert(LocalFlags::ICANON | LocalFlags::ECHONL);
        tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &hiding)?;
        Ok(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // Best effort: the terminal may be closed.
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.0);
    }
}
