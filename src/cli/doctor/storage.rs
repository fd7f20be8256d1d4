//! Checks of the storage: directories, the file system, locks, and files that were set aside.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use ulid::Ulid;

use super::{Finding, os};
use crate::cli::disk_usage::{self, FileKind};
use crate::cli::format::size;
use crate::config::paths::{Paths, SocketOrigin};

/// Who can access a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(windows, expect(dead_code, reason = "only Unix has modes and owners"))]
pub(super) enum DirectoryAccess {
    /// Only the current user, who owns it.
    Private,
    /// Other users too, by this mode.
    Shared(u32),
    /// It belongs to another user.
    OtherOwner,
}

/// Properties of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileSystemInfo {
    /// Free space in bytes.
    pub(super) free: u64,
    /// Whether it is read-only.
    pub(super) read_only: bool,
    /// Its name, if it is a network file system.
    pub(super) network: Option<&'static str>,
}

/// Less free space than this is a note.
const LOW_SPACE: u64 = 1024 * 1024 * 1024;
/// Less free space than this is a problem.
const MIN_SPACE: u64 = 64 * 1024 * 1024;

/// Checks the directories and reports the socket path, whose length was checked when the paths were determined.
pub(super) fn check_directories(paths: &Paths) -> Vec<Finding> {
    let mut found = Vec::new();
    let socket = paths.socket.display();
    found.push(Finding::ok("socket", format!("{socket}, {} bytes long", paths.socket.as_os_str().len())));
    let own = [&paths.home, &paths.run, &paths.state, &paths.logs];
    let chosen = paths.socket.parent().filter(|_| paths.socket_origin == SocketOrigin::Chosen);
    let mut missing = Vec::new();
    for directory in own.into_iter().map(|path| path.as_path()).chain(chosen) {
        match check_directory(directory) {
            Some(finding) => found.push(finding),
            None => missing.push(directory.display().to_string()),
        }
    }
    if !missing.is_empty() {
        found.push(Finding::ok("directories", format!("do not exist yet: {}", missing.join(", "))));
    }
    found
}

/// Checks one directory; none if it does not exist.
fn check_directory(directory: &Path) -> Option<Finding> {
    const ABOUT: &str = "directories";
    let name = directory.display();
    let there = match fs::symlink_metadata(directory) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Finding::problem(ABOUT, format!("{name} cannot be inspected: {error}"))),
    };
    // The home may be a symbolic link to another disk.
    let there = if there.is_symlink() { fs::metadata(directory).unwrap_or(there) } else { there };
    if !there.is_dir() {
        let finding = Finding::problem(ABOUT, format!("{name} is not a directory"));
        return Some(finding.with_remedy("move it away, or set PUSH_HOME to another directory"));
    }
    Some(match os::access(&there) {
        DirectoryAccess::OtherOwner => Finding::problem(ABOUT, format!("{name} belongs to another user"))
            .with_remedy("`chown` it, or set PUSH_HOME to another directory"),
        DirectoryAccess::Shared(mode) => {
            Finding::problem(ABOUT, format!("{name} is accessible to other users (mode {mode:04o})"))
                .with_remedy(format!("chmod 700 {name}"))
        }
        DirectoryAccess::Private => Finding::ok(ABOUT, format!("{name} is accessible only to you")),
    })
}

/// Checks whether the file system of the state is writable, local, and has free space.
pub(super) fn check_file_system(paths: &Paths) -> Vec<Finding> {
    const ABOUT: &str = "file system";
    let Some(place) = paths.state.ancestors().find(|path| path.exists()) else { return Vec::new() };
    let name = place.display();
    let Some(system) = os::file_system(place) else { return Vec::new() };
    let elsewhere = "set PUSH_HOME to a directory on a writable local disk";
    let mut found = Vec::new();
    if system.read_only {
        let text = format!("{name} is on a read-only file system: nothing can be stored");
        found.push(Finding::problem(ABOUT, text).with_remedy(elsewhere));
    }
    if let Some(kind) = system.network {
        let text = format!(
            "{name} is on a network file system ({kind}), which is not safe for the write-ahead log of the journal"
        );
        found.push(Finding::problem(ABOUT, text).with_remedy(elsewhere));
    }
    let free = format!("{} free at {name}", size(system.free));
    let remedy = "free disk space; `push delete --older-than 30d` deletes old sessions";
    found.push(match system.free {
        0..MIN_SPACE => Finding::problem(ABOUT, format!("only {free}")).with_remedy(remedy),
        MIN_SPACE..LOW_SPACE => Finding::note(ABOUT, format!("only {free}")).with_remedy(remedy),
        LOW_SPACE.. => Finding::ok(ABOUT, free),
    });
    found
}

/// Checks whether files can be created in the user's home and in every existing directory of pushd.
pub(super) fn check_writable(paths: &Paths, user_home: Option<&Path>) -> Vec<Finding> {
    let own = [&paths.home, &paths.run, &paths.state, &paths.logs].into_iter().map(|path| path.as_path());
    let places = user_home.into_iter().chain(own.filter(|path| path.exists()));
    let unwritable = |place: &Path| {
        let error = create_and_remove(&place.join(format!(".push-doctor-{}", Ulid::generate()))).err()?;
        let text = format!("cannot create files in {}: {error}", place.display());
        let remedy = "make it writable, or set PUSH_HOME to a writable directory";
        Some(Finding::problem("directories", text).with_remedy(remedy))
    };
    places.filter_map(unwritable).collect()
}

fn create_and_remove(path: &Path) -> io::Result<()> {
    File::options().write(true).create_new(true).open(path)?;
    fs::remove_file(path)
}

/// Checks locks and stored data if the daemon is not running, and reports what cannot be checked without it.
pub(super) fn check_without_daemon(paths: &Paths, full: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    for lock in [&paths.lock, &paths.state.join("pushd.lock")] {
        if is_held(lock) {
            let holder = fs::read_to_string(&paths.pid).unwrap_or_default();
            let holder = holder.trim();
            let by = if holder.is_empty() { String::new() } else { format!(" (possibly process {holder})") };
            let text = format!("a daemon{by} holds the lock {} and does not answer at the socket", lock.display());
            found.push(
                Finding::problem("daemon", text)
                    .with_remedy("if PUSHD_SOCKET has changed, restore it; otherwise kill that process"),
            );
        }
    }
    let (files, bytes) = disk_usage::total(&disk_usage::list(paths), FileKind::Journal);
    let holds = if files == 0 { "there is no journal".to_owned() } else { format!("{} are stored", size(bytes)) };
    let text = format!("pushd is not running; {holds}, and the journal was not checked");
    let start = "`push daemon start` starts it";
    found.push(match (full && files > 0, files) {
        (true, _) => Finding::problem("daemon", text).with_remedy(start),
        (false, 0) => Finding::ok("daemon", "pushd is not running and nothing is stored yet"),
        (false, _) => Finding::note("daemon", text).with_remedy(start),
    });
    found.push(Finding::ok(
        "sandbox",
        "the daemon detects the confinement layers; they are listed here while it is running",
    ));
    found
}

/// Reports the size of private caches.
pub(super) fn check_private_caches(paths: &Paths) -> Option<Finding> {
    let (workspaces, bytes) = disk_usage::total(&disk_usage::private_caches(paths), FileKind::Cache);
    let place = paths.caches_dir();
    (workspaces > 0).then(|| {
        let text = format!(
            "{} for {workspaces} workspaces in {}; removed with the workspace, after a month without use, or by `push purge`",
            size(bytes),
            place.display()
        );
        Finding::ok("private caches", text)
    })
}

/// Lists damaged journal files that were set aside.
pub(super) fn check_set_aside(paths: &Paths) -> Vec<Finding> {
    let holdings = disk_usage::list(paths);
    let (files, bytes) = disk_usage::total(&holdings, FileKind::SetAside);
    if files == 0 {
        return Vec::new();
    }
    let names = holdings.iter().filter(|holding| holding.kind == FileKind::SetAside);
    let names: Vec<_> = names.filter_map(|holding| holding.path.file_name()?.to_str()).collect();
    let text = format!(
        "damaged journal files were set aside in {}: {} ({})",
        paths.state.display(),
        names.join(", "),
        size(bytes)
    );
    let remedy = "readable data was recovered; remove these files when you do not need them any more";
    vec![Finding::note("set aside", text).with_remedy(remedy)]
}

/// Returns whether another process holds a lock.
fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}
