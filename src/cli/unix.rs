//! Signals and terminals as Unix has them.

use std::io;

use nix::sys::stat::{SFlag, fstat};
use nix::sys::termios::{FlushArg, LocalFlags, SetArg, Termios, tcflush, tcgetattr, tcsetattr};
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

/// Returns whether standard input is a pipe or a file, so that reading it takes nothing from a terminal or a device.
pub(crate) fn input_is_piped() -> bool {
    let kind = fstat(io::stdin()).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
    kind.is_ok_and(|kind| kind == SFlag::S_IFIFO || kind == SFlag::S_IFREG)
}

/// A terminal that does not show what is typed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Unseen(Termios);

impl Unseen {
    /// Hides what is typed from here on; what was typed before is dropped.
    pub(crate) fn begin() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hiding = before.clone();
        hiding.local_flags.remove(LocalFlags::ECHO);
        // The line itself ends where everybody can see it.
        hiding.local_flags.insert(LocalFlags::ICANON | LocalFlags::ECHONL);
        tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &hiding)?;
        Ok(Self(before))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // A terminal that is gone has nothing to be put back.
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.0);
    }
}
