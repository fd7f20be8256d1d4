//! Signals and terminals as Windows has them.

use std::io;

use tokio::signal::windows::{CtrlBreak, CtrlC, ctrl_break, ctrl_c};
use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType};
use windows_sys::Win32::System::Console::{
    ENABLE_ECHO_INPUT, GetConsoleMode, GetStdHandle, STD_INPUT_HANDLE, SetConsoleMode,
};

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

/// Returns whether standard input is a pipe or a file, so that reading it takes nothing from a console or a device.
#[expect(unsafe_code, reason = "the kind of a handle is asked for by a system call")]
pub(crate) fn input_is_piped() -> bool {
    // SAFETY: the handle is the process's own, and the call takes plain values.
    let kind = unsafe { GetFileType(GetStdHandle(STD_INPUT_HANDLE)) };
    kind == FILE_TYPE_PIPE || kind == FILE_TYPE_DISK
}

/// A console that does not show what is typed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Unseen(u32);

impl Unseen {
    /// Hides what is typed from here on.
    pub(crate) fn begin() -> io::Result<Self> {
        let before = mode()?;
        set_mode(before & !ENABLE_ECHO_INPUT)?;
        Ok(Self(before))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // A console that is gone has nothing to be put back.
        let _ = set_mode(self.0);
    }
}

#[expect(unsafe_code, reason = "the console's mode is asked for by a system call")]
fn mode() -> io::Result<u32> {
    let mut mode = 0;
    // SAFETY: the handle is the process's own, and the call writes one number.
    let done = unsafe { GetConsoleMode(GetStdHandle(STD_INPUT_HANDLE), &raw mut mode) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(mode) }
}

#[expect(unsafe_code, reason = "the console's mode is set by a system call")]
fn set_mode(mode: u32) -> io::Result<()> {
    // SAFETY: the handle is the process's own, and the call takes plain values.
    let done = unsafe { SetConsoleMode(GetStdHandle(STD_INPUT_HANDLE), mode) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
