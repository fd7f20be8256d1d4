//! Process functions, on Unix.

use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::{Pid, dup2_stderr, dup2_stdout, setsid};

/// Detaches `command` from this process: a new session, the root directory, and no descriptors but the standard ones.
pub(super) fn detach(command: &mut Command) {
    set_close_on_exec_on_all();
    command.current_dir("/");
    start_new_session(command);
}

#[expect(unsafe_code, reason = "a new session can only be begun between fork and exec")]
fn start_new_session(command: &mut Command) {
    // SAFETY: the closure makes one system call, which is safe after a fork, and allocates nothing.
    unsafe {
        command.pre_exec(|| setsid().map(drop).map_err(io::Error::from));
    }
}

/// Lets `command` ignore the interrupt signal of the terminal, which also reaches this process.
#[expect(unsafe_code, reason = "a signal can only be ignored for a child between fork and exec")]
pub(super) fn ignore_interrupts(command: &mut Command) {
    // SAFETY: the closure makes one system call, which is safe after a fork, and allocates nothing; ignoring a signal
    // runs no code in the child.
    unsafe {
        command.pre_exec(|| signal(Signal::SIGINT, SigHandler::SigIgn).map(drop).map_err(io::Error::from));
    }
}

/// Sets the close-on-exec flag on every descriptor above 2.
///
/// Descriptors of this program have it already. A shell, a test runner or an editor may have passed on others, and a
/// daemon that keeps their pipes open blocks their readers.
fn set_close_on_exec_on_all() {
    match fs::read_dir("/dev/fd") {
        Ok(entries) => {
            let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            numbers.filter(|fd| *fd > 2).for_each(close_on_exec);
        }
        Err(_) => (3..1024).for_each(close_on_exec),
    }
}

#[expect(unsafe_code, reason = "inherited descriptors have no owner to borrow them from")]
fn close_on_exec(fd: RawFd) {
    // SAFETY: the call takes and returns integers; for a number that is no open descriptor it fails and changes nothing.
    unsafe {
        libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
    }
}

/// Redirects standard output and standard error to `/dev/null`, so that their reader sees the end of the file.
pub(super) fn release_output() -> io::Result<()> {
    let nowhere = fs::OpenOptions::new().write(true).open("/dev/null")?;
    dup2_stdout(&nowhere)?;
    dup2_stderr(&nowhere)?;
    Ok(())
}

/// Asks a child process to end, with SIGTERM.
///
/// The caller must make sure that the pid has not been reused.
pub(super) fn terminate_process(pid: u32) -> io::Result<()> {
    send_signal(pid, Signal::SIGTERM)
}

/// Kills a process with SIGKILL.
///
/// The caller must make sure that the pid has not been reused.
pub fn kill_process(pid: u32) -> io::Result<()> {
    send_signal(pid, Signal::SIGKILL)
}

fn send_signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill(Pid::from_raw(pid), signal)?)
}

/// Returns whether a process is alive. A zombie counts as dead.
pub fn process_is_alive(pid: u32) -> bool {
    let Some(number) = i32::try_from(pid).ok().filter(|pid| *pid > 1) else { return false };
    let listed = kill(Pid::from_raw(number), None) != Err(Errno::ESRCH);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ended = stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']));
    listed && !ended
}
