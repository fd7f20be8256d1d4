//! Signals, on Windows.

use std::io;

use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

use super::Signal;

/// The signals that the view handles.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: CtrlC,
    terminate: CtrlBreak,
    close: CtrlClose,
}

impl Signals {
    /// Starts listening; from here on these signals do not end the process.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: ctrl_c()?, terminate: ctrl_break()?, close: ctrl_close()? })
    }

    /// Waits for the next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Detach,
            _ = self.close.recv() => Signal::Detach,
        }
    }
}

/// Does nothing: Windows has no job control.
pub(crate) const fn stop_process() -> io::Result<()> {
    Ok(())
}

/// Returns whether the terminal can move its cursor.
pub(crate) fn is_capable() -> bool {
    std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// Returns true: Windows has no background jobs that may not read the console.
pub(crate) const fn is_foreground() -> bool {
    true
}
