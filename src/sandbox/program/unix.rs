//! Owners and modes of files, on Unix.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;

use super::Owner;

/// The directories that are searched in addition to `PATH`.
pub(super) const DEFAULT_DIRECTORIES: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];

/// Returns the file name of a program.
pub(super) fn file_name(name: &str) -> String {
    name.to_owned()
}

/// Returns whether a file is an executable program.
pub(super) fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
}

/// Returns the owner of a file or directory; `None` if other users can change it.
///
/// A parent directory may be world-writable with the sticky bit, like `/tmp`.
pub(super) fn owner(path: &Path, last: bool) -> Option<Owner> {
    let metadata = fs::symlink_metadata(path).ok()?;
    let owner = match metadata.uid() {
        // For a daemon that runs as root, a file of root may belong to a project.
        0 if geteuid().is_root() && !is_system_path(path) => Owner::User,
        0 => Owner::System,
        user if user == geteuid().as_raw() => Owner::User,
        _ => return None,
    };
    let by_others = metadata.mode() & 0o002 != 0 || metadata.mode() & 0o020 != 0 && metadata.gid() != 0;
    let sticky = metadata.mode() & 0o1000 != 0 && metadata.uid() == 0 && !last;
    (!by_others || sticky).then_some(owner)
}

/// Returns whether a path is a system directory of programs, lies in one, or lies above one.
fn is_system_path(path: &Path) -> bool {
    SYSTEM_ROOTS.iter().any(|directory| path.starts_with(directory) || Path::new(directory).starts_with(path))
}

const SYSTEM_ROOTS: &[&str] =
    &["/usr", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store", "/snap", "/run/current-system"];
