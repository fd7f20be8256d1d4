//! What the daemon asks of the operating system, on Unix.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{User, geteuid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::life::{Descriptors, Signal};

/// Returns how much memory the daemon holds, as the system counts it; zero where it does not say.
pub(super) fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

/// Names the time since the machine was started; zero where the system does not say.
pub(super) fn boot() -> u128 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or_default()
}

/// Raises the number of descriptors that the daemon may have as far as it is its own to raise.
///
/// Each client is one, and the common default of 1,024 is meant for programs which wait with `select`.
pub(super) fn raise_descriptors() -> Option<Descriptors> {
    let (before, most) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let raised = setrlimit(Resource::RLIMIT_NOFILE, most, most).is_ok();
    Some(Descriptors { before, limit: if raised { most } else { before } })
}

/// Returns the home of the user as the system has it, whatever the environment says.
pub(super) fn home_of_user() -> Option<PathBuf> {
    let user = User::from_uid(geteuid()).ok()??;
    Some(user.dir).filter(|home| home.is_absolute())
}

/// Has the threads of the daemon share their memory.
///
/// The C library gives every thread its own, up to eight for each processor, and what one gives free the others do not
/// see: with fifty listeners that are behind, that is twice the memory. Two are as fast as many.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub(super) fn share_memory() {
    // SAFETY: it sets a number, and no other thread is there yet.
    unsafe { nix::libc::mallopt(nix::libc::M_ARENA_MAX, 2) };
}

/// Changes nothing: the C library does this by itself, or is not asked.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) const fn share_memory() {}

/// Makes a directory for its owner alone, and closes one that is too open; one of somebody else is refused.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let there = fs::metadata(path)?;
    // Its owner could put another in its place at any time, also where we may write to it.
    if there.uid() != geteuid().as_raw() {
        let text = format!("{} belongs to another user (uid {})", path.display(), there.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if there.mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Opens a file for its owner alone, and makes it when it is not there.
pub(super) fn private_file(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// Tells whether a file is ours, and nobody else can read or change it.
pub(super) fn is_private(about: &fs::Metadata) -> bool {
    about.mode() & 0o077 == 0 && about.uid() == geteuid().as_raw()
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Passes the signals that end a daemon on.
pub(super) fn signals() -> io::Result<mpsc::Receiver<Signal>> {
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
    // A terminal that closes takes no daemon with it.
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::spawn(async move { while hang_up.recv().await.is_some() {} });
    Ok(receiver)
}
