//! Operating system functions of the daemon, on Unix.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{self, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, User, geteuid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::process::{DescriptorLimits, Signal};

/// Returns the resident memory of the daemon; zero if the system does not report it.
pub(super) fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

/// Returns the id of the current boot; zero if the system has none.
pub(super) fn boot_id() -> u128 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_default()
}

/// Raises the soft limit of open file descriptors to the hard limit.
///
/// Each client needs one, and the common default of 1,024 exists for programs that use `select`.
pub(super) fn raise_descriptor_limit() -> Option<DescriptorLimits> {
    let (before, most) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = setrlimit(Resource::RLIMIT_NOFILE, most, most).is_ok();
    Some(DescriptorLimits { initial: before, limit: if raised { most } else { before } })
}

/// Returns the user's home directory from the user database, whatever the environment says.
pub(super) fn system_home() -> Option<PathBuf> {
    let user = User::from_uid(geteuid()).ok()??;
    Some(user.dir).filter(|home| home.is_absolute())
}

/// Limits the number of malloc arenas.
///
/// glibc creates up to eight arenas per processor, and memory that is freed in one is not reused by another: with
/// fifty slow subscribers that doubles the memory. Two arenas are as fast as many.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub(super) fn limit_malloc_arenas() {
    // SAFETY: the call sets a number, and no other thread exists yet.
    unsafe { nix::libc::mallopt(nix::libc::M_ARENA_MAX, 2) };
}

/// Does nothing: other C libraries need no such limit.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) const fn limit_malloc_arenas() {}

/// Creates a directory for its owner alone, or restricts the mode of an existing one. Refuses one of another user.
pub(super) fn create_private_dir_all(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = fs::metadata(path)?;
    // Its owner could replace it at any time, even if we can write to it.
    if metadata.uid() != geteuid().as_raw() {
        let text = format!("{} belongs to another user (uid {})", path.display(), metadata.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Returns the signals that stop the daemon.
pub(super) fn stop_signals() -> io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(4);
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if sender.send(Signal::Stop).await.is_err() {
                    break;
                }
            }
        });
    }
    // Closing a terminal does not stop the daemon.
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::spawn(async move { while hang_up.recv().await.is_some() {} });
    Ok(receiver)
}

/// Returns the command that runs a text in a shell, in a process group of its own.
pub(super) fn shell_command(text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(text).process_group(0);
    command
}

/// Returns the command that shows a notification on the desktop.
pub(super) fn desktop_command(title: &str, text: &str) -> Option<Command> {
    let mut command = if cfg!(target_os = "macos") {
        let mut command = Command::new("osascript");
        let script = "display notification (item 2 of argv) with title (item 1 of argv)";
        command.args(["-e", "on run argv", "-e", script, "-e", "end run"]);
        command
    } else {
        let mut command = Command::new("notify-send");
        command.args(["--app-name=push", "--"]);
        command
    };
    command.args([title, text]).process_group(0);
    Some(command)
}

/// Kills a process with its process group, and reaps the processes of it that the daemon has adopted.
pub(super) async fn kill_group(child: &mut Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(group) = group {
        // It may have ended by itself.
        let _gone = killpg(Pid::from_raw(group), signal::Signal::SIGKILL);
    }
    let _reaped = child.wait().await;
    if let Some(group) = group {
        // The daemon is a subreaper, and no other code waits for these. All are killed, so the wait is short.
        let reap = move || while waitpid(Pid::from_raw(-group), None).is_ok() {};
        let _done = tokio::task::spawn_blocking(reap).await;
    }
}
