//! Signals and terminals as Unix has them.

use std::io;

use nix::sys::termios::{FlushArg, tcflush};
use nix::unistd::{getpgrp, tcgetpgrp};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The wish to stop: Ctrl-C, or a polite signal of another program.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Begins to listen; from here on these signals no longer end the process by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next one. Giving it up half-way loses nothing.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Drops what was typed on the terminal and not read yet.
pub(crate) fn discard_typed() {
    // What is no terminal has nothing typed.
    let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
}

/// Returns whether the terminal is ours to read from: a job in the background that tries is stopped.
pub(crate) fn is_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| foreground == getpgrp())
}
