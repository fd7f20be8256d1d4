//! Process functions, on Windows.

use std::io;
use std::os::windows::process::CommandExt;
use std::process::Command;

use windows_sys::Win32::Foundation::{CloseHandle, WAIT_TIMEOUT};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, DETACHED_PROCESS, OpenProcess, PROCESS_SYNCHRONIZE, PROCESS_TERMINATE, TerminateProcess,
    WaitForSingleObject,
};

/// Detaches `command` from this process: no console, and the root directory.
pub(super) fn detach(command: &mut Command) {
    command.current_dir(r"\").creation_flags(DETACHED_PROCESS | CREATE_NEW_PROCESS_GROUP);
}

/// Lets `command` ignore Ctrl-C, which also reaches this process.
pub(super) fn ignore_interrupts(command: &mut Command) {
    command.creation_flags(CREATE_NEW_PROCESS_GROUP);
}

/// Ends a child process.
///
/// The caller must make sure that the pid has not been reused.
pub(super) fn terminate_process(pid: u32) -> io::Result<()> {
    kill_process(pid)
}

/// Does nothing: the reader stops at the status line and does not wait for the end of the file.
pub(super) fn release_output() -> io::Result<()> {
    Ok(())
}

/// Terminates a process.
///
/// The caller must make sure that the pid has not been reused.
#[expect(unsafe_code, reason = "the standard library ends only its own children")]
pub fn kill_process(pid: u32) -> io::Result<()> {
    // SAFETY: the handle is checked before use, used by nobody else and closed once.
    unsafe {
        let process = OpenProcess(PROCESS_TERMINATE, 0, pid);
        if process.is_null() {
            return Err(io::Error::last_os_error());
        }
        let ended = TerminateProcess(process, 1);
        let outcome = if ended == 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        CloseHandle(process);
        outcome
    }
}

/// Returns whether a process is alive.
#[expect(unsafe_code, reason = "the standard library watches only its own children")]
pub fn process_is_alive(pid: u32) -> bool {
    // SAFETY: the handle is checked before use, used by nobody else and closed once.
    unsafe {
        let process = OpenProcess(PROCESS_SYNCHRONIZE, 0, pid);
        if process.is_null() {
            return false;
        }
        let alive = WaitForSingleObject(process, 0) == WAIT_TIMEOUT;
        CloseHandle(process);
        alive
    }
}
