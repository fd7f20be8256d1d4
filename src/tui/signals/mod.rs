//! Signals and job control.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

pub(crate) use os::{Signals, is_capable, is_foreground, stop_process};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Cancel the run, as Ctrl-C does.
    Interrupt,
    /// Leave; the run continues.
    Detach,
    /// Suspend the process, as Ctrl-Z does.
    #[cfg_attr(windows, expect(dead_code, reason = "Windows has no job control"))]
    Suspend,
    /// Draw again: the size may have changed, or the process was continued.
    #[cfg_attr(windows, expect(dead_code, reason = "the console reports a new size as an event"))]
    Redraw,
}
