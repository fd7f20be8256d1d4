//! Signals and job control, on Unix.

use std::io;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal as UnixSignal, raise, sigaction};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::signal::unix::{self, SignalKind, signal};

use super::Signal;

/// The signals that the view handles.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
    stop: unix::Signal,
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
            stop: signal(SignalKind::from_raw(nix::libc::SIGTSTP))?,
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
            _ = self.stop.recv() => Signal::Suspend,
            _ = self.size.recv() => Signal::Redraw,
            _ = self.proceed.recv() => Signal::Redraw,
        }
    }
}

/// Stops this process until it is continued. Without a shell that could continue it, the system does not stop it.
#[expect(unsafe_code, reason = "a handler can run any code")]
pub(crate) fn stop_process() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of this process.
    let handler = unsafe { sigaction(UnixSignal::SIGTSTP, &default) }?;
    let stopped = raise(UnixSignal::SIGTSTP);
    // SAFETY: it was the handler before.
    unsafe { sigaction(UnixSignal::SIGTSTP, &handler) }?;
    Ok(stopped?)
}

/// Returns whether the terminal can move its cursor.
pub(crate) fn is_capable() -> bool {
    std::env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb")
}

/// Returns whether this process is in the foreground of the terminal.
pub(crate) fn is_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp())
}
