//! Signals and terminals as Windows has them.

use std::io;

use tokio::signal::windows::{CtrlBreak, CtrlC, ctrl_break, ctrl_c};

/// The wish to stop: Ctrl-C or Ctrl-Break.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: CtrlC,
    terminate: CtrlBreak,
}

impl Interrupts {
    /// Begins to listen; from here on these keys no longer end the process by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: ctrl_c()?, terminate: ctrl_break()? })
    }

    /// Waits for the next one. Giving it up half-way loses nothing.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Leaves what was typed on the terminal: it is read line by line, and whole lines are dropped by their reader.
pub(crate) const fn discard_typed() {}

/// Returns whether the terminal is ours to read from, as it always is.
pub(crate) const fn is_foreground() -> bool {
    true
}
