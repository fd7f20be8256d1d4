//! Signals and job control, on Unix.

use std::io;

use nix::sys::signal::{Signal as UnixSignal, raise};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::signal::unix::{self, SignalKind, signal};

use super::Signal;

/// The signals that the view handles.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
    size: unix::Signal,
    proceed: unix::Signal,
}

impl Signals {
    /// Starts listening; from here on these signals do not end the process.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            size: signal(SignalKind::window_change())?,
            proceed: signal(SignalKind::from_raw(nix::libc::SIGCONT))?,
        })
    }

    /// Waits for the next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Detach,
            _ = self.hang_up.recv() => Signal::Detach,
            _ = self.size.recv() => Signal::Redraw,
            _ = self.proceed.recv() => Signal::Redraw,
        }
    }
}

/// Stops this process until it is continued.
pub(crate) fn stop_process() -> io::Result<()> {
    Ok(raise(UnixSignal::SIGTSTP)?)
}

/// Returns whether the terminal can move its cursor.
pub(crate) fn is_capable() -> bool {
    std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb")
}

/// Returns whether this process is in the foreground of the terminal.
pub(crate) fn is_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp())
}
