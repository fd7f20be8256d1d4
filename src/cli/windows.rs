//! Signals, consoles and private files, on Windows.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};
use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType};
use windows_sys::Win32::System::Console::{
    ENABLE_ECHO_INPUT, GetConsoleMode, GetStdHandle, STD_INPUT_HANDLE, SetConsoleMode,
};

use super::input::{OnTerminate, StopRequest};

/// Creates a file that inherits the access rights of the user's directory; it must not exist.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Creates a directory that inherits the access rights of the user's directory, and its parents where they are missing.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// The signals that request a stop: Ctrl-C, Ctrl-Break and the closing of the console.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: CtrlC,
    terminate: CtrlBreak,
    close: CtrlClose,
}

impl Interrupts {
    /// Starts listening; from here on these keys no longer end the process.
    pub(crate) fn listen(_on_terminate: OnTerminate) -> io::Result<Self> {
        Ok(Self { interrupt: ctrl_c()?, terminate: ctrl_break()?, close: ctrl_close()? })
    }

    /// Waits for the next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> StopRequest {
        tokio::select! {
            _ = self.interrupt.recv() => StopRequest::Cancel,
            _ = self.terminate.recv() => StopRequest::Cancel,
            _ = self.close.recv() => StopRequest::Detach,
        }
    }
}

/// Does nothing: the reader of the lines drops those that it has read.
pub(crate) const fn flush_input() {}

/// Returns true: Windows has no background jobs that may not read the console.
pub(crate) const fn is_foreground() -> bool {
    true
}

/// Returns whether standard input is a pipe or a file, not a console or a device.
#[expect(unsafe_code, reason = "the kind of a handle is asked for by a system call")]
pub(crate) fn input_is_piped() -> bool {
    // SAFETY: the handle is the process's own, and the call takes plain values.
    let kind = unsafe { GetFileType(GetStdHandle(STD_INPUT_HANDLE)) };
    kind == FILE_TYPE_PIPE || kind == FILE_TYPE_DISK
}

/// Disables the echo of the console until it is dropped.
#[derive(Debug)]
pub(crate) struct HiddenInput(u32);

impl HiddenInput {
    /// Disables the echo.
    pub(crate) fn start() -> io::Result<Self> {
        let before = mode()?;
        set_mode(before & !ENABLE_ECHO_INPUT)?;
        Ok(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // Best effort: the console may be closed.
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
